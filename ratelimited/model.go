package ratelimited

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

// Model is what a [RateLimitedModel] wraps and what it is: ADK Go's model.LLM
// satisfies it as it stands, and a wrapped one satisfies model.LLM again.
//
// GenerateContent returns a cold sequence: nothing is sent until it is ranged.
// Without stream it yields one item, with stream any number of them. An error
// ends the sequence. Req and Resp are pointers to the request and response
// types.
type Model[Req, Resp any] interface {
	Name() string
	GenerateContent(ctx context.Context, req Req, stream bool) iter.Seq2[Resp, error]
}

// RateLimitedModel sends the calls of a model through a [Gate]. Make one per
// model with [New] and share it between all callers.
//
// For each range over GenerateContent's sequence it estimates the call,
// reserves it on the customer budgets, waits for the gate, sends it, passes the
// items on untouched and at once, and gives everything back exactly once,
// however the call ends: completed, failed, broken off by the consumer,
// cancelled, panicked, or left behind with its context cancelled.
//
// A call that is throttled before its first item goes back into the line with
// its first place. After an item was delivered nothing is ever retried.
//
// The slot is back before the item that completes the answer is yielded: agent
// frameworks run tools, sub-agents and transfers inside that yield, and these
// may call the same model.
//
// It is safe for concurrent use. Ranging one sequence twice makes two calls.
type RateLimitedModel[Req, Resp any] struct {
	inner   Model[Req, Resp]
	gate    *Gate
	meter   Meter[Req, Resp]
	limits  outputLimiter[Req] // the same meter, or nil
	opts    options
	retries bool // false if an inner wrapper retries already
	isNil   func(Resp) bool
	last    atomic.Pointer[party] // of the last call, which most others have in common
	calls   sync.Pool             // of *modelCall[Req, Resp]
}

// Option changes how a model is wrapped.
type Option func(*options)

type options struct {
	budgets   []budget.Budget
	release   bool
	transport bool
	reports   bool
	once      bool
	slots     int
	estimator usage.Estimator
}

// WithBudgets adds customer budgets: what the caller of a model may spend. They
// are reserved in the given order before the gate, so give the narrowest first;
// if one denies, those before it are released, nothing is sent, and the
// sequence yields the denial.
func WithBudgets(budgets ...budget.Budget) Option {
	return func(o *options) { o.budgets = append(o.budgets, budgets...) }
}

// WithReleaseInterrupted makes customer budgets charge nothing for a call that
// was sent but cancelled, timed out or broken off before its usage was
// reported. By default they are charged the estimate of its input and of the
// output seen, because the provider bills it. The gate's own limits always
// count it.
func WithReleaseInterrupted() Option { return func(o *options) { o.release = true } }

// WithTransport says that the model's HTTP client sends through a
// retry.Transport. The gate is then told when the request was written, and need
// not wait for the first item to know that the provider has counted it. The
// model is called with a derived context for that; identities that an agent
// framework's context answers to are pinned in it, but its own accessors are
// hidden from the model.
func WithTransport() Option { return func(o *options) { o.transport = true } }

// WithoutRetries makes every call be sent once: what the provider refuses is
// passed on at once. The gate still learns from it.
func WithoutRetries() Option { return func(o *options) { o.once = true } }

// WithSlots sets the number of slots that one call of this model takes. 0 is 1.
func WithSlots(n int) Option { return func(o *options) { o.slots = n } }

// WithTypicalOutput sets the number of tokens that an answer is expected to
// have before anything was learned about it. Defaults to
// usage.DefaultTypicalOutput.
func WithTypicalOutput(tokens int64) Option {
	return func(o *options) { o.estimator.TypicalOutput = tokens }
}

// New wraps a model whose request and response types carry genai's fields, by
// name and type: those of ADK Go (model.LLM) and of package genaimodel. The
// type arguments are inferred. A model that has a method Meter() of type
// func() Meter[Req, Resp] is read by that Meter instead. New returns an error
// that names the field that is missing, and an error for a model that is wrapped
// by the same gate already.
func New[Req, Resp any](model Model[Req, Resp], gate *Gate, opts ...Option) (*RateLimitedModel[Req, Resp], error) {
	o := collect(opts)
	if m, ok := model.(interface{ Meter() Meter[Req, Resp] }); ok && !isNilValue(model) {
		return wrap(model, gate, m.Meter(), o)
	}
	if !isNilValue(model) {
		o.estimator.Model = model.Name() // media cost what they do at that model
	}
	meter, err := newGenAIMeter[Req, Resp](o.estimator.Prepared())
	if err != nil {
		return nil, err
	}
	return wrap(model, gate, meter, o)
}

// NewMetered wraps a model of any types with the Meter that reads them.
func NewMetered[Req, Resp any](model Model[Req, Resp], gate *Gate, meter Meter[Req, Resp], opts ...Option) (*RateLimitedModel[Req, Resp], error) {
	return wrap(model, gate, meter, collect(opts))
}

func collect(opts []Option) (o options) {
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	return o
}

