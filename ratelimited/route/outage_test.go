package route_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/route"
	"github.com/headgate-go/headgate/retry"
)

// Two calls a second for three minutes, and a route that is down for the first of
// them: it costs nobody an answer and the provider a few attempts, and once it is
// back it has its half of the calls.
func TestARouteIsLeftOutDuringAnOutageAndComesBack(t *testing.T) {
	for reason, refusal := range map[string]func() error{"overloaded": overloaded, "not_sent": notSent} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				start := time.Now()
				a := refuses(refusal(), 100*time.Millisecond, func(int) bool { return time.Since(start) < time.Minute })
				b := answers(100 * time.Millisecond)
				var log lines
				reg := prometheus.NewRegistry()
				p := newPool(t, route.Config{Logger: log.logger(), Registerer: reg}, via(t, "a", a), via(t, "b", b))
				var all sync.WaitGroup
				during, after := 0, 0
				for i := range 360 {
					all.Go(func() {
						if err := call(t.Context(), p); err != nil {
							t.Errorf("call %d: %v", i, err)
						}
					})
					time.Sleep(500 * time.Millisecond)
					switch i {
					case 119:
						during = a.count()
						if up := gather(t, reg)["up{route=a}"]; up != 0 || p.Stats()[0].Up || p.Stats()[0].OutUntil.IsZero() {
							t.Errorf("during the outage headgate_route_up is %v and Stats %+v", up, p.Stats())
						}
					case 239:
						after = a.count()
						if up := gather(t, reg)["up{route=a}"]; up != 1 || !p.Stats()[0].Up || !p.Stats()[0].OutUntil.IsZero() {
							t.Errorf("after it headgate_route_up is %v and Stats %+v", up, p.Stats())
						}
					}
				}
				all.Wait()
				// Five that take it out, then pauses of 1, 1.6, 2.56, … s: eight in a minute.
				if during < 5 || during > 16 {
					t.Errorf("%d attempts met a route that was down, want five and a few probes", during)
				}
				if n := a.count() - after; n < 58 || n > 62 {
					t.Errorf("in the last minute a had %d of 120 calls, want half", n)
				}
				if len(log.all) != 2 || !strings.Contains(log.all[0], "left out") || !strings.Contains(log.all[1], "is back") {
					t.Errorf("the log has\n%s\nwant one line when it was left out and one when it was back", strings.Join(log.all, "\n"))
				}
				want := fmt.Sprintf(`level=WARN msg="route: a route is left out because its calls fail" pool=default route=a failures=5 last=%s pause=`, reason)
				if len(log.all) > 0 && !strings.HasPrefix(log.all[0], want) {
					t.Errorf("the log has\n%s\nwant\n%s…", log.all[0], want)
				}
				mustBeIdle(t, p)
			})
		})
	}
}

// Errors that are not worth another attempt are reasons to leave a route out, too:
// a key that was revoked answers at once, and would draw all calls.
func TestARouteWhoseEveryCallFailsDoesNotDrawAllCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := refuses(genaiError(401), 0, nil)
		p := newPool(t, route.Config{}, via(t, "a", a), via(t, "b", answers(time.Second)))
		failed := 0
		for range 60 {
			if call(t.Context(), p) != nil {
				failed++
			}
		}
		if failed > 12 {
			t.Errorf("%d of 60 calls failed, want five and a few probes", failed)
		}
	})
}

// Each failed call counts once, whether its gate would have sent it again or not.
func TestFiveFailedCallsLeaveARouteOut(t *testing.T) {
	for name, opts := range map[string][]ratelimited.Option{"with retries": nil, "without": {ratelimited.WithoutRetries()}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := refuses(notSent(), 0, nil)
				p := newPool(t, route.Config{}, via(t, "a", a, opts...), at(1, via(t, "b", answers(0))))
				for n := 1; n <= 8; n++ {
					if err := call(t.Context(), p); err != nil {
						t.Fatal(err)
					}
					if up, want := p.Stats()[0].Up, n < 5; up != want || a.count() != min(n, 5) {
						t.Fatalf("after %d calls up is %v, and %d went there", n, up, a.count())
					}
				}
			})
		})
	}
}

