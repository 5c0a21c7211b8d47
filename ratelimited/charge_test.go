package ratelimited_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

// both is a profile that counts requests, refused ones too, and input tokens,
// which a refused request does not take.
var both = ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 1000, InputTokensPerMinute: 1000})

// What an ended call is charged, row by row. Every request is estimated at 40
// input and 100 output tokens; the customer's ledger counts both.
func TestEndedCallIsCharged(t *testing.T) {
	const in, out = 40, 100
	cancelled := func(after time.Duration, items ...*LLMResponse) func(context.Context, int, yields) {
		return func(ctx context.Context, _ int, yield yields) {
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			yield(nil, wait(ctx, time.Hour))
		}
	}
	items := func(list ...*LLMResponse) func(context.Context, int, yields) {
		return func(_ context.Context, _ int, yield yields) {
			for _, item := range list {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
	fails := func(err error, first ...*LLMResponse) func(context.Context, int, yields) {
		return func(_ context.Context, _ int, yield yields) {
			for _, item := range first {
				if !yield(item, nil) {
					return
				}
			}
			yield(nil, err)
		}
	}
	with := func(item *LLMResponse, u *genai.GenerateContentResponseUsageMetadata) *LLMResponse {
		item.UsageMetadata = u
		return item
	}
	done := func() *LLMResponse { return &LLMResponse{Content: genai.NewContentFromText("end", genai.RoleModel)} }
	long := func() *LLMResponse { return part(string(make([]byte, 10_000))) }

	type row struct {
		play     func(context.Context, int, yields)
		breaks   int   // the consumer stops at this item
		requests int64 // on the gate's books
		tokens   int64
		ledger   int64 // what the customer has spent
		released int64 // the same, with WithReleaseInterrupted
		flags    usage.Flags
	}
	for name, test := range map[string]row{
		// Usage was reported in any item: the per-field maximum of the reports.
		"usage in the last item": {play: items(part("a"), final(25, 15)), requests: 1, tokens: 25, ledger: 40, released: 40},
		"usage in the middle": {
			play:     items(part("a"), with(part("b"), used(25, 8)), part("c"), done()),
			requests: 1, tokens: 25, ledger: 33, released: 33,
		},
		"usage, then broken":    {play: fails(errBroken, with(part("a"), used(25, 8))), requests: 1, tokens: 25, ledger: 33, released: 33},
		"usage, then cancelled": {play: cancelled(0, with(part("a"), used(25, 8))), requests: 1, tokens: 25, ledger: 33, released: 33},
		"usage, then the consumer stops": {
			play: items(with(part("a"), used(25, 8)), final(25, 15)), breaks: 1, requests: 1, tokens: 25, ledger: 33, released: 33,
		},
		"usage in an item with an error code": {
			play: items(&LLMResponse{ErrorCode: "SAFETY", UsageMetadata: used(25, 8)}), requests: 1, tokens: 25, ledger: 33, released: 33,
		},
		// Not sent: nothing.
		"not sent": {play: fails(notSent())},
		// Answered with an error before the first item: by the profile; customers nothing.
		"bad request":  {play: fails(badRequest()), requests: 1},
		"server error": {play: fails(genai.APIError{Code: 500}), requests: 1},
		"by a pointer": {play: fails(&genai.APIError{Code: 404}), requests: 1},
		"per day":      {play: fails(throttled(quotaFailure(requestsPerDay))), requests: 1},
		"hint too far": {play: fails(throttled(retryInfo("3600s"))), requests: 1},
		// Sent, then ended before the first item: the input estimate.
		"broken before an item":    {play: fails(errBroken), requests: 1, tokens: in, ledger: in, flags: usage.Estimated},
		"cancelled before an item": {play: cancelled(0), requests: 1, tokens: in, ledger: in, flags: usage.Estimated},
		"ended without an item":    {play: items(), requests: 1, tokens: in, ledger: in, flags: usage.Estimated},
		// Broken off after items without usage: input and the output seen, at most the hold.
		"broken after items": {play: fails(errBroken, part("12345678"), part("1234")), requests: 1, tokens: in, ledger: in + 3, flags: usage.Estimated},
		"cancelled after items": {
			play: cancelled(0, part("12345678"), part("1234")), requests: 1, tokens: in, ledger: in + 3, flags: usage.Estimated,
		},
		"the consumer stops": {
			play: items(part("12345678"), part("1234"), final(25, 15)), breaks: 2, requests: 1, tokens: in, ledger: in + 3, flags: usage.Estimated,
		},
		"ended in the middle":       {play: items(part("12345678")), requests: 1, tokens: in, ledger: in + 2, flags: usage.Estimated},
		"error code without usage":  {play: items(&LLMResponse{ErrorCode: "OTHER"}), requests: 1, tokens: in, ledger: in, flags: usage.Estimated},
		"more output than was held": {play: fails(errBroken, long()), requests: 1, tokens: in, ledger: in + out, flags: usage.Estimated},
		// Succeeded without usage: the hold.
		"success without usage": {play: items(part("a"), done()), requests: 1, tokens: in, ledger: in + out, released: in + out, flags: usage.Estimated},
		"zeros are no report": {
			play:     items(with(done(), &genai.GenerateContentResponseUsageMetadata{TrafficType: "ON_DEMAND"})),
			requests: 1, tokens: in, ledger: in + out, released: in + out, flags: usage.Estimated,
		},
		// Negative or inconsistent: the larger reading, at least 0.
		"only negative": {
			play: items(with(done(), used(0, -100))), requests: 1, tokens: in, ledger: in + out, released: in + out, flags: usage.Estimated | usage.Mismatch,
		},
		"input negative":     {play: items(with(done(), used(-5, 10))), requests: 1, ledger: 10, released: 10, flags: usage.Mismatch},
		"parts below total":  {play: items(with(done(), &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 20, CandidatesTokenCount: 5, TotalTokenCount: 90})), requests: 1, tokens: 20, ledger: 90, released: 90, flags: usage.Mismatch},
		"parts above total":  {play: items(with(done(), &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 20, CandidatesTokenCount: 50, TotalTokenCount: 30})), requests: 1, tokens: 20, ledger: 70, released: 70, flags: usage.Mismatch},
		"total only":         {play: items(with(done(), &genai.GenerateContentResponseUsageMetadata{TotalTokenCount: 90})), requests: 1, tokens: in, ledger: 90, released: 90, flags: usage.Estimated},
		"less than estimate": {play: items(with(done(), &genai.GenerateContentResponseUsageMetadata{TotalTokenCount: 30})), requests: 1, tokens: 30, ledger: 30, released: 30, flags: usage.Estimated},
	} {
		for kind := range ledgers("", 0, 0) {
			for _, release := range []bool{false, true} {
				t.Run(name+" "+kind+map[bool]string{true: " released"}[release], func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: both})
						l := ledgers("", 0, 0)[kind]
						opts := []ratelimited.Option{ratelimited.WithBudgets(l)}
						want := test.ledger
						if release {
							opts = append(opts, ratelimited.WithReleaseInterrupted())
							want = test.released
						}
						llm, err := ratelimited.NewMetered(&fakeLLM{play: test.play}, g, fixedMeter{in, out}, opts...)
						if err != nil {
							t.Fatal(err)
						}
						// One attempt: no time for another one.
						ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
						defer cancel()
						n := 0
						for range llm.GenerateContent(ctx, hello(), true) {
							if n++; n == test.breaks {
								break
							}
						}
						if r, n := booked(t, g, "requests"), booked(t, g, "input_tokens"); r != test.requests || n != test.tokens {
							t.Errorf("the gate counts %d requests and %d tokens, want %d and %d", r, n, test.requests, test.tokens)
						}
						time.Sleep(time.Second)
						l.expect(t, 0, want)
						if want > 0 {
							if u := l.last(t); u.Flags != test.flags {
								t.Errorf("settled at %v, want the flags %q", u, test.flags)
							}
						}
						mustBeIdle(t, g)
					})
				})
			}
		}
	}
}

