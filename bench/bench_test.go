package bench_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/headgate-go/headgate/bench/internal/burst"
)

const seed = 1

// cell is a shape, a window and a policy.
type cell struct{ shape, window, policy string }

// results are those of the cells that were played already.
var results sync.Map // cell to func() (burst.Result, error)

// play plays a cell, once.
func play(tb testing.TB, s burst.Shape, w burst.Window, p burst.Policy) burst.Result {
	tb.Helper()
	once, _ := results.LoadOrStore(cell{s.Name, w.String(), p.Name}, sync.OnceValues(func() (burst.Result, error) {
		return burst.Run(s, p, w, seed)
	}))
	r, err := once.(func() (burst.Result, error))()
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func BenchmarkBurst(b *testing.B) {
	for _, s := range burst.Shapes() {
		for _, w := range burst.Windows() {
			for _, p := range burst.Policies() {
				b.Run(fmt.Sprintf("%s/%s/%s", s.Name, w, p.Name), func(b *testing.B) {
					r := play(b, s, w, p)
					if r.Err != "" {
						b.Skip(r.Err)
					}
					report(b, r.Metrics)
				})
			}
		}
	}
}

// report reports the figures that apply. The time that a cell took is no figure
// of it, and is left out.
func report(b *testing.B, m burst.Metrics) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(m.Goodput, "goodput")
	b.ReportMetric(m.Share, "share")
	if m.MakespanRatio > 0 {
		b.ReportMetric(m.MakespanRatio, "makespan")
	}
	b.ReportMetric(m.ThrottledPerAttempt, "429/attempt")
	b.ReportMetric(m.Wasted, "wasted")
	for class := range m.WaitP50 {
		b.ReportMetric(m.WaitP50[class], class+"-p50-s")
		b.ReportMetric(m.WaitP99[class], class+"-p99-s")
	}
	if m.Jain > 0 {
		b.ReportMetric(m.Jain, "jain")
	}
	b.ReportMetric(m.Gap, "gap")
	b.ReportMetric(m.GapBound, "gap-bound")
	b.ReportMetric(m.Idle, "idle")
	b.ReportMetric(m.MaxUse, "max-use")
}
