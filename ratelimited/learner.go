package ratelimited

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/headgate-go/headgate/usage"
)

// Constants of the learned estimates.
const (
	// learnAlpha is the weight of one call in the moving averages: about the
	// last five calls count (the value that VTC's predictor uses).
	learnAlpha = 0.2
	// learnMargin is how many mean deviations a hold is above the mean ratio.
	learnMargin = 1.0
	// maxRatio bounds what one report can claim, so that a poisoned one cannot
	// close the gate.
	maxRatio = 16.0
	// maxModels bounds the models that metrics and learned estimates tell apart;
	// a gate has one quota, and few models share one.
	maxModels = 64
)

// other is the label that stands for all labels beyond a cap.
const other = "other"

// learner keeps what calls of the same model and agent label have in common.
// It is safe for concurrent use.
type learner struct {
	gate *Gate
	mu   sync.RWMutex
	// mu guards all that follows.
	models  labelSet
	agents  labelSet
	parties map[partyKey]*party
}

type partyKey struct{ model, agent string }

// party is a model and an agent label, both bounded, and what was learned about
// their calls: estimates are corrected by what such calls really used, estimate
// × (mean ratio + margin × mean deviation), both moving averages; or as the
// gate's History says, where it has one.
type party struct {
	partyKey
	gate    *Gate
	metrics partyMetrics

	mu sync.Mutex
	// mu guards all that follows, but for what the ratios say.
	input, output ratio
	hold, ratio   tally // see waitBuckets and ratioBuckets
	calls         revisions
}

// estimate is the part of an estimate that is corrected by what was learned.
type estimate struct{ input, output int64 }

func estimateOf(u usage.Usage) estimate { return estimate{u.Input, u.Output} }

// over is the whole of an estimate, of which u is the corrected one.
func (e estimate) over(u usage.Usage) usage.Usage {
	u.Input, u.Output = e.input, e.output
	return u
}

// ratio is the moving average of actual ÷ estimate. The zero value has learned
// nothing and corrects nothing.
type ratio struct {
	by atomic.Uint64 // the factor that follows from the rest, as bits; 0 is 1

	// The party's mu guards what follows.
	mean, deviation float64
	n               int
}

// labelSet admits the first so many labels and calls all others "other".
type labelSet struct {
	max  int
	seen map[string]struct{}
}

func (s *labelSet) admit(label string) string {
	if !utf8.ValidString(label) {
		label = strings.ToValidUTF8(label, "\uFFFD") // or it could not be a metric's label
	}
	if _, ok := s.seen[label]; ok {
		return label
	}
	if len(s.seen) >= s.max {
		return other
	}
	if s.seen == nil {
		s.seen = make(map[string]struct{})
	}
	s.seen[label] = struct{}{}
	return label
}

func newLearner(g *Gate, agents int) *learner {
	return &learner{
		gate: g, models: labelSet{max: maxModels}, agents: labelSet{max: agents},
		parties: make(map[partyKey]*party),
	}
}

// party returns the party of a call.
func (l *learner) party(model, agent string) *party {
	l.mu.RLock()
	p := l.parties[partyKey{model, agent}]
	l.mu.RUnlock()
	if p != nil {
		return p
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	key := partyKey{l.models.admit(model), l.agents.admit(agent)}
	if p = l.parties[key]; p == nil {
		p = &party{partyKey: key, gate: l.gate}
		l.parties[key] = p
	}
	return p
}

// estimate corrects a raw estimate of a call whose output has a limit, or 0. The
// parts of input and output are left as they are.
func (p *party) estimate(raw usage.Usage, most int64) usage.Usage {
	if p.gate.cfg.History != nil {
		return p.factor().Apply(raw, most)
	}
	raw.Input = max(scale(raw.Input, p.input.factor()), raw.CachedInput, raw.CacheWrite)
	raw.Output = max(scale(raw.Output, p.output.factor()), raw.Thoughts)
	if most > 0 {
		raw.Output = min(raw.Output, most)
	}
	return raw
}

// learn learns from a call whose usage was reported, in parts and not as a total
// only. mu is held.
func (p *party) learn(raw estimate, actual *usage.Usage) {
	if h := p.gate.cfg.History; h != nil {
		h.Observe(p.model, p.agent, raw.over(usage.Usage{}), *actual, p.gate.now())
		return
	}
	p.input.observe(raw.input, actual.Input)
	p.output.observe(raw.output, actual.Output)
}

// factor is what the gate's History says.
func (p *party) factor() usage.Factor {
	return p.gate.cfg.History.Factor(p.model, p.agent, p.gate.cfg.Statistic, p.gate.now())
}

// factors tell how far estimates of input and output are corrected.
func (p *party) factors() [2]float64 {
	if p.gate.cfg.History == nil {
		return [2]float64{p.input.factor(), p.output.factor()}
	}
	f := p.factor()
	if f.Tokens > 0 {
		return [2]float64{f.Input, f.Tokens}
	}
	return [2]float64{f.Input, f.Output}
}

// held counts how long an attempt held its slots.
func (p *party) held(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold.observe(waitBuckets, d.Seconds())
}

func (r *ratio) observe(estimate, actual int64) {
	if estimate <= 0 || actual <= 0 {
		return // nothing was said about this part
	}
	x := min(max(float64(actual)/float64(estimate), 1/maxRatio), maxRatio)
	if r.n == 0 {
		r.mean = x
	} else {
		r.deviation += (math.Abs(x-r.mean) - r.deviation) * learnAlpha
		r.mean += (x - r.mean) * learnAlpha
	}
	r.n++
	by := math.Float64bits(r.mean + learnMargin*r.deviation)
	if r.by.Load() != by {
		r.by.Store(by)
	}
}

func (r *ratio) factor() float64 {
	by := r.by.Load()
	if by == 0 {
		return 1
	}
	return math.Float64frombits(by)
}

// scale is n × f, rounded up, never negative.
func scale(n int64, f float64) int64 {
	if n <= 0 {
		return max(n, 0)
	}
	return int64(min(math.Ceil(float64(n)*f), 1<<62))
}
