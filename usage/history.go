package usage

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of [HistoryConfig].
const (
	// DefaultMinSamples is how many calls are seen before anything is corrected.
	DefaultMinSamples = 20
	// DefaultHalfLife is the time in which what was learned comes to weigh half.
	DefaultHalfLife = 24 * time.Hour
	// DefaultMaxKeys is how many pairs of model and agent label are told apart.
	DefaultMaxKeys = 1024
)

// Bounds of what is learned.
const (
	// minFactor and maxFactor bound a correction of an estimate, so that a poisoned
	// history neither closes a gate nor opens it.
	minFactor, maxFactor = 1.0 / 16, 16.0
	// maxSamples is how many samples a histogram weighs at most. Beyond, all of it
	// is halved, so the last 512 to 1024 calls count, and a 95th percentile of a
	// lognormal distribution with σ = 1 is known to about 8 %.
	maxSamples = 1024
	// maxLabel bounds a model's name and an agent label, in bytes.
	maxLabel = 256
	// decaySteps is in how many steps a half-life passes, and how often in it what
	// was learned is looked at anew.
	decaySteps = 16
)

// Statistic says which of the values that were learned a hold is made for.
type Statistic uint8

const (
	// P95 is the 95th percentile: one call of twenty uses more than was held. It
	// is the zero value.
	P95 Statistic = iota
	// P50 is the median. Half of the calls use more, some of them far more.
	P50
	// Mean is the mean. The holds of many calls are right together, while each is
	// wrong.
	Mean

	numStatistics = 3
)

// String is "p95", "p50" or "mean".
func (s Statistic) String() string {
	switch s {
	case P95:
		return "p95"
	case P50:
		return "p50"
	case Mean:
		return "mean"
	}
	return fmt.Sprintf("Statistic(%d)", uint8(s))
}

// HistoryConfig is what a History is made of. The zero value is one of defaults.
type HistoryConfig struct {
	// HalfLife is the time in which what was learned comes to weigh half. At least
	// a second. Defaults to [DefaultHalfLife].
	HalfLife time.Duration
	// MaxKeys is how many pairs of model and agent label are told apart. One takes
	// about 3 kB. Calls of pairs beyond are not learned from and not corrected,
	// but for those which take the place of pairs that have not been seen for so
	// long that nothing is left of them. Defaults to [DefaultMaxKeys].
	MaxKeys int
	// MinSamples is how many calls are seen before anything is corrected, at most
	// 256. Defaults to [DefaultMinSamples].
	MinSamples int
	// RelativeOutput makes output be corrected by a factor on its estimate, like
	// input. By default it is learned in tokens, because an estimate of output is
	// mostly a limit that the answer does not follow.
	RelativeOutput bool
}

// History learns from settled calls how estimates of calls of the same model and
// agent label have to be corrected.
//
// For each pair it keeps three histograms with buckets of equal ratio (16 an
// octave, so at most 6 % wide): settled ÷ estimated input, settled ÷ estimated
// output, and settled output in tokens. From these follow the mean and the
// quantiles that a [Factor] corrects with. The idea is that of DDSketch (Masson,
// Rim and Lee, VLDB 2019): quantiles with a bounded relative error, in bounded
// memory, of histograms that can be added up over replicas ([History.Merge]).
//
// Nothing is corrected before MinSamples calls (n₀) of a pair. From then on the
// estimate E and what was learned L are weighed against each other with n
// samples: L^w × E^(1−w), w = 1 − n₀/n. Old calls are forgotten by time
// ([HistoryConfig.HalfLife]) and by number: about the last 1,000 count, so a
// change is learned within as many calls, however few there are a day.
//
// What a broken report can do is bounded: ratios count from 1/64 to 64, what is
// corrected stays between 1/16 and 16 times its estimate, and output of 0 is taken
// for "not reported", so that a constant zero does not make calls free. Output
// that is learned in tokens has the upper bound only, because an estimate of it
// may be a limit that no answer comes near. Where it stands in for an estimate of
// 0 it is at most 1,048,576 tokens.
//
// A History reads no clock: now is an argument, and one that goes back counts as
// standing still. All methods are safe for concurrent use; observing and reading
// take no lock that pairs share, and allocate nothing once a pair is known.
type History struct {
	halfLife   int64 // in milliseconds
	maxKeys    int
	minSamples float64
	relative   bool

	pairs   atomic.Pointer[map[pair]*learned] // the map never changes
	refused atomic.Int64

	mu sync.Mutex
	// mu guards the replacement of pairs, and what follows.
	lookedFor int64 // when pairs of which nothing is left were looked for last, in milliseconds
}

// pair is a model and an agent label.
type pair struct{ model, agent string }

// NewHistory makes a History that has learned nothing. An error names the field
// and the value.
func NewHistory(c HistoryConfig) (*History, error) {
	if c.HalfLife == 0 {
		c.HalfLife = DefaultHalfLife
	}
	if c.MaxKeys == 0 {
		c.MaxKeys = DefaultMaxKeys
	}
	if c.MinSamples == 0 {
		c.MinSamples = DefaultMinSamples
	}
	switch {
	case c.HalfLife < time.Second:
		return nil, fmt.Errorf("usage: HistoryConfig.HalfLife is %v, but must be at least 1s", c.HalfLife)
	case c.MaxKeys < 0 || c.MaxKeys > 1<<20:
		return nil, fmt.Errorf("usage: HistoryConfig.MaxKeys is %d, but must be from 1 to %d", c.MaxKeys, 1<<20)
	case c.MinSamples < 0 || c.MinSamples > maxSamples/4:
		return nil, fmt.Errorf("usage: HistoryConfig.MinSamples is %d, but must be from 1 to %d", c.MinSamples, maxSamples/4)
	}
	h := &History{
		halfLife: c.HalfLife.Milliseconds(), maxKeys: c.MaxKeys,
		minSamples: float64(c.MinSamples), relative: c.RelativeOutput,
	}
	h.pairs.Store(&map[pair]*learned{})
	return h, nil
}

