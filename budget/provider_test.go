package budget_test

import (
	"cmp"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget"
)

// Where a provider counts a call. The client cannot see it; it knows no more
// than that it has happened by the time of the first item, or of the end.
type counting string

const (
	atArrival    counting = "at arrival"
	atFirstItem  counting = "at the first item"
	atCompletion counting = "at completion"
)

// provider is an exact log of what it has counted, and when.
type provider struct {
	window time.Duration
	log    []use
}

type use struct {
	at    time.Duration
	units int64
}

func (p *provider) count(at time.Duration, units int64) { p.log = append(p.log, use{at, units}) }

// sliding is the largest use of any window, wherever it begins, both ends
// included.
func (p *provider) sliding() (most int64) {
	slices.SortFunc(p.log, func(a, b use) int { return cmp.Compare(a.at, b.at) })
	var sum int64
	from := 0
	for i, u := range p.log {
		sum += u.units
		// All that happens at one instant is in the same windows.
		if i+1 < len(p.log) && p.log[i+1].at == u.at {
			continue
		}
		for ; p.log[from].at < u.at-p.window; from++ {
			sum -= p.log[from].units
		}
		most = max(most, sum)
	}
	return most
}

// fixed is the largest use of any of the windows that follow one another from
// the given phase on.
func (p *provider) fixed(phase time.Duration) (most int64) {
	windows := map[time.Duration]int64{}
	for _, u := range p.log {
		n := (u.at + p.window - phase) / p.window
		windows[n] += u.units
		most = max(most, windows[n])
	}
	return most
}

// plan is what becomes of one call.
type plan struct {
	estimate, actual          int64
	pause                     time.Duration // before the client wants to make it
	travel, first, rest, back time.Duration // to the provider, to the first item, to the end, and from there to the client
	fate                      string
}

const maxJitter = 3 * time.Second // of the arrival

func drawPlan(t *rapid.T, most int64) plan {
	between := func(low, high time.Duration, what string) time.Duration {
		return time.Duration(rapid.Int64Range(int64(low), int64(high)).Draw(t, what))
	}
	p := plan{
		travel: between(0, maxJitter, "travel"),
		first:  between(0, 10*time.Second, "to the first item"),
		rest:   between(0, 60*time.Second, "to the end"),
		back:   between(0, time.Second, "back"),
		fate:   rapid.SampledFrom([]string{"answered", "answered", "answered", "refused uncounted", "broken"}).Draw(t, "fate"),
	}
	if rapid.Bool().Draw(t, "pauses") {
		p.pause = between(0, 20*time.Second, "pause")
	}
	if rapid.Bool().Draw(t, "large") {
		p.estimate = rapid.Int64Range(0, most).Draw(t, "estimate")
	} else {
		p.estimate = rapid.Int64Range(0, most/10).Draw(t, "estimate")
	}
	p.actual = rapid.SampledFrom([]int64{0, p.estimate / 3, p.estimate, p.estimate}).Draw(t, "actual")
	return p
}

// delay is the time from the taking of the cost until the provider counts it.
func (p plan) delay(where counting) time.Duration {
	switch where {
	case atArrival:
		return p.travel
	case atFirstItem:
		return p.travel + p.first
	default:
		return p.travel + p.first + p.rest
	}
}

// world runs calls through a limiter against a provider. All times are true
// ones; the client reads them off a clock that is off by skew.
type world struct {
	limiter budget.Limiter
	where   counting
	now     time.Duration
	skew    time.Duration
	events  []event
}

type event struct {
	at time.Duration
	do func()
}

func (w *world) clock() time.Time { return t0.Add(w.now + w.skew) }

func (w *world) later(d time.Duration, do func()) { w.events = append(w.events, event{w.now + d, do}) }

// pass lets time pass and things happen until then.
func (w *world) pass(until time.Duration) {
	for {
		next := -1
		for i, e := range w.events {
			if e.at <= until && (next < 0 || e.at < w.events[next].at) {
				next = i
			}
		}
		if next < 0 {
			w.now = max(w.now, until)
			return
		}
		e := w.events[next]
		w.events = slices.Delete(w.events, next, next+1)
		w.now = max(w.now, e.at)
		e.do()
	}
}

