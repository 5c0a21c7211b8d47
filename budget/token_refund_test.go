package budget_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget"
)

func TestARefundGivesBackWhatWasNotRefilledMeanwhile(t *testing.T) {
	t.Parallel()
	// 60 a minute, one a second. Costs are taken one second apart and settled
	// in the given order after some more time.
	type call struct{ cost, actual int64 }
	for _, c := range []struct {
		name    string
		calls   []call
		pause   time.Duration // from the last taking to the first settlement
		reverse bool
		want    int64
	}{
		{"at once", []call{{50, 20}}, 0, false, 40},
		{"to nothing", []call{{50, 0}}, 0, false, 60},
		{"while refilling", []call{{50, 20}}, 10 * time.Second, false, 50},
		{"when the smaller cost would be refilled", []call{{50, 20}}, 20 * time.Second, false, 60},
		{"when the larger cost is refilled too", []call{{50, 20}}, 60 * time.Second, false, 60},
		// Of the 10, 1 was refilled before the 50 were taken; without the 10 it
		// would have flowed over.
		{"of an older cost that was refilled in part", []call{{10, 0}, {50, 50}}, 9 * time.Second, false, 19},
		{"of an older cost that is not", []call{{50, 0}, {10, 10}}, 9 * time.Second, false, 59},
		{"newest first", []call{{30, 0}, {30, 0}}, 5 * time.Second, true, 60},
		{"oldest first", []call{{30, 0}, {30, 0}}, 5 * time.Second, false, 60},
		{"of a part of each", []call{{30, 20}, {30, 10}}, 5 * time.Second, false, 36},
	} {
		b := newToken(t, budget.TokenBudgetConfig{Limit: 60})
		now := t0
		var holds []budget.Hold
		for i, call := range c.calls {
			if i > 0 {
				now = now.Add(time.Second)
			}
			holds = append(holds, b.Take(now, call.cost))
		}
		now = now.Add(c.pause)
		for i := range holds {
			if c.reverse {
				i = len(holds) - 1 - i
			}
			b.Settle(now, holds[i], c.calls[i].actual)
		}
		if got := b.Level(now); got != c.want {
			t.Errorf("%s: level is %d, want %d", c.name, got, c.want)
		}
	}
}

// Calls of a minute that turn out to have cost nothing leave the provider's
// bucket full, not ten times full. Were every late refund to lift the level,
// each minute's refunds would let the next minute take them once more.
func TestLateRefundsDoNotPileUp(t *testing.T) {
	t.Parallel()
	b := newToken(t, budget.TokenBudgetConfig{Limit: 60})
	provider := 60.0 // the same bucket, counting what calls really use when they arrive
	type call struct {
		hold budget.Hold
		done time.Time
		used int64
	}
	var open []call
	now := t0
	for range 15 * 60 {
		now = now.Add(time.Second)
		provider = min(60, provider+1)
		for len(open) > 0 && !open[0].done.After(now) {
			b.Settle(now, open[0].hold, open[0].used)
			open = open[1:]
		}
		for fits(b, now, 1) {
			c := call{hold: b.Take(now, 1), done: now.Add(time.Minute)}
			if now.Sub(t0) > 10*time.Minute {
				c.used = 1
			}
			if provider -= float64(c.used); provider < 0 {
				t.Fatalf("after %v the provider's bucket is at %v", now.Sub(t0), provider)
			}
			open = append(open, c)
		}
	}
}

// bucket is the specification of TokenBudget: the level after a history in
// which every cost is known from the start.
type bucket struct {
	limit, capacity int64
	window          time.Duration
	history         []entry
}

type entry struct {
	at    time.Duration
	units int64 // taken
	limit int64 // or a new limit and capacity, if ≥ 0
}

func (b *bucket) take(at time.Duration, units int64) (index int) {
	b.history = append(b.history, entry{at, units, -1})
	return len(b.history) - 1
}

