package usage_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/usage"
)

// lognormal is a model whose answers have a median of 398 tokens and σ = 1 (mean
// 655, 95th percentile 2,060), cut off at maxTokens.
type lognormal struct {
	rng       *rand.Rand
	maxTokens int64
}

func (l lognormal) output() int64 {
	return min(1+int64(398*math.Exp(l.rng.NormFloat64())), l.maxTokens)
}

// The holds of 20,000 calls, learned from nothing, against holds of max tokens:
// what is held beyond what is used.
func TestLearnedHoldsOverReserveLittle(t *testing.T) {
	t.Parallel()
	const maxTokens, input, calls, warmUp = 8192, 1500, 20_000, 200
	for _, x := range []struct {
		s    usage.Statistic
		most float64
	}{{usage.P95, 0.25}, {usage.Mean, 0.08}, {usage.P50, 0.04}} {
		h := history(t, usage.HistoryConfig{})
		m := lognormal{rand.New(rand.NewPCG(7, uint64(x.s))), maxTokens}
		at := noon
		var over, overMax, under float64
		for i := range calls {
			at = at.Add(time.Second)
			est := usage.Usage{Input: input, Output: maxTokens, Flags: usage.Estimated}
			held := h.Factor("m", "a", x.s, at).Apply(est, maxTokens)
			actual := usage.Usage{Input: input, Output: m.output()}
			h.Observe("m", "a", est, actual, at)
			if i < warmUp {
				continue
			}
			over += float64(max(held.Total()-actual.Total(), 0))
			overMax += float64(maxTokens - actual.Output)
			if held.Total() < actual.Total() {
				under++
			}
		}
		share, overrun := over/overMax, under/(calls-warmUp)
		t.Logf("%v: holds %.1f %% of what max tokens over-reserves; %.1f %% of the calls use more", x.s, 100*share, 100*overrun)
		if share > x.most {
			t.Errorf("%v: holds %.1f %% of what max tokens over-reserves, want at most %.0f %%", x.s, 100*share, 100*x.most)
		}
		if x.s == usage.P95 && (overrun < 0.02 || overrun > 0.07) {
			t.Errorf("%.1f %% of the calls use more than the 95th percentile", 100*overrun)
		}
	}
}

// A budget of 1,000,000 tokens that admits while what is spent and what is held
// leave room, with 50 calls in flight: how far it is overspent in the end, on
// average and in one run of twenty.
func TestLearnedHoldsOvershootABudgetLittle(t *testing.T) {
	t.Parallel()
	const maxTokens, input, inFlight, budget, runs = 8192, 1500, 50, 1_000_000, 200
	h := history(t, usage.HistoryConfig{})
	at := noon
	warm := lognormal{rand.New(rand.NewPCG(9, 9)), maxTokens}
	est := usage.Usage{Input: input, Output: maxTokens, Flags: usage.Estimated}
	for range 2000 {
		at = at.Add(time.Second)
		h.Observe("m", "a", est, usage.Usage{Input: input, Output: warm.output()}, at)
	}
	var overshoot, stranded float64
	var overshoots []float64
	for run := range runs {
		m := lognormal{rand.New(rand.NewPCG(11, uint64(run))), maxTokens}
		type call struct{ held, actual, left int64 }
		var running []call
		var spent, held int64
		for {
			// Fill up.
			full := false
			for len(running) < inFlight {
				u := h.Factor("m", "a", usage.P95, at).Apply(est, maxTokens)
				if spent+held+u.Total() > budget {
					full = true
					break
				}
				actual := m.output()
				running = append(running, call{u.Total(), input + actual, actual})
				held += u.Total()
			}
			if full && len(running) == 0 {
				break
			}
			// The shortest one that is running ends next: each makes a token at a time.
			next := 0
			for i := range running {
				if running[i].left < running[next].left {
					next = i
				}
			}
			ended := running[next]
			for i := range running {
				running[i].left -= ended.left
			}
			running[next] = running[len(running)-1]
			running = running[:len(running)-1]
			held -= ended.held
			spent += ended.actual
			at = at.Add(time.Second)
			h.Observe("m", "a", est, usage.Usage{Input: input, Output: ended.actual - input}, at)
		}
		overshoots = append(overshoots, float64(max(spent-budget, 0))/budget)
		overshoot += overshoots[run] / runs
		stranded += float64(max(budget-spent, 0)) / budget / runs
	}
	slices.Sort(overshoots)
	p95, worst := overshoots[runs*95/100], overshoots[runs-1]
	t.Logf("overshoot %.2f %% on average, 95th percentile %.2f %%, worst %.2f %%; left over %.2f %%", 100*overshoot, 100*p95, 100*worst, 100*stranded)
	if overshoot > 0.015 {
		t.Errorf("the budget is overspent by %.2f %% on average, want at most 1.5 %%", 100*overshoot)
	}
	if p95 > 0.03 {
		t.Errorf("in one run of twenty the budget is overspent by %.2f %%, want at most 3 %%", 100*p95)
	}
}
