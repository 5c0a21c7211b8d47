package gate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
)

const testTPM = 1_000_000

// overload is a gate that has less than its callers want.
type overload struct {
	name   string
	slots  int64
	tokens []func() budget.Limiter
}

func bucket() budget.Limiter {
	b, err := budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: testTPM, Burst: testTPM / 4})
	if err != nil {
		panic(err)
	}
	return b
}

func window() budget.Limiter {
	w, err := budget.NewWindowBudget(budget.WindowBudgetConfig{Limit: testTPM})
	if err != nil {
		panic(err)
	}
	return w
}

// A window alone is no fair test of the order where tokens bind: whatever the
// order, callers in overload spend it as soon as it opens, and whoever comes
// then waits for the rest of the minute. With a bucket beside it, which spreads
// what is left, it is one.
var overloads = []overload{
	{"tokens bind, bucket", 64, []func() budget.Limiter{bucket}},
	{"tokens bind, window and bucket", 64, []func() budget.Limiter{window, bucket}},
	{"slots bind, bucket", 16, []func() budget.Limiter{bucket}},
	{"slots and tokens bind, window", 24, []func() budget.Limiter{window}},
}

func (o overload) config() Config {
	requests, err := budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: 2000})
	if err != nil {
		panic(err)
	}
	cfg := Config{
		Classes: []Class{{Weight: 1}}, Slots: o.slots,
		Dims: []Dim{{Limiter: requests, Window: time.Minute}},
	}
	for _, limiter := range o.tokens {
		cfg.Dims = append(cfg.Dims, Dim{Limiter: limiter(), Window: time.Minute})
	}
	return cfg
}

// work draws calls of so many tokens, uniform between low and high, that take so
// long. Their estimates are wrong by a random factor between bias/2 and bias·2.
func work(low, high int64, quick, slow time.Duration, bias float64) func(*rand.Rand) simWork {
	return func(r *rand.Rand) simWork {
		actual := low + r.Int64N(high-low+1)
		estimate := int64(bias * float64(actual) * math.Exp2(2*r.Float64()-1))
		return simWork{
			estimate: []int64{1, estimate, estimate},
			actual:   []int64{1, actual, actual},
			hold:     quick + time.Duration(r.Int64N(int64(slow-quick)+1)),
		}
	}
}

// backlogged is a flow with so many workers and mid-sized calls.
func backlogged(name string, workers int) *simFlow {
	return &simFlow{name: name, workers: workers, draw: work(1500, 5500, 2*time.Second, 8*time.Second, 1)}
}

// parties are a hog with 40 workers and calls of 8.5k tokens, four flows that
// always have calls waiting, and one that asks for little now and then.
func parties() []*simFlow {
	flows := []*simFlow{{name: "hog", workers: 40, draw: work(8000, 9000, 6*time.Second, 12*time.Second, 1)}}
	for i := range 4 {
		f := backlogged(fmt.Sprint("flow", i), 24)
		f.draw = work(int64(1000+500*i), int64(4000+1000*i), 2*time.Second, 8*time.Second, 1)
		f.from = time.Duration(i+1) * time.Second
		flows = append(flows, f)
	}
	return append(flows, &simFlow{name: "interactive", every: 4 * time.Second, draw: work(300, 900, time.Second, 3*time.Second, 1)})
}

// jain is Jain's index of fairness, 1 where all have the same.
func jain(x []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range x {
		sum += v
		squares += v * v
	}
	return sum * sum / (float64(len(x)) * squares)
}

func quantile(waits []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(waits))
	return sorted[int(q*float64(len(sorted)-1))]
}

// bound is how far two flows that are backlogged all the time may be apart, in
// quota-seconds over a weight of 1: twice the largest call, and for every call in
// flight the largest error of an estimate.
func (s *sim) bound() float64 { return 2*s.largest + float64(s.maxInFlight)*s.epsilon }

func (s *sim) largestGap() (gap float64) {
	for _, p := range s.pairs {
		gap = max(gap, p.gap)
	}
	return gap
}

// The main promise: in an hour of overload every backlogged flow gets the same,
// minute by minute, though one of them is a hog; and who asks for little now and
// then hardly waits.
func TestAHogTakesNoMoreThanItsShareAndInteractiveCallsHardlyWait(t *testing.T) {
	t.Parallel()
	for _, o := range overloads {
		for seed := range uint64(4) {
			t.Run(fmt.Sprint(o.name, ", seed ", seed), func(t *testing.T) {
				t.Parallel()
				flows := parties()
				s := newSim(o.config(), seed, flows...)
				s.run(t, time.Hour)
				if gap := s.largestGap(); gap > s.bound() {
					t.Errorf("two backlogged flows are %.2f quota-seconds apart, bound %.2f", gap, s.bound())
				}
				least, minutes := 1.0, 0
				for m := 1; m < 60; m++ { // in the first one they arrive
					var served []float64
					enough := true
					for _, f := range flows[:5] {
						enough = enough && f.starts[m] >= 20
						served = append(served, f.minutes[m])
					}
					if enough {
						least, minutes = min(least, jain(served)), minutes+1
					}
				}
				if least < 0.99 || minutes < 30 {
					t.Errorf("Jain's index falls to %.4f in %d minutes with 20 calls of each, want 0.99 or more in at least 30", least, minutes)
				}

				fifo := parties()
				cfg := o.config()
				cfg.FIFO = true
				newSim(cfg, seed, fifo...).run(t, time.Hour)
				wait, unfair := quantile(flows[5].waits, .99), quantile(fifo[5].waits, .99)
				if wait > unfair/5 {
					t.Errorf("99 %% of interactive calls wait at most %v, first in, first out %v; want a fifth", wait, unfair)
				}
				used := 0.0
				for _, f := range flows {
					used += f.served
				}
				t.Logf("gap %.2f of %.2f quota-seconds (U %.2f, D %d, eps %.2f); Jain ≥ %.4f in %d minutes; hog %.1f %%; interactive p99 %v, FIFO %v",
					s.largestGap(), s.bound(), s.largest, s.maxInFlight, s.epsilon, least, minutes, 100*flows[0].served/used, wait.Round(time.Millisecond), unfair.Round(time.Millisecond))
			})
		}
	}
}

// However wrong the estimates of a flow are, always in one direction, it gets
// neither more nor less than others.
func TestWrongEstimatesNeitherPayNorCost(t *testing.T) {
	t.Parallel()
	for _, o := range overloads {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			var flows []*simFlow
			for i, bias := range []float64{4, 1, 0.25} {
				flows = append(flows, &simFlow{
					name: fmt.Sprint("bias ", bias), workers: 60, from: time.Duration(i) * time.Second,
					draw: work(2000, 3000, 5*time.Second, 15*time.Second, bias),
				})
			}
			s := newSim(o.config(), 1, flows...)
			for range 3 { // hours: the gap does not grow
				s.run(t, time.Hour)
				if gap := s.largestGap(); gap > s.bound() {
					t.Errorf("%.2f quota-seconds apart after %v, bound %.2f", gap, s.now.Sub(s.start), s.bound())
				}
			}
			t.Logf("gap %.2f of %.2f quota-seconds after 3 hours", s.largestGap(), s.bound())
		})
	}
}
