package quota

import (
	"context"
	"math"
	"strconv"
	"time"
)

// claim is what something asks of the counters of one tree of the ledger.
type claim struct {
	tree, id  string
	exclusive string
	entries   []Entry
	limits    []*Limit // of each entry
	state     claimState
	result    Reserved // while it is held
	scratch   *scratch // where entries and limits are from; nil if they are the claim's own
}

// scratch is room for entries, which are large and needed for a moment only. It is
// used again where the ledger is known not to keep them.
type scratch struct {
	entries []Entry
	limits  []*Limit
	room    []Status // for the ledger's answer
}

// usualEntries is for how many entries there is room at first.
const usualEntries = 6

// getScratch takes room. Only what came of a ledger that keeps nothing of it may be
// put back into e.scratch.
func (e *Enforcer) getScratch() *scratch {
	if s, used := e.scratch.Get().(*scratch); used {
		return s
	}
	s := &scratch{entries: make([]Entry, 0, usualEntries), limits: make([]*Limit, 0, usualEntries)}
	if e.reuse {
		s.room = make([]Status, 0, usualEntries)
	}
	return s
}

type claimState uint8

const (
	claimNone  claimState = iota // nothing is taken
	claimHeld                    // the ledger holds it
	claimTaken                   // the ledger has taken it, and there is nothing to give back
	claimOpen                    // it passed without the ledger
)

// asking makes claims.
type asking struct {
	e       *Enforcer
	who     *who
	now     time.Time
	stage   Stage
	maxWait time.Duration // at most that long, whatever limits say
	id      string

	scopes []scopeKey
	claims []claim
	// missed are denials by observed limits that the ledger has nothing to do with.
	missed []*Denial
	// refused is what denied.
	refused refusal
}

// refusal is an entry that was denied.
type refusal struct {
	entry     *Entry // nil if it was none
	limit     *Limit
	tree      string
	committed int64
}

// scopeKey is whose counters those of a scope are.
type scopeKey struct {
	scope     Scope
	key, tree string
	ok        bool
}

// asking begins to ask for something. The id is random and was never used: an id
// that the ledger knows would get what was decided before.
func (e *Enforcer) asking(w *who, stage Stage, id string, now time.Time) asking {
	return asking{e: e, who: w, now: now, stage: stage, maxWait: math.MaxInt64, id: id}
}

// boundBy bounds the wait by the end of ctx: what cannot pass before is denied at
// once, with nothing taken.
func (a *asking) boundBy(ctx context.Context) {
	if end, ok := ctx.Deadline(); ok {
		a.maxWait = max(end.Sub(a.now), 0)
	}
}

// key is whose counters those of a scope are.
func (a *asking) key(scope Scope) *scopeKey {
	for i := range a.scopes {
		if a.scopes[i].scope == scope {
			return &a.scopes[i]
		}
	}
	k := scopeKey{scope: scope}
	if k.key, k.ok = a.e.cfg.Hierarchy.Key(a.who.subject, scope); k.ok {
		k.tree = a.e.cfg.Hierarchy.TreeOf(a.who.subject, scope)
	}
	a.scopes = append(a.scopes, k)
	return &a.scopes[len(a.scopes)-1]
}

// applies reports whether a limit applies to the subject. If it cannot, for want of
// an id, and that is to be denied, there is a denial.
func (a *asking) applies(l *Limit) (*scopeKey, *Denial) {
	k := a.key(l.Scope)
	if k.ok {
		return k, nil
	}
	if l.Missing == Skip {
		return nil, nil
	}
	d := &Denial{Reason: ReasonNoSubject, Stage: a.stage, Limit: l.Name, Scope: l.Scope}
	if a.e.mode(l) == Observe {
		d.Observed = true
		a.missed = append(a.missed, d)
		return nil, nil
	}
	return nil, d
}

// entry is an amount of a unit under a limit.
func (a *asking) entry(l *Limit, k *scopeKey, u Unit, kind Kind, amount int64) Entry {
	e := Entry{
		Counter: Counter{Key: k.key, Unit: u},
		Kind:    kind, Amount: amount, Limit: l.Max[u], Ceiling: -1,
		Observe: a.e.mode(l) == Observe, Thresholds: l.Thresholds,
	}
	switch {
	case l.concurrent():
	case l.rolling():
		e.Window = l.Window.ID()
		e.Rolling, e.Per, e.Burst = true, l.Window.Per(), l.Burst[u]
		e.MaxWait = min(a.patience(l), a.maxWait)
	default:
		w := l.Window
		if w.IsTenantZone() {
			w = w.Resolve(a.e.zone(a.who.subject))
		}
		e.Window, e.Spans = w.ID(), a.e.spansOf(w, a.now)
		if l.Soft {
			e.Soft = true
			if ceiling, ok := l.Ceiling[u]; ok {
				e.Ceiling = ceiling
			}
		}
	}
	return e
}

