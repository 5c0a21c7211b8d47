package ratelimited

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// tally is a histogram that a lock guards which its calls hold anyway; one of
// package prometheus takes several times longer to observe the same.
type tally struct {
	counts []uint64 // per bound, and of all that is above the last
	sum    float64
}

func (t *tally) observe(bounds []float64, x float64) {
	if t.counts == nil {
		t.counts = make([]uint64, len(bounds)+1)
	}
	i := 0
	for i < len(bounds) && x > bounds[i] {
		i++
	}
	t.counts[i]++
	t.sum += x
}

// add adds another tally with the same bounds.
func (t *tally) add(u *tally) {
	if u.counts == nil {
		return
	}
	if t.counts == nil {
		t.counts = make([]uint64, len(u.counts))
	}
	for i, n := range u.counts {
		t.counts[i] += n
	}
	t.sum += u.sum
}

// metric is the histogram as package prometheus knows it.
func (t *tally) metric(desc *prometheus.Desc, bounds []float64, labels ...string) prometheus.Metric {
	counts := t.counts
	if counts == nil { // nothing was observed
		counts = make([]uint64, len(bounds)+1)
	}
	total := uint64(0)
	upTo := make(map[float64]uint64, len(bounds))
	for i, bound := range bounds {
		total += counts[i]
		upTo[bound] = total
	}
	total += counts[len(bounds)]
	return prometheus.MustNewConstHistogram(desc, total, t.sum, upTo, labels...)
}

// waits are the times to a permit of a party's calls of one class.
type waits struct {
	none atomic.Uint64 // calls that did not wait
	some tally         // of the others; the party's mu guards it
}

// tally is that of all calls.
func (w *waits) tally() *tally {
	t := tally{counts: make([]uint64, len(waitBuckets)+1)}
	t.counts[0] = w.none.Load()
	t.add(&w.some)
	return &t
}

// tallies are what the parties of a gate have counted, by label.
type tallies struct {
	hold  tally
	ratio map[string]*tally // by model
	wait  map[waitKey]*tally
}

type waitKey struct {
	class int
	agent string
}

// of is the tally of a key, which is made if there is none.
func of[K comparable](m map[K]*tally, key K) *tally {
	if m[key] == nil {
		m[key] = &tally{}
	}
	return m[key]
}

// tallies adds up what the parties have counted, in a fixed order, so that a sum
// of floats, rounded alike, never falls.
func (m *metrics) tallies() *tallies {
	all := &tallies{ratio: make(map[string]*tally), wait: make(map[waitKey]*tally)}
	l := m.gate.learner
	l.mu.RLock()
	defer l.mu.RUnlock()
	parties := slices.SortedFunc(maps.Values(l.parties), func(a, b *party) int {
		return cmp.Or(cmp.Compare(a.model, b.model), cmp.Compare(a.agent, b.agent))
	})
	for _, p := range parties {
		classes := m.of(p).waits
		p.mu.Lock()
		all.hold.add(&p.hold)
		if p.ratio.counts != nil {
			of(all.ratio, p.model).add(&p.ratio)
		}
		for class := range classes {
			if w := &classes[class]; w.none.Load() > 0 || w.some.counts != nil {
				of(all.wait, waitKey{class, p.agent}).add(w.tally())
			}
		}
		p.mu.Unlock()
	}
	return all
}
