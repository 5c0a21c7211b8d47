package main

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/headgate-go/headgate/bench/gemini"
)

func newPlans(users int) []reviewPlan {
	plans := make([]reviewPlan, users)
	for i := range plans {
		plans[i].reviewers = make([]time.Duration, len(reviewers))
	}
	return plans
}

// set notes the latency of one call.
func (p *reviewPlan) set(agent int, latency time.Duration) {
	if agent < len(p.reviewers) {
		p.reviewers[agent] = latency
	} else {
		p.synthesiser = latency
	}
}

// planSpeed is how fast the double runs that is asked for the latencies.
const planSpeed = 10_000

// plan asks the double how long every call will take. Latencies are drawn from
// the seed and the content of a call, so a fast double without quotas that is
// asked for one call after the other tells what the one in the runs will do.
func plan(ctx context.Context, o options, host host) ([]reviewPlan, error) {
	o.rpm, o.tpm, o.speed = 0, 0, planSpeed
	cfg := o.config()
	cfg.CallLog = 1
	p, err := serve(host, o.model, cfg)
	if err != nil {
		return nil, err
	}
	defer p.close()
	model := &planner{LLM: p.llm, double: p.double, options: o, turn: make(chan struct{}, 1), plans: newPlans(o.users)}
	for user := range o.users {
		if _, err := review(withReview(ctx, user), model, proposal(o.seed, user)); err != nil {
			return nil, fmt.Errorf("ask the double for its latencies: %w", err)
		}
	}
	return model.plans, nil
}

// planner is a model that takes one call at a time and notes what the double
// had planned for it.
type planner struct {
	LLM
	double  *gemini.Server
	options options

	turn  chan struct{} // holds one value during a call
	plans []reviewPlan  // of the goroutine whose turn it is
}

// GenerateContent implements LLM.
func (p *planner) GenerateContent(ctx context.Context, req *LLMRequest, stream bool) iter.Seq2[*LLMResponse, error] {
	return func(yield func(*LLMResponse, error) bool) {
		p.turn <- struct{}{}
		defer func() { <-p.turn }()
		for resp, err := range p.LLM.GenerateContent(ctx, req, stream) {
			if err == nil && !resp.Partial {
				at := placeOf(ctx)
				for _, c := range p.double.Calls() { // the last one
					p.plans[at.review].set(at.agent, p.options.virtual(c.PlannedTotal))
				}
			}
			if !yield(resp, err) {
				return
			}
		}
	}
}