// The call that tries a route may have to wait in its line, and stays there for
// reasons that others have: that the route is left out is none.
func TestACallThatTriesARouteStaysInItsLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const slow = 10 * time.Second
		a := &fakeLLM{play: func(ctx context.Context, n int, yield yields) {
			switch {
			case n == 1: // under way before, and refused while the other tries
				_ = wait(ctx, 5*time.Second)
				yield(nil, throttled(retryInfo(2*time.Second)))
			case n <= 6:
				yield(nil, notSent())
			default:
				yield(final(1, 1), nil)
			}
		}}
		ga := newGate(t, ratelimited.Config{Name: "a", Slots: 2, Profile: perMinute})
		gb := newGate(t, ratelimited.Config{Name: "b", Slots: 1, Profile: perMinute})
		for range 200 { // b's gate knows that calls take long
			permit, err := gb.Acquire(t.Context(), ratelimited.Call{})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(slow)
			permit.Release()
		}
		b := answers(0)
		p := newPool(t, route.Config{}, way{Name: "a", Model: wrap(t, a, ga)}, way{Name: "b", Model: wrap(t, b, gb)})
		releaseB := occupy(t, gb)
		start := time.Now()
		var all sync.WaitGroup
		all.Go(func() { _ = call(t.Context(), p) })
		synctest.Wait()
		for range 5 {
			_ = call(ratelimited.WithMaxWait(t.Context(), 0), p)
		}
		if p.Stats()[0].Up || a.count() != 6 {
			t.Fatalf("a is to be left out after %d calls", a.count())
		}
		permit, err := ga.Acquire(t.Context(), ratelimited.Call{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		all.Go(func() {
			if err := call(t.Context(), p); err != nil {
				t.Error(err)
			}
			if d := time.Since(start); d < 7*time.Second || d > 8*time.Second {
				t.Errorf("it was served after %v, want 7s: when a opens again", d)
			}
		})
		synctest.Wait()
		if s := ga.Stats(); s.Waiting != 1 {
			t.Fatalf("%d calls wait at a, want the one that tries it", s.Waiting)
		}
		time.Sleep(4 * time.Second)
		permit.Release()
		time.Sleep(time.Minute)
		releaseB()
		all.Wait()
		if b.count() != 1 {
			t.Errorf("b had %d calls, want the one that a has refused", b.count())
		}
		mustBeIdle(t, p)
	})
}

func TestWrongRequestsLeaveNoRouteOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := refuses(badRequest(), 0, nil)
		p := newPool(t, route.Config{}, via(t, "a", a), at(1, via(t, "b", answers(0))))
		for range 60 {
			_ = call(t.Context(), p)
		}
		if a.count() != 60 {
			t.Errorf("a was left out after %d wrong requests", a.count())
		}
	})
}

// A probe that comes to an end of its own says nothing of the route, and keeps the
// next one back no longer.
func TestAProbeThatFindsOutNothingIsFollowedByTheNext(t *testing.T) {
	for name, c := range map[string]struct {
		play func(ctx context.Context, yield yields)
		run  func(ctx context.Context, p *pool)
	}{
		"cancelled": {
			func(ctx context.Context, yield yields) { yield(nil, wait(ctx, time.Hour)) },
			func(ctx context.Context, p *pool) {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_ = call(ctx, p)
			},
		},
		"ends with nothing": {
			func(context.Context, yields) {},
			func(ctx context.Context, p *pool) { _ = call(ctx, p) },
		},
		"panics": {
			func(context.Context, yields) { panic("mine") },
			func(ctx context.Context, p *pool) {
				defer func() { _ = recover() }()
				_ = call(ctx, p)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				probe := 0
				a := &fakeLLM{play: func(ctx context.Context, n int, yield yields) {
					switch n {
					case 1:
						yield(nil, perDay())
					case 2:
						probe = n
						c.play(ctx, yield)
					default:
						yield(final(1, 1), nil)
					}
				}}
				p := newPool(t, route.Config{}, via(t, "a", a), at(1, via(t, "b", answers(0))))
				if err := call(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute) // the gate's per-day limit and the pause are over
				c.run(t.Context(), p)
				if probe == 0 {
					t.Fatal("nobody has tried the route")
				}
				if err := call(t.Context(), p); err != nil || a.count() != 3 {
					t.Errorf("the next call did not try it: %v, %d calls to a", err, a.count())
				}
				if !p.Stats()[0].Up {
					t.Error("an answer has not brought it back")
				}
				mustBeIdle(t, p)
			})
		})
	}
}

