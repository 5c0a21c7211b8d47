package audit

import (
	"iter"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// trial is a limit that is tried on what was used.
type trial struct {
	s        *Suggestion
	limit    int64
	denied   *int64
	checks   bool                     // it counts what is checked, for both limits
	counters map[string]*trialCounter // by subject
	stopped  map[string]time.Time     // turns that were denied, and when
}

// trialCounter is how a subject's counter stands.
type trialCounter struct {
	used float64 // of a rolling one what is missing from a full burst
	at   time.Time
	end  time.Time // of a calendar window
}

// replay counts what suggested limits would have denied.
func replay(records iter.Seq2[Record, error], all []Suggestion, cfg *SuggestConfig) error {
	byPlan := map[string][]*trial{}
	for i := range all {
		s := &all[i]
		low := &trial{s: s, limit: s.Low, denied: &s.LowDenied, checks: true}
		high := &trial{s: s, limit: s.High, denied: &s.HighDenied}
		for _, t := range []*trial{low, high} {
			t.counters, t.stopped = map[string]*trialCounter{}, map[string]time.Time{}
			byPlan[s.Plan] = append(byPlan[s.Plan], t)
		}
	}
	var under turns
	var swept time.Time
	for r, err := range records {
		if err != nil {
			return err
		}
		key, ok := cfg.Hierarchy.Key(r.Subject, cfg.Scope)
		if !ok || r.Kind != quota.KindCall {
			continue
		}
		first := under.begin(&r)
		for _, t := range byPlan[r.Subject.Plan] {
			t.call(key, &r, first)
		}
		if r.At.Sub(swept) >= time.Minute {
			swept = r.At
			under.sweep(r.At)
			for _, trials := range byPlan {
				for _, t := range trials {
					t.sweep(r.At)
				}
			}
		}
	}
	return nil
}

// call tries the limit on a call.
func (t *trial) call(key string, r *Record, first bool) {
	n := r.amount(t.s.Unit, first)
	if t.s.Unit == quota.Turns && !first {
		return
	}
	if t.checks && !r.Corrects {
		t.s.Checked++
	}
	if _, denied := t.stopped[r.Turn]; denied && r.Turn != "" {
		return // it was never made
	}
	c := t.counters[key]
	if c == nil {
		c = &trialCounter{at: r.At}
		t.counters[key] = c
	}
	t.turn(c, r.At)
	if !r.Corrects && n > 0 && c.used+float64(n) > float64(t.limit) {
		*t.denied++
		if r.Turn != "" {
			t.stopped[r.Turn] = r.At
		}
		return
	}
	c.used = max(c.used+float64(n), 0)
}

// turn moves a counter on to an instant.
func (t *trial) turn(c *trialCounter, at time.Time) {
	w := t.s.Window
	if w.IsRolling() {
		if passed := at.Sub(c.at); passed > 0 {
			c.used = max(c.used-float64(t.limit)*passed.Seconds()/w.Per().Seconds(), 0)
			c.at = at
		}
		return
	}
	if !at.Before(c.end) {
		c.used = 0
		c.end = cellEnd(w, at)
	}
}

// sweep forgets counters that are as if they were new, and turns that are over.
func (t *trial) sweep(now time.Time) {
	for key, c := range t.counters {
		if t.turn(c, now); c.used == 0 {
			delete(t.counters, key)
		}
	}
	for id, at := range t.stopped {
		if now.Sub(at) > turnIdle {
			delete(t.stopped, id)
		}
	}
}
