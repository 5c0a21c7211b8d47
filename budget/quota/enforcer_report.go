package quota

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/headgate-go/headgate/usage"
)

// equal reports whether two subjects are the same.
func (s *Subject) equal(o *Subject) bool {
	return s.User == o.User && s.Team == o.Team && s.Tenant == o.Tenant && s.Session == o.Session &&
		s.Plan == o.Plan && maps.Equal(s.Other, o.Other)
}

// note says in one text for whom something is, for a ledger that keeps it.
func (e *Enforcer) note(s Subject) string {
	if e.local {
		return ""
	}
	longest := ""
	for _, scope := range e.cfg.Hierarchy.orDefault().scopes {
		if key, ok := e.cfg.Hierarchy.Key(s, scope); ok && len(key) > len(longest) {
			longest = key
		}
	}
	return longest
}

// look looks up the limits of a subject. Where they cannot be told, nobody knows
// whether any of them is open, so that it is denied, unless nothing is enforced.
func (e *Enforcer) look(ctx context.Context, s Subject, stage Stage) (who, *Denial, error) {
	w, err := e.who(ctx, s)
	switch {
	case err == nil:
		return w, nil, nil
	case ctx.Err() != nil:
		return w, nil, ctx.Err()
	case e.cfg.Mode == Observe:
		e.cfg.Logger.WarnContext(ctx, "quota: the limits of a subject are not known", slog.Any("error", err))
		return w, nil, nil
	}
	return w, &Denial{Reason: ReasonUnavailable, Stage: stage, RetryAfter: busyRetry, Err: err}, nil
}

// denied tells of a denial, or of one that would have been.
func (e *Enforcer) denied(ctx context.Context, s Subject, plan, turn, call string, d *Denial, tool bool) {
	if h := e.cfg.Hooks.Decided; h != nil {
		outcome := OutcomeDenied
		if d.Observed {
			outcome = OutcomeObserved
		}
		h(Decision{
			Stage: d.Stage, Outcome: outcome, Tool: tool, Reason: d.Reason,
			Limit: d.Limit, Scope: d.Scope, Unit: d.Unit, Plan: plan,
		})
	}
	if e.cfg.Logger.Enabled(ctx, slog.LevelDebug) {
		e.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "quota: denied",
			slog.Any("denial", d), slog.Any("subject", s), slog.String("turn", turn), slog.String("call", call))
	}
	e.publishDenied(s, turn, call, d)
}

// unidentified tells that a request was turned away because it is not known for whom it is.
func (e *Enforcer) unidentified() {
	if h := e.cfg.Hooks.Decided; h != nil {
		h(Decision{Stage: Admission, Outcome: OutcomeUnidentified, Reason: ReasonNoSubject})
	}
}

// report tells of something that passed: what observed limits would have denied, what
// is above soft limits, and which thresholds were crossed.
func (a *asking) report(ctx context.Context, got taken, turn, call string, tool bool) {
	e, s, plan := a.e, a.who.subject, a.who.plan
	observed := a.missed
	for i := range a.claims {
		c := &a.claims[i]
		if c.state != claimHeld {
			continue
		}
		for _, at := range c.result.Over {
			d := a.over(c, at)
			switch {
			case d.Observed:
				observed = append(observed, d)
			case c.entries[at].Kind != Check: // which takes nothing
				e.publishOverage(s, turn, call, d)
			}
		}
		for _, crossing := range c.result.Crossed {
			a.reached(crossing, turn, call)
		}
	}
	for _, d := range observed {
		e.denied(ctx, s, plan, turn, call, d, tool)
	}
	a.publishBegan(turn)
	h := e.cfg.Hooks.Decided
	if h == nil {
		return
	}
	decision := Decision{Stage: a.stage, Outcome: OutcomeAllowed, Tool: tool, Plan: plan}
	switch {
	case got.unchecked:
		decision.Outcome = OutcomeUnchecked
	case got.wait > 0:
		decision.Outcome, decision.Wait = OutcomeWaited, got.wait
		if d := got.slow; d != nil {
			decision.Reason, decision.Limit, decision.Scope, decision.Unit = d.Reason, d.Limit, d.Scope, d.Unit
		}
	}
	h(decision)
}

// over says what an entry above its limit would have been denied by.
func (a *asking) over(c *claim, i int) *Denial {
	e := &c.entries[i]
	d := a.stands(c, i, &c.result)
	d.Observed = e.Observe
	if !e.Observe {
		d.Max = e.Limit // and not the ceiling
	}
	switch {
	case e.Unit == ConcurrentTurns:
		d.Reason = ReasonConcurrency
	case e.Rolling:
		d.Reason = ReasonRate
	default:
		d.Reason = ReasonExhausted
		if !d.ResetsAt.IsZero() {
			d.RetryAfter = max(d.ResetsAt.Sub(c.result.Now), 0)
		}
	}
	if !e.Rolling && e.Kind != Check && d.Used >= e.Amount {
		d.Used -= e.Amount // the status is from after it was taken
	}
	return d
}

