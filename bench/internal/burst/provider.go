package burst

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// provider serves calls under quotas and keeps the log of what was sent.
type provider struct {
	engine *engine.Engine
	shape  *Shape
	start  time.Time
}

// The names of the limits.
const (
	limitRequests = "requests"
	limitTokens   = "tokens"
)

// outage is the fault that a provider commits that is down.
const outage = "503"

// newProvider makes the provider of a shape. Its time begins now.
func newProvider(s *Shape, window Window, seed uint64) (*provider, error) {
	cfg := engine.Config{
		Concurrency: s.Concurrency, Jitter: s.Jitter, Seed: seed,
		// The time of a call is part of the shape; this is how it is split.
		Latency: engine.Latency{Total: time.Second, FirstShare: firstShare},
	}
	for _, l := range []engine.Limit{
		{Name: limitRequests, Dimension: engine.Requests, Amount: s.granted(s.RequestsPerMinute)},
		{Name: limitTokens, Dimension: engine.InputTokens, Amount: s.granted(s.TokensPerMinute)},
	} {
		l.Model, l.Length = window, minute
		cfg.Limits = append(cfg.Limits, l)
		if s.Quantum > 0 {
			l.Amount, l.Length = perQuantum(l.Amount, s.Quantum), s.Quantum
			cfg.Limits = append(cfg.Limits, l)
		}
	}
	if s.OutageTo > 0 {
		cfg.Faults = []engine.Fault{{Kind: engine.Kind{Name: outage, Refuses: true}, From: s.OutageFrom, To: s.OutageTo, After: -1}}
	}
	e, err := engine.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("burst: shape %q: %w", s.Name, err)
	}
	return &provider{engine: e, shape: s, start: time.Now()}, nil
}

// perQuantum is the part of an amount a minute that a quantum of it has.
func perQuantum(amount int64, quantum time.Duration) int64 {
	return int64(float64(amount) * float64(quantum) / float64(minute))
}

func (p *provider) now() time.Duration { return time.Since(p.start) }

// amounts is what the provider counts for a call.
func amounts(c *call) engine.Amounts {
	return engine.Amounts{engine.Requests: 1, engine.InputTokens: c.tokens}
}

// moment is a point in the life of an attempt.
type moment uint8

const (
	letIn     moment = iota // the provider has admitted and counted it
	firstItem               // the first item of the answer is there
	lastItem                // the last one is
)

// send makes one attempt at a call and notes it in the call's record. It tells
// item of each moment; at the first item, item returns false to stop. A refusal
// comes back as the error that the SDK of the Gemini API gives.
func (p *provider) send(ctx context.Context, r *record, item func(moment) bool) error {
	a := r.begin(p.now())
	if err := sleep(ctx, p.shape.Delay); err != nil {
		a.over(p.now())
		return err
	}
	var id [8]byte
	binary.BigEndian.PutUint64(id[:], uint64(r.call.id))
	c, err := p.engine.Admit(ctx, engine.Arrival{Amounts: amounts(r.call), Digest: engine.DigestOf(id[:])})
	if err != nil {
		a.over(p.now())
		if refusal := (*engine.Refusal)(nil); errors.As(err, &refusal) {
			a.throttled = refusal.Fault.Kind.Name == ""
			return apiError(refusal)
		}
		return err
	}
	a.admit(p.now())
	item(letIn)
	c.Plan(1, &r.call.takes, 1)
	outcome := engine.Cancelled
	if err = c.Wait(ctx, 0); err == nil && item(firstItem) {
		if err = sleep(ctx, r.call.reads); err == nil {
			err = c.Wait(ctx, 1)
		}
		if err == nil {
			outcome = engine.Completed
		}
	}
	a.over(p.now())
	c.End(outcome, amounts(r.call), 0)
	if outcome == engine.Completed {
		a.served = true
		item(lastItem)
	}
	return err
}

// sleep waits for d or for the end of ctx, and returns its error then.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// quotas are the names of the limits in errors of the Gemini API, as they are
// seen in those of its free tier.
var quotas = map[string]struct{ metric, id string }{
	limitRequests: {
		"generativelanguage.googleapis.com/generate_content_free_tier_requests",
		"GenerateRequestsPerMinutePerProjectPerModel-FreeTier",
	},
	limitTokens: {
		"generativelanguage.googleapis.com/generate_content_free_tier_input_token_count",
		"GenerateContentInputTokensPerModelPerMinute-FreeTier",
	},
	engine.Concurrency: {
		"generativelanguage.googleapis.com/concurrent_requests",
		"ConcurrentRequestsPerProjectPerModel",
	},
}

// apiError is a refusal as the SDK of the Gemini API returns it: with the
// violated quotas and, where it is known, the time to wait.
func apiError(r *engine.Refusal) error {
	if r.Fault.Kind.Name != "" {
		return genai.APIError{Code: 503, Status: "UNAVAILABLE", Message: "The model is overloaded. Please try again later."}
	}
	var violations []any
	for _, v := range r.Violations {
		violations = append(violations, map[string]any{
			"quotaMetric": quotas[v.Name].metric, "quotaId": quotas[v.Name].id,
			"quotaValue": strconv.FormatInt(v.Limit, 10),
		})
	}
	err := genai.APIError{Code: 429, Status: "RESOURCE_EXHAUSTED", Message: "You exceeded your current quota.",
		Details: []map[string]any{{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations}}}
	if r.Retry > 0 {
		err.Details = append(err.Details, map[string]any{
			"@type":      "type.googleapis.com/google.rpc.RetryInfo",
			"retryDelay": strconv.FormatFloat(r.Retry.Seconds(), 'f', 9, 64) + "s",
		})
	}
	return err
}
