package ratelimited_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
)

func mustNeverFit(t *testing.T, err error, limit string, requested, most int64) {
	t.Helper()
	var e *ratelimited.NeverFitsError
	if !errors.As(err, &e) || !errors.Is(err, ratelimited.ErrNeverFits) || errors.Is(err, ratelimited.ErrWait) {
		t.Fatalf("got %v, want a NeverFitsError", err)
	}
	if e.Limit != limit || e.Requested != requested || e.Max != most {
		t.Errorf("got %v, want %d of %q, at most %d", err, requested, limit, most)
	}
	if v := retry.Classify(err); v.Class != retry.NeverFits {
		t.Errorf("%v is classified as %v, want never_fits", err, v.Class)
	}
}

// mustNotWait checks a WaitError and returns it.
func mustNotWait(t *testing.T, err error, reasons ...error) *ratelimited.WaitError {
	t.Helper()
	var e *ratelimited.WaitError
	if !errors.As(err, &e) || !errors.Is(err, ratelimited.ErrWait) {
		t.Fatalf("got %v, want a WaitError", err)
	}
	all := []error{ratelimited.ErrLineFull, ratelimited.ErrClosed, context.Canceled, context.DeadlineExceeded}
	for _, known := range all {
		want := false
		for _, r := range reasons {
			want = want || r == known
		}
		if errors.Is(err, known) != want {
			t.Errorf("%v matches %v: %v, want %v", err, known, !want, want)
		}
	}
	if v := retry.Classify(err); v.Class != retry.Denied {
		t.Errorf("%v is classified as %v, want denied: nobody must take it for the provider's", err, v.Class)
	}
	return e
}

// full is a gate whose window is used up; it empties 62 seconds after the start
// of a minute of use.
func full(t *testing.T, cfg ratelimited.Config) *ratelimited.Gate {
	t.Helper()
	cfg.Headroom, cfg.Profile = 1, window(100)
	if cfg.Slots == 0 {
		cfg.Slots = 10
	}
	g := newGate(t, cfg)
	p, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(100)})
	if err != nil {
		t.Fatal(err)
	}
	p.End(input(100))
	return g
}

// empties is when the window of full is empty again: a minute, and the cell that
// the calls were counted in.
const empties = 61 * time.Second

func TestMaxWaitBoundsTheWait(t *testing.T) {
	none, short, long := time.Duration(0), 10*time.Second, 2*time.Minute
	for name, test := range map[string]struct {
		config  *time.Duration
		call    *time.Duration
		ctx     time.Duration
		waits   time.Duration
		reasons []error // nil if it is admitted
		refused bool
	}{
		"unset and no deadline":        {waits: empties},
		"unset, a late deadline":       {ctx: long, waits: empties},
		"unset, an early deadline":     {ctx: short, refused: true, reasons: []error{context.DeadlineExceeded}},
		"0":                            {config: &none, refused: true},
		"0 and a late deadline":        {config: &none, ctx: long, refused: true},
		"short":                        {config: &short, refused: true},
		"long":                         {config: &long, waits: empties},
		"long, an early deadline":      {config: &long, ctx: short, refused: true, reasons: []error{context.DeadlineExceeded}},
		"the call's instead of 0":      {config: &none, call: &long, waits: empties},
		"the call's 0 instead of long": {config: &long, call: &none, refused: true},
		"the call's negative is 0":     {config: &long, call: ptr(-time.Second), refused: true},
		"exactly what it takes":        {config: ptr(empties), waits: empties},
		"a nanosecond less":            {config: ptr(empties - 1), refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := full(t, ratelimited.Config{MaxWait: test.config})
				ctx := t.Context()
				if test.ctx > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.ctx)
					defer cancel()
				}
				if test.call != nil {
					ctx = ratelimited.WithMaxWait(ctx, *test.call)
				}
				start := time.Now()
				p, err := g.Acquire(ctx, ratelimited.Call{Usage: input(50)})
				if d := time.Since(start); d != test.waits {
					t.Errorf("waited %v, want %v", d, test.waits)
				}
				if !test.refused {
					if err != nil {
						t.Fatal(err)
					}
					p.Release()
					mustBeIdle(t, g)
					return
				}
				e := mustNotWait(t, err, test.reasons...)
				if e.Limit != "tokens" || e.Waited != 0 || e.RetryAfter() != empties {
					t.Errorf("limit %q, waited %v, try again after %v; want tokens, 0 and %v", e.Limit, e.Waited, e.RetryAfter(), empties)
				}
				mustBeIdle(t, g)
			})
		})
	}
}