// patience is how long may be waited for a rolling limit, if the caller has time.
func (a *asking) patience(l *Limit) time.Duration {
	switch {
	case a.stage != MidTurn:
		return 0
	case l.MaxWait != nil:
		return *l.MaxWait
	}
	return a.e.cfg.MaxWait
}

func (e *Enforcer) zone(s Subject) *time.Location {
	if e.cfg.Zone == nil {
		return nil
	}
	return e.cfg.Zone(s)
}

// add puts an entry to those of its tree. The tree of [Global] comes last, as
// hardly anybody is denied there.
func (a *asking) add(l *Limit, k *scopeKey, e Entry) {
	i := 0
	for i < len(a.claims) && a.claims[i].tree != k.tree {
		i++
	}
	if i == len(a.claims) {
		a.claims = append(a.claims, claim{tree: k.tree, id: a.id})
		if i > 0 {
			a.claims[i].id = a.id + "." + strconv.Itoa(i)
			if a.claims[i-1].tree == string(Global) {
				a.claims[i-1], a.claims[i] = a.claims[i], a.claims[i-1]
				i--
			}
		}
	}
	c := &a.claims[i]
	if c.entries == nil {
		room := a.e.getScratch()
		c.entries, c.limits = room.entries, room.limits
		if a.e.reuse {
			c.scratch = room
		}
	}
	c.entries, c.limits = append(c.entries, e), append(c.limits, l)
}

// nothing denies what is under a limit that lets nothing pass. There is no need to ask
// the ledger: whoever is shut out in an incident must be no load on it, and is shut out
// while it cannot be reached, too.
func (a *asking) nothing(l *Limit, e *Entry) *Denial {
	switch {
	case e.Observe || e.Limit != 0 || e.Soft && e.Ceiling != 0:
		return nil
	case e.Amount == 0 && e.Kind != Check:
		return nil
	}
	return &Denial{
		Reason: ReasonExhausted, Stage: a.stage, Limit: l.Name, Scope: l.Scope, Unit: e.Unit, Requested: e.Amount, Never: true,
	}
}

// turns asks for a turn: it counts as one, takes a place among those under way, and
// something must be left of everything else.
func (a *asking) turns(room Max) *Denial {
	for i := range a.who.limits {
		l := &a.who.limits[i]
		k, d := a.applies(l)
		if d != nil {
			return d
		}
		if k == nil {
			continue
		}
		for u := range Unit(Units) {
			limit, ok := l.Max[u]
			if !ok {
				continue
			}
			kind, amount := Check, int64(0)
			switch u {
			case Turns:
				kind, amount = Count, 1
			case ConcurrentTurns:
				kind, amount = Lease, 1
			default:
				if l.rolling() {
					limit = l.Burst[u]
				}
				amount = min(room[u], limit)
			}
			e := a.entry(l, k, u, kind, amount)
			if d := a.nothing(l, &e); d != nil {
				return d
			}
			a.add(l, k, e)
		}
	}
	// What is counted stays counted, so that it must wait until nothing can be
	// denied any more: in all trees but the last it is held first.
	for i := range a.claims[:max(len(a.claims)-1, 0)] {
		for j := range a.claims[i].entries {
			if e := &a.claims[i].entries[j]; e.Kind == Count {
				e.Kind = Hold
			}
		}
	}
	return nil
}

// amounts asks for what a call uses, which may differ by limit.
func (a *asking) amounts(of func(*Limit, Unit) (amount int64, counts bool, err *Denial)) *Denial {
	for i := range a.who.limits {
		l := &a.who.limits[i]
		k, d := a.applies(l)
		if d != nil {
			return d
		}
		if k == nil {
			continue
		}
		for u := Calls; int(u) < Units; u++ {
			if _, ok := l.Max[u]; !ok {
				continue
			}
			n, counts, d := of(l, u)
			switch {
			case d != nil && a.e.mode(l) != Observe:
				return d
			case d != nil:
				d.Observed = true
				a.missed = append(a.missed, d)
			case counts:
				e := a.entry(l, k, u, Hold, min(n, MaxAmount))
				if d := a.nothing(l, &e); d != nil {
					return d
				}
				a.add(l, k, e)
			}
		}
	}
	return nil
}
