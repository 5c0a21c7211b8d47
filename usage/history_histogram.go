package usage

import (
	"math"
	"sync"
)

// learned is what is known about one pair of model and agent label.
type learned struct {
	mu sync.Mutex
	// mu guards all that follows.
	at                    int64 // up to when it has decayed, in milliseconds
	input, output, tokens histogram

	// What was read out of the histograms, when, and how many samples came since.
	stats        [numStatistics]statistics
	tokensWeight float64
	readAt       int64
	unseen       int
	read         bool
}

// statistics is what a Statistic says about each histogram. The factors are
// weighed against no correction and bounded.
type statistics struct{ input, output, tokens float64 }

func newLearned(at int64) *learned {
	// One array for all, so that a pair is one piece of memory.
	counts := make([]float32, 2*ratioBuckets+tokenBuckets)
	return &learned{
		at:     at,
		input:  histogram{first: firstRatio, counts: counts[:ratioBuckets:ratioBuckets]},
		output: histogram{first: firstRatio, counts: counts[ratioBuckets : 2*ratioBuckets : 2*ratioBuckets]},
		tokens: histogram{first: firstToken, counts: counts[2*ratioBuckets:]},
	}
}

func (l *learned) histograms() [3]*histogram { return [3]*histogram{&l.input, &l.output, &l.tokens} }

// decay forgets for the time that has passed, in steps.
func (l *learned) decay(at, halfLife int64) {
	if passed := at - l.at; passed >= max(halfLife/decaySteps, 1) {
		by := math.Exp2(-float64(passed) / float64(halfLife))
		for _, h := range l.histograms() {
			h.scale(by)
		}
		l.at = at
	}
}

// faded reports whether nothing that counts is left.
func (l *learned) faded(at, halfLife int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	by := math.Exp2(-float64(max(at-l.at, 0)) / float64(halfLife))
	return max(l.input.weight, l.output.weight, l.tokens.weight)*by < 0.5
}

// refresh reads the histograms anew if what was read from them is too old: a
// sixteenth of a half-life, or a sixteenth of the samples. So it costs little per
// call, and few calls are missing in it.
func (l *learned) refresh(at int64, h *History) {
	l.decay(at, h.halfLife)
	if l.read && l.readAt == l.at && float64(l.unseen) <= max(l.input.weight, l.tokens.weight)/16 {
		return
	}
	for s := range l.stats {
		s := Statistic(s)
		l.stats[s] = statistics{
			input:  l.input.factor(s, h.minSamples),
			output: l.output.factor(s, h.minSamples),
			tokens: l.tokens.statistic(s),
		}
	}
	l.tokensWeight = shrink(l.tokens.weight, h.minSamples)
	l.readAt, l.unseen, l.read = l.at, 0, true
}

// shrink is how much n samples weigh against the estimate.
func shrink(n, least float64) float64 {
	if n <= least {
		return 0
	}
	return 1 - least/n
}

// Buckets are told apart by the exponent and the first four bits of the mantissa
// of a float64: sixteen in each octave.
const (
	bucketShift = 52 - 4
	perOctave   = 16

	// Ratios are from 2^-6 to 2^6, tokens from 1 to 2^20.
	ratioBuckets = 12 * perOctave
	tokenBuckets = 20 * perOctave
	firstRatio   = (1023 - 6) * perOctave
	firstToken   = 1023 * perOctave
)

// histogram counts values in buckets of equal ratio. Values outside of its range
// count at its ends.
type histogram struct {
	first       int // the number of the first bucket
	counts      []float32
	weight, sum float64
}

func (h *histogram) observeRatio(actual, estimated int64) {
	if actual > 0 && estimated > 0 {
		h.observe(float64(actual) / float64(estimated))
	}
}

// observe counts a value, which is above 0.
func (h *histogram) observe(x float64) {
	if h.weight >= maxSamples {
		h.scale(0.5)
	}
	i := int(math.Float64bits(x)>>bucketShift) - h.first
	switch {
	case i < 0:
		i, x = 0, h.lower(0)
	case i >= len(h.counts):
		i, x = len(h.counts)-1, h.lower(len(h.counts))
	}
	h.counts[i]++
	h.weight++
	h.sum += x
}

// lower is where a bucket begins.
func (h *histogram) lower(i int) float64 {
	return math.Float64frombits(uint64(h.first+i) << bucketShift)
}

// scale multiplies everything. What is left of next to nothing is nothing.
func (h *histogram) scale(by float64) {
	if h.weight *= by; h.weight < 1.0/1024 {
		clear(h.counts)
		h.weight, h.sum = 0, 0
		return
	}
	h.sum *= by
	for i := range h.counts {
		h.counts[i] *= float32(by)
	}
}

// statistic is 0 for an empty histogram.
func (h *histogram) statistic(s Statistic) float64 {
	switch {
	case h.weight == 0:
		return 0
	case s == Mean:
		return h.sum / h.weight
	case s == P50:
		return h.quantile(0.50)
	}
	return h.quantile(0.95)
}

// quantile is the value below which a share q of the weight is, spread evenly
// over each bucket.
func (h *histogram) quantile(q float64) float64 {
	rest, last := q*h.weight, 0
	for i, n := range h.counts {
		n := float64(n)
		if n == 0 {
			continue
		}
		if rest <= n {
			low := h.lower(i)
			return low + (h.lower(i+1)-low)*rest/n
		}
		rest, last = rest-n, i
	}
	return h.lower(last + 1) // the counts add up to a little less than the weight
}

// factor is a statistic weighed against no correction, and bounded.
func (h *histogram) factor(s Statistic, least float64) float64 {
	w := shrink(h.weight, least)
	if w == 0 {
		return 1
	}
	return bounded(math.Pow(h.statistic(s), w))
}