// A Meter of the caller's may report nonsense too.
func TestNonsenseOfAMeterNeverCredits(t *testing.T) {
	for name, test := range map[string]struct {
		report usage.Usage
		want   usage.Usage
	}{
		"input negative": {usage.Usage{Input: -5, Output: 10}, usage.Usage{Output: 10, Flags: usage.Mismatch}},
		"all negative": {
			usage.Usage{Input: -5, Output: -100},
			usage.Usage{Input: 40, Output: 100, Flags: usage.Estimated | usage.Mismatch}, // the hold
		},
		"more cached than input":    {usage.Usage{Input: 5, CachedInput: 50, Output: 1}, usage.Usage{Input: 50, CachedInput: 50, Output: 1, Flags: usage.Mismatch}},
		"more thoughts than output": {usage.Usage{Input: 5, Thoughts: 7}, usage.Usage{Input: 5, Output: 7, Thoughts: 7, Flags: usage.Mismatch}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: window(1000)})
				l := &ledger{}
				llm, err := ratelimited.NewMetered(answers(0, final(0, 0)), g, rawMeter{fixedMeter{40, 100}, test.report}, ratelimited.WithBudgets(l))
				if err != nil {
					t.Fatal(err)
				}
				if err := call(t.Context(), llm, hello()); err != nil {
					t.Fatal(err)
				}
				l.expect(t, 0, test.want.Total())
				if u := l.last(t); u != test.want {
					t.Errorf("settled at %v, want %v", u, test.want)
				}
				if n := booked(t, g, "tokens"); n != test.want.Input {
					t.Errorf("the gate counts %d tokens, want %d", n, test.want.Input)
				}
			})
		})
	}
}

