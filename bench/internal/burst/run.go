package burst

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
	"github.com/headgate-go/headgate/bench/internal/virtual"
)

// Run plays a shape through a policy in virtual time. The seed decides over the
// calls and the delays of the provider; the random waits of retries are drawn
// from elsewhere, so that two runs of one seed may differ a little where calls
// are refused. The error names what is wrong with
// the arguments, or is the panic of a policy; where a policy has no result for a
// shape, Result.Err says why and there is no error. Run may be called from several
// goroutines at once.
func Run(shape Shape, policy Policy, window Window, seed uint64) (Result, error) {
	result := Result{Shape: shape.Name, Policy: policy.Name, Window: window.String(), Seed: seed}
	if err := shape.validate(); err != nil {
		return result, err
	}
	if policy.make == nil {
		return result, fmt.Errorf("burst: policy %q is none of Policies", policy.Name)
	}
	if window > engine.Bucket {
		return result, fmt.Errorf("burst: window is %v, must be fixed, sliding or bucket", window)
	}
	if policy.applies != nil {
		if result.Err = policy.applies(&shape); result.Err != "" {
			result.Metrics.WaitP50, result.Metrics.WaitP99 = map[string]float64{}, map[string]float64{}
			result.Series = []Sample{}
			return result, nil
		}
	}
	r := &run{shape: &shape, jobs: shape.jobs(seed), window: window}
	var failure error
	if err := virtual.Run(func() { failure = r.play(policy, seed) }); err != nil {
		return result, fmt.Errorf("burst: shape %q, policy %q: %w", shape.Name, policy.Name, err)
	}
	if failure != nil {
		return result, failure
	}
	m := newMeasure(r, policy)
	result.Metrics, result.Series = m.metrics(), m.series()
	return result, nil
}

// run is a shape that is played.
type run struct {
	shape    *Shape
	jobs     []job
	window   Window
	provider *provider
	policy   admission
	log      log
	all      sync.WaitGroup
}

// play does all jobs.
func (r *run) play(policy Policy, seed uint64) (err error) {
	if r.provider, err = newProvider(r.shape, r.window, seed); err != nil {
		return err
	}
	defer r.provider.engine.Close()
	if r.policy, err = policy.make(setting{r.shape, r.window, r.jobs, r.provider}); err != nil {
		return fmt.Errorf("burst: policy %q: %w", policy.Name, err)
	}
	for i := range r.jobs {
		r.all.Go(func() {
			time.Sleep(r.jobs[i].at - r.provider.now())
			r.do(&r.jobs[i].plan)
		})
	}
	r.all.Wait()
	return r.policy.close()
}

// do does a piece of work. What fails does not keep the rest from being done: a
// call that was given up or failed is an outcome.
func (r *run) do(p *plan) {
	if r.shape.ended(r.provider.now()) {
		return
	}
	if p.call != nil {
		r.serve(p.call)
		return
	}
	time.Sleep(p.pause)
	for i := range p.first {
		r.do(&p.first[i])
	}
	var parts sync.WaitGroup
	for i := range p.together {
		parts.Go(func() { r.do(&p.together[i]) })
	}
	parts.Wait()
}

// serve gets one call served, or not.
func (r *run) serve(c *call) {
	rec := r.log.add(c, r.provider.now())
	err := r.policy.serve(context.Background(), c, func(ctx context.Context, item func(moment) bool) error {
		return r.provider.send(ctx, rec, item)
	})
	rec.ended, rec.done = r.provider.now(), err == nil
}

// admission is a policy at work.
type admission interface {
	// serve gets a call served: it calls send, as often as it likes.
	serve(ctx context.Context, c *call, send sender) error
	// close ends it, when no call is under way.
	close() error
}

// sender makes one attempt at a call; see provider.send.
type sender func(ctx context.Context, item func(moment) bool) error

// whole makes one attempt and takes the whole answer.
func (s sender) whole(ctx context.Context) error {
	return s(ctx, func(moment) bool { return true })
}

// setting is what a policy is set up for.
type setting struct {
	shape    *Shape
	window   Window
	jobs     []job
	provider *provider
}

// estimates are the largest and the mean estimate of the shape's calls.
func (s setting) estimates() (largest, mean int64) {
	var sum, n int64
	for i := range s.jobs {
		s.jobs[i].each(func(c *call) {
			largest = max(largest, c.estimate)
			sum += c.estimate
			n++
		})
	}
	return largest, sum / max(n, 1)
}