// A wait fails early only if it could not be met even if every hold were
// refunded now; otherwise it lasts to its end.
func TestWaitFailsEarlyOnlyWhereItIsHopeless(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 10, Headroom: 1, Profile: window(100)})
		p, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(100)}) // open: may still be refunded
		if err != nil {
			t.Fatal(err)
		}
		why := errors.New("the page was closed")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, why)
		defer cancel()
		start := time.Now()
		_, err = g.Acquire(ctx, ratelimited.Call{Usage: input(1)})
		e := mustNotWait(t, err, context.DeadlineExceeded)
		if d := time.Since(start); d != 5*time.Second || e.Waited != d || e.Limit != "tokens" {
			t.Errorf("waited %v (told %v) for %q, want 5s for tokens", d, e.Waited, e.Limit)
		}
		if !errors.Is(err, why) {
			t.Errorf("%v does not match the cause of the context's end", err)
		}
		time.AfterFunc(time.Second, p.Release)
		start = time.Now()
		q, err := g.Acquire(ratelimited.WithMaxWait(t.Context(), 5*time.Second), ratelimited.Call{Usage: input(1)})
		if err != nil || time.Since(start) != time.Second {
			t.Fatalf("the refund admits after %v (%v), want 1s", time.Since(start), err)
		}
		q.Release()
		mustBeIdle(t, g)
	})
}

// The gate's timer may notice a deadline before the context does. The error
// carries the context's cause all the same, if the context keeps to its deadline.
func TestDeadlineCarriesItsCause(t *testing.T) {
	why := errors.New("the page was closed")
	for name, late := range map[string]time.Duration{"a moment later": 5 * time.Millisecond, "much later": time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1})
				p, err := g.Acquire(t.Context(), ratelimited.Call{})
				if err != nil {
					t.Fatal(err)
				}
				defer p.Release()
				start := time.Now()
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second+late, why)
				defer cancel()
				_, err = g.Acquire(early{ctx, start.Add(time.Second)}, ratelimited.Call{})
				mustNotWait(t, err, context.DeadlineExceeded)
				if kept := late < time.Minute; errors.Is(err, why) != kept || time.Since(start) > 1100*time.Millisecond {
					t.Errorf("got %v after %v; want the cause: %v, and no wait for it", err, time.Since(start), kept)
				}
			})
		})
	}
}

// early is a context that names another deadline than it keeps.
type early struct {
	context.Context
	deadline time.Time
}

func (e early) Deadline() (time.Time, bool) { return e.deadline, true }

// Every bound is kept to the moment, though a later one, or a later instant at
// which somebody may start, is waited for already.
func TestEarlierBoundIsKeptThoughALaterOneIsSet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 10, Headroom: 1, Profile: window(100)})
		p, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(50)})
		if err != nil {
			t.Fatal(err)
		}
		p.End(input(50))
		if p, err = g.Acquire(t.Context(), ratelimited.Call{Usage: input(50)}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var wg sync.WaitGroup
		for i, bound := range []time.Duration{50 * time.Second, 5 * time.Second, 20 * time.Second, time.Second} {
			wg.Go(func() {
				time.Sleep(time.Duration(i))
				_, err := g.Acquire(ratelimited.WithMaxWait(t.Context(), bound), ratelimited.Call{Usage: input(20)})
				e := mustNotWait(t, err)
				if e.Waited != bound || e.Limit != "tokens" || e.Expected <= 0 {
					t.Errorf("waited %v for %q, expected wait %v; want %v for tokens, and more than nothing", e.Waited, e.Limit, e.Expected, bound)
				}
			})
		}
		wg.Wait()
		if d := time.Since(start); d.Round(time.Second) != 50*time.Second {
			t.Errorf("all had failed after %v, want 50s", d)
		}
		p.End(input(50))
		mustBeIdle(t, g)
	})
}

