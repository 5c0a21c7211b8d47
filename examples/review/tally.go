package main

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"
	"sync"
	"time"

	"google.golang.org/genai"
)

// tally counts what happens in a run.
type tally struct {
	mu sync.Mutex
	// mu guards all that follows.
	calls, answered, failed int             // as agents see them
	durations               []time.Duration // of the answered ones
	throttled               int             // as the provider answers
	uses                    []use
	plans                   []reviewPlan
	reviews, reviewsOK      int
	err                     error
}

// counted is a model whose calls are counted as agents see them: from asking to
// the whole answer, the wait in line included.
type counted struct {
	LLM
	tally *tally
}

// GenerateContent implements LLM.
func (c *counted) GenerateContent(ctx context.Context, req *LLMRequest, stream bool) iter.Seq2[*LLMResponse, error] {
	return func(yield func(*LLMResponse, error) bool) {
		asked := c.tally.callBegun()
		answered := false
		defer func() { c.tally.callDone(asked, answered) }()
		for resp, err := range c.LLM.GenerateContent(ctx, req, stream) {
			answered = err == nil && !resp.Partial && resp.ErrorCode == ""
			if !yield(resp, err) {
				return
			}
		}
	}
}

func (t *tally) callBegun() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls++
	return time.Now()
}

func (t *tally) callDone(asked time.Time, answered bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !answered {
		t.failed++
		return
	}
	t.answered++
	t.durations = append(t.durations, time.Since(asked))
}

// requestDone notes a request as the provider sees it.
func (t *tally) requestDone(ctx context.Context, r request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := errors.AsType[genai.APIError](r.err); ok && e.Code == http.StatusTooManyRequests && !errors.Is(r.err, context.Canceled) {
		t.throttled++ // and not a sibling that was cut off for it
		return
	}
	t.uses = append(t.uses, use{r.begun, r.input})
	if at := placeOf(ctx); r.err == nil {
		t.plans[at.review].set(at.agent, r.took)
	}
}

func (t *tally) reviewDone(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reviews++
	if err == nil {
		t.reviewsOK++
	} else if t.err == nil {
		t.err = err
	}
}

// result is the tally without what only the whole run knows.
func (t *tally) result(o options) *result {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &result{
		calls: t.calls, failed: t.failed, throttled: t.throttled,
		reviews: t.reviews, reviewsOK: t.reviewsOK, plans: t.plans, err: t.err,
	}
	if len(t.uses) > 0 {
		r.tokensPerCall = t.tokens() / int64(len(t.uses))
		r.maxWindowUse = max(
			largest(t.uses, time.Minute, o.rpm, func(use) int64 { return 1 }),
			largest(t.uses, time.Minute, o.tpm, func(u use) int64 { return u.tokens }))
	}
	for _, d := range t.durations {
		r.latencies = append(r.latencies, o.virtual(d))
	}
	slices.Sort(r.latencies)
	return r
}

func (t *tally) tokens() (sum int64) {
	for _, u := range t.uses {
		sum += u.tokens
	}
	return sum
}

// use is what a request took from the quotas.
type use struct {
	at     time.Time
	tokens int64
}

// largest is the largest part of a limit that was used in any window of the
// given length; 0 where there is no limit. It is largest in a window that ends
// with a request.
func largest(uses []use, length time.Duration, limit int64, count func(use) int64) float64 {
	if limit <= 0 {
		return 0
	}
	uses = slices.SortedFunc(slices.Values(uses), func(a, b use) int { return a.at.Compare(b.at) })
	first, sum, most := 0, int64(0), int64(0)
	for _, u := range uses {
		for sum += count(u); !uses[first].at.Add(length).After(u.at); first++ {
			sum -= count(uses[first])
		}
		most = max(most, sum)
	}
	return float64(most) / float64(limit)
}