// reached tells that a threshold was crossed, and by which turn and call.
func (a *asking) reached(c Crossing, turn, call string) {
	l := a.named(c.Counter)
	if h := a.e.cfg.Hooks.Reached; h != nil {
		r := Reach{Unit: c.Counter.Unit, Percent: c.Percent, Plan: a.who.plan}
		if l != nil {
			r.Limit, r.Scope = l.Name, l.Scope
		}
		h(r)
	}
	a.e.publishCrossing(occasion(a.who.subject, turn, call), c, l)
}

// named finds the limit of a counter.
func (a *asking) named(c Counter) *Limit {
	for i := range a.who.limits {
		l := &a.who.limits[i]
		if _, ok := l.Max[c.Unit]; !ok || l.concurrent() != (c.Window == "") {
			continue
		}
		w := l.Window
		if w.IsTenantZone() {
			w = w.Resolve(a.e.zone(a.who.subject))
		}
		if k := a.key(l.Scope); k.ok && k.key == c.Key && w.ID() == c.Window {
			return l
		}
	}
	return nil
}

// crossings tells of what a settlement of something that somebody began at a time
// has crossed; nil if nobody listens.
func (e *Enforcer) crossings(w *who, at time.Time, turn, call string) func(Settled) {
	if e.cfg.Bus == nil && e.cfg.Hooks.Reached == nil {
		return nil
	}
	return func(s Settled) {
		if len(s.Crossed) == 0 || s.Repeated {
			return
		}
		a := e.asking(w, MidTurn, "", at)
		for _, crossing := range s.Crossed {
			a.reached(crossing, turn, call)
		}
	}
}

// told tells what came of a settlement; before is what was charged until then. It is
// nil if nobody listens.
func (m *metered) told(n, before Amounts) func(Settled) {
	crossed := m.e.crossings(&m.who, m.holds.now, m.turnID(), m.call.ID)
	if m.e.cfg.Bus == nil {
		return crossed
	}
	return func(s Settled) {
		crossed(s)
		if s.Over && !s.Repeated {
			m.overran(s.Status, n, before)
		}
	}
}

// overran tells of limits that were passed because the call has used more than was
// reserved for it, or charged before.
func (m *metered) overran(all []Status, n, before Amounts) {
	if before == (Amounts{}) {
		before = m.held
	}
	var a asking
	for i := range all {
		st := &all[i]
		u := st.Counter.Unit
		used := addAmounts(st.Committed, st.Reserved)
		if st.Rolling || st.Limit < 0 || used <= st.Limit || n[u] <= before[u] {
			continue
		}
		if a.e == nil {
			a = m.e.asking(&m.who, MidTurn, "", m.holds.now)
		}
		if l := a.named(st.Counter); l != nil && m.e.mode(l) != Observe {
			more := n[u] - before[u]
			m.e.cfg.Bus.Publish(Overage{
				Occasion: occasion(m.who.subject, m.turnID(), m.call.ID), Limit: l.Name, Scope: l.Scope, Unit: u,
				Max: st.Limit, Used: max(used-more, 0), Requested: more, ResetsAt: st.Span.End, Overrun: true,
			})
		}
	}
}

// booked tells what became of the reservation.
func (m *metered) booked(u usage.Usage, n Amounts, released bool) {
	guessed := !released && u.Has(usage.Estimated)
	if h := m.e.cfg.Hooks.Booked; h != nil {
		h(Booking{
			Model: m.call.Model, Agent: m.call.Agent, Tool: m.tool != nil, Plan: m.who.plan,
			Estimated: m.call.Usage, Actual: u, Held: m.held, Charged: n, Released: released, Guessed: guessed,
		})
	}
	m.publishSettled(u, n, released, guessed)
}

// corrected tells that the reservation was settled to something else before.
func (m *metered) corrected(u usage.Usage, n Amounts, told usage.Usage, before Amounts) {
	if h := m.e.cfg.Hooks.Booked; h != nil {
		h(Booking{
			Model: m.call.Model, Agent: m.call.Agent, Tool: m.tool != nil, Plan: m.who.plan,
			Estimated: m.call.Usage, Actual: u, Held: m.held, Charged: n,
			Corrected: true, Before: before, Guessed: u.Has(usage.Estimated),
		})
	}
	m.publishCorrected(u, n, told, before)
}

// queued tells how many operations wait for the ledger.
func (e *Enforcer) queued(n int) {
	if h := e.cfg.Hooks.Queued; h != nil {
		h(n)
	}
}

// outageChanged tells that the ledger cannot be reached any more, or can again.
func (e *Enforcer) outageChanged(began bool, lasted time.Duration, failed int64) {
	if h := e.cfg.Hooks.Outage; h != nil {
		h(began)
	}
	e.publishOutage(began, lasted, failed)
}
