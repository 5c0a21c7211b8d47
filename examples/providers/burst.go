package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// result is what one run of the burst came to. Its durations are those of the
// real API.
type result struct {
	name              string
	calls             int
	refused           int64
	reports, complete int
	total             entry
	firstTexts        []time.Duration // from click to first text of a report, in order of length
	makespan          time.Duration
	err               error // the first one of a report
}

// measure makes the burst without limits and through a gate, or at a real
// endpoint through a gate only.
func measure(ctx context.Context, o options, p provider, catalog *usage.Catalog, host host) ([]*result, error) {
	var runs []*result
	if o.url == "" {
		gate, err := newOpenGate(o)
		if err != nil {
			return nil, err
		}
		r, err := makeRun(ctx, o, p, "unlimited", catalog, host, gate, ratelimited.WithoutRetries())
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	gate, err := p.newGate(o)
	if err != nil {
		return nil, err
	}
	r, err := makeRun(ctx, o, p, "headgate", catalog, host, gate)
	return append(runs, r), err
}

// makeRun makes the burst once, at a double of its own or at the real endpoint.
func makeRun(
	ctx context.Context, o options, p provider, name string,
	catalog *usage.Catalog, host host, gate *ratelimited.Gate, opts ...ratelimited.Option,
) (*result, error) {
	at, reset, err := p.reach(o, host)
	if err != nil {
		return nil, err
	}
	defer at.close()
	transport := &counting{RoundTripper: at.transport}
	b := &books{catalog: catalog}
	agent, err := p.agent(endpoint{at.url, keyOf(o, p), transport}, o.modelOf(p), gate, append(opts, ratelimited.WithBudgets(b)))
	if err != nil {
		return nil, err
	}
	reset()
	r := burst(ctx, o, agent)
	if err := errors.Join(ctx.Err(), gate.Close(context.WithoutCancel(ctx))); err != nil {
		return nil, err
	}
	r.name, r.refused = name, transport.refused.Load()
	r.calls, r.total, err = b.closed()
	return r, err
}

// reach serves a double, or says where the real endpoint is.
func (p provider) reach(o options, host host) (at hosted, reset func(), err error) {
	if o.url != "" {
		return genuine(o.url), func() {}, nil
	}
	d, err := p.double(o)
	if err != nil {
		return hosted{}, nil, err
	}
	at, err = host(d)
	at.url += p.path
	return at, d.Reset, err
}

// keyOf is the key of the real endpoint. A double takes any.
func keyOf(o options, p provider) string {
	if o.url != "" {
		return os.Getenv(p.key)
	}
	return "any"
}

// burst has all users click at once and waits until every report has ended.
func burst(ctx context.Context, o options, agent reporter) *result {
	r := &result{reports: o.users}
	var mu sync.Mutex // guards r
	var clicks sync.WaitGroup
	start := time.Now()
	for user := range o.users {
		clicks.Go(func() {
			ctx := ratelimited.WithFlow(ctx, fmt.Sprint("user ", user+1))
			ctx = ratelimited.WithRequest(ctx, fmt.Sprint("click ", user+1))
			var first sync.Once
			_, err := agent.Report(ctx, subjectOf(user), func(string) {
				first.Do(func() {
					mu.Lock()
					defer mu.Unlock()
					r.firstTexts = append(r.firstTexts, o.virtual(time.Since(start)))
				})
			})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				r.complete++
			} else if r.err == nil {
				r.err = err
			}
		})
	}
	clicks.Wait()
	r.makespan = o.virtual(time.Since(start))
	slices.Sort(r.firstTexts)
	return r
}

// firstText is the median of the times to the first text (nearest rank); false if
// there was none.
func (r *result) firstText() (time.Duration, bool) {
	n := len(r.firstTexts)
	if n == 0 {
		return 0, false
	}
	return r.firstTexts[int(math.Ceil(0.5*float64(n)))-1], true
}

// failure is an error if the gated run, which is the last, lost a report.
func failure(p provider, runs []*result) error {
	r := runs[len(runs)-1]
	if r.complete == r.reports {
		return nil
	}
	return fmt.Errorf("%s: %d of %d reports failed behind the gate, the first with: %w", p.name, r.reports-r.complete, r.reports, r.err)
}