func (b *bucket) level(at time.Duration) int64 {
	window := big.NewInt(int64(b.window))
	rate, full := big.NewInt(b.limit), new(big.Int).Mul(big.NewInt(b.capacity), window)
	level := new(big.Int).Set(full)
	last := time.Duration(0)
	pass := func(at time.Duration) {
		level.Add(level, new(big.Int).Mul(rate, big.NewInt(int64(at-last))))
		if last = at; level.Cmp(full) > 0 {
			level.Set(full)
		}
	}
	for _, e := range b.history {
		pass(e.at)
		level.Sub(level, new(big.Int).Mul(big.NewInt(e.units), window))
		if e.limit >= 0 {
			rate.SetInt64(e.limit)
			full.Mul(rate, window)
			pass(e.at)
		}
	}
	pass(at)
	return new(big.Int).Div(level, window).Int64() // rounds down, below zero too
}

// After every step the level is that of a bucket that knew from the start what
// is known now: actual costs of settled calls, estimates of open ones.
func TestTheLevelIsThatOfABucketThatKnewFromTheStart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.OneOf(rapid.Int64Range(1, 100), rapid.Int64Range(1, math.MaxInt64/100)).Draw(t, "limit")
		ref := &bucket{
			limit:  limit,
			window: time.Duration(rapid.OneOf(rapid.Int64Range(1, 10), rapid.Int64Range(1, int64(time.Hour))).Draw(t, "window")),
		}
		ref.capacity = rapid.OneOf(rapid.Int64Range(1, 100), rapid.Just(limit)).Draw(t, "burst")
		b := newToken(t, budget.TokenBudgetConfig{Limit: limit, Burst: ref.capacity, Window: ref.window})
		b.Level(t0)

		type held struct {
			hold    budget.Hold
			entries []int // what it was charged, one after the other
		}
		// refund takes units back from what was charged last.
		refund := func(h held, units int64) {
			for i := len(h.entries) - 1; units > 0; i-- {
				e := &ref.history[h.entries[i]]
				back := min(units, e.units)
				e.units -= back
				units -= back
			}
		}
		var open []held
		var now time.Duration
		pauses := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, int64(ref.window)/2+1))
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += time.Duration(pauses.Draw(t, "pause"))
			at := t0.Add(now)
			switch op := rapid.IntRange(0, 12).Draw(t, "op"); {
			case op < 5 || op < 12 && len(open) == 0:
				cost := rapid.Int64Range(0, ref.capacity).Draw(t, "cost")
				open = append(open, held{b.Take(at, cost), []int{ref.take(now, cost)}})
			case op < 8:
				h := &open[rapid.IntRange(0, len(open)-1).Draw(t, "hold")]
				cost := rapid.Int64Range(0, ref.capacity).Draw(t, "revised cost")
				if more := cost - h.hold.Cost(); more > 0 {
					h.entries = append(h.entries, ref.take(now, more))
				} else {
					refund(*h, -more)
				}
				if h.hold = b.Revise(at, h.hold, cost); h.hold.Cost() != cost {
					t.Fatalf("the revised hold is of %d, want %d", h.hold.Cost(), cost)
				}
			case op < 12:
				i := rapid.IntRange(0, len(open)-1).Draw(t, "hold")
				h := open[i]
				open = append(open[:i], open[i+1:]...)
				actual := rapid.Int64Range(0, h.hold.Cost()).Draw(t, "actual")
				if rapid.IntRange(0, 4).Draw(t, "overrun") == 0 {
					over := rapid.Int64Range(0, ref.capacity).Draw(t, "over")
					ref.take(now, over) // when it becomes known
					actual = h.hold.Cost() + over
				} else {
					refund(h, h.hold.Cost()-actual)
				}
				b.Settle(at, h.hold, actual)
			case ref.capacity == limit: // else the reference does not know the new capacity
				limit := rapid.Int64Range(0, limit).Draw(t, "limit")
				b.SetLimit(at, limit)
				ref.history = append(ref.history, entry{now, 0, limit})
			}
			if got, want := b.Level(at), ref.level(now); got != want {
				t.Fatalf("level is %d after %v, want %d", got, now, want)
			}
		}
	})
}
