package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

// provider enforces the whole quota and answers the calls of all replicas. It
// is each replica's model, one for each.
type provider struct {
	engine *engine.Engine
	count  func(usage.Usage) int64
	gauge  *gauge
}

// order is a call on its way, and what became of it.
type order struct {
	modelCall
	index uint64
	sent  time.Time // when it was first sent; zero if it never was
}

func newEngine(q question, window engine.WindowModel) (*engine.Engine, error) {
	cfg := engine.Config{}
	for _, l := range q.limits() {
		dim := engine.Requests
		if l.flag == "tpm" {
			dim = engine.TotalTokens
		}
		cfg.Limits = append(cfg.Limits, engine.Limit{Name: l.name, Dimension: dim, Amount: l.quota, Length: time.Minute, Model: window})
	}
	return engine.New(cfg)
}

// counter tells what a call takes from the token quota.
func (q question) counter() func(usage.Usage) int64 {
	if q.Count == countInput {
		return ratelimited.InputTokens
	}
	return ratelimited.TotalTokens
}

// Name implements ratelimited.Model.
func (p *provider) Name() string { return "provider" }

// GenerateContent implements ratelimited.Model: one item at the end of the call.
func (p *provider) GenerateContent(ctx context.Context, o *order, _ bool) iter.Seq2[usage.Usage, error] {
	return func(yield func(usage.Usage, error) bool) {
		if o.sent.IsZero() {
			o.sent = time.Now()
		}
		used := o.used()
		amounts := engine.Amounts{engine.Requests: 1, engine.TotalTokens: p.count(used)}
		digest := engine.DigestOf(binary.BigEndian.AppendUint64(nil, o.index))
		if err := send(ctx); err != nil {
			yield(usage.Usage{}, err)
			return
		}
		call, err := p.engine.Admit(ctx, engine.Arrival{Amounts: amounts, Digest: digest})
		if err != nil {
			yield(usage.Usage{}, refusal(err))
			return
		}
		p.gauge.add(1)
		call.Plan(int(o.output), &o.latency, 1)
		err = call.Wait(ctx, int(o.output))
		p.gauge.add(-1)
		outcome := engine.Completed
		if err != nil {
			outcome = engine.Cancelled
		}
		call.End(outcome, amounts, 0)
		yield(used, err)
	}
}

// send writes a request through the transport that a program would use, so that
// the gate hears when it was written.
func send(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://provider.invalid/", nil)
	if err != nil {
		return err
	}
	resp, err := (&retry.Transport{Base: wire{}}).RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// wire is a network without delay.
type wire struct{}

// RoundTrip implements http.RoundTripper.
func (wire) RoundTrip(req *http.Request) (*http.Response, error) {
	if t := httptrace.ContextClientTrace(req.Context()); t != nil && t.WroteRequest != nil {
		t.WroteRequest(httptrace.WroteRequestInfo{})
	}
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: req}, nil
}

// refusal is a refusal as the Gemini API words it: a 429 with the time after
// which to come back.
func refusal(err error) error {
	var r *engine.Refusal
	if !errors.As(err, &r) {
		return err
	}
	e := genai.APIError{Code: 429, Status: "RESOURCE_EXHAUSTED", Message: r.Error()}
	if r.Retry > 0 {
		e.Details = []map[string]any{{
			"@type":      "type.googleapis.com/google.rpc.RetryInfo",
			"retryDelay": fmt.Sprintf("%.9fs", r.Retry.Seconds()),
		}}
	}
	return e
}

// meter reads orders: the input is known before a call is sent, the output is
// the average.
type meter struct{ output int64 }

func (m meter) Estimate(o *order) usage.Usage {
	return usage.Usage{Input: o.input, Output: m.output, Flags: usage.Estimated}
}

func (m meter) Observe(u usage.Usage) (usage.Usage, ratelimited.Progress) {
	return u, ratelimited.Done
}

func (m meter) Clamp(o *order, _ int64) (*order, bool) { return o, false }

// gateFor makes the gate of one replica: the plan's slots and an equal part of
// every quota, in a profile that matches the provider's windows.
func gateFor(q question, slots int64, maxWait time.Duration, window engine.WindowModel) (*ratelimited.Gate, error) {
	shape := ratelimited.Sliding
	if window == engine.Bucket {
		shape = ratelimited.Bucket
	}
	cfg := ratelimited.Config{
		Headroom: q.Headroom, MaxWait: &maxWait, MaxWaiting: maxSimulated, Slots: slots,
		Profile: ratelimited.Profile{Name: "quota"},
	}
	for _, l := range q.limits() {
		d := ratelimited.Dimension{Name: l.name, Limit: l.quota / int64(q.Replicas), Shape: shape}
		if l.flag == "tpm" {
			d.Count, d.Resource = q.counter(), retry.InputTokens|retry.TotalTokens
		} else {
			d.Count, d.Resource, d.FailuresCount = ratelimited.OneRequest, retry.Requests, true
		}
		cfg.Profile.Dimensions = append(cfg.Profile.Dimensions, d)
	}
	return ratelimited.NewGate(cfg)
}

// gauge is a number that changes over time, such as calls in flight, from a
// certain instant on.
type gauge struct {
	full int64 // what counts as full
	from time.Time
	to   time.Time

	mu    sync.Mutex // guards what follows
	n     int64
	peak  int64
	since time.Time
	area  float64 // n times seconds
	sated float64 // seconds at full or above
}

// add changes the number by d.
func (g *gauge) add(d int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advance(time.Now())
	g.n += d
	if now := time.Now(); !now.Before(g.from) && now.Before(g.to) {
		g.peak = max(g.peak, g.n)
	}
}

// advance books the time until now, as far as it lies between from and to.
func (g *gauge) advance(now time.Time) {
	start, end := g.since, now
	g.since = now
	if start.Before(g.from) {
		start = g.from
	}
	if end.After(g.to) {
		end = g.to
	}
	if s := end.Sub(start).Seconds(); s > 0 {
		g.area += s * float64(g.n)
		if g.n >= g.full {
			g.sated += s
		}
	}
}