// call waits until the plan fits, and starts it.
func (w *world) call(t *rapid.T, p plan, count func(units int64)) {
	w.pass(w.now + p.pause)
	for tries := 0; ; tries++ {
		ok, at := w.limiter.Fits(w.clock(), p.estimate)
		if ok {
			break
		}
		next := time.Duration(-1)
		if !at.IsZero() {
			next = w.now + at.Sub(w.clock())
		}
		for _, e := range w.events {
			if next < 0 || e.at < next {
				next = e.at
			}
		}
		if next < 0 || tries > 10_000 {
			t.Fatalf("%d of %d never fit", p.estimate, w.limiter.Max())
		}
		w.pass(next)
	}
	hold := w.limiter.Take(w.clock(), p.estimate)
	done := p.travel + p.first + p.rest + p.back
	switch p.fate {
	case "refused uncounted":
		w.later(p.travel+p.back, func() { w.limiter.Settle(w.clock(), hold, 0) })
		return
	case "broken": // nobody tells what it used; the client keeps the estimate
		w.later(done, func() { w.limiter.Settle(w.clock(), hold, p.estimate) })
	default:
		if w.where != atCompletion {
			w.later(p.travel+p.first+p.back, func() { hold = w.limiter.Counted(w.clock(), hold) })
		}
		w.later(done, func() { w.limiter.Settle(w.clock(), hold, p.actual) })
	}
	w.later(p.delay(w.where), func() { count(p.actual) })
}

// disturb does one of the things that clocks and callers do.
func (w *world) disturb(t *rapid.T) {
	step := time.Duration(rapid.OneOf(
		rapid.Int64Range(1, int64(5*time.Millisecond)),
		rapid.Int64Range(1, int64(3*time.Second)),
		rapid.Int64Range(1, int64(10*time.Hour)),
	).Draw(t, "step"))
	switch rapid.SampledFrom([]string{"none", "none", "none", "lag", "step", "step and undo"}).Draw(t, "disturbance") {
	case "lag": // one caller read its clock long ago
		if w.skew == 0 {
			w.limiter.Level(w.clock())
			w.limiter.Level(w.clock().Add(-step))
		}
		w.limiter.Level(w.clock())
	case "step":
		w.skew -= step
	case "step and undo":
		// It is seen as one only if somebody looks before and after, and
		// before the old instant has come round again.
		if w.skew == 0 && step > 10*time.Second {
			w.limiter.Level(w.clock())
			w.skew = -step
			w.limiter.Level(w.clock())
			w.later((step-5*time.Second)/2, func() {
				if w.skew == -step {
					w.skew = 0
					w.limiter.Level(w.clock())
				}
			})
		}
	}
}

var countings = []counting{atArrival, atFirstItem, atCompletion}

func TestAWindowBudgetNeverExceedsAWindowOfTheProvider(t *testing.T) {
	t.Parallel()
	for _, where := range countings {
		t.Run(string(where), rapid.MakeCheck(func(t *rapid.T) {
			quota := rapid.Int64Range(1, 1000).Draw(t, "quota")
			window := time.Duration(rapid.SampledFrom([]int64{int64(time.Second), int64(10 * time.Second), int64(time.Minute)}).Draw(t, "window"))
			cell := time.Duration(rapid.Int64Range(int64(window)/100, int64(window)).Draw(t, "cell"))
			w := &world{
				where:   where,
				limiter: newWindow(t, budget.WindowBudgetConfig{Limit: quota, Window: window, Cell: cell}),
			}
			p := &provider{window: window}
			for range rapid.IntRange(1, 60).Draw(t, "calls") {
				w.call(t, drawPlan(t, quota), func(units int64) { p.count(w.now, units) })
				w.disturb(t)
			}
			w.pass(w.now + time.Hour)
			check(t, p, quota)
		}))
	}
}

