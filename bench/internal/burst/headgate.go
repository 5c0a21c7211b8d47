package burst

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

const (
	bucketWindow  = engine.Bucket
	slidingWindow = engine.Sliding
	fixedWindow   = engine.Fixed
)

// matching is the profile that mirrors a provider's window: a sliding one is
// right for fixed ones too, wherever these begin.
func matching(w Window) Window {
	if w == bucketWindow {
		return bucketWindow
	}
	return slidingWindow
}

// cautious is the profile for providers whose window is not known.
func cautious(Window) Window { return slidingWindow }

const headgateSettings = "Headroom 1, because the quota is all ours; the shape's slots and MaxWait; defaults else. "

func headgateFIFO() Policy {
	return headgate("headgate-fifo", "Headgate, first come first served", headgateSettings+matchingSettings, ratelimited.FIFO, matching)
}

func headgateFair() Policy {
	return headgate("headgate-fair", "Headgate, fair order", headgateSettings+matchingSettings, ratelimited.Fair, matching)
}

func headgateWindow() Policy {
	return headgate("headgate-window", "Headgate, fair order, window profile",
		headgateSettings+"Profile: a sliding window whatever the provider has, the choice where that is not known.", ratelimited.Fair, cautious)
}

const matchingSettings = "Profile: a sliding window for fixed and sliding quotas, a bucket for buckets; a quota that is checked every " +
	"second, too, is a profile's Burst. Where calls reach a bucket with jitter, what that can pile up is left as headroom, too."

func headgate(name, title, settings string, order ratelimited.Order, mirror func(Window) Window) Policy {
	return Policy{
		Name: name, Title: title, Settings: settings, mirror: mirror,
		make: func(s setting) (admission, error) {
			return newGated(s.shape, order, mirror(s.window))
		},
	}
}

// gated sends calls through a RateLimitedModel.
type gated struct {
	gate  *ratelimited.Gate
	model *ratelimited.RateLimitedModel[*request, *item]
}

func newGated(s *Shape, order ratelimited.Order, window Window) (*gated, error) {
	cfg := ratelimited.Config{
		Headroom: headroom(s, window), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Order: order,
		Profile: profile(s, window), Slots: int64(s.Slots),
	}
	if s.MaxWait > 0 {
		cfg.MaxWait = &s.MaxWait
	}
	gate, err := ratelimited.NewGate(cfg)
	if err != nil {
		return nil, err
	}
	model, err := ratelimited.NewMetered[*request, *item](double{}, gate, meter{})
	return &gated{gate, model}, err
}

// profile is the provider of a shape, as it publishes its quota.
func profile(s *Shape, window Window) ratelimited.Profile {
	dims := []ratelimited.Dimension{
		{Name: limitRequests, Resource: retry.Requests, Count: ratelimited.OneRequest, Limit: s.RequestsPerMinute},
		{Name: limitTokens, Resource: retry.InputTokens, Count: ratelimited.InputTokens, Limit: s.TokensPerMinute},
	}
	for i := range dims {
		dims[i].Burst = s.Quantum
		if window == bucketWindow {
			dims[i].Shape = ratelimited.Bucket
		}
	}
	return ratelimited.Profile{Name: "double", Dimensions: dims}
}

// headroom is the part of the quota that is used. A bucket fills at an even rate
// whatever is in it, so that calls that were sent over a time and the jitter can
// arrive within that time: what is sent in it must fit, too. A mirrored window
// counts a call for as long as it may be on its way, and needs none.
func headroom(s *Shape, window Window) float64 {
	if window != bucketWindow {
		return 1
	}
	return float64(minute) / float64(minute+s.Jitter)
}

func (g *gated) close() error { return g.gate.Close(context.Background()) }

func (g *gated) serve(ctx context.Context, c *call, send sender) error {
	ctx = ratelimited.WithRequest(ratelimited.WithFlow(ctx, c.flow), c.request)
	if c.class != "" {
		ctx = ratelimited.WithClass(ctx, c.class)
	}
	err := errors.New("no answer")
	for _, e := range g.model.GenerateContent(ctx, &request{c, send}, true) {
		err = e
	}
	return err
}

// request is a call as a model takes it.
type request struct {
	call *call
	send sender
}

// item is a part of an answer: the first one says nothing of usage.
type item struct {
	last   bool
	tokens int64
}

// double is the model behind the gate.
type double struct{}

func (double) Name() string { return "double" }

func (double) GenerateContent(ctx context.Context, req *request, _ bool) iter.Seq2[*item, error] {
	return func(yield func(*item, error) bool) {
		stopped := false
		err := req.send(ctx, func(m moment) bool {
			if m == letIn {
				return true
			}
			i := &item{last: m == lastItem}
			if i.last {
				i.tokens = req.call.tokens
			}
			stopped = !yield(i, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(nil, err)
		}
	}
}

// meter reads requests and items.
type meter struct{}

func (meter) Estimate(req *request) usage.Usage {
	return usage.Usage{Input: req.call.estimate, Flags: usage.Estimated}
}

func (meter) Observe(i *item) (usage.Usage, ratelimited.Progress) {
	if !i.last {
		return usage.Usage{}, ratelimited.More
	}
	return usage.Usage{Input: i.tokens}, ratelimited.Done
}

func (meter) Clamp(req *request, _ int64) (*request, bool) { return req, false }

// guard is the part of the quota that stays usable, which is stated:
//
//   - under a mirrored window of calls that are known to be counted only when
//     their first item has come, Window/(Window + Cell + d), d being the mean of
//     that time, weighted by tokens (documentation of budget.WindowBudget)
//   - under a mirrored bucket, the headroom for jitter
//   - where the quota is checked in bursts, no more than the pace, 96 % of the
//     rate (documentation of ratelimited.Dimension)
func (p *Policy) guard(s *Shape, w Window, calls []release) float64 {
	if p.mirror == nil {
		return 1
	}
	window := p.mirror(w)
	guard := headroom(s, window)
	if window == slidingWindow {
		var sum, tokens float64
		for _, c := range calls {
			sum += float64(c.tokens) * float64(s.Delay+s.Jitter/2+c.first())
			tokens += float64(c.tokens)
		}
		guard = float64(minute) / (float64(minute+mirrorCell) + sum/max(tokens, 1))
	}
	if s.Quantum > 0 {
		guard = min(guard, pace)
	}
	return guard
}

const (
	// mirrorCell is the grain of a mirrored minute: the default of a Dimension's
	// Cell.
	mirrorCell = time.Second
	// pace is the part of a rate at which a Dimension with a Burst is paced.
	pace = 0.96
)
