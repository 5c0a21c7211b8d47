package quota_test

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// What a limit costs for each call.
func BenchmarkSpans(b *testing.B) {
	at := time.Date(2026, 7, 31, 12, 34, 56, 0, time.UTC)
	cairo := zone(b, "Africa/Cairo")
	for _, w := range []quota.Window{
		quota.Minute, quota.Day, quota.Month,
		quota.Hour.In(cairo), quota.Day.In(cairo), quota.Month.Anchored(31).In(cairo),
	} {
		b.Run(w.ID(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.Spans(at)
			}
		})
	}
}

func BenchmarkKey(b *testing.B) {
	s := quota.Subject{Tenant: "acme", User: "alice", Session: "s1"}
	b.ReportAllocs()
	for b.Loop() {
		quota.DefaultHierarchy().Key(s, quota.User)
	}
}
