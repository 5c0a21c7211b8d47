package engine

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestACallIsAdmittedAfterExactlyTheTimeThatFitsTells(t *testing.T) {
	t.Parallel()
	minute := func(m WindowModel) []Limit {
		return []Limit{{Name: "tokens", Dimension: InputTokens, Amount: 100, Model: m, Length: time.Minute}}
	}
	down := []Fault{{Kind: Kind{Name: "503", Refuses: true}, From: 0, To: 90 * time.Second}}
	for _, c := range []struct {
		name string
		cfg  Config
		used []int64 // at once, before
		ask  int64
		want time.Duration
	}{
		{"room", Config{Limits: minute(Sliding)}, []int64{60}, 40, 0},
		{"sliding", Config{Limits: minute(Sliding)}, []int64{60}, 41, time.Minute},
		{"fixed", Config{Limits: minute(Fixed)}, []int64{60}, 41, time.Minute},
		{"bucket", Config{Limits: minute(Bucket)}, []int64{60}, 41, 600 * time.Millisecond},
		{"outage", Config{Limits: minute(Bucket), Faults: down}, nil, 1, 90 * time.Second},
		{"too large", Config{Limits: minute(Fixed)}, nil, 101, math.MaxInt64},
		{"nobody knows", Config{Concurrency: 1}, []int64{1}, 1, math.MaxInt64},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e, err := New(c.cfg)
				if err != nil {
					t.Fatal(err)
				}
				admit := func(tokens int64) error {
					_, err := e.Admit(t.Context(), Arrival{Amounts: Amounts{Requests: 1, InputTokens: tokens}})
					return err
				}
				for _, tokens := range c.used {
					if err := admit(tokens); err != nil {
						t.Fatal(err)
					}
				}
				got := e.Fits(Amounts{Requests: 1, InputTokens: c.ask})
				if got != c.want {
					t.Fatalf("Fits(%d) = %v, want %v", c.ask, got, c.want)
				}
				if got == math.MaxInt64 {
					return
				}
				if got > 0 {
					time.Sleep(got - 1)
					if err := admit(c.ask); err == nil {
						t.Error("admitted a nanosecond earlier")
					}
					time.Sleep(time.Nanosecond)
				}
				if err := admit(c.ask); err != nil {
					t.Errorf("refused then: %v", err)
				}
			})
		})
	}
}
