package quota

import (
	"context"
	"fmt"
	"time"
)

// LimitStatus says how one amount of a limit stands for a subject.
type LimitStatus struct {
	// Limit, Scope, Window, Unit, Mode and Soft are those of the limit. Window is the
	// zero Window for turns under way, and in the zone of the tenant.
	Limit  string
	Scope  Scope
	Window Window
	Unit   Unit
	Mode   Mode
	Soft   bool
	// Max is the limit, Ceiling the hard end of a soft one (−1 for none), and Burst
	// that of a rolling one.
	Max, Ceiling, Burst int64
	// Committed is spent, and Reserved held by what is under way. Of a rolling limit
	// Committed is what is missing from a full burst, what is held included.
	Committed, Reserved int64
	// Left is what is left of Max, or of Burst, never below 0.
	Left int64
	// ResetsAt is when the window ends; zero for a limit without one. FullAt is when a
	// rolling limit is full again; zero if it is.
	ResetsAt, FullAt time.Time
}

// Limits are the limits in effect for a subject. They must not be changed.
func (e *Enforcer) Limits(ctx context.Context, s Subject) ([]Limit, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	w, err := e.who(ctx, s)
	return w.limits, err
}

// Status says how all limits that apply to a subject stand: for each limit one status
// for each of its amounts. Limits for which the subject has no id are left out.
func (e *Enforcer) Status(ctx context.Context, s Subject) ([]LimitStatus, error) {
	a, err := e.counters(ctx, s, func(*Limit, Unit) bool { return true })
	if err != nil {
		return nil, err
	}
	byCounter := map[Counter]Status{}
	for i := range a.claims {
		c := &a.claims[i]
		var all []Status
		err := e.within(ctx, func(ctx context.Context) (err error) {
			all, err = e.cfg.Ledger.Status(ctx, c.tree, c.entries...)
			return err
		})
		if e.outage.note(ctx, err); err != nil {
			return nil, err
		}
		for j := range all {
			byCounter[c.entries[j].Counter] = all[j]
		}
	}
	return a.statuses(byCounter), nil
}

// TopUp gives a subject back an amount of what is spent under the limits that a
// scope has of a unit, in their windows that are open now; what is spent is never
// below 0. It returns how these limits stand then. Spend is shared by all who share
// the scope's id.
func (e *Enforcer) TopUp(ctx context.Context, s Subject, scope Scope, unit Unit, amount int64) ([]LimitStatus, error) {
	if amount < 0 || amount > MaxAmount {
		return nil, fmt.Errorf("quota: TopUp: amount is %d, must be from 0 to %d", amount, int64(MaxAmount))
	}
	return e.change(ctx, "TopUp", s, func(l *Limit, u Unit) bool { return l.Scope == scope && u == unit },
		func(ctx context.Context, tree string, entry Entry) (Status, error) {
			return e.cfg.Ledger.TopUp(ctx, tree, entry, amount)
		})
}

// Reset forgets what is spent under all limits of a scope, in their windows that are
// open now; what is reserved stays reserved. It returns how these limits stand then.
func (e *Enforcer) Reset(ctx context.Context, s Subject, scope Scope) ([]LimitStatus, error) {
	return e.change(ctx, "Reset", s, func(l *Limit, _ Unit) bool { return l.Scope == scope },
		func(ctx context.Context, tree string, entry Entry) (Status, error) {
			return e.cfg.Ledger.Reset(ctx, tree, entry)
		})
}

// Erase forgets everything about the subject's id in a scope: what is spent and
// reserved, and the past. Ids within it are erased on their own. Use it when somebody
// has a right to be forgotten, and not to give spend back. It is an error for
// [Global], which is nobody's id; there is [Enforcer.Reset].
//
// A store makes many steps of that where there is much to forget, so it may take as long
// as ctx lets it, up to a minute.
func (e *Enforcer) Erase(ctx context.Context, s Subject, scope Scope) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if scope == Global {
		return fmt.Errorf("quota: Erase: the scope is %q, and everybody is not one subject", Global)
	}
	key, ok := e.cfg.Hierarchy.Key(s, scope)
	if !ok {
		return fmt.Errorf("quota: Erase: the subject has no id of scope %q", clipText(string(scope)))
	}
	err := e.withinTime(ctx, max(e.cfg.LedgerTimeout, eraseTimeout), func(ctx context.Context) error {
		return e.cfg.Ledger.Erase(ctx, e.cfg.Hierarchy.TreeOf(s, scope), key)
	})
	e.outage.note(ctx, err)
	return err
}

// eraseTimeout is how long erasing may take.
const eraseTimeout = time.Minute

// change changes the counters of some limits. What is under way at a time is no
// spend, and left alone.
func (e *Enforcer) change(ctx context.Context, what string, s Subject, which func(*Limit, Unit) bool,
	do func(ctx context.Context, tree string, entry Entry) (Status, error)) ([]LimitStatus, error) {
	a, err := e.counters(ctx, s, func(l *Limit, u Unit) bool { return u != ConcurrentTurns && which(l, u) })
	if err != nil {
		return nil, err
	}
	byCounter := map[Counter]Status{}
	for i := range a.claims {
		c := &a.claims[i]
		for j := range c.entries {
			err := e.within(ctx, func(ctx context.Context) error {
				st, err := do(ctx, c.tree, c.entries[j])
				byCounter[c.entries[j].Counter] = st
				return err
			})
			if e.outage.note(ctx, err); err != nil {
				return nil, err
			}
		}
	}
	if len(byCounter) == 0 {
		return nil, fmt.Errorf("quota: %s: no such limit applies to the subject", what)
	}
	return a.statuses(byCounter), nil
}

// counters are the counters of some limits of a subject, as checks of nothing.
func (e *Enforcer) counters(ctx context.Context, s Subject, which func(*Limit, Unit) bool) (*asking, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	w, err := e.who(ctx, s)
	if err != nil {
		return nil, err
	}
	a := e.asking(&w, Admission, "", time.Now())
	for i := range w.limits {
		l := &w.limits[i]
		k := a.key(l.Scope)
		if !k.ok {
			continue
		}
		for u := range Unit(Units) {
			if _, ok := l.Max[u]; ok && which(l, u) {
				a.add(l, k, a.entry(l, k, u, Check, 0))
			}
		}
	}
	return &a, nil
}

// statuses puts statuses in the order of the limits.
func (a *asking) statuses(byCounter map[Counter]Status) []LimitStatus {
	var all []LimitStatus
	for i := range a.who.limits {
		l := &a.who.limits[i]
		k := a.key(l.Scope)
		if !k.ok {
			continue
		}
		for u := range Unit(Units) {
			if _, ok := l.Max[u]; !ok {
				continue
			}
			entry := a.entry(l, k, u, Check, 0)
			st, ok := byCounter[entry.Counter]
			if !ok {
				continue
			}
			w := l.Window
			if w.IsTenantZone() {
				w = w.Resolve(a.e.zone(a.who.subject))
			}
			all = append(all, LimitStatus{
				Limit: l.Name, Scope: l.Scope, Window: w, Unit: u, Mode: a.e.mode(l), Soft: l.Soft,
				Max: entry.Limit, Ceiling: entry.Ceiling, Burst: entry.Burst,
				Committed: st.Committed, Reserved: st.Reserved, Left: st.Left(),
				ResetsAt: st.Span.End, FullAt: st.FullAt,
			})
		}
	}
	return all
}