// While one call tries a route all others go elsewhere.
func TestOneProbeAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var probing, peak atomic.Int32
		a := &fakeLLM{play: func(ctx context.Context, n int, yield yields) {
			if n > 1 {
				peak.Store(max(peak.Load(), probing.Add(1)))
				_ = wait(ctx, 20*time.Second)
				probing.Add(-1)
			}
			yield(nil, perDay())
		}}
		p := newPool(t, route.Config{}, via(t, "a", a), at(1, via(t, "b", answers(0))))
		var all sync.WaitGroup
		for range 1200 {
			all.Go(func() {
				if err := call(t.Context(), p); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(500 * time.Millisecond)
		}
		all.Wait()
		if peak.Load() != 1 || a.count() < 5 || a.count() > 14 {
			t.Errorf("in ten minutes %d probes, %d at a time; want a few, one at a time", a.count()-1, peak.Load())
		}
		mustBeIdle(t, p)
	})
}

// Where every route is left out, calls are sent as if none were: their gates know
// how to wait for the end, and the first answer is for everybody.
func TestWhereEveryRouteIsDownCallsWaitForTheirGates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := time.Now()
		down := func(int) bool { return time.Since(start) < 30*time.Second }
		a, b := refuses(overloaded(), time.Second, down), refuses(overloaded(), time.Second, down)
		p := newPool(t, route.Config{MaxWait: ptr(2 * time.Minute)}, via(t, "a", a), via(t, "b", b))
		var all sync.WaitGroup
		var failed atomic.Int32
		for range 60 {
			all.Go(func() {
				if call(t.Context(), p) != nil {
					failed.Add(1)
				}
			})
			time.Sleep(500 * time.Millisecond)
		}
		all.Wait()
		if n := failed.Load(); n > 10 {
			t.Errorf("%d of 60 calls that had two minutes failed, want the few that were refused before it was known", n)
		}
		if d := time.Since(start); d > 75*time.Second {
			t.Errorf("the last was answered after %v, want soon after the outage", d)
		}
		// No spiral: each route meets what finds out that it is down, and probes.
		if n := a.count() + b.count() - (60 - int(failed.Load())); n > 80 {
			t.Errorf("%d attempts met providers that were down", n)
		}
		mustBeIdle(t, p)
	})
}

func TestAForecastWhereEveryRouteIsDownIsThatOfTheGates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, route.Config{}, via(t, "a", refuses(perDay(), 0, nil)))
		_ = call(t.Context(), p)
		if w := p.ExpectedWait(t.Context(), hello()); w < time.Minute || w > 66*time.Second {
			t.Errorf("%v, want the minute or so for which the gate is closed", w)
		}
	})
}

