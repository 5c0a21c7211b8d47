package ratelimited

import (
	"math"
	"strings"
	"sync"
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

// learner corrects estimates by what calls of the same model and agent label
// really used: estimate × (mean ratio + margin × mean deviation), both moving
// averages. It is safe for concurrent use.
type learner struct {
	mu sync.Mutex
	// mu guards all that follows.
	models  labelSet
	agents  labelSet
	learned map[learnKey]*ratios
}

type learnKey struct{ model, agent string }

type ratios struct{ input, output ratio }

// ratio is the moving average of actual ÷ estimate. The zero value has learned
// nothing and corrects nothing.
type ratio struct {
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

func newLearner(agents int) *learner {
	return &learner{
		models: labelSet{max: maxModels}, agents: labelSet{max: agents},
		learned: make(map[learnKey]*ratios),
	}
}

// labels returns the bounded labels of a call.
func (l *learner) labels(model, agent string) (string, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.models.admit(model), l.agents.admit(agent)
}

// agent returns the bounded label of an agent.
func (l *learner) agent(label string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.agents.admit(label)
}

// estimate corrects a raw estimate. The parts of input and output are left as
// they are.
func (l *learner) estimate(model, agent string, raw usage.Usage) usage.Usage {
	l.mu.Lock()
	r := l.learned[learnKey{model, agent}]
	if r == nil {
		l.mu.Unlock()
		return raw
	}
	input, output := r.input.factor(), r.output.factor()
	l.mu.Unlock()
	raw.Input = max(scale(raw.Input, input), raw.CachedInput, raw.CacheWrite)
	raw.Output = max(scale(raw.Output, output), raw.Thoughts)
	return raw
}

// observe learns from a call whose usage was reported, in parts and not as a
// total only.
func (l *learner) observe(model, agent string, raw, actual usage.Usage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := learnKey{model, agent}
	r := l.learned[key]
	if r == nil {
		r = &ratios{}
		l.learned[key] = r
	}
	r.input.observe(raw.Input, actual.Input)
	r.output.observe(raw.Output, actual.Output)
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
}

func (r *ratio) factor() float64 {
	if r.n == 0 {
		return 1
	}
	return r.mean + learnMargin*r.deviation
}

// scale is n × f, rounded up, never negative.
func scale(n int64, f float64) int64 {
	if n <= 0 {
		return max(n, 0)
	}
	return int64(min(math.Ceil(float64(n)*f), 1<<62))
}
