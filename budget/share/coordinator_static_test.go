package share_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/share"
	"pgregory.net/rapid"
)

func TestWhoLeavesIsMissedByNobody(t *testing.T) {
	t.Parallel()
	x := newTable(t, share.CoordinatorConfig{Dims: []share.Dim{{Shape: share.Window, Limit: 100}}})
	x.asks("a", 0, 50, 50)
	if got := x.asks("b", 0, 1, 1).Replicas; got != 2 {
		t.Fatalf("there are %d replicas, want 2", got)
	}
	r := x.request("a")
	r.Leave, r.Dims[0].Spent, r.Dims[0].Has = true, []share.Spend{{Amount: 10}}, 5
	x.do(r)
	if got := x.do(r); !got.Stale {
		t.Error("its last request was taken in twice")
	}
	if got := x.asks("b", 1, 0, 0).Replicas; got != 1 {
		t.Errorf("there are %d replicas, want 1", got)
	}
	if got := x.free(); got != 84 {
		t.Errorf("%v are free, want all but 10 spent, 5 in flight and 1 with b", got)
	}
	x.after(share.DefaultTTL).asks("b", 1, 0, 0)
	x.after(share.DefaultLate)
	if b := x.c.Books(x.now)[0]; b.Level != 85 || b.Outstanding != 1 {
		t.Errorf("after its lease: level %v, %d outstanding; want 85, 1", b.Level, b.Outstanding)
	}
}

// The parts of static replicas never add up to more than the whole, though they come
// and go, and hear of each other late; and nobody who stays has less than an equal
// part for longer than it takes to forget.
func TestStaticPartsNeverAddUpToMoreThanTheWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		x := newTable(t, share.CoordinatorConfig{Replicas: rapid.IntRange(1, 4).Draw(rt, "expected"), Dims: []share.Dim{
			{Shape: share.Bucket, Limit: 600, Window: 20 * time.Second}, {Shape: share.Window, Limit: 100, Window: 20 * time.Second},
		}})
		parts := make(map[string][]float64) // in use
		until := make(map[string]time.Time)
		gone := make(map[string]time.Time) // and what a window remembers of them
		beat := func(name string) {
			r := x.request(name)
			r.Mode = share.Static
			parts[name] = x.do(r).Parts
			until[name] = x.now.Add(share.DefaultTTL)
			delete(gone, name)
		}
		names := 0
		for range 60 {
			switch what := rapid.IntRange(0, 9).Draw(rt, "what"); {
			case what == 0 && len(parts) < 6:
				names++
				beat(fmt.Sprint(names))
			case what == 1 && len(parts) > 0:
				name := slices.Sorted(mapKeys(parts))[rapid.IntRange(0, len(parts)-1).Draw(rt, "who")]
				if gone[name].IsZero() {
					gone[name], until[name] = x.now, x.now
				}
			default:
				x.after(rapid.SampledFrom([]time.Duration{100 * time.Millisecond, 2 * time.Second}).Draw(rt, "later"))
			}
			for _, name := range slices.Sorted(mapKeys(parts)) {
				if gone[name].IsZero() && until[name].Sub(x.now) < share.DefaultTTL/2 {
					beat(name)
				}
			}
			for i := range x.dims {
				sum := 0.0
				for name, p := range parts {
					if memory := time.Duration(i) * 20 * time.Second; x.now.Before(until[name].Add(memory)) || gone[name].IsZero() {
						sum += p[i]
					}
				}
				if sum > 1+1e-9 {
					rt.Fatalf("the parts of dimension %d add up to %v", i, sum)
				}
			}
		}
		for range 30 { // nobody comes or goes any more
			x.after(2 * time.Second)
			for name := range parts {
				if gone[name].IsZero() {
					beat(name)
				}
			}
		}
		there := 0
		for name := range parts {
			if gone[name].IsZero() {
				there++
			}
		}
		for name, p := range parts {
			for i := range p {
				if least := 1 / math.Max(float64(there), 4); gone[name].IsZero() && p[i] < least-1e-9 {
					rt.Errorf("a minute later one of %d has %v of dimension %d", there, p[i], i)
				}
			}
		}
	})
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// What paces is debited when it is granted: what is in flight would fill it.
func TestAPaceIsDebitedWhenItIsGranted(t *testing.T) {
	t.Parallel()
	x := newTable(t, share.CoordinatorConfig{Dims: []share.Dim{{Shape: share.Bucket, Limit: 600, Burst: 1, Pace: true}}})
	if got := x.asks("a", 0, 1, 1); got.Granted[0] != 1 {
		t.Fatalf("%d were granted, want 1", got.Granted[0])
	}
	x.after(100 * time.Millisecond)
	if got := x.asks("b", 0, 1, 1); got.Granted[0] != 1 {
		t.Errorf("a tenth of a second later %d were granted, want 1, though the first call is in flight", got.Granted[0])
	}
	x.after(10 * time.Millisecond)
	x.asks("b", 0, 0, 0) // it was not used
	if got := x.asks("a", 1, 1, 1); got.Granted[0] != 1 {
		t.Errorf("%d were granted of what was given back, want 1", got.Granted[0])
	}
}