func wrap[Req, Resp any](model Model[Req, Resp], gate *Gate, meter Meter[Req, Resp], o options) (*RateLimitedModel[Req, Resp], error) {
	switch {
	case isNilValue(model):
		return nil, fmt.Errorf("ratelimited: model is nil")
	case gate == nil:
		return nil, fmt.Errorf("ratelimited: gate is nil")
	case isNilValue(meter):
		return nil, fmt.Errorf("ratelimited: meter is nil")
	case o.slots < 0 || o.slots > maxSlots:
		return nil, fmt.Errorf("ratelimited: WithSlots: n is %d, must lie between 0 and %d", o.slots, maxSlots)
	}
	if err := o.estimator.Validate(); err != nil {
		return nil, fmt.Errorf("ratelimited: WithTypicalOutput: %w", err)
	}
	for i, b := range o.budgets {
		if isNilValue(b) {
			return nil, fmt.Errorf("ratelimited: WithBudgets: budget %d is nil", i)
		}
	}
	limits, _ := meter.(outputLimiter[Req])
	m := &RateLimitedModel[Req, Resp]{
		limits: limits, inner: model, gate: gate, meter: meter, opts: o, retries: !o.once,
		isNil: nilTest[Resp](),
	}
	if t, ok := model.(interface{ UsesTransport() bool }); ok && t.UsesTransport() {
		m.opts.transport = true
	}
	if r, ok := model.(interface{ ReportsLimits() bool }); ok && r.ReportsLimits() {
		m.opts.reports = true
	}
	if w, ok := model.(wrapped); ok {
		for _, g := range w.Gates() {
			if g == gate {
				return nil, fmt.Errorf("ratelimited: model %q is wrapped by the gate %q already", model.Name(), gate.Name())
			}
		}
		m.retries = false // one layer owns the retries: the one next to the provider
	} else if other := register(m, model, gate); other != "" {
		gate.cfg.Logger.Warn("ratelimited: one model behind two gates: each believes that it owns the quota",
			slog.String("model", model.Name()), slog.String("gate", gate.Name()), slog.String("other_gate", other))
	}
	return m, nil
}

// wrapped is how wrappers recognise each other.
type wrapped interface{ Gates() []*Gate }

// Gates are the gates that calls go through: that of this wrapper, and those of
// wrappers further in. A model that sends its calls through gates by itself, such
// as a choice among wrapped models, should have this method, too: New then leaves
// retries to the gates further in, and refuses to wrap it by one of them again.
func (m *RateLimitedModel[Req, Resp]) Gates() []*Gate {
	list := []*Gate{m.gate}
	if w, ok := m.inner.(wrapped); ok {
		list = append(list, w.Gates()...)
	}
	return list
}

// Name is the name of the wrapped model: frameworks put it into requests.
func (m *RateLimitedModel[Req, Resp]) Name() string { return m.inner.Name() }

// GetGoogleLLMVariant tells which Google API the wrapped model speaks to, for
// agent frameworks that adapt requests to it; genai.BackendUnspecified if it
// does not say. The wrapped model's Client is not passed on: it is the door to
// live sessions, which would go round the gate. ADK Go refuses live sessions
// with such a model by a clear error.
func (m *RateLimitedModel[Req, Resp]) GetGoogleLLMVariant() genai.Backend {
	if v, ok := m.inner.(interface{ GetGoogleLLMVariant() genai.Backend }); ok {
		return v.GetGoogleLLMVariant()
	}
	return genai.BackendUnspecified
}

// Gate is the gate that the calls go through.
func (m *RateLimitedModel[Req, Resp]) Gate() *Gate { return m.gate }

// GenerateContent returns the sequence of the call's items. Nothing happens
// until it is ranged; each range is one call. Besides the model's own errors it
// yields a [WaitError], a [NeverFitsError] or a budget's denial, and nothing was
// sent then.
func (m *RateLimitedModel[Req, Resp]) GenerateContent(ctx context.Context, req Req, stream bool) iter.Seq2[Resp, error] {
	return func(yield func(Resp, error) bool) {
		c, ok := m.calls.Get().(*modelCall[Req, Resp])
		if !ok {
			c = &modelCall[Req, Resp]{m: m, revised: new(revisable)}
		}
		c.ctx, c.stream, c.yield = ctx, stream, yield
		c.run(req)
		if !c.shared && c.attempts < maxAttempts {
			c.renew()
			m.calls.Put(c)
		}
	}
}

// limitOf is the limit that a request sets on its output, or 0.
func (m *RateLimitedModel[Req, Resp]) limitOf(req Req) int64 {
	if m.limits == nil {
		return 0
	}
	return m.limits.OutputLimit(req)
}

// maxAttempts is how many attempts a record counts before it is used no more.
const maxAttempts = 1 << 30

// party is the party of a call with the given agent label.
func (m *RateLimitedModel[Req, Resp]) party(model, agent string) *party {
	p := m.last.Load()
	if p == nil || p.agent != agent || p.model != model {
		p = m.gate.learner.party(model, agent)
		m.last.Store(p)
	}
	return p
}

// isNilValue reports whether v is nil or holds a nil pointer.
func isNilValue(v any) bool {
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Interface, reflect.Slice, reflect.Chan:
		return r.IsNil()
	default:
		return false
	}
}

// nilTest returns a test for nil responses that does not allocate.
func nilTest[Resp any]() func(Resp) bool {
	switch reflect.TypeFor[Resp]().Kind() {
	case reflect.Pointer:
		return func(r Resp) bool { return pointer(r) == nil }
	case reflect.Map, reflect.Func, reflect.Chan, reflect.Interface:
		return func(r Resp) bool {
			v := reflect.ValueOf(r)
			return !v.IsValid() || v.IsNil()
		}
	default:
		return func(Resp) bool { return false }
	}
}

const writtenDelay = time.Second // a request is counted this long after it was written