// A call in line leaves it when the provider turns out to be down or closed, if
// it would wait less elsewhere; and it stays if not.
func TestCallsInLineGoElsewhereWhenTheirRouteCloses(t *testing.T) {
	for name, c := range map[string]struct {
		refusal error
		busy    time.Duration // of the other route
		left    bool
	}{
		"closed for a minute, the other one free in a second":  {throttled(retryInfo(55 * time.Second)), time.Second, true},
		"closed for a second, the other one in a minute":       {throttled(retryInfo(2 * time.Second)), time.Minute, false},
		"a day's quota is used up, the other free in a minute": {perDay(), 30 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				// Route a serves one call at a time, of which the first is refused after a while.
				ga := newGate(t, ratelimited.Config{Name: "a", Slots: 1, Profile: perMinute})
				a := &fakeLLM{play: func(ctx context.Context, n int, yield yields) {
					_ = wait(ctx, 3*time.Second)
					if n == 1 {
						yield(nil, c.refusal)
						return
					}
					yield(final(1, 1), nil)
				}}
				// Route b has its only slot taken for as long as the case says, after the
				// others have chosen; what it knows of calls is that they take so long.
				gb := newGate(t, ratelimited.Config{Name: "b", Slots: 1, Profile: perMinute})
				b := answers(0)
				reg := prometheus.NewRegistry()
				p := newPool(t, route.Config{Registerer: reg}, way{Name: "a", Model: wrap(t, a, ga)}, way{Name: "b", Model: wrap(t, b, gb), Tier: 1})
				hold := func(d time.Duration) {
					for range 200 { // the average is the gate's forecast
						permit, err := gb.Acquire(t.Context(), ratelimited.Call{})
						if err != nil {
							t.Fatal(err)
						}
						time.Sleep(d)
						permit.FreeSlot()
						permit.Release()
					}
				}
				hold(c.busy)
				start := time.Now()
				taken, err := gb.Acquire(t.Context(), ratelimited.Call{})
				if err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(c.busy, taken.Release)
				var all sync.WaitGroup
				for range 4 {
					all.Go(func() {
						if err := call(t.Context(), p); err != nil {
							t.Error(err)
						}
					})
					synctest.Wait() // the first has a's slot, the others are in line there
				}
				if s := ga.Stats(); s.Running != 1 || s.Waiting == 0 {
					t.Fatalf("%d calls run and %d wait at a", s.Running, s.Waiting)
				}
				all.Wait()
				if n := gather(t, reg)["spills_total{from=a,reason=line,to=b}"]; n > 0 != c.left {
					t.Errorf("%v calls left the line, b served %d of 4, in %v", n, b.count(), time.Since(start))
				}
				if d := time.Since(start); d > 45*time.Second {
					t.Errorf("they took %v: calls have waited for a route that was closed", d)
				}
				time.Sleep(c.busy)
				mustBeIdle(t, p)
			})
		})
	}
}

func TestAttemptsThatComeToNothingAreCountedAsWhatTheyWere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		a := &fakeLLM{play: func(ctx context.Context, n int, yield yields) {
			switch n {
			case 1:
			case 2:
				panic("mine")
			case 3:
				yield(nil, wait(ctx, time.Hour))
			}
		}}
		full := newGate(t, ratelimited.Config{Name: "full", Slots: 1})
		defer occupy(t, full)()
		p := newPool(t, route.Config{Registerer: reg}, via(t, "a", a), way{Name: "full", Model: wrap(t, answers(0), full), Tier: 1})
		for range 3 {
			func() {
				defer func() { _ = recover() }()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_ = call(ctx, p)
			}()
		}
		defer occupy(t, p.Gates()[0])()
		_ = call(ratelimited.WithMaxWait(t.Context(), 0), p)
		got := gather(t, reg)
		for series, want := range map[string]float64{
			"calls_total{outcome=broken,route=a}":          1,
			"calls_total{outcome=panicked,route=a}":        1,
			"calls_total{outcome=cancelled,route=a}":       1,
			"calls_total{outcome=not_admitted,route=a}":    1,
			"calls_total{outcome=not_admitted,route=full}": 1,
			"spills_total{from=a,reason=max_wait,to=full}": 1,
		} {
			if got[series] != want {
				t.Errorf("%s is %v, want %v", series, got[series], want)
			}
		}
		if len(got) != 8 { // and two that are up
			t.Errorf("%d series: %v", len(got), got)
		}
	})
}

// meeting is a model whose forecasts are given when so many have asked for one,
// while it is armed: so these calls decide on the same view.
type meeting struct {
	LLM
	size  int
	all   chan struct{}
	mu    sync.Mutex
	armed bool
	asked int
}

func (m *meeting) ExpectedWait(context.Context, *LLMRequest) time.Duration {
	m.mu.Lock()
	if !m.armed {
		m.mu.Unlock()
		return 0
	}
	if m.asked++; m.asked == m.size {
		m.armed = false
		close(m.all)
	}
	m.mu.Unlock()
	<-m.all
	return 0
}