// A call that does not want to wait is admitted where there is room, with
// ceilings too, and while others wait for something that it does not need.
func TestCallThatDoesNotWaitIsAdmittedWhereThereIsRoom(t *testing.T) {
	for name, cfg := range map[string]ratelimited.Config{
		"plain":         {},
		"with ceilings": {PerFlow: ratelimited.Ceiling{Slots: 2, Share: 0.9}, PerRequest: ratelimited.Ceiling{Slots: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := full(t, cfg)
				var wg sync.WaitGroup
				wg.Go(func() {
					p, err := g.Acquire(t.Context(), ratelimited.Call{Flow: "a", Usage: input(10)})
					if err != nil {
						t.Error(err)
					}
					p.Release()
				})
				synctest.Wait()
				now := ratelimited.WithMaxWait(t.Context(), 0)
				for i := range 4 {
					if i == 3 {
						now = ratelimited.WithMaxWait(t.Context(), -time.Hour) // counts as 0
					}
					p, err := g.Acquire(now, ratelimited.Call{Flow: "b", Request: "r"})
					if err != nil {
						t.Fatal(err)
					}
					p.Release()
				}
				_, err := g.Acquire(now, ratelimited.Call{Flow: "b", Usage: input(1)})
				mustNotWait(t, err)
				wg.Wait()
				mustBeIdle(t, g)
			})
		})
	}
}

// The line is bounded. Who finds it full is told how long it would take.
func TestFullLineRefusesWithTheExpectedWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := full(t, ratelimited.Config{MaxWaiting: 2})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				p, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(50)})
				if err != nil {
					t.Error(err)
				}
				p.Release()
			})
		}
		synctest.Wait()
		_, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(50)})
		e := mustNotWait(t, err, ratelimited.ErrLineFull)
		if e.Expected < empties || e.Limit != "tokens" {
			t.Errorf("expected wait %v for %q, want at least %v for tokens", e.Expected, e.Limit, empties)
		}
		if want := g.ExpectedWait(ratelimited.Call{Usage: input(50)}); e.Expected != want {
			t.Errorf("expected wait %v, want what ExpectedWait says: %v", e.Expected, want)
		}
		wg.Wait()
		mustBeIdle(t, g)
	})
}

// What a refusal says about waiting makes a Retry-After of whole seconds, at
// least 1, and who waits that long is admitted.
func TestRetryAfterOfARefusalIsEnough(t *testing.T) {
	for _, left := range []time.Duration{time.Millisecond, 200 * time.Millisecond, 1200 * time.Millisecond, 59999 * time.Millisecond} {
		bubbleRun(t, "left", left, func(t *testing.T) {
			g := full(t, ratelimited.Config{MaxWait: ptr(time.Duration(0))})
			time.Sleep(empties - left)
			_, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(100)})
			e := mustNotWait(t, err)
			if e.RetryAfter() < left || e.RetryAfter() > time.Minute {
				t.Errorf("try again after %v, want at least %v and at most a window", e.RetryAfter(), left)
			}
			seconds := retry.AfterSeconds(e.RetryAfter())
			time.Sleep(time.Duration(seconds) * time.Second)
			p, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(100)})
			if err != nil {
				t.Fatalf("after waiting as told: %v", err)
			}
			p.Release()
		})
	}
	t.Run("unknown is at least one second", func(t *testing.T) {
		if n := retry.AfterSeconds((&ratelimited.WaitError{}).RetryAfter()); n != 1 {
			t.Errorf("Retry-After is %d, want 1", n)
		}
	})
}
