package route_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genai"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/route"
	"github.com/headgate-go/headgate/retry"
)

func TestACallGoesWhereItWaitsLeast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, c := answers(time.Second), answers(time.Second), answers(time.Second)
		ways := []way{via(t, "a", a), via(t, "b", b), via(t, "c", c)}
		p := newPool(t, route.Config{}, ways...)
		defer occupy(t, gateOf(ways[0]))()
		release := occupy(t, gateOf(ways[2]))
		for range 3 {
			if err := call(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		if a.count() != 0 || b.count() != 3 || c.count() != 0 {
			t.Errorf("calls went %d, %d, %d; want all to b, the only one with slots", a.count(), b.count(), c.count())
		}
		release()
		for range 2 {
			if err := call(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		if c.count() == 0 {
			t.Error("none went to c, which is free again")
		}
	})
}

// A burst that is larger than one gate fills them all, and none has a line before
// the others are full.
func TestABurstFillsAllRoutes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ways := []way{via(t, "a", answers(time.Second)), via(t, "b", answers(time.Second)), via(t, "c", answers(time.Second))}
		p := newPool(t, route.Config{}, ways...)
		var all sync.WaitGroup
		start := time.Now()
		for range 30 {
			all.Go(func() {
				if err := call(t.Context(), p); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if d := time.Since(start); d != time.Second {
			t.Errorf("30 calls of 1s over 3 × 10 slots took %v, want 1s", d)
		}
		mustBeIdle(t, p)
	})
}

// refusals are all errors after which a call may go to another route, and the
// reason that is counted.
var refusals = map[string]func() error{
	"throttled":       func() error { return throttled(retryInfo(30 * time.Second)) },
	"quota_exhausted": perDay,
	"overloaded":      overloaded,
	"not_sent":        notSent,
}

func TestACallThatWasNotServedGoesToAnotherRoute(t *testing.T) {
	for reason, refusal := range refusals {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a, b := refuses(refusal(), 0, nil), answers(0)
				p := newPool(t, route.Config{}, via(t, "a", a), at(1, via(t, "b", b)))
				start := time.Now()
				items, err := collect(p.GenerateContent(t.Context(), hello(), true))
				if err != nil || len(items) != 2 {
					t.Errorf("got %d items and %v, want b's answer", len(items), err)
				}
				if a.count() != 1 || b.count() != 1 || time.Since(start) != 0 {
					t.Errorf("a was asked %d times and b %d times, in %v; want once each, at once", a.count(), b.count(), time.Since(start))
				}
				mustBeIdle(t, p)
			})
		})
	}
}

// denying is a person's budget that denies everything.
type denying struct{ denials int }

func (d *denying) Reserve(context.Context, budget.Call) (budget.Reservation, error) {
	d.denials++
	return nil, &budget.DeniedError{Budget: "day"}
}

func TestWhatAnotherRouteWouldNotMendIsPassedOn(t *testing.T) {
	fake := func(play func(ctx context.Context, call int, yield yields)) *fakeLLM { return &fakeLLM{play: play} }
	for name, c := range map[string]struct {
		a      *fakeLLM
		opts   []ratelimited.Option
		asked  int
		items  int
		target error
	}{
		"a wrong request": {a: refuses(badRequest(), 0, nil), asked: 1},
		"may have been executed": {
			a: refuses(genai.APIError{Code: 500}, 0, nil), asked: 1,
		},
		"an unknown error":  {a: refuses(errBroken, 0, nil), asked: 1, target: errBroken},
		"a person's budget": {a: answers(0), opts: []ratelimited.Option{ratelimited.WithBudgets(&denying{})}, target: budget.ErrDenied},
		"throttled after an item": {a: fake(func(_ context.Context, _ int, yield yields) {
			_ = yield(part("a"), nil) && yield(nil, throttled())
		}), asked: 1, items: 1},
		"not sent after an item, as it says": {a: fake(func(_ context.Context, _ int, yield yields) {
			_ = yield(part("a"), nil) && yield(nil, notSent())
		}), asked: 1, items: 1},
		"after the answer": {a: fake(func(_ context.Context, _ int, yield yields) {
			_ = yield(final(1, 1), nil) && yield(nil, overloaded())
		}), asked: 1, items: 1},
		"an item that reports an error": {a: fake(func(_ context.Context, _ int, yield yields) {
			_ = yield(&LLMResponse{ErrorCode: "429"}, nil) && yield(nil, throttled())
		}), asked: 1, items: 1},
		"after an error of its own": {a: fake(func(_ context.Context, _ int, yield yields) {
			_ = yield(nil, badRequest()) && yield(nil, throttled())
		}), asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := answers(0)
				p := newPool(t, route.Config{}, via(t, "a", c.a, c.opts...), at(1, via(t, "b", b)))
				items, err := collect(p.GenerateContent(t.Context(), hello(), true))
				if err == nil || len(items) != c.items || c.target != nil && !errors.Is(err, c.target) {
					t.Errorf("got %d items and %v, want %d items and a's error", len(items), err, c.items)
				}
				if c.a.count() != c.asked || b.count() != 0 {
					t.Errorf("a was asked %d times and b %d times, want %d and 0", c.a.count(), b.count(), c.asked)
				}
				mustBeIdle(t, p)
			})
		})
	}
}

