package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate-go/headgate/bench/gemini"
	"github.com/headgate-go/headgate/ratelimited"
)

// headroom is the part of the double's quota that the gate uses. That quota is
// all ours, so nothing is kept back for other programs, as the library's default
// does and as the real API gets. The rest is for what a client cannot know
// exactly: how many tokens the provider will count (the first estimates are a
// few percent too high, and what is learned from the answers brings later ones
// close to the truth, on either side of it), and when a request arrives, to which
// a quota that refills continuously is sensitive.
const headroom = 0.97

// result is what one run of the burst came to. Its durations are virtual.
type result struct {
	name               string
	calls, failed      int
	throttled          int
	reviews, reviewsOK int
	makespan, bound    time.Duration
	latencies          []time.Duration // of the answered calls, in order of length
	maxWindowUse       float64
	took               time.Duration // the makespan in real time
	plans              []reviewPlan  // as measured
	tokensPerCall      int64         // as measured
	err                error         // the first one of a review
}

// unlimitedRun makes the burst without a gate.
func unlimitedRun(ctx context.Context, o options, progress *progress, host host) (*result, error) {
	p, err := serve(host, o.model, o.config())
	if err != nil {
		return nil, err
	}
	defer p.close()
	return burst(ctx, o, "unlimited", p, p.llm, nil, progress)
}

// gatedRun makes the burst through Headgate.
func gatedRun(ctx context.Context, o options, progress *progress, host host) (*result, error) {
	p, err := o.provider(host)
	if err != nil {
		return nil, err
	}
	defer p.close()
	gate, err := newGate(o)
	if err != nil {
		return nil, err
	}
	var llm LLM = p.llm
	llm, err = ratelimited.New(llm, gate) // this is all that changes
	if err != nil {
		return nil, err
	}
	r, err := burst(ctx, o, "headgate", p, llm, gate, progress)
	return r, errors.Join(err, gate.Close(context.WithoutCancel(ctx)))
}

func (o *options) provider(host host) (*provider, error) {
	if o.real {
		return o.genuine()
	}
	return serve(host, o.model, o.config())
}

// newGate makes the gate that mirrors the double's quota. A sliding window is
// right for fixed ones too, wherever these begin.
func newGate(o options) (*ratelimited.Gate, error) {
	profile := ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: o.rpm, InputTokensPerMinute: o.tpm})
	for i := range profile.Dimensions {
		d := &profile.Dimensions[i]
		d.Window = o.scaled(time.Minute)
		if o.window == gemini.Bucket {
			d.Shape = ratelimited.Bucket
		}
	}
	cfg := ratelimited.Config{Headroom: headroom, Profile: profile, Slots: o.slots}
	if o.real {
		cfg.Headroom = ratelimited.DefaultHeadroom
	}
	return ratelimited.NewGate(cfg)
}

// burst has all users click at once and waits until every review has ended.
// gate is nil where there is none.
func burst(ctx context.Context, o options, name string, p *provider, model LLM, gate *ratelimited.Gate, progress *progress) (*result, error) {
	t := &tally{plans: newPlans(o.users)}
	p.llm.done = t.requestDone
	model = &counted{model, t}
	proposals := make([]string, o.users)
	for user := range proposals {
		proposals[user] = proposal(o.seed, user)
	}
	stop := progress.watch(name, o, t, gate)
	start := time.Now()
	if p.double != nil {
		p.double.Reset() // its windows begin now
	}
	var clicks sync.WaitGroup
	for user, text := range proposals {
		clicks.Go(func() {
			ctx := ratelimited.WithFlow(withReview(ctx, user), fmt.Sprint("user ", user+1))
			ctx = ratelimited.WithRequest(ctx, fmt.Sprint("click ", user+1))
			_, err := review(ctx, model, text)
			t.reviewDone(err)
		})
	}
	clicks.Wait()
	took := time.Since(start)
	stop()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := t.result(o)
	r.name, r.took, r.makespan = name, took, o.virtual(took)
	if p.double != nil {
		r.maxWindowUse = 0
		for _, w := range p.double.Stats().Windows {
			r.maxWindowUse = max(r.maxWindowUse, w.Share)
		}
	}
	return r, nil
}