// Two calls leave a route that is closed for another one that is to be tried: one of
// them tries it, and the other goes back into the line, until that one is back.
func TestACallThatLeavesForNothingGoesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ga := newGate(t, ratelimited.Config{Name: "a", Slots: 1, Profile: perMinute})
		a := &fakeLLM{play: func(ctx context.Context, n int, yield yields) {
			_ = wait(ctx, 3*time.Second)
			if n == 1 {
				yield(nil, throttled(retryInfo(30*time.Second)))
				return
			}
			yield(final(1, 1), nil)
		}}
		b := refuses(notSent(), 20*time.Second, func(n int) bool { return n <= 5 })
		inner := via(t, "b", b)
		m := &meeting{LLM: inner.Model, size: 2, all: make(chan struct{})}
		reg := prometheus.NewRegistry()
		p := newPool(t, route.Config{Registerer: reg}, way{Name: "a", Model: wrap(t, a, ga)}, way{Name: "b", Model: m, Gate: gateOf(inner)})
		release := occupy(t, ga)
		for range 5 {
			_ = call(ratelimited.WithMaxWait(t.Context(), 0), p)
		}
		release()
		if s := p.Stats(); s[1].Up || b.count() != 5 {
			t.Fatalf("b is to be left out after five calls: %+v, %d calls", s, b.count())
		}
		start := time.Now()
		var all sync.WaitGroup
		var took [2]time.Duration
		for i := range 2 {
			all.Go(func() {
				if err := call(t.Context(), p); err != nil {
					t.Error(err)
				}
				took[i] = time.Since(start)
			})
		}
		synctest.Wait()
		if s := ga.Stats(); s.Running != 1 || s.Waiting != 1 {
			t.Fatalf("%d calls run and %d wait at a, want 1 and 1", s.Running, s.Waiting)
		}
		m.mu.Lock()
		m.armed = true
		m.mu.Unlock()
		time.Sleep(10 * time.Second)
		if s := ga.Stats(); s.Running != 0 || s.Waiting != 1 || b.count() != 6 {
			t.Errorf("%d calls run and %d wait at a, and b had %d; want one back in line and one that tries b", s.Running, s.Waiting, b.count())
		}
		all.Wait()
		slices.Sort(took[:])
		for series := range gather(t, reg) {
			if strings.Contains(series, "from=a") && strings.Contains(series, "to=a") {
				t.Errorf("to go back is counted as going elsewhere: %s", series)
			}
		}
		if took != [2]time.Duration{23 * time.Second, 43 * time.Second} || a.count() != 1 {
			t.Errorf("the calls took %v, want 3s and the 20s of b, and another 20s there when b is back", took)
		}
		mustBeIdle(t, p)
	})
}

// The same where the route that they leave is left out: a call that has lost its
// place to another one is not told of it, but waits at its old route.
func TestACallThatLeavesARouteThatIsDownForNothingGoesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ga := newGate(t, ratelimited.Config{Name: "a", Slots: 1, Profile: perMinute})
		a := &fakeLLM{play: func(ctx context.Context, _ int, yield yields) {
			_ = wait(ctx, 3*time.Second)
			yield(nil, perDay())
		}}
		b := refuses(notSent(), 20*time.Second, func(n int) bool { return n <= 5 })
		inner := via(t, "b", b)
		m := &meeting{LLM: inner.Model, size: 3, all: make(chan struct{})}
		p := newPool(t, route.Config{}, way{Name: "a", Model: wrap(t, a, ga)}, way{Name: "b", Model: m, Gate: gateOf(inner)})
		release := occupy(t, ga)
		for range 5 {
			_ = call(ratelimited.WithMaxWait(t.Context(), 0), p)
		}
		release()
		var all sync.WaitGroup
		var refused atomic.Int32
		for range 3 {
			all.Go(func() {
				if err := call(t.Context(), p); retry.Classify(err).Class == retry.QuotaExhausted {
					refused.Add(1) // the one that was sent, if another has been faster
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if s := ga.Stats(); s.Running != 1 || s.Waiting != 2 {
			t.Fatalf("%d calls run and %d wait at a, want 1 and 2", s.Running, s.Waiting)
		}
		m.mu.Lock()
		m.armed = true
		m.mu.Unlock()
		all.Wait()
		if n := refused.Load(); n > 1 || a.count() != 1 || b.count() != 8-int(n) {
			t.Errorf("%d refused, a had %d calls and b %d; want one at a, and all others at b", n, a.count(), b.count())
		}
		mustBeIdle(t, p)
	})
}
