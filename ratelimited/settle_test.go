package ratelimited_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
	"github.com/prometheus/client_golang/prometheus"
)

// Budgets are reserved in their order. If one denies, or its store fails, those
// before it are released, those after it are not asked, nothing is sent, and the
// caller gets the budget's own error, with everything back already.
func TestDenialOfOneBudgetReleasesTheOthers(t *testing.T) {
	for name, test := range map[string]struct {
		limit int64
		err   error
		is    error
	}{
		"denied":      {limit: 1, is: budget.ErrDenied},
		"store fails": {err: errStore, is: errStore},
	} {
		for kind := range ledgers("", 0, 0) {
			t.Run(name+" "+kind, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					g := newGate(t, ratelimited.Config{Slots: 1})
					session, user, tenant := ledgers("session", 0, 0)[kind], ledgers("user", test.limit, 0)[kind], ledgers("tenant", 0, 0)[kind]
					user.reserveErr = test.err
					f := answers(0, final(1, 1))
					llm := wrap(t, f, g, ratelimited.WithBudgets(session), ratelimited.WithBudgets(user, tenant))
					n := 0
					for _, err := range llm.GenerateContent(t.Context(), hello(), true) {
						n++
						if !errors.Is(err, test.is) || errors.Is(err, ratelimited.ErrWait) {
							t.Errorf("got %v, want %v", err, test.is)
						}
						if session.delay == 0 {
							session.expect(t, 0, 0) // before the error is seen
						}
					}
					time.Sleep(time.Second)
					session.expect(t, 0, 0)
					user.expect(t, 0, 0)
					if n != 1 || f.count() != 0 || len(tenant.reserved) != 0 || session.count("release") != 1 {
						t.Errorf("%d errors, %d calls, %d reservations of the tenant, %d releases; want 1, 0, 0 and 1",
							n, f.count(), len(tenant.reserved), session.count("release"))
					}
					mustBeIdle(t, g)
				})
			})
		}
	}
}

// What a budget is asked for: an id of its own for each call, kept over its
// attempts, the model, the agent and the estimate.
func TestBudgetIsToldTheCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1})
		l := &ledger{}
		f := refusesFirst(1, throttled())
		f.name = "gemini-x"
		llm, err := ratelimited.NewMetered(f, g, fixedMeter{40, 100}, ratelimited.WithBudgets(l))
		if err != nil {
			t.Fatal(err)
		}
		ctx := ratelimited.WithAgent(t.Context(), "writer")
		for range 2 {
			if err := call(ctx, llm, hello()); err != nil {
				t.Fatal(err)
			}
		}
		if f.count() != 3 || len(l.reserved) != 2 || len(l.ids) != 2 {
			t.Errorf("%d attempts, %d reservations, %d ids; want 3, 2 and 2", f.count(), len(l.reserved), len(l.ids))
		}
		want := budget.Call{ID: l.reserved[0].ID, Model: "gemini-x", Agent: "writer", Usage: usage.Usage{Input: 40, Output: 100, Flags: usage.Estimated}}
		if l.reserved[0] != want || len(want.ID) < 26 {
			t.Errorf("reserved %+v, want %+v", l.reserved[0], want)
		}
	})
}

// A store's context outlives the caller's: settling is not cancelled with the
// call, keeps its values, and ends by itself if the store hangs.
func TestSettlingOutlivesTheCaller(t *testing.T) {
	type key struct{}
	bubble(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		g := newGate(t, ratelimited.Config{Slots: 1, Registerer: r, Logger: quiet()})
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "tenant"), time.Hour)
		defer cancel()
		probe := &probe{}
		llm := wrap(t, answers(0, final(1, 1)), g, ratelimited.WithBudgets(probe))
		if err := call(ctx, llm, hello()); err != nil {
			t.Fatal(err)
		}
		cancel()
		start := time.Now()
		if err := g.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 10*time.Second || !errors.Is(probe.err, context.DeadlineExceeded) {
			t.Errorf("a store that hangs was left after %v with %v, want 10s and its deadline", d, probe.err)
		}
		if probe.ctx.Value(key{}) != "tenant" {
			t.Error("the caller's values did not reach the store")
		}
		if n := gather(t, r)["settlements_lost_total{}"]; n != 1 {
			t.Errorf("%v lost settlements counted, want 1", n)
		}
	})
}

// probe is a budget of a store that hangs until its context ends.
type probe struct {
	ctx context.Context
	err error
}

func (p *probe) Reserve(context.Context, budget.Call) (budget.Reservation, error) { return p, nil }
func (p *probe) Release(context.Context) error                                    { return nil }
func (p *probe) Settle(ctx context.Context, _ usage.Usage) error {
	p.ctx = ctx
	<-ctx.Done()
	p.err = ctx.Err()
	return p.err
}

// The operations on one reservation are made in order, however slow the store
// is: an adjustment never overtakes the settlement that it adjusts.
func TestOperationsOnAReservationKeepTheirOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 100, Logger: quiet()})
		l := &ledger{delay: 3 * time.Second}
		llm := wrap(t, answers(0, final(30, 5), &LLMResponse{UsageMetadata: used(50, 7)}), g, ratelimited.WithBudgets(l))
		for range 20 {
			if err := call(t.Context(), llm, hello()); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.expect(t, 0, 20*57) // an adjustment before its settlement fails
		if n := l.count("settle") + l.count("adjust"); n != 40 {
			t.Errorf("%d operations, want 40", n)
		}
	})
}

// A reservation that cannot be adjusted is left at what it was settled at, and
// one that is none at all is harmless.
func TestBudgetsThatCanLessWorkToo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log strings.Builder
		g := newGate(t, ratelimited.Config{Slots: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		plain := &plain{}
		llm := wrap(t, answers(0, final(30, 5), &LLMResponse{UsageMetadata: used(50, 7)}), g, ratelimited.WithBudgets(plain, nothing{}))
		if err := call(t.Context(), llm, hello()); err != nil {
			t.Fatal(err)
		}
		if err := g.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(plain.ops, " "); got != "settle 35" || log.Len() > 0 {
			t.Errorf("the budget was told %q, want one settlement; the log says %q, want nothing", got, &log)
		}
	})
}

// plain is a budget with nothing but the contract.
type plain struct{ ops []string }

func (p *plain) Reserve(context.Context, budget.Call) (budget.Reservation, error) { return p, nil }
func (p *plain) Settle(_ context.Context, u usage.Usage) error {
	p.ops = append(p.ops, fmt.Sprint("settle ", u.Total()))
	return nil
}
func (p *plain) Release(context.Context) error {
	p.ops = append(p.ops, "release")
	return nil
}

// nothing is a budget that allows everything and reserves nothing.
type nothing struct{}

func (nothing) Reserve(context.Context, budget.Call) (budget.Reservation, error) { return nil, nil }