// A pool of one route is that route: its gate's retries, its waits, its errors.
func TestAPoolOfOneRouteIsThatRoute(t *testing.T) {
	for name, refusal := range refusals {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				alone := refuses(refusal(), 0, nil)
				want := call(t.Context(), via(t, "alone", alone).Model)
				a := refuses(refusal(), 0, nil)
				got := call(t.Context(), newPool(t, route.Config{}, via(t, "a", a)))
				if a.count() != alone.count() || fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("sent %d times, then %v; without a pool %d times, then %v", a.count(), got, alone.count(), want)
				}
			})
		})
	}
}

// Where all routes refuse, the call waits where it can be sent first, and is sent
// again there by its gate.
func TestWhereAllRefuseACallWaitsForTheFirstToReopen(t *testing.T) {
	for round := range 30 { // of jitter
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				first := func(n int) bool { return n == 1 }
				a := refuses(throttled(retryInfo(5*time.Second)), 0, first)
				b := refuses(throttled(retryInfo(40*time.Second)), 0, first)
				p := newPool(t, route.Config{}, via(t, "a", a), via(t, "b", b))
				start := time.Now()
				if err := call(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				if a.count() != 2 || b.count() != 1 {
					t.Errorf("a was asked %d times, b %d times; want 2 and 1", a.count(), b.count())
				}
				if d := time.Since(start); d < 5*time.Second || d > 7*time.Second {
					t.Errorf("it took %v, want the 5s for which a is closed", d)
				}
				mustBeIdle(t, p)
			})
		})
	}
}

// foretold is a model whose forecast the test sets.
type foretold struct {
	LLM
	wait time.Duration
}

func (f *foretold) ExpectedWait(context.Context, *LLMRequest) time.Duration { return f.wait }

// A tier that has become bearable is no reason to wait longer than where the call is.
func TestACallDoesNotLeaveForALongerWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := via(t, "large", answers(0))
		large := &foretold{LLM: inner.Model, wait: 12 * time.Second}
		small := &fakeLLM{play: func(_ context.Context, n int, yield yields) {
			large.wait = 9 * time.Second
			if n == 1 {
				yield(nil, throttled(retryInfo(2*time.Second)))
				return
			}
			yield(final(1, 1), nil)
		}}
		p := newPool(t, route.Config{Spill: 10 * time.Second}, way{Name: "large", Model: large, Gate: gateOf(inner)}, at(1, via(t, "small", small)))
		if err := call(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if small.count() != 2 {
			t.Errorf("the small model had %d calls, want the refused one twice", small.count())
		}
		mustBeIdle(t, p)
	})
}

// Without a hint only the caller backs off: it does not come back to a route before
// that is over, though others may.
func TestARouteThatHasRefusedACallIsNotAskedAgainBeforeItsBackoff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var times [2][]time.Time
		fake := func(i int) *fakeLLM {
			return &fakeLLM{play: func(_ context.Context, _ int, yield yields) {
				times[i] = append(times[i], time.Now())
				yield(nil, throttled())
			}}
		}
		gate := func(name string) *ratelimited.Gate { // full jitter from 0 to a minute: hardly ever less than 50 ms
			return newGate(t, ratelimited.Config{Name: name, Slots: 4, Retry: retry.Policy{Base: time.Minute, Cap: time.Minute}})
		}
		p := newPool(t, route.Config{},
			way{Name: "a", Model: wrap(t, fake(0), gate("a"))}, way{Name: "b", Model: wrap(t, fake(1), gate("b"))})
		if err := call(t.Context(), p); err == nil {
			t.Fatal("an answer, though all refuse")
		}
		for i, all := range times {
			if len(all) == 0 || len(all) > 6 {
				t.Errorf("route %d was asked %d times", i, len(all))
			}
			for j := 1; j < len(all); j++ {
				if d := all[j].Sub(all[j-1]); d < 10*time.Millisecond {
					t.Errorf("route %d was asked again after %v", i, d)
				}
			}
		}
		mustBeIdle(t, p)
	})
}

