package bench_test

import (
	"strings"
	"testing"

	"github.com/headgate-go/headgate/bench/internal/burst"
)

// Targets of Headgate in fair order with the profile that matches the window.
const (
	leastGoodput          = 0.97
	leastGoodputQuantised = 0.95
	mostMakespan          = 1.10
	leastJain             = 0.99
	mostIdle              = 0.01
	mostOfFIFO            = 0.2  // of the interactive p99, beside a hog
	leastOfBestPeer       = 0.98 // of its goodput
)

// figure is one that has a target.
type figure struct {
	name   string
	value  float64
	target float64
	atMost bool // the target is an upper bound
}

// meets reports whether the figure is as good as a bound.
func (f figure) meets(bound float64) bool {
	if f.atMost {
		return f.value <= bound
	}
	return f.value >= bound
}

// policy returns the policy of a name.
func policy(tb testing.TB, name string) burst.Policy {
	tb.Helper()
	for _, p := range burst.Policies() {
		if p.Name == name {
			return p
		}
	}
	tb.Fatalf("there is no policy %q", name)
	return burst.Policy{}
}

// figures are those of Headgate in a cell.
func figures(t *testing.T, s burst.Shape, w burst.Window) []figure {
	m := play(t, s, w, policy(t, "headgate-fair")).Metrics
	goodput := leastGoodput
	if s.Quantum > 0 {
		goodput = leastGoodputQuantised
	}
	list := []figure{
		{"goodput", m.Goodput, goodput, false},
		{"idle", m.Idle, mostIdle, true},
	}
	if !testing.Short() {
		list = append(list, figure{"of the best peer", m.Share / bestPeer(t, s, w), leastOfBestPeer, false})
	}
	if s.Kept() {
		window := play(t, s, w, policy(t, "headgate-window")).Metrics
		list = append(list,
			figure{"429", float64(m.Throttled), 0, true},
			figure{"429 of the window profile", float64(window.Throttled), 0, true})
	}
	if m.QuotaBinds {
		list = append(list, figure{"makespan", m.MakespanRatio, mostMakespan, true})
	}
	if m.Jain > 0 {
		list = append(list, figure{"jain", m.Jain, leastJain, false})
	}
	if s.Name == "hog" {
		fifo := play(t, s, w, policy(t, "headgate-fifo")).Metrics
		list = append(list, figure{"p99 of FIFO's", m.WaitP99["interactive"] / fifo.WaitP99["interactive"], mostOfFIFO, true})
	}
	return list
}

// bestPeer is the best share of the policies that people would pick instead.
func bestPeer(t *testing.T, s burst.Shape, w burst.Window) (best float64) {
	for _, p := range burst.Policies() {
		if p.Name != "oracle" && !strings.HasPrefix(p.Name, "headgate") {
			best = max(best, play(t, s, w, p).Metrics.Share)
		}
	}
	return best
}

func TestHeadgateReachesItsTargetsInEveryCellButTheListedOnes(t *testing.T) {
	t.Parallel()
	for _, s := range burst.Shapes() {
		for _, w := range burst.Windows() {
			t.Run(s.Name+"/"+w.String(), func(t *testing.T) {
				t.Parallel()
				for _, f := range figures(t, s, w) {
					reached, listed := shortfalls[shortfall{s.Name, w.String(), f.name}]
					switch {
					case !listed && !f.meets(f.target):
						t.Errorf("%s is %.4f, short of %v", f.name, f.value, f.target)
					case listed && !f.meets(reached):
						t.Errorf("%s is %.4f, worse than the listed %v", f.name, f.value, reached)
					}
				}
			})
		}
	}
}

func TestTheListOfShortfallsNamesFiguresThatExist(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs the figures of the peers")
	}
	exist := make(map[shortfall]figure)
	for _, s := range burst.Shapes() {
		for _, w := range burst.Windows() {
			for _, f := range figures(t, s, w) {
				exist[shortfall{s.Name, w.String(), f.name}] = f
			}
		}
	}
	for key, reached := range shortfalls {
		f, ok := exist[key]
		f.value = reached
		switch {
		case !ok:
			t.Errorf("%v is listed, but there is no such figure", key)
		case f.meets(f.target):
			t.Errorf("%v is listed with %v, which is no shortfall of %v", key, reached, f.target)
		}
	}
}

func TestNobodyBeatsTheBounds(t *testing.T) {
	t.Parallel()
	for _, s := range burst.Shapes() {
		for _, w := range burst.Windows() {
			for _, p := range burst.Policies() {
				if testing.Short() && p.Name != "headgate-fair" {
					continue
				}
				t.Run(s.Name+"/"+w.String()+"/"+p.Name, func(t *testing.T) {
					t.Parallel()
					m := play(t, s, w, p).Metrics
					if m.MakespanRatio > 0 && m.MakespanRatio < 1 {
						t.Errorf("makespan %v s, lower bound %v s", m.Makespan, m.LowerBound)
					}
					// Places at a provider are shared out by the mean time of calls; who is
					// lucky has a little more.
					if most := 1 + 0.02*float64(min(s.Concurrency, 1)); m.Share > most+1e-9 {
						t.Errorf("share of G* %v, want at most %v", m.Share, most)
					}
					if m.MaxUse > 1+1e-9 {
						t.Errorf("the provider let %v of its quota in", m.MaxUse)
					}
					if m.Calls != m.Completed+m.Refused+m.Failed {
						t.Errorf("%d calls, but %d completed, %d refused and %d failed", m.Calls, m.Completed, m.Refused, m.Failed)
					}
				})
			}
		}
	}
}