// rawMeter reports whatever it is told.
type rawMeter struct {
	fixedMeter
	report usage.Usage
}

func (m rawMeter) Observe(*LLMResponse) (usage.Usage, ratelimited.Progress) {
	return m.report, ratelimited.Done
}

// fixedMeter is countingMeter with another estimate.
type fixedMeter struct{ in, out int64 }

func (m fixedMeter) Estimate(*LLMRequest) usage.Usage {
	return usage.Usage{Input: m.in, Output: m.out, Flags: usage.Estimated}
}

func (m fixedMeter) Observe(r *LLMResponse) (usage.Usage, ratelimited.Progress) {
	return (&countingMeter{}).Observe(r)
}

func (m fixedMeter) Clamp(req *LLMRequest, _ int64) (*LLMRequest, bool) { return req, false }

// Streamed reports are running totals: they are never summed, the last is not
// trusted alone, and an item without content counts.
func TestStreamedUsageIsARunningTotal(t *testing.T) {
	report := func(in, out int32) *LLMResponse {
		return &LLMResponse{Partial: true, UsageMetadata: used(in, out)}
	}
	empty := &LLMResponse{UsageMetadata: used(25, 15)} // a turn that ends in a tool call
	for name, test := range map[string]struct {
		items []*LLMResponse
		total int64
	}{
		"cumulative, the last without content": {[]*LLMResponse{report(25, 1), report(25, 8), part("c"), empty}, 40},
		"on the second of four only":           {[]*LLMResponse{part("a"), report(25, 8), part("c"), {Content: genai.NewContentFromText("d", genai.RoleModel)}}, 33},
		"the last lower than an earlier one":   {[]*LLMResponse{report(25, 18), final(25, 15)}, 43},
		"the prompt rises in the last":         {[]*LLMResponse{report(236, 10), final(281, 12)}, 293},
		"zeros in between":                     {[]*LLMResponse{report(25, 8), report(0, 0), final(25, 15)}, 40},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1})
				l := &ledger{}
				items, err := collect(wrap(t, answers(0, test.items...), g, ratelimited.WithBudgets(l)).GenerateContent(t.Context(), hello(), true))
				if err != nil || len(items) != len(test.items) {
					t.Errorf("got %d items and %v, want %d", len(items), err, len(test.items))
				}
				l.expect(t, 0, test.total)
			})
		})
	}
}