func TestOfSeveralRefusalsTheOneWithMostHopeIsPassedOn(t *testing.T) {
	busy := &ratelimited.WaitError{}
	large := &LLMRequest{Contents: genai.Text(string(make([]byte, 4000)))}
	small := func(t *testing.T, name string) way {
		return way{Name: name, Model: wrap(t, answers(0), newGate(t, ratelimited.Config{
			Name: name, Slots: 1, Profile: ratelimited.GeminiAPI(ratelimited.Quota{InputTokensPerMinute: 10}),
		}))}
	}
	bubble(t, func(t *testing.T) {
		full := via(t, "full", answers(0))
		defer occupy(t, gateOf(full))()
		p := newPool(t, route.Config{MaxWait: ptr(time.Duration(0))},
			via(t, "spent", refuses(perDay(), 0, nil)), at(1, full), at(2, small(t, "small")))
		_, err := collect(p.GenerateContent(t.Context(), large, true))
		if !errors.As(err, &busy) {
			t.Errorf("got %v, want the gate's that may have room later", err)
		}
		_, err = collect(newPool(t, route.Config{}, small(t, "s1"), small(t, "s2")).GenerateContent(t.Context(), large, true))
		if !errors.Is(err, ratelimited.ErrNeverFits) {
			t.Errorf("got %v, want ErrNeverFits where it is all there is", err)
		}
		_, err = collect(newPool(t, route.Config{}, small(t, "s3"), at(1, via(t, "spent2", refuses(perDay(), 0, nil)))).GenerateContent(t.Context(), large, true))
		if v := retry.Classify(err); v.Class != retry.QuotaExhausted {
			t.Errorf("got %v, want the quota's", err)
		}
	})
}

// A route that never admits the call is not asked; the first error stands.
func TestACallDoesNotGoWhereItNeverFits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		small := newGate(t, ratelimited.Config{
			Name: "small", Slots: 1, Profile: ratelimited.GeminiAPI(ratelimited.Quota{InputTokensPerMinute: 2}),
		})
		a := refuses(overloaded(), 0, nil)
		p := newPool(t, route.Config{Registerer: reg}, via(t, "a", a, ratelimited.WithoutRetries()),
			way{Name: "b", Model: wrap(t, answers(0), small), Tier: 1})
		if err := call(t.Context(), p); retry.Classify(err).Class != retry.Overloaded {
			t.Errorf("got %v, want a's refusal", err)
		}
		for series, n := range gather(t, reg) {
			if strings.HasPrefix(series, "spills") || strings.Contains(series, "outcome=not_admitted") {
				t.Errorf("%s is %v", series, n)
			}
		}
	})
}

// A route whose own policy has given the call up is not asked again for it.
func TestARouteThatHasGivenACallUpIsNotAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := refuses(throttled(), 0, nil), refuses(perDay(), 0, nil)
		once := ratelimited.WithoutRetries()
		p := newPool(t, route.Config{}, via(t, "a", a, once), at(1, via(t, "b", b, once)))
		err := call(t.Context(), p)
		if a.count() != 1 || b.count() != 1 {
			t.Errorf("a was asked %d times and b %d times, want once each", a.count(), b.count())
		}
		if v := retry.Classify(err); v.Class != retry.Throttled || v.PerDay {
			t.Errorf("got %v, want a's, which gives more hope than a day's quota", err)
		}
		mustBeIdle(t, p)
	})
}

