package quota_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/usage"
)

// aMinute is the most common rolling window.
var aMinute = quota.Rolling(time.Minute)

// wait makes a MaxWait.
func wait(d time.Duration) *time.Duration { return &d }

// fourToOne are the weights of the examples: input + 4 × output + ¼ × cached input.
var fourToOne = usage.Credits{
	Version: "test", Input: usage.Thousandths(1000), Output: usage.Thousandths(4000), CachedInput: usage.Thousandths(250),
}

// catalog has "m-1" at 1 dollar per million tokens of input and 4 of output, and
// "m-free", which is known to cost nothing.
func catalog(t testing.TB) *usage.Catalog {
	t.Helper()
	rates := func(input, output usage.Micros) []usage.Price {
		return []usage.Price{{Rates: usage.Rates{Input: usage.PerMillion(input), Output: usage.PerMillion(output)}}}
	}
	c, err := usage.NewCatalog(usage.CatalogConfig{Lists: []usage.PriceList{{
		AsOf: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		Models: []usage.Model{
			{Name: "m-1", Prices: rates(1_000_000, 4_000_000)},
			{Name: "m-free", Prices: rates(0, 0)},
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// world is an enforcer and what is around it.
type world struct {
	*quota.Enforcer
	t         testing.TB
	ledger    quota.Ledger
	decisions []quota.Decision
	bookings  []quota.Booking
	mu        sync.Mutex // guards decisions and bookings
}

// newWorld makes an enforcer of limits, over a Memory unless change sets another
// ledger. It is closed at the end of the test.
func newWorld(t testing.TB, limits quota.LimitsConfig, change ...func(*quota.Config)) *world {
	t.Helper()
	w := &world{t: t}
	set, err := quota.NewLimits(limits)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := quota.Config{
		Ledger: memory, Limits: set, Catalog: catalog(t), Credits: fourToOne,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Hooks: quota.Hooks{
			Decided: func(d quota.Decision) { w.mu.Lock(); w.decisions = append(w.decisions, d); w.mu.Unlock() },
			Booked:  func(b quota.Booking) { w.mu.Lock(); w.bookings = append(w.bookings, b); w.mu.Unlock() },
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	w.ledger = cfg.Ledger
	if w.Enforcer, err = quota.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = w.Close(ctx) // some tests leave the ledger broken
	})
	return w
}

// as is a context of a user of the tenant acme.
func as(user string) context.Context {
	return quota.WithSubject(context.Background(), quota.Subject{Tenant: "acme", Team: "support", User: user, Session: user + "-1"})
}

// onPlan is the same with a plan.
func onPlan(user, plan string) context.Context {
	s := quota.Subject{Tenant: "acme", Team: "support", User: user, Session: user + "-1", Plan: plan}
	return quota.WithSubject(context.Background(), s)
}

// admit begins a turn that must be allowed.
func (w *world) admit(ctx context.Context) *quota.Turn {
	w.t.Helper()
	turn, err := w.Admit(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	if d := turn.Denied(); d != nil {
		w.t.Fatalf("the turn is denied: %v", d)
	}
	return turn
}

// refused begins a turn that must be denied.
func (w *world) refused(ctx context.Context) *quota.Denial {
	w.t.Helper()
	turn, err := w.Admit(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	defer turn.End()
	if turn.Denied() == nil {
		w.t.Fatal("the turn is allowed")
	}
	return turn.Denied()
}

// tokens is an estimate of so much output, and no input.
func tokens(n int64) usage.Usage { return usage.Usage{Output: n, Flags: usage.Estimated} }

// try reserves for a call of m-1.
func (w *world) try(ctx context.Context, u usage.Usage) (budget.Reservation, error) {
	return w.Budget().Reserve(ctx, budget.Call{ID: budget.NewID(), Model: "m-1", Agent: "root", Usage: u})
}

// reserve reserves for a call that must be allowed.
func (w *world) reserve(ctx context.Context, u usage.Usage) budget.Reservation {
	w.t.Helper()
	r, err := w.try(ctx, u)
	if err != nil {
		w.t.Fatalf("the call is denied: %v", err)
	}
	return r
}

// call makes a call that uses what was estimated.
func (w *world) call(ctx context.Context, u usage.Usage) {
	w.t.Helper()
	w.settle(w.reserve(ctx, u), u)
}

// settle settles to what a provider reported.
func (w *world) settle(r budget.Reservation, u usage.Usage) {
	w.t.Helper()
	u.Flags &^= usage.Estimated
	if err := r.Settle(context.Background(), u); err != nil {
		w.t.Fatal(err)
	}
}

// denied reserves for a call that must be denied.
func (w *world) denied(ctx context.Context, u usage.Usage) *quota.Denial {
	w.t.Helper()
	r, err := w.try(ctx, u)
	return asDenial(w.t, r, err)
}

func asDenial(t testing.TB, r budget.Reservation, err error) *quota.Denial {
	t.Helper()
	if r != nil || err == nil {
		t.Fatal("the call is allowed")
	}
	var d *quota.Denial
	if !errors.As(err, &d) || !errors.Is(err, budget.ErrDenied) {
		t.Fatalf("got error %v, want a denial", err)
	}
	return d
}

// standing is how a limit stands, in the unit.
func (w *world) standing(ctx context.Context, limit string, unit quota.Unit) quota.LimitStatus {
	w.t.Helper()
	s, _ := quota.SubjectFrom(ctx)
	all, err := w.Status(context.Background(), s)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, st := range all {
		if st.Limit == limit && st.Unit == unit {
			return st
		}
	}
	w.t.Fatalf("there is no limit %q of %v among %v", limit, unit, all)
	return quota.LimitStatus{}
}

// stands checks what is spent and held of a limit.
func (w *world) stands(ctx context.Context, limit string, unit quota.Unit, committed, reserved int64) {
	w.t.Helper()
	if st := w.standing(ctx, limit, unit); st.Committed != committed || st.Reserved != reserved {
		w.t.Errorf("%s of %q: %d spent and %d reserved, want %d and %d", unit, limit, st.Committed, st.Reserved, committed, reserved)
	}
}

// told is a denial in short: what a user is told, besides the times.
func told(d *quota.Denial) string {
	return fmt.Sprintf("%s %s %s: %d of %d used, %d asked", d.Stage, d.Reason, d.Limit, d.Used, d.Max, d.Requested)
}
