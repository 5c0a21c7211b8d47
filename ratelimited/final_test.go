package ratelimited_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/ratelimited"
)

// lastUnits is a budget that has room for so much output; below 0 it has room for
// all.
type lastUnits struct {
	*ledger
	most int64
}

func (b lastUnits) Reserve(ctx context.Context, call budget.Call) (budget.Reservation, error) {
	r, err := b.ledger.Reserve(ctx, call)
	return lastReservation{r, b.most}, err
}

type lastReservation struct {
	budget.Reservation
	most int64
}

func (r lastReservation) MaxOutput() (int64, bool) { return r.most, r.most >= 0 }

func TestTheLastCallOfABudgetIsShortened(t *testing.T) {
	limited := func(n int32) *LLMRequest {
		req := prompt("hello")
		req.Config = &genai.GenerateContentConfig{MaxOutputTokens: n, TopK: genai.Ptr[float32](3)}
		return req
	}
	for name, c := range map[string]struct {
		req  *LLMRequest
		most []int64
		want int32 // limit of what is sent; −1 for nothing
	}{
		"room for all":               {limited(1000), []int64{-1}, 1000},
		"room for less":              {limited(1000), []int64{70}, 70},
		"no limit of its own":        {prompt("hello"), []int64{70}, 70},
		"the least of all budgets":   {limited(1000), []int64{300, -1, 70, 90}, 70},
		"it is short enough already": {limited(50), []int64{70}, 50},
		"room for nothing":           {limited(50), []int64{0}, -1},
	} {
		bubbleRun(t, "case", name, func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: 1})
			f := answers(0, final(3, 20))
			var opts []ratelimited.Option
			var ledgers []*ledger
			for _, most := range c.most {
				l := &ledger{}
				ledgers = append(ledgers, l)
				opts = append(opts, ratelimited.WithBudgets(lastUnits{l, most}))
			}
			before := genai.GenerateContentConfig{}
			if c.req.Config != nil {
				before = *c.req.Config
			}
			err := call(t.Context(), wrap(t, f, g, opts...), c.req)
			if c.want < 0 {
				if !errors.Is(err, budget.ErrDenied) || f.count() != 0 {
					t.Errorf("got %v after %d calls, want a denial and none", err, f.count())
				}
				for _, l := range ledgers {
					l.expect(t, 0, 0)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			sent := f.requests[0].Config
			if sent == nil || sent.MaxOutputTokens != c.want {
				t.Errorf("sent with %+v, want a limit of %d", sent, c.want)
			}
			if c.req.Config != nil && (c.req.Config.MaxOutputTokens != before.MaxOutputTokens || sent.TopK == nil) {
				t.Error("the caller's request was changed, or what it says was lost")
			}
			for _, l := range ledgers {
				l.expect(t, 0, 23)
			}
			mustBeIdle(t, g)
		})
	}
}

// A request that cannot be rewritten is not sent for more than there is room for.
func TestWhatCannotBeShortenedIsDenied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1})
		f := answers(0, final(3, 20))
		l := &ledger{}
		llm, err := ratelimited.NewMetered(f, g, fixedMeter{3, 100}, ratelimited.WithBudgets(lastUnits{l, 70}))
		if err != nil {
			t.Fatal(err)
		}
		if err := call(t.Context(), llm, hello()); !errors.Is(err, budget.ErrDenied) || f.count() != 0 {
			t.Errorf("got %v after %d calls, want a denial and none", err, f.count())
		}
		l.expect(t, 0, 0)
		mustBeIdle(t, g)
	})
}

// The gate holds what a shortened call can use.
func TestAShortenedCallTakesLessOfTheProvidersQuota(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := ratelimited.Profile{Dimensions: []ratelimited.Dimension{{Name: "out", Limit: 10_000, Count: ratelimited.OutputTokens}}}
		g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: p})
		var held int64
		f := &fakeLLM{play: func(_ context.Context, _ int, yield yields) {
			held = 10_000 - level(t, g, "out")
			yield(final(3, 20), nil)
		}}
		if err := call(t.Context(), wrap(t, f, g, ratelimited.WithBudgets(lastUnits{&ledger{}, 70})), prompt("hello")); err != nil {
			t.Fatal(err)
		}
		if held != 70 {
			t.Errorf("%d tokens of output are held, want 70", held)
		}
		mustBeIdle(t, g)
	})
}

var _ budget.Final = lastReservation{}
