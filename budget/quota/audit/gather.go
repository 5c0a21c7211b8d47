package audit

import (
	"fmt"
	"iter"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// kindOf is what one histogram is about: windows and units by their places in the
// configuration.
type kindOf struct {
	plan         string
	window, unit int
}

// gathering collects what was used per subject and window.
type gathering struct {
	cfg   *SuggestConfig
	kinds map[kindOf]*histogram
	turns turns
	open  []map[string]*using // by window of the configuration, then by subject
}

// using is what a subject has used in one window so far.
type using struct {
	end  time.Time
	plan string
	n    []int64 // by unit of the configuration
}

// maxPlans is how many plans are told apart: plans come from the program's own limits.
const maxPlans = 1000

// late is how long after a window has ended nothing more is expected for it: records
// are nearly in the order of time.
const late = 5 * time.Minute

// gather reads all records.
func (g *gathering) gather(records iter.Seq2[Record, error]) error {
	g.open = make([]map[string]*using, len(g.cfg.Windows))
	for i := range g.open {
		g.open[i] = map[string]*using{}
	}
	plans := map[string]bool{}
	var swept time.Time
	for r, err := range records {
		if err != nil {
			return err
		}
		key, ok := g.cfg.Hierarchy.Key(r.Subject, g.cfg.Scope)
		if !ok || r.Kind != quota.KindCall {
			continue
		}
		if plans[r.Subject.Plan] = true; len(plans) > maxPlans {
			return fmt.Errorf("audit: the records name more than %d plans", maxPlans)
		}
		if r.At.Sub(swept) >= time.Minute {
			swept = r.At
			g.sweep(r.At.Add(-late))
		}
		first := g.turns.begin(&r)
		for i, w := range g.cfg.Windows {
			if err := g.use(i, w, key, &r, first); err != nil {
				return err
			}
		}
	}
	for i := range g.open {
		for _, u := range g.open[i] {
			g.close(i, u)
		}
	}
	return nil
}

// use adds a call to the window of its subject.
func (g *gathering) use(i int, w quota.Window, key string, r *Record, first bool) error {
	u := g.open[i][key]
	if u == nil || !r.At.Before(u.end) {
		if u != nil {
			g.close(i, u)
		} else if len(g.open[i]) >= g.cfg.MaxSubjects {
			return fmt.Errorf("audit: more than SuggestConfig.MaxSubjects, %d, use something within one window", g.cfg.MaxSubjects)
		}
		u = &using{plan: r.Subject.Plan, n: make([]int64, len(g.cfg.Units)), end: cellEnd(w, r.At)}
		g.open[i][key] = u
	}
	for j, unit := range g.cfg.Units {
		u.n[j] = min(u.n[j]+r.amount(unit, first), quota.MaxAmount)
	}
	return nil
}

// close puts a window that has passed into the histograms.
func (g *gathering) close(i int, u *using) {
	for j, n := range u.n {
		if n <= 0 { // the window has other units
			continue
		}
		k := kindOf{u.plan, i, j}
		h := g.kinds[k]
		if h == nil {
			h = &histogram{}
			g.kinds[k] = h
		}
		h.add(n)
	}
}

// sweep closes the windows that have ended.
func (g *gathering) sweep(before time.Time) {
	g.turns.sweep(before)
	for i := range g.open {
		for key, u := range g.open[i] {
			if u.end.Before(before) {
				g.close(i, u)
				delete(g.open[i], key)
			}
		}
	}
}

// suggestions are the suggestions without limits.
func (g *gathering) suggestions() []Suggestion {
	var all []Suggestion
	plans := map[string]bool{}
	for k := range g.kinds {
		plans[k.plan] = true
	}
	for plan := range plans {
		for i, w := range g.cfg.Windows {
			for j, unit := range g.cfg.Units {
				if h := g.kinds[kindOf{plan, i, j}]; h != nil {
					all = append(all, Suggestion{
						Plan: plan, Scope: g.cfg.Scope, Window: w, Unit: unit,
						Windows: h.n, Quantile: h.quantile(g.cfg.Quantile), Most: h.most,
					})
				}
			}
		}
	}
	sortSuggestions(all)
	return all
}

// turns knows the turns that are under way, by their ids.
type turns struct {
	seen  map[string]time.Time // the last call
	swept int
}

// turnIdle is how long after its last call a turn is over.
const turnIdle = 2 * time.Hour

// begin reports whether a call is the first of its turn. A model call without a turn
// is a turn of its own.
func (t *turns) begin(r *Record) bool {
	if r.Corrects {
		return false
	}
	if r.Turn == "" {
		return !r.Tool
	}
	if t.seen == nil {
		t.seen = map[string]time.Time{}
	}
	_, known := t.seen[r.Turn]
	t.seen[r.Turn] = r.At
	return !known
}

// sweep forgets turns that are over.
func (t *turns) sweep(now time.Time) {
	if len(t.seen) < 2*t.swept || len(t.seen) < 1024 {
		return
	}
	for id, last := range t.seen {
		if now.Sub(last) > turnIdle {
			delete(t.seen, id)
		}
	}
	t.swept = len(t.seen)
}
