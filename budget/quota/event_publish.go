package quota

import (
	"slices"
	"time"

	"github.com/headgate-go/headgate/usage"
)

// publishDenied tells of a denial, or of one that would have been.
func (e *Enforcer) publishDenied(s Subject, turn, call string, d *Denial) {
	if e.cfg.Bus == nil {
		return
	}
	e.cfg.Bus.Publish(Denied{Occasion: occasion(s, turn, call), Denial: d})
}

// publishOverage tells of what passed above a soft limit; d is what it would have
// been denied by if the limit were a hard one.
func (e *Enforcer) publishOverage(s Subject, turn, call string, d *Denial) {
	if e.cfg.Bus == nil {
		return
	}
	e.cfg.Bus.Publish(Overage{
		Occasion: occasion(s, turn, call), Limit: d.Limit, Scope: d.Scope, Unit: d.Unit,
		Max: d.Max, Used: d.Used, Requested: d.Requested, ResetsAt: d.ResetsAt,
	})
}

// publishCrossing tells of a threshold; l is nil if there is no such limit any more.
func (e *Enforcer) publishCrossing(o Occasion, c Crossing, l *Limit) {
	if e.cfg.Bus == nil {
		return
	}
	t := ThresholdReached{
		Occasion: o, Counter: c.Counter, Span: c.Span,
		Percent: c.Percent, Spent: c.Committed, Max: c.Limit,
	}
	if l != nil {
		t.Limit, t.Scope = l.Name, l.Scope
	}
	e.cfg.Bus.Publish(t)
}

// publishBegan tells of a turn that passed, if anything counts turns.
func (a *asking) publishBegan(turn string) {
	if a.e.cfg.Bus == nil || a.stage != Admission {
		return
	}
	var all []Counted
	for i := range a.claims {
		c := &a.claims[i]
		for j := range c.entries {
			if e := &c.entries[j]; e.Unit == Turns && c.charges(j) {
				all = append(all, Counted{
					Limit: c.limits[j].Name, Scope: c.limits[j].Scope, Counter: e.Counter, Span: e.Spans[1],
					Amount: e.Amount, Observed: e.Observe,
				})
			}
		}
	}
	if all != nil {
		a.e.cfg.Bus.Publish(TurnBegan{Occasion: occasion(a.who.subject, turn, ""), Counted: all})
	}
}

// charges reports whether what has passed was, or will be, charged to an entry's counter.
// A rolling one is not charged if it only observes and had no room, or if the ledger could
// not be asked.
func (c *claim) charges(i int) bool {
	e := &c.entries[i]
	return !e.Rolling || c.state == claimHeld && !(e.Observe && slices.Contains(c.result.Over, i))
}

// spared are the counters that are not charged; nil if there is none, or nobody listens.
func (a *asking) spared() (all []Counter) {
	if a.e.cfg.Bus == nil {
		return nil
	}
	for i := range a.claims {
		c := &a.claims[i]
		for j := range c.entries {
			if !c.charges(j) {
				all = append(all, c.entries[j].Counter)
			}
		}
	}
	return all
}

// publishSettled tells what became of a call.
func (m *metered) publishSettled(u usage.Usage, n Amounts, released, guessed bool) {
	if m.e.cfg.Bus == nil {
		return
	}
	s := m.settledAs(u, n, Amounts{}, guessed)
	if released {
		s.Outcome, s.Weights, s.Price, s.Counted = CallReleased, "", usage.Price{}, nil
	}
	m.e.cfg.Bus.Publish(s)
}

// publishCorrected tells that a call which was settled before has used something else.
func (m *metered) publishCorrected(u usage.Usage, n Amounts, before usage.Usage, charged Amounts) {
	if m.e.cfg.Bus == nil {
		return
	}
	s := m.settledAs(u, n, charged, u.Has(usage.Estimated))
	s.Corrects, s.BeforeUsage, s.Before = true, before, charged
	m.e.cfg.Bus.Publish(s)
}

// settledAs is the event of a call that was charged.
func (m *metered) settledAs(u usage.Usage, n, before Amounts, guessed bool) CallSettled {
	s := CallSettled{
		Occasion: occasion(m.who.subject, m.turnID(), m.call.ID),
		Model:    m.call.Model, Agent: m.call.Agent, Tool: m.tool != nil, Outcome: CallCharged,
		Estimate: m.call.Usage, Usage: u, Held: m.held, Charged: n, Counted: m.chargedTo(n, before),
	}
	if guessed {
		s.Outcome = CallEstimated
	}
	if m.tool == nil && m.counted[Credits] && m.holds.credits != nil {
		s.Weights = m.holds.credits.Version
	}
	if m.tool == nil && m.counted[Money] {
		s.Price = m.holds.price
	}
	return s
}

// chargedTo are the counters that the call is charged to, worked out anew: what was
// asked of the ledger is not kept as long as the call lasts.
func (m *metered) chargedTo(n, before Amounts) []Counted {
	a := m.e.asking(&m.who, MidTurn, "", m.holds.now)
	var all []Counted
	for i := range m.who.limits {
		l := &m.who.limits[i]
		k := a.key(l.Scope)
		if !k.ok {
			continue
		}
		for u := Calls; int(u) < Units; u++ {
			if _, limited := l.Max[u]; !limited || n[u] == 0 && before[u] == 0 || u != Calls && !m.counted[u] {
				continue
			}
			entry := a.entry(l, k, u, Hold, n[u])
			if slices.Contains(m.spared, entry.Counter) {
				continue
			}
			all = append(all, Counted{
				Limit: l.Name, Scope: l.Scope, Counter: entry.Counter, Span: entry.Spans[1],
				Amount: n[u], Observed: entry.Observe,
			})
		}
	}
	return all
}

// publishOutage tells that the ledger cannot be reached any more, or can again.
func (e *Enforcer) publishOutage(began bool, lasted time.Duration, failed int64) {
	if e.cfg.Bus == nil {
		return
	}
	o := occasion(Subject{}, "", "")
	if began {
		e.cfg.Bus.Publish(OutageBegan{o})
		return
	}
	e.cfg.Bus.Publish(OutageEnded{Occasion: o, Lasted: lasted, Failed: failed})
}

func occasion(s Subject, turn, call string) Occasion {
	return Occasion{At: time.Now(), Subject: s, Turn: turn, Call: call}
}
