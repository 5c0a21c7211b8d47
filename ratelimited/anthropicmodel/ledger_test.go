package anthropicmodel_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/bench/anthropic"
	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/internal/memhttp"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/anthropicmodel"
	"github.com/headgate-go/headgate/usage"
)

// gated is a model behind a gate.
type gated = ratelimited.RateLimitedModel[*request, *response]

// rig is a model behind a gate, and a double of the API or a handler behind both.
type rig struct {
	*gated
	double *anthropic.Server
	books  *ledger
	reg    *prometheus.Registry
}

// newRig makes a rig with a double, inside a bubble; the server ends with the
// bubble's test.
func newRig(t *testing.T, cfg anthropic.Config, gate ratelimited.Config, opts ...anthropicmodel.Option) *rig {
	t.Helper()
	double, err := anthropic.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := memhttp.New(double)
	t.Cleanup(srv.Close)
	r := newRigOn(t, srv, gate, opts...)
	r.double = double
	return r
}

func newRigOn(t *testing.T, srv *memhttp.Server, gate ratelimited.Config, opts ...anthropicmodel.Option) *rig {
	t.Helper()
	r := &rig{books: &ledger{}, reg: prometheus.NewRegistry()}
	if gate.Logger == nil {
		gate.Logger = slog.New(slog.DiscardHandler)
	}
	gate.Registerer = r.reg
	g, err := ratelimited.NewGate(gate)
	if err != nil {
		t.Fatal(err)
	}
	if r.gated, err = ratelimited.New(newModel(t, newClient(srv), opts...), g, ratelimited.WithBudgets(r.books)); err != nil {
		t.Fatal(err)
	}
	return r
}

// idle fails unless the gate and the ledger hold nothing.
func (r *rig) idle(t *testing.T) {
	t.Helper()
	if s := r.Gate().Stats(); s.SlotsInUse != 0 || s.Running != 0 || s.Waiting != 0 {
		t.Errorf("the gate still has %d slots in use, %d calls running, %d waiting", s.SlotsInUse, s.Running, s.Waiting)
	}
	if open := r.books.openCount(); open != 0 {
		t.Errorf("%d reservations are still open", open)
	}
}

// outcomes reads how many attempts ended in which way.
func (r *rig) outcomes(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatalf("Gather: %v", err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "headgate_attempts_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "outcome" {
					counts[l.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	return counts
}

// ledger is a customer budget that allows everything and keeps the last that was
// booked for each call.
type ledger struct {
	mu sync.Mutex
	// mu guards what follows.
	open    int
	charged []usage.Usage
}

func (l *ledger) Reserve(_ context.Context, _ budget.Call) (budget.Reservation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	l.charged = append(l.charged, usage.Usage{})
	return &entry{l, len(l.charged) - 1}, nil
}

// last is what the last call was charged.
func (l *ledger) last() usage.Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.charged) == 0 {
		return usage.Usage{}
	}
	return l.charged[len(l.charged)-1]
}

func (l *ledger) openCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

type entry struct {
	l *ledger
	i int
}

func (e *entry) Local() bool { return true }

func (e *entry) book(u usage.Usage, closes int) error {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	e.l.open -= closes
	e.l.charged[e.i] = u
	return nil
}

func (e *entry) Settle(_ context.Context, u usage.Usage) error { return e.book(u, 1) }
func (e *entry) Release(context.Context) error                 { return e.book(usage.Usage{}, 1) }
func (e *entry) Adjust(_ context.Context, u usage.Usage) error { return e.book(u, 0) }
