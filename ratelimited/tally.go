package ratelimited

import (
	"cmp"
	"maps"
	"slices"

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
	total := uint64(0)
	upTo := make(map[float64]uint64, len(bounds))
	for i, n := range t.counts {
		total += n
		if i < len(bounds) {
			upTo[bounds[i]] = total
		}
	}
	for i := len(t.counts); i < len(bounds); i++ { // nothing was observed
		upTo[bounds[i]] = 0
	}
	return prometheus.MustNewConstHistogram(desc, total, t.sum, upTo, labels...)
}

// tallies are what the parties of a gate have counted together.
func (l *learner) tallies() (hold tally, models []string, ratio map[string]*tally) {
	ratio = make(map[string]*tally)
	l.mu.RLock()
	defer l.mu.RUnlock()
	// In a fixed order, so that a sum of floats, rounded alike, never falls.
	parties := slices.SortedFunc(maps.Values(l.parties), func(a, b *party) int {
		return cmp.Or(cmp.Compare(a.model, b.model), cmp.Compare(a.agent, b.agent))
	})
	for _, p := range parties {
		p.mu.Lock()
		hold.add(&p.hold)
		if p.ratio.counts != nil {
			if ratio[p.model] == nil {
				ratio[p.model] = &tally{}
				models = append(models, p.model)
			}
			ratio[p.model].add(&p.ratio)
		}
		p.mu.Unlock()
	}
	return hold, models, ratio
}