// The bound of TokenBudget's documentation.
func TestATokenBudgetSetBelowTheQuotaNeverExceedsAWindowOfTheProvider(t *testing.T) {
	t.Parallel()
	for _, where := range countings {
		t.Run(string(where), rapid.MakeCheck(func(t *rapid.T) {
			window := time.Duration(rapid.SampledFrom([]int64{int64(time.Second), int64(10 * time.Second), int64(time.Minute)}).Draw(t, "window"))
			cfg := budget.TokenBudgetConfig{
				Limit:  rapid.Int64Range(1, 1000).Draw(t, "limit"),
				Burst:  rapid.Int64Range(1, 1000).Draw(t, "burst"),
				Window: window,
			}
			w := &world{where: where, limiter: newToken(t, cfg)}
			p := &provider{window: window}
			var delay time.Duration
			for range rapid.IntRange(1, 60).Draw(t, "calls") {
				plan := drawPlan(t, cfg.Burst)
				delay = max(delay, plan.delay(where))
				w.call(t, plan, func(units int64) { p.count(w.now, units) })
				w.disturb(t)
			}
			w.pass(w.now + time.Hour)
			// The quota is what Burst + Limit·(Window + delay)/Window must not exceed.
			extra := new(big.Int).Mul(big.NewInt(cfg.Limit), big.NewInt(int64(window+delay)))
			quota := cfg.Burst + extra.Div(extra, big.NewInt(int64(window))).Int64()
			check(t, p, quota)
		}))
	}
}

func check(t *rapid.T, p *provider, quota int64) {
	t.Helper()
	if most := p.sliding(); most > quota {
		t.Fatalf("%d of %d in one sliding window\n%v", most, quota, p.log)
	}
	phase := time.Duration(rapid.Int64Range(0, int64(p.window)-1).Draw(t, "phase"))
	if most := p.fixed(phase); most > quota {
		t.Fatalf("%d of %d in one fixed window of phase %v\n%v", most, quota, phase, p.log)
	}
}

// A provider that is itself a bucket, and counts what a call really uses when it
// is sent: the mirror never lets through what it would refuse, and is as
// generous as it can be. Whatever is not used by open calls, it admits.
func TestATokenBudgetMirrorsAProvidersBucket(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		quota := rapid.Int64Range(1, 1000).Draw(t, "quota")
		w := &world{where: atArrival, limiter: newToken(t, budget.TokenBudgetConfig{Limit: quota})}
		const window = int64(time.Minute)
		full := quota * window
		level, last := full, time.Duration(0) // of the provider, in units × nanoseconds
		refill := func() {
			level = min(full, level+int64(w.now-last)*quota)
			last = w.now
		}
		for range rapid.IntRange(1, 80).Draw(t, "calls") {
			p := drawPlan(t, quota)
			p.travel = 0
			w.call(t, p, func(int64) {})
			// The provider sees it at this very instant.
			if p.fate == "broken" {
				p.actual = p.estimate
			}
			if refill(); p.fate != "refused uncounted" {
				if level < p.actual*window {
					t.Fatalf("refused: %d of %d at a level of %v/%d", p.actual, quota, level, window)
				}
				level -= p.actual * window
			}
			if rapid.IntRange(0, 9).Draw(t, "quiet") == 0 {
				w.pass(w.now + 2*time.Minute) // every call ends, and something is left
			}
			if refill(); len(w.events) == 0 && w.limiter.Level(w.clock()) != level/window {
				t.Fatalf("level is %d when nothing is open, the provider's is %d", w.limiter.Level(w.clock()), level/window)
			}
		}
		// Without a pause: settle all, then compare.
		for len(w.events) > 0 {
			w.pass(slices.MinFunc(w.events, func(a, b event) int { return cmp.Compare(a.at, b.at) }).at)
		}
		if refill(); w.limiter.Level(w.clock()) != level/window {
			t.Fatalf("level is %d when nothing is open, the provider's is %d", w.limiter.Level(w.clock()), level/window)
		}
	})
}
