package httpgate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// exchange is one RoundTrip. It is the request of a RateLimitedModel, so that
// everything that a call is promised there holds here as well: its estimate and
// what was learned, its budgets, its place in line, its retries, its end.
//
// That model's sequence must be ranged to its end, while a round tripper must
// return with the headers; so a goroutine ranges it. It runs while the call waits
// in line and until the headers are there. From then on it is parked, and it is
// the reader of the body that, within Read, gives the items to the model: it has
// the goroutine's part, and gives it back at the end. At no time do both act.
type exchange struct {
	t        *Transport
	req      *http.Request
	route    route
	body     payload
	estimate usage.Usage
	limit    int64 // that the request sets on its output; 0 if it sets none
	choices  int64 // that the answer will have, at OpenAI

	result chan outcome  // what RoundTrip is to return; has room for it
	done   chan struct{} // closed when everything is back

	// What follows belongs to the goroutine that ranges, or to the reader in its
	// stead.
	told   bool  // RoundTrip has its result
	failed error // the last error that was yielded
}

// outcome is what RoundTrip returns, or the panic of somebody's code that it
// passes on.
type outcome struct {
	resp     *http.Response
	err      error
	panicked bool
	panic    any
}

// event is an item of a call: the headers of the answer, which tell nothing yet,
// and then what parts of its body tell.
type event struct {
	usage    usage.Usage
	progress ratelimited.Progress
	stop     bool // the reader has closed the body
}

func (t *Transport) newExchange(req *http.Request, r route) (*exchange, error) {
	x := &exchange{t: t, req: req, route: r, result: make(chan outcome, 1), done: make(chan struct{})}
	e := newEstimator(&x.route)
	if err := x.body.prepare(req, e, t.cfg.MaxBuffered); err != nil {
		return nil, err
	}
	x.estimate = e.usage(t.cfg.TypicalOutput, x.body.read, x.body.size)
	x.limit, x.choices = e.outputLimit(), e.choices()
	if t.cfg.MaxTokensReserved && x.limit > 0 {
		x.estimate.Output, x.estimate.Thoughts = x.limit, x.limit
	}
	if x.route.model == "" {
		x.route.model = e.model
	}
	return x, nil
}

// roundTrip makes the call, and returns when the headers of its answer are
// there.
func (x *exchange) roundTrip() (*http.Response, error) {
	m, err := x.t.model(x.route.model, x.t.cfg.NoRetries || !x.body.again())
	if err != nil {
		x.body.close()
		return nil, err
	}
	go x.run(m)
	o := <-x.result
	if o.panicked {
		panic(o.panic)
	}
	if o.err != nil && o.resp == nil && x.t.cfg.Refusals == AsResponse {
		if resp, ok := x.synthetic(o.err); ok {
			return resp, nil
		}
	}
	return o.resp, o.err
}

// run ranges over the model's sequence.
func (x *exchange) run(m *wrapped) {
	returned := false
	defer func() {
		x.body.close()
		if !returned {
			x.unreturned(recover())
		}
		close(x.done)
	}()
	ctx := WithPermit(x.req.Context(), x.t.gate)
	// Called and not ranged: a range statement would not have its body called by
	// another goroutine.
	m.GenerateContent(ctx, x, true)(x.take)
	if !x.told {
		x.tell(outcome{err: x.failure()})
	}
	returned = true
}

// unreturned tells of a panic, or of a goroutine that was ended by
// runtime.Goexit, in somebody's code.
func (x *exchange) unreturned(p any) {
	switch {
	case !x.told && p == nil:
		x.tell(outcome{err: errors.New("httpgate: the round tripper ended its goroutine")})
	case !x.told:
		x.tell(outcome{panicked: true, panic: p})
	case p != nil: // nobody above could meet it
		x.t.cfg.Logger.Error("httpgate: a function of the gate's configuration panicked at the end of a call",
			slog.String("gate", x.t.gate.Name()), slog.Any("panic", p))
	}
}

func (x *exchange) tell(o outcome) {
	x.told = true
	x.result <- o
}

// take is what the model's sequence yields to, when it has noted the item.
func (x *exchange) take(e *event, err error) bool {
	if err != nil {
		x.failed = err
		if r, ok := err.(*refusedError); ok && !x.told { // an answer all the same
			r.taken = true
			x.tell(outcome{resp: r.response()})
		}
		return true
	}
	return !e.stop
}

// failure is the error that RoundTrip returns.
func (x *exchange) failure() error {
	if x.failed == nil {
		return fmt.Errorf("httpgate: the round tripper returned neither a response nor an error")
	}
	return x.failed
}

// requests is a model whose requests are exchanges. It is a plain value, because
// one is made for each name of a model.
type requests struct {
	t    *Transport
	name string
}

// Name is the name of the model.
func (m requests) Name() string { return m.name }

// GenerateContent sends the request once.
func (m requests) GenerateContent(ctx context.Context, x *exchange, _ bool) iter.Seq2[*event, error] {
	return func(yield func(*event, error) bool) {
		resp, err := x.send(ctx)
		switch {
		case err != nil:
			yield(nil, err)
		case resp.StatusCode < 200 || resp.StatusCode > 299:
			r := newRefusedError(ctx, x, resp)
			yield(nil, r)
			if !r.taken {
				_ = resp.Body.Close() // the call is tried again
			}
		default:
			b := newBody(x, resp, yield)
			if !yield(&b.item, nil) {
				b.end()
				_ = b.src.Close()
				return
			}
			// Only now may the reader have the word.
			x.tell(outcome{resp: b.answered()})
			b.wait(ctx)
		}
	}
}

// send sends the request and waits for the headers of the answer.
func (x *exchange) send(ctx context.Context) (*http.Response, error) {
	req, err := x.body.request(x.req, ctx)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	resp, err := x.t.sender.RoundTrip(req)
	if a, ok := err.(*plainAnswer); ok {
		resp, err = a.resp, nil
	}
	if err != nil {
		return nil, err
	}
	if resp == nil {
		return nil, errors.New("httpgate: the round tripper returned neither a response nor an error")
	}
	resp.Request = x.req // the other one has a context that goes past the gate
	if resp.Body == nil {
		resp.Body = http.NoBody
	}
	if reports := x.route.limits(resp.Header, sent, time.Now()); len(reports) > 0 {
		x.t.gate.Report(reports...)
	}
	return resp, nil
}

// plain keeps a retry.Transport, which tells when a request was written, from
// the bodies of answers that it would change.
type plain struct{ base http.RoundTripper }

// plainAnswer is a response that went past it.
type plainAnswer struct{ resp *http.Response }

func (*plainAnswer) Error() string { return "httpgate: a response" }

func (p plain) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := p.base.RoundTrip(req)
	if err != nil || resp == nil || resp.StatusCode < 400 {
		return resp, err
	}
	return nil, &plainAnswer{resp}
}

// meter reads exchanges and their items.
type meter struct{}

// Estimate implements ratelimited.Meter.
func (meter) Estimate(x *exchange) usage.Usage { return x.estimate }

// OutputLimit is the limit that the request sets on all its answers together; 0
// if it sets none. Package ratelimited asks.
func (meter) OutputLimit(x *exchange) int64 { return x.limit }

// Observe implements ratelimited.Meter.
func (meter) Observe(e *event) (usage.Usage, ratelimited.Progress) { return e.usage, e.progress }

// Clamp implements ratelimited.Meter: requests pass as they are.
func (meter) Clamp(x *exchange, _ int64) (*exchange, bool) { return x, false }