// A call may wait so long at all routes together, whoever has set the bound.
func TestMaxWaitBoundsAllRoutesTogether(t *testing.T) {
	for name, c := range map[string]struct {
		pool, gate *time.Duration
		ctx        func(context.Context) context.Context
	}{
		"of the pool": {pool: ptr(10 * time.Second)},
		"of the first gate": {
			gate: ptr(10 * time.Second),
		},
		"of the call": {
			pool: ptr(time.Minute), gate: ptr(2 * time.Minute),
			ctx: func(ctx context.Context) context.Context { return ratelimited.WithMaxWait(ctx, 10*time.Second) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var ways []way
				for _, name := range []string{"a", "b", "c"} {
					g := newGate(t, ratelimited.Config{Name: name, Slots: 1, MaxWait: c.gate})
					ways = append(ways, way{Name: name, Model: wrap(t, answers(0), g)})
					defer occupy(t, g)()
				}
				p := newPool(t, route.Config{MaxWait: c.pool}, ways...)
				ctx := t.Context()
				if c.ctx != nil {
					ctx = c.ctx(ctx)
				}
				time.Sleep(time.Hour) // however old the pool is
				start := time.Now()
				err := call(ctx, p)
				if !errors.Is(err, ratelimited.ErrWait) {
					t.Errorf("got %v, want ErrWait", err)
				}
				if d := time.Since(start); d != 10*time.Second {
					t.Errorf("waited %v over all routes, want 10s", d)
				}
				mustBeIdleBut(t, p, 1)
			})
		})
	}
}

// mustBeIdleBut is mustBeIdle where the test holds slots of each gate itself.
func mustBeIdleBut(t *testing.T, p *pool, slots int64) {
	t.Helper()
	synctest.Wait()
	for _, g := range p.Gates() {
		if s := g.Stats(); s.SlotsInUse != slots || s.Waiting != 0 {
			t.Errorf("gate %q: %d slots in use, %d waiting; want %d and none", g.Name(), s.SlotsInUse, s.Waiting, slots)
		}
	}
}

// Requests are made to fit their route, and the caller's stays as it is.
func TestARequestIsRewrittenForItsRoute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := refuses(overloaded(), 0, nil), answers(0)
		a.name, b.name = "large", "small"
		to := via(t, "b", b)
		to.Tier = 1
		to.Rewrite = func(r *LLMRequest) *LLMRequest {
			c := *r
			c.Model = "small"
			return &c
		}
		p := newPool(t, route.Config{}, via(t, "a", a), to)
		if p.Name() != "large" {
			t.Errorf("the pool is named %q, want the first model's name", p.Name())
		}
		req := hello()
		req.Model = p.Name()
		if _, err := collect(p.GenerateContent(t.Context(), req, true)); err != nil {
			t.Fatal(err)
		}
		if req.Model != "large" || a.requests[0] != req || b.requests[0].Model != "small" || b.requests[0].Contents[0] != req.Contents[0] {
			t.Errorf("the caller's request has %q, a's %q, b's %q", req.Model, a.requests[0].Model, b.requests[0].Model)
		}
	})
}

func TestCallsWithAKeyTakeOneRouteAsLongAsItWorks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var models []*fakeLLM
		var ways []way
		broken := -1 // the route that fails
		for i := range 4 {
			f := refuses(overloaded(), 0, func(int) bool { return broken == i })
			models = append(models, f)
			ways = append(ways, via(t, fmt.Sprint("route ", i), f))
		}
		p := newPool(t, route.Config{}, ways...)
		// home is the route that serves a key.
		home := func(key string) int {
			before := make([]int, len(models))
			for i, m := range models {
				before[i] = m.count()
			}
			if err := call(route.Sticky(t.Context(), key), p); err != nil {
				t.Fatal(err)
			}
			at := -1
			for i, m := range models {
				if i != broken && m.count() > before[i] {
					at = i
				}
			}
			return at
		}
		keys := map[string]int{}
		for i := range 40 {
			key := fmt.Sprint("session ", i)
			keys[key] = home(key)
		}
		spread := map[int]int{}
		for range 3 {
			for key, at := range keys {
				spread[at]++
				if h := home(key); h != at {
					t.Fatalf("%s went to route %d, and now to %d", key, at, h)
				}
			}
		}
		if len(spread) != 4 {
			t.Errorf("40 keys went to %d of 4 routes", len(spread))
		}
		broken = keys["session 0"]
		moved := 0
		for key, at := range keys {
			if h := home(key); h != at {
				moved++
				if at != broken {
					t.Errorf("%s left route %d, which works", key, at)
				}
			}
		}
		if want := spread[broken] / 3; moved != want {
			t.Errorf("%d keys moved, want the %d of the route that is broken", moved, want)
		}
		broken = -1
		time.Sleep(5 * time.Minute)
		for key, at := range keys {
			if h := home(key); h != at {
				t.Errorf("%s has not come back to route %d, but to %d", key, at, h)
			}
		}
	})
}

func TestStickyKeepsWhatAFrameworksContextAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var flow string
		g := newGate(t, ratelimited.Config{Slots: 1, FlowWeight: func(_, f string) float64 { flow = f; return 1 }})
		p := newPool(t, route.Config{}, way{Name: "a", Model: wrap(t, answers(0), g)}, via(t, "b", answers(0)))
		for range 2 {
			if err := call(route.Sticky(userContext{t.Context()}, ""), p); err != nil {
				t.Fatal(err)
			}
		}
		if flow != "ada" {
			t.Errorf("the flow is %q, want the user's", flow)
		}
	})
}

// userContext is a context of an agent framework.
type userContext struct{ context.Context }

func (userContext) UserID() string { return "ada" }

func TestAPoolForecastsTheWaitAtTheRouteThatACallWouldTake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ways := []way{via(t, "a", answers(0)), via(t, "b", answers(0))}
		p := newPool(t, route.Config{}, ways...)
		if w := p.ExpectedWait(t.Context(), hello()); w != 0 {
			t.Errorf("with all free %v, want 0", w)
		}
		defer occupy(t, gateOf(ways[0]))()
		if w := p.ExpectedWait(t.Context(), hello()); w != 0 {
			t.Errorf("with b free %v, want 0", w)
		}
		defer occupy(t, gateOf(ways[1]))()
		if w, at := p.ExpectedWait(t.Context(), hello()), ways[0].Model.(*wrapped).ExpectedWait(t.Context(), hello()); w != at || w == 0 {
			t.Errorf("with all taken %v, want %v as at a", w, at)
		}
		for _, w := range ways {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_ = gateOf(w).Close(ctx)
		}
		if w := p.ExpectedWait(t.Context(), hello()); w != math.MaxInt64 {
			t.Errorf("with all closed %v, want for ever", w)
		}
	})
}

// speaking is a model that says which Google API it speaks to.
type speaking struct {
	*fakeLLM
	backend genai.Backend
}

func (s speaking) GetGoogleLLMVariant() genai.Backend { return s.backend }

func TestAPoolSpeaksToAnAPIThatAllItsRoutesSpeakTo(t *testing.T) {
	t.Parallel()
	vertex := func() LLM { return &speaking{answers(0), genai.BackendVertexAI} }
	for name, c := range map[string]struct {
		models []LLM
		want   genai.Backend
	}{
		"all the same":  {[]LLM{vertex(), vertex()}, genai.BackendVertexAI},
		"two APIs":      {[]LLM{vertex(), &speaking{answers(0), genai.BackendGeminiAPI}}, genai.BackendUnspecified},
		"one hides it":  {[]LLM{vertex(), vertex()}, genai.BackendUnspecified},
		"one says none": {[]LLM{vertex(), answers(0)}, genai.BackendUnspecified},
		"none says any": {[]LLM{answers(0), answers(0)}, genai.BackendUnspecified},
	} {
		var ways []way
		for i, m := range c.models {
			w := via(t, fmt.Sprint(i), m)
			if name == "one hides it" && i == 1 {
				w.Gate, w.Model = gateOf(w), decorated{w.Model}
			}
			ways = append(ways, w)
		}
		if got := newPool(t, route.Config{}, ways...).GetGoogleLLMVariant(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestAGateIsNotPutAroundAPoolThatGoesThroughIt(t *testing.T) {
	t.Parallel()
	ways := []way{via(t, "a", answers(0)), via(t, "b", answers(0))}
	p := newPool(t, route.Config{}, ways...)
	for _, w := range ways {
		if _, err := ratelimited.New[*LLMRequest, *LLMResponse](p, gateOf(w)); err == nil {
			t.Errorf("the gate %q is put around a pool that goes through it", gateOf(w).Name())
		}
	}
	if _, err := ratelimited.New[*LLMRequest, *LLMResponse](p, newGate(t, ratelimited.Config{Slots: 1})); err != nil {
		t.Errorf("a gate of its own: %v", err)
	}
}

// decorated hides the methods of a wrapped model.
type decorated struct{ LLM }

func TestAModelThatHidesItsForecastNeedsItsGate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := answers(0), answers(0)
		inner := via(t, "a", a)
		shown := way{Name: "a", Model: decorated{inner.Model}, Gate: gateOf(inner)}
		p := newPool(t, route.Config{}, shown, via(t, "b", b))
		defer occupy(t, gateOf(inner))()
		for range 3 {
			if err := call(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		if a.count() != 0 || b.count() != 3 {
			t.Errorf("%d calls went to a, whose slots are taken, and %d to b", a.count(), b.count())
		}
	})
}