// Every class of tokens is charged once: thoughts, the tool-use prompt and
// cached tokens inside the prompt.
func TestEveryClassOfTokensIsChargedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: window(10_000)})
		l := &ledger{}
		item := final(0, 0)
		item.UsageMetadata = &genai.GenerateContentResponseUsageMetadata{
			PromptTokenCount: 1000, CachedContentTokenCount: 800, ToolUsePromptTokenCount: 50,
			CandidatesTokenCount: 100, ThoughtsTokenCount: 400, TotalTokenCount: 1550,
		}
		if err := call(t.Context(), wrap(t, answers(0, item), g, ratelimited.WithBudgets(l)), hello()); err != nil {
			t.Fatal(err)
		}
		l.expect(t, 0, 1550)
		want := usage.Usage{Input: 1050, CachedInput: 800, Output: 500, Thoughts: 400}
		if u := l.last(t); u != want {
			t.Errorf("settled at %v, want %v", u, want)
		}
		if n := booked(t, g, "tokens"); n != 1050 {
			t.Errorf("the gate counts %d input tokens, want 1050", n)
		}
	})
}

// Hanging up early is not free: ten calls that are broken off before their
// usage is reported move the ledger, and what each costs is above nothing and
// not above its hold.
func TestHangingUpIsNotFree(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1})
		l := &ledger{hold: 1000}
		text := "some forty characters of a long answer. "
		llm := wrap(t, answers(0, part(text), part(text), part(text), final(100, 900)), g, ratelimited.WithBudgets(l))
		for i := range 10 {
			before := l.spent
			n := 0
			for range llm.GenerateContent(t.Context(), &LLMRequest{Contents: genai.Text("hello"), Config: &genai.GenerateContentConfig{MaxOutputTokens: 900}}, true) {
				if n++; n == 3 {
					break
				}
			}
			if cost := l.spent - before; cost < 20 || cost > 1000 {
				t.Errorf("call %d cost %d tokens, want its input and about thirty", i, cost)
			}
			if u := l.last(t); !u.Has(usage.Estimated) {
				t.Errorf("call %d settled at %v, want it marked as estimated", i, u)
			}
		}
		l.expect(t, 0, l.spent)
	})
}

// Some providers report the input, and next to no output, when an answer begins.
func TestAStreamBrokenOffAfterAnEarlyReportIsChargedTheOutputSeenSince(t *testing.T) {
	for name, c := range map[string]struct {
		typical, late int64
		want          int64
	}{
		"within the hold":     {1000, 0, 20 + 1 + 3*40},
		"at most the hold":    {50, 0, 20 + 50},
		"until the next one":  {1000, 90, 20 + 90},
		"never below reports": {50, 90, 20 + 90},
	} {
		bubbleRun(t, "case", name, func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1})
			l := &ledger{}
			f := &fakeLLM{play: func(_ context.Context, _ int, yield yields) {
				begun := &LLMResponse{Partial: true, UsageMetadata: used(20, 1)}
				more := yield(begun, nil)
				for range 3 {
					more = more && yield(&LLMResponse{Partial: true, AvgLogprobs: 40}, nil)
				}
				if c.late > 0 {
					more = more && yield(&LLMResponse{Partial: true, UsageMetadata: used(20, int32(c.late))}, nil)
				}
				_ = more && yield(nil, errBroken)
			}}
			llm, err := ratelimited.NewMetered(f, g, sizedMeter{fixedMeter{20, c.typical}}, ratelimited.WithBudgets(l))
			if err != nil {
				t.Fatal(err)
			}
			for range llm.GenerateContent(t.Context(), hello(), true) {
			}
			l.expect(t, 0, c.want)
			mustBeIdle(t, g)
		})
	}
}

// sizedMeter estimates the output of an item without a report by a field that no
// test needs otherwise.
type sizedMeter struct{ fixedMeter }

func (m sizedMeter) Observe(r *LLMResponse) (usage.Usage, ratelimited.Progress) {
	if r.AvgLogprobs > 0 {
		return usage.Usage{Output: int64(r.AvgLogprobs), Flags: usage.Estimated}, ratelimited.More
	}
	return m.fixedMeter.Observe(r)
}
