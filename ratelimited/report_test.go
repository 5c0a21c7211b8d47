package ratelimited_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// reported is a gate of a thousand tokens a minute on whose books 200 are, and
// what is left after some reports.
func reported(t *testing.T, shape ratelimited.Window, reports ...ratelimited.LimitReport) int64 {
	t.Helper()
	p := ratelimited.GeminiAPI(ratelimited.Quota{InputTokensPerMinute: 1000, RequestsPerMinute: 50})
	for i := range p.Dimensions {
		p.Dimensions[i].Shape = shape
	}
	g := newGate(t, ratelimited.Config{Slots: 10, Headroom: 1, Profile: p})
	permit, err := g.Acquire(t.Context(), ratelimited.Call{Usage: usage.Usage{Input: 200}})
	if err != nil {
		t.Fatal(err)
	}
	defer permit.End(usage.Usage{Input: 200})
	for _, r := range reports {
		g.Report(r)
	}
	if n := level(t, g, "requests"); n != 49 {
		t.Errorf("%d requests are left, want 49: nothing was said about them", n)
	}
	return level(t, g, "input_tokens")
}

func TestReportsOnlyLowerWhatIsLeft(t *testing.T) {
	tokens := func(n int64) ratelimited.LimitReport {
		return ratelimited.LimitReport{Dimension: "input_tokens", Remaining: n, Reset: 30 * time.Second}
	}
	sent := func(r ratelimited.LimitReport, ago time.Duration) ratelimited.LimitReport {
		r.Sent = time.Now().Add(-ago)
		return r
	}
	for _, shape := range []ratelimited.Window{ratelimited.Sliding, ratelimited.Bucket} {
		bubbleRun(t, "shape", shape, func(t *testing.T) {
			for _, c := range []struct {
				name    string
				reports []ratelimited.LimitReport
				want    int64
			}{
				{"none", nil, 800},
				{"less than is believed", []ratelimited.LimitReport{tokens(300)}, 300},
				{"more than is believed", []ratelimited.LimitReport{tokens(900)}, 800},
				{"nothing", []ratelimited.LimitReport{tokens(0)}, 0},
				{"negative", []ratelimited.LimitReport{tokens(-5)}, 0},
				{"first less, then more", []ratelimited.LimitReport{tokens(300), tokens(700)}, 300},
				{"another limit", []ratelimited.LimitReport{{Dimension: "output_tokens"}}, 800},
				{"of a later request", []ratelimited.LimitReport{sent(tokens(500), time.Second), sent(tokens(400), 0)}, 400},
				{"of an earlier request", []ratelimited.LimitReport{sent(tokens(500), 0), sent(tokens(400), time.Second)}, 500},
				{"from the future", []ratelimited.LimitReport{sent(tokens(500), -time.Hour), tokens(400)}, 400},
			} {
				if n := reported(t, shape, c.reports...); n != c.want {
					t.Errorf("%s: %d tokens are left, want %d", c.name, n, c.want)
				}
			}
		})
	}
}

// What others have used comes back: by and by in a bucket, at the reset in a
// window.
func TestWhatWasReportedAsUsedComesBack(t *testing.T) {
	for shape, want := range map[ratelimited.Window][3]int64{
		ratelimited.Bucket:  {250, 500, 1000},
		ratelimited.Sliding: {0, 1000, 1000},
	} {
		bubbleRun(t, "shape", shape, func(t *testing.T) {
			p := ratelimited.GeminiAPI(ratelimited.Quota{InputTokensPerMinute: 1000})
			p.Dimensions[0].Shape = shape
			g := newGate(t, ratelimited.Config{Slots: 10, Headroom: 1, Profile: p})
			g.Report(ratelimited.LimitReport{Dimension: "input_tokens", Remaining: 0, Reset: 30 * time.Second})
			var got [3]int64
			for i, d := range []time.Duration{15, 15, 60} {
				time.Sleep(d * time.Second)
				got[i] = level(t, g, "input_tokens")
			}
			if got != want {
				t.Errorf("after 15, 30 and 90 s %v are left, want %v", got, want)
			}
		})
	}
}

// reporter is a model that says what its provider has left.
type reporter struct{ *fakeLLM }

func (reporter) ReportsLimits() bool { return true }

func (r reporter) GenerateContent(ctx context.Context, req *LLMRequest, stream bool) iter.Seq2[*LLMResponse, error] {
	return func(yield func(*LLMResponse, error) bool) {
		ratelimited.Report(ctx, ratelimited.LimitReport{Dimension: "input_tokens", Remaining: 7})
		r.fakeLLM.GenerateContent(ctx, req, stream)(yield)
	}
}

func TestAModelReportsToTheGateThatItStandsBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 10, Headroom: 1, Profile: both})
		llm := wrap(t, reporter{answers(0, final(1, 1))}, g)
		if err := call(t.Context(), llm, hello()); err != nil {
			t.Fatal(err)
		}
		if n := level(t, g, "input_tokens"); n > 16 {
			t.Errorf("%d tokens are left, want what the provider said and no more than was refunded", n)
		}
		ratelimited.Report(t.Context(), ratelimited.LimitReport{Dimension: "input_tokens"}) // without a gate: nothing
		mustBeIdle(t, g)
	})
}
