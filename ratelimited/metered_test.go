package ratelimited_test

import (
	"io"
	"log/slog"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// quiet is a logger that writes nowhere.
func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// countingMeter reads the fake model's types in the plainest way: every request
// is estimated at 4 input and 10 output tokens, every item without usage at a
// quarter of its text.
type countingMeter struct {
	panics string
}

func (m *countingMeter) Estimate(*LLMRequest) usage.Usage {
	if m.panics == "estimate" {
		panic("meter")
	}
	return usage.Usage{Input: 4, Output: 10, Flags: usage.Estimated}
}

func (m *countingMeter) Observe(r *LLMResponse) (usage.Usage, ratelimited.Progress) {
	if m.panics == "observe" {
		panic("meter")
	}
	progress := ratelimited.Done
	switch {
	case r.Partial:
		progress = ratelimited.More
	case r.ErrorCode != "":
		progress = ratelimited.Failed
	}
	if u := usage.FromGenAI(r.UsageMetadata); !u.IsZero() || u.Flags != 0 {
		return u, progress
	}
	n := 0
	if r.Content != nil {
		for _, p := range r.Content.Parts {
			n += len(p.Text)
		}
	}
	if n == 0 {
		return usage.Usage{}, progress
	}
	return usage.Usage{Output: int64(n+3) / 4, Flags: usage.Estimated}, progress
}

func (m *countingMeter) Clamp(req *LLMRequest, _ int64) (*LLMRequest, bool) { return req, false }
