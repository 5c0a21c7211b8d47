package audit

import (
	"fmt"
	"iter"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// Question asks what used up a counter.
type Question struct {
	// Hierarchy are the scopes; nil is [quota.DefaultHierarchy].
	Hierarchy *quota.Hierarchy
	// Scope and Subject say whose counters. For [quota.Global] Subject does not matter.
	Scope   quota.Scope
	Subject quota.Subject
	// Unit is what is counted: anything but [quota.ConcurrentTurns], of which nothing
	// is used up.
	Unit quota.Unit
	// Window is the window of the limit, and At an instant in it. The zero At, or a
	// rolling window, has all that was read. A window in the tenant's zone must be in
	// the zone that this tenant has, as counters are; see [quota.Window.Resolve].
	Window quota.Window
	At     time.Time
	// Denials has denials told, too: those of the same subject, unit and window.
	Denials bool
}

// Use is one answer: something that was charged to the counter, or denied because of
// it.
type Use struct {
	// Record is the call, of a counter of turns the turn, or the denial.
	Record Record
	// Limit is the name of the limit.
	Limit string
	// Amount is what was charged, in units; of a correction the difference, which may
	// be negative. 0 for a denial.
	Amount int64
	// Total is what was charged up to here. What an administrator has topped up or
	// reset is not in it.
	Total int64
}

// Uses says which calls, or turns, used up a counter, and when: those of records that were
// charged to it, in the order of records. It yields errors of records as they come and
// goes on while they do. The question's own error comes first and alone.
func Uses(records iter.Seq2[Record, error], q Question) iter.Seq2[Use, error] {
	return func(yield func(Use, error) bool) {
		key, ok := q.Hierarchy.Key(q.Subject, q.Scope)
		switch {
		case !ok:
			yield(Use{}, fmt.Errorf("audit: Question.Subject has no id in the scope %.40q", string(q.Scope)))
			return
		case int(q.Unit) >= quota.Units || q.Unit == quota.ConcurrentTurns:
			yield(Use{}, fmt.Errorf("audit: Question.Unit is %v, which is not used up", q.Unit))
			return
		}
		if err := q.Window.Validate(); err != nil {
			yield(Use{}, fmt.Errorf("audit: Question.Window: %w", err))
			return
		}
		if q.Window.IsTenantZone() { // no counter has it, so that nothing would be found
			yield(Use{}, fmt.Errorf("audit: Question.Window is %s, must name the tenant's zone", q.Window.ID()))
			return
		}
		asked := asked{q: &q, key: key, window: q.Window.ID(), unit: q.Unit.String()}
		if !q.At.IsZero() && !q.Window.IsRolling() {
			asked.span = q.Window.Span(q.At)
		}
		for r, err := range records {
			if err != nil {
				if !yield(Use{}, err) {
					return
				}
				continue
			}
			if use, ok := asked.use(&r); ok && !yield(use, nil) {
				return
			}
		}
	}
}

// asked is a question that is being answered.
type asked struct {
	q                 *Question
	key, window, unit string
	span              quota.Span // zero for any
	total             int64
}

// use is what a record has to say to the question.
func (a *asked) use(r *Record) (Use, bool) {
	if r.Kind == quota.KindDenial {
		if !a.q.Denials || r.Unit != a.unit || r.Scope != a.q.Scope || r.Limit == "" {
			return Use{}, false
		}
		// A denial does not name its window, but when it ends.
		if key, ok := a.q.Hierarchy.Key(r.Subject, a.q.Scope); !ok || key != a.key {
			return Use{}, false
		}
		if a.span != (quota.Span{}) && !r.ResetsAt.Equal(a.span.End) || a.q.Window.IsRolling() != r.ResetsAt.IsZero() {
			return Use{}, false
		}
		return Use{Record: *r, Limit: r.Limit, Total: a.total}, true
	}
	for i := range r.Counted {
		c := &r.Counted[i]
		if c.Key != a.key || c.Window != a.window || c.Unit != a.unit ||
			a.span != (quota.Span{}) && !c.Start.Equal(a.span.Start) {
			continue
		}
		n := r.addedTo(c)
		a.total += n
		return Use{Record: *r, Limit: c.Limit, Amount: n, Total: a.total}, true
	}
	return Use{}, false
}

// addedTo is what a call's record adds to a counter.
func (r *Record) addedTo(c *Counted) int64 {
	n := c.Amount
	if r.Corrects {
		n -= r.Before.of(c.Unit)
	}
	return n
}

// Drift is a window of a counter of which the ledger and the audit say different
// things.
type Drift struct {
	Counter quota.Counter
	Span    quota.Span
	// Ledger is what the ledger has committed, Audit the sum of the records.
	Ledger, Audit int64
}

// Drifts compares what a ledger says of windows, such as [quota.Ledger]'s History,
// with records. It returns those that differ, in the order of statuses. Rolling
// counters are passed over: they have no sum. Causes are events that were dropped,
// records that expired, calls that are not settled yet, and what an administrator has
// topped up or reset. The error is the first one of records.
func Drifts(records iter.Seq2[Record, error], statuses []quota.Status) ([]Drift, error) {
	type window struct {
		key, window, unit string
		start             int64
	}
	at := func(c *quota.Counter, start time.Time) window {
		return window{c.Key, c.Window, c.Unit.String(), start.UnixNano()}
	}
	sums := make(map[window]int64, len(statuses))
	for i := range statuses {
		sums[at(&statuses[i].Counter, statuses[i].Span.Start)] = 0
	}
	for r, err := range records {
		if err != nil {
			return nil, err
		}
		for i := range r.Counted {
			c := &r.Counted[i]
			w := window{c.Key, c.Window, c.Unit, c.Start.UnixNano()}
			if n, ok := sums[w]; ok {
				sums[w] = n + r.addedTo(c)
			}
		}
	}
	var drifts []Drift
	for i := range statuses {
		s := &statuses[i]
		if n := sums[at(&s.Counter, s.Span.Start)]; !s.Rolling && n != s.Committed {
			drifts = append(drifts, Drift{Counter: s.Counter, Span: s.Span, Ledger: s.Committed, Audit: n})
		}
	}
	return drifts, nil
}
