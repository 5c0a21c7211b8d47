package ratelimited_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

// estimates makes n calls of an agent whose answers all use so much, and
// returns what the last one was estimated at. Each raw estimate is 100 input and
// 100 output tokens.
func estimates(t *testing.T, g *ratelimited.Gate, agent string, n int, u *genai.GenerateContentResponseUsageMetadata) usage.Usage {
	t.Helper()
	l := &ledger{}
	item := final(0, 0)
	item.UsageMetadata = u
	llm, err := ratelimited.NewMetered(answers(0, item), g, fixedMeter{100, 100}, ratelimited.WithBudgets(l))
	if err != nil {
		t.Fatal(err)
	}
	ctx := ratelimited.WithAgent(t.Context(), agent)
	for range n {
		if err := call(ctx, llm, hello()); err != nil {
			t.Fatal(err)
		}
	}
	return l.reserved[n-1].Usage
}

func TestEstimatesLearnFromSettledCalls(t *testing.T) {
	near := func(t *testing.T, what string, got, want int64) {
		t.Helper()
		if got < want || got > want+want/50+1 { // rounded up
			t.Errorf("%s is estimated at %d tokens, want %d and at most 2%% more", what, got, want)
		}
	}
	t.Run("they converge, up and down", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: 1})
			u := estimates(t, g, "writer", 40, used(50, 400))
			near(t, "input", u.Input, 50)
			near(t, "output", u.Output, 400)
			u = estimates(t, g, "writer", 60, used(80, 20))
			near(t, "input", u.Input, 80)
			near(t, "output", u.Output, 20)
			if !u.Has(usage.Estimated) {
				t.Errorf("%v is not marked as estimated", u)
			}
		})
	})
	t.Run("a margin covers what varies", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: 1})
			for range 30 {
				estimates(t, g, "writer", 1, used(50, 100))
				estimates(t, g, "writer", 1, used(150, 100))
			}
			if u := estimates(t, g, "writer", 1, used(100, 100)); u.Input < 130 || u.Input > 170 {
				t.Errorf("input that is 50 or 150 is estimated at %d, want about 150", u.Input)
			}
		})
	})
	t.Run("agents are told apart", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: 1})
			estimates(t, g, "writer", 20, used(50, 400))
			near(t, "another agent's input", estimates(t, g, "reader", 1, used(100, 100)).Input, 100)
			near(t, "the first agent's input", estimates(t, g, "writer", 1, used(50, 400)).Input, 50)
		})
	})
	t.Run("one poisoned report is bounded and forgotten", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: 1})
			estimates(t, g, "writer", 20, used(100, 100))
			estimates(t, g, "writer", 1, used(1<<30, 1<<30))
			if u := estimates(t, g, "writer", 1, used(100, 100)); u.Input > 1600 || u.Output > 1600 {
				t.Errorf("after one absurd report the estimate is %v, want at most 16 times the raw one", u)
			}
			near(t, "input, forty calls later", estimates(t, g, "writer", 40, used(100, 100)).Input, 100)
		})
	})
	t.Run("a report that says nothing teaches nothing", func(t *testing.T) {
		for _, u := range []*genai.GenerateContentResponseUsageMetadata{nil, used(0, 0), used(-5, -5), {TotalTokenCount: 5000}} {
			bubbleRun(t, "report", u, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1})
				for range 10 { // some spread, which must not grow by itself
					estimates(t, g, "writer", 1, used(90, 90))
					estimates(t, g, "writer", 1, used(110, 110))
				}
				before := estimates(t, g, "writer", 1, u)
				if after := estimates(t, g, "writer", 30, u); after != before {
					t.Errorf("the estimate went from %v to %v", before, after)
				}
			})
		}
	})
	t.Run("part of an answer teaches nothing", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: 1})
			l := &ledger{}
			item := part("a")
			item.UsageMetadata = used(5, 1)
			llm, err := ratelimited.NewMetered(answers(0, item, final(100, 100)), g, fixedMeter{100, 100}, ratelimited.WithBudgets(l))
			if err != nil {
				t.Fatal(err)
			}
			for range 20 {
				for range llm.GenerateContent(t.Context(), hello(), true) {
					break
				}
			}
			if u := l.reserved[19].Usage; u.Input != 100 || u.Output != 100 {
				t.Errorf("after calls that were broken off the estimate is %v, want the raw one", u)
			}
		})
	})
}

// A call that needs more than a limit has in a whole window fails at once, for
// good, and holds up nobody.
func TestCallThatNeverFitsFailsAtOnce(t *testing.T) {
	for name, profile := range map[string]ratelimited.Profile{
		"sliding window": window(100),
		"more than one limit": {Dimensions: []ratelimited.Dimension{
			{Name: "requests", Limit: 5, Count: ratelimited.OneRequest},
			{Name: "tokens", Limit: 100, Count: ratelimited.InputTokens},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1, Profile: profile})
				f := answers(0, final(1, 1))
				llm, err := ratelimited.NewMetered(f, g, fixedMeter{200, 1})
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				err = call(t.Context(), llm, hello())
				mustNeverFit(t, err, "tokens", 200, 100)
				_, err = g.Acquire(t.Context(), ratelimited.Call{Usage: input(101)})
				mustNeverFit(t, err, "tokens", 101, 100)
				p, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(10)})
				if err != nil || time.Since(start) != 0 || f.count() != 0 {
					t.Fatalf("a small call behind it: %v after %v, %d calls sent", err, time.Since(start), f.count())
				}
				p.Release()
				// Exactly the limit fits, above the headroom of 0.9 or not.
				p, err = g.Acquire(t.Context(), ratelimited.Call{Usage: input(100)})
				if err != nil || time.Since(start) != 0 {
					t.Fatalf("a call of exactly the limit: %v after %v", err, time.Since(start))
				}
				p.Release()
				mustBeIdle(t, g)
			})
		})
	}
}

// What was learned is a forecast: it never refuses a call that fits by its raw
// estimate. In the limit where it would, it is clamped; in others it counts.
func TestLearnedEstimateNeverMakesACallUnfit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		profile := ratelimited.Profile{Dimensions: []ratelimited.Dimension{
			{Name: "input", Limit: 300, Count: ratelimited.InputTokens},
			{Name: "output", Limit: 10_000, Count: ratelimited.OutputTokens},
		}}
		g := newGate(t, ratelimited.Config{Slots: 2, Headroom: 1, Profile: profile})
		estimates(t, g, "writer", 1, used(500, 400)) // learns 5 times the input and 4 times the output
		time.Sleep(3 * time.Minute)                  // the overrun leaves the window
		f := answers(time.Hour, final(100, 100))
		llm, err := ratelimited.NewMetered(f, g, fixedMeter{100, 100})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(ratelimited.WithAgent(t.Context(), "writer"))
		done := make(chan error, 1)
		go func() { done <- call(ctx, llm, hello()) }()
		time.Sleep(time.Second)
		if in, out := booked(t, g, "input"), booked(t, g, "output"); f.count() != 1 || in != 300 || out != 400 {
			t.Errorf("%d calls sent, %d input and %d output tokens held; want 1, the limit of 300, and 400", f.count(), in, out)
		}
		cancel()
		<-done

		// A limit that is changed later counts as it is then.
		if err := g.SetLimit("input", 99); err != nil {
			t.Fatal(err)
		}
		mustNeverFit(t, call(ratelimited.WithAgent(t.Context(), "writer"), llm, hello()), "input", 100, 99)
		mustBeIdle(t, g)
	})
}