// Observe learns from a call that was settled. estimated is its estimate before
// any correction, actual what its provider reported. Nothing is learned from an
// actual usage that is itself estimated or only a total, and of the rest only
// from parts that are above 0. The agent label may be empty. Use few, fixed
// labels; see [HistoryConfig.MaxKeys].
func (h *History) Observe(model, agent string, estimated, actual Usage, now time.Time) {
	if actual.Flags&(Estimated|TotalOnly) != 0 || actual.Input <= 0 && actual.Output <= 0 {
		return
	}
	at := now.UnixMilli()
	l := (*h.pairs.Load())[pair{model, agent}]
	if l == nil {
		if l = h.add(pair{model, agent}, at); l == nil {
			h.refused.Add(1)
			return
		}
	}
	l.mu.Lock()
	l.decay(at, h.halfLife)
	l.input.observeRatio(actual.Input, estimated.Input)
	l.output.observeRatio(actual.Output, estimated.Output)
	if actual.Output > 0 {
		l.tokens.observe(float64(actual.Output))
	}
	l.unseen++
	l.mu.Unlock()
}

// Factor is what was learned about calls of a model and an agent label. Take it
// once per call, when the call is reserved. What is not known, and a statistic that
// does not exist, corrects nothing.
func (h *History) Factor(model, agent string, s Statistic, now time.Time) Factor {
	f := Factor{Input: 1, Output: 1}
	l := (*h.pairs.Load())[pair{model, agent}]
	if l == nil || s >= numStatistics {
		return f
	}
	l.mu.Lock()
	l.refresh(now.UnixMilli(), h)
	f.Input, f.Output = l.stats[s].input, l.stats[s].output
	f.Samples = l.tokens.weight
	if !h.relative {
		f.Tokens, f.weight = l.stats[s].tokens, l.tokensWeight
	}
	l.mu.Unlock()
	return f
}

// Refused is how many calls were not learned from, because the pair of their
// model and agent label was one too many.
func (h *History) Refused() int64 { return h.refused.Load() }

// Len is how many pairs of model and agent label are told apart.
func (h *History) Len() int { return len(*h.pairs.Load()) }

// add makes room for a pair; it returns nil if there is none.
func (h *History) add(p pair, at int64) *learned {
	if len(p.model) > maxLabel || len(p.agent) > maxLabel {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	old := *h.pairs.Load()
	if l := old[p]; l != nil {
		return l
	}
	if len(old) >= h.maxKeys {
		if at < h.lookedFor+h.halfLife/decaySteps {
			return nil
		}
		h.lookedFor = at
	}
	next := make(map[pair]*learned, len(old)+1)
	for p, l := range old {
		if len(old) < h.maxKeys || !l.faded(at, h.halfLife) {
			next[p] = l
		}
	}
	var l *learned
	if len(next) < h.maxKeys {
		l = newLearned(at)
		next[pair{strings.Clone(p.model), strings.Clone(p.agent)}] = l
	}
	h.pairs.Store(&next)
	return l
}

// Factor is how the estimate of a call is to be corrected. The zero Factor is
// none; that of a history which knows nothing corrects nothing.
type Factor struct {
	// Input and Output are the factors on the estimated input and output. 1
	// corrects nothing. They are between 1/16 and 16.
	Input, Output float64
	// Tokens is how many tokens of output such calls use. If it is above 0, it
	// counts instead of Output, and raises an estimate by no more than the same
	// factor.
	Tokens float64
	// Samples is how many calls Tokens rests on, old ones counting less.
	Samples float64

	weight float64 // of Tokens against the estimate, in the exponent
}

// Apply corrects an estimate. maxOutput is the limit of the output that the
// request sets, and 0 if it sets none; the corrected output is never above it.
// The parts of input and output stay as they are, and their wholes are never less.
// Numbers are rounded up, and a part that is estimated above 0 stays so.
func (f Factor) Apply(estimated Usage, maxOutput int64) Usage {
	u := estimated
	u.Flags |= Estimated
	u.Input = max(scaled(u.Input, f.Input), satAdd(u.CachedInput, u.CacheWrite))
	switch {
	case f.Tokens > 0 && f.weight > 0 && u.Output > 0:
		u.Output = scaled(u.Output, min(math.Pow(f.Tokens/float64(u.Output), f.weight), maxFactor))
	case f.Tokens > 0 && f.weight > 0:
		u.Output = scaled(1, f.Tokens) // nothing was estimated to weigh it against
	default:
		u.Output = scaled(u.Output, f.Output)
	}
	if maxOutput > 0 {
		u.Output = min(u.Output, maxOutput)
	}
	u.Output = max(u.Output, u.Thoughts)
	return u
}

// bounded is a factor within the bounds of a correction.
func bounded(f float64) float64 { return min(max(f, minFactor), maxFactor) }

// scaled is n × f, rounded up, at least 1 for n above 0, and n itself for an f
// that is no factor.
func scaled(n int64, f float64) int64 {
	if n <= 0 {
		return max(n, 0)
	}
	if !(f > 0) {
		return n
	}
	return int64(min(math.Ceil(float64(n)*f), 1<<62))
}
