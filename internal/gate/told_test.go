package gate

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// sought is a limit that nobody has told, before a sliding minute.
func sought(t *testing.T, start int64) Dim {
	t.Helper()
	b, err := budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: 60 << 40, Burst: 1 << 40, Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return Dim{Limiter: b, Window: time.Hour, Search: &Search{Window: time.Minute, Start: start, Sliding: true}}
}

// A limit that is told after a search holds from that moment on: what was let through
// in the window before counts, as it does with the provider.
func TestALimitThatIsToldAfterASearchCountsWhatTheLastWindowHas(t *testing.T) {
	t.Parallel()
	const limit, step = 60, 50 * time.Millisecond
	for _, start := range []int64{20, 60, 61, 75, 300} { // in force until it is told
		for _, busy := range []time.Duration{0, 10 * time.Second, 40 * time.Second, 5 * time.Minute} { // before it is told
			for _, late := range []time.Duration{0, 700 * time.Millisecond, 25 * time.Second, 2 * time.Minute} { // idle after that
				t.Run(fmt.Sprintf("%d a minute for %v, told %v later", start, busy, late), func(t *testing.T) {
					t.Parallel()
					s := newScene(t, Config{Slots: 1000, Dims: []Dim{sought(t, start)}})
					var at []time.Time // of the calls that were started
					play := func(d time.Duration) {
						for end := s.now.Add(d); s.now.Before(end); s.now = s.now.Add(step) {
							for {
								id, ok := s.core.Start(s.now, 0, "", 1, []int64{1})
								if !ok {
									break
								}
								at = append(at, s.now)
								s.core.FreeSlot(s.now, id)
								s.core.Settle(s.now, id, []int64{1})
								s.core.End(s.now, id)
							}
						}
					}
					s.now = s.now.Add(5 * time.Minute) // the bucket is full
					play(busy)
					s.now = s.now.Add(late)
					told, before := s.now, len(at)
					s.core.SetLimit(s.now, 0, limit)
					play(5 * time.Minute)
					for i, from := before, 0; i < len(at); i++ {
						for at[i].Sub(at[from]) >= time.Minute {
							from++
						}
						if n := i - from + 1; n > limit {
							t.Fatalf("%v after the limit of %d was told the %dth call of a minute is let through", at[i].Sub(told), limit, n)
						}
					}
					if n := len(at) - before; n < 4*limit*9/10 {
						t.Errorf("only %d calls in 5 minutes after %d a minute were told", n, limit)
					}
				})
			}
		}
	}
}

// What a call took that was settled to more or to less counts as that.
func TestWhatWasSettledBeforeALimitIsToldCountsAsSettled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		taken, used int64 // by each of ten calls, five seconds before the limit of 60 is told
		after       int64 // calls of 1 that pass in ten seconds; at most 2 at once and 57.6 a minute
	}{{6, 0, 11}, {6, 1, 5}, {1, 1, 5}, {1, 6, 0}, {6, 6, 0}} {
		s := newScene(t, Config{Slots: 1000, Dims: []Dim{sought(t, 1000)}})
		var ids []ID
		for range 10 {
			id, ok := s.core.Start(s.now, 0, "", 1, []int64{c.taken})
			if !ok {
				t.Fatal("there is room for 1000")
			}
			ids = append(ids, id)
		}
		s.now = s.now.Add(5 * time.Second)
		for _, id := range ids {
			s.core.Complete(s.now, id, []int64{c.used})
			s.core.End(s.now, id)
		}
		s.core.SetLimit(s.now, 0, 60)
		n := int64(0)
		for end := s.now.Add(10 * time.Second); s.now.Before(end); s.now = s.now.Add(50 * time.Millisecond) {
			if id, ok := s.core.Start(s.now, 0, "", 1, []int64{1}); ok {
				n++
				s.core.Complete(s.now, id, nil)
				s.core.End(s.now, id)
			}
		}
		if n != c.after {
			t.Errorf("after ten calls that took %d and used %d each, %d more pass in 10 s, want %d", c.taken, c.used, n, c.after)
		}
	}
}

func TestALimitThatIsFoundIsNeverShownAsNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 1, Dims: []Dim{sought(t, 1)}})
	for i := range 4 {
		s.now = s.now.Add(time.Hour) // the bucket is full
		id, ok := s.core.Start(s.now, 0, "", 1, []int64{1})
		if !ok {
			t.Fatalf("call %d does not start", i)
		}
		s.core.Cut(s.now, id, 0)
		s.core.Complete(s.now, id, nil)
		s.core.End(s.now, id)
		if limit := s.core.Stats(s.now).Dims[0].Limit; limit != 1 {
			t.Errorf("after %d refusals the limit is shown as %d", i+1, limit)
		}
	}
	if found := s.core.dims[0].found(); found >= 0.5 {
		t.Errorf("the limit is %v, and was to be less than a half", found)
	}
}
