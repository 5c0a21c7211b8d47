package quota

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/usage"
)

// Budget returns the enforcer as a [budget.Budget]: it reserves for each model call
// what the call will probably use, under all limits of the context's subject and
// within the bounds of its turn, or under none.
//
// A denial is a [*Denial] as an error, and nothing is held then. A call without a
// turn is metered, too, but no turn's bounds hold for it. How much is reserved, the
// [HoldPolicy] of each limit says; for a call with an empty estimate, of which nothing
// is known, it is what one token of input costs at least.
//
// A reservation is settled to what was used: the same usage is priced by the price
// of the time of the reservation. A usage of which nothing is known is charged what
// was reserved. Released reservations charge nothing. If the ledger cannot be reached
// then, that is made up for later, and meanwhile the reservation holds. With a
// [Memory] nothing of this waits (see [budget.Local]).
//
// A reservation has a method MaxOutput() (tokens int64, ok bool). If ok is true, it
// is for a call whose output is limited to so many tokens; see
// [Config].FinalOutput.
func (e *Enforcer) Budget() budget.Budget { return enforcerBudget{e} }

type enforcerBudget struct{ e *Enforcer }

// Reserve implements [budget.Budget].
func (b enforcerBudget) Reserve(ctx context.Context, call budget.Call) (budget.Reservation, error) {
	m := &metered{e: b.e, call: call}
	if err := m.reserve(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

var (
	_ budget.Adjuster = (*metered)(nil)
	_ budget.Local    = (*metered)(nil)
)

// metered is a model call, or a paid tool, and what is reserved for it. It is the
// [budget.Reservation].
type metered struct {
	e     *Enforcer
	call  budget.Call
	tool  *Cost // nil for a model call
	turn  *turn // nil without one
	caps  *caps
	who   who
	holds holds

	scopes  []scopeKey // of the subject, as far as they are known
	claims  []claim
	held    Amounts // the most under any limit
	counted [Units]bool
	spared  []Counter // those that are asked about and not charged
	final   bool
	kept    kept

	mu sync.Mutex
	// mu guards all that follows.
	ended   bool
	settled bool  // and not released
	inTurn  int64 // its part of the cost of the turn
	seq     int64
	last    usage.Usage // what was settled last, and what was charged for it
	charged Amounts
}

// reserve takes what the call needs.
func (m *metered) reserve(ctx context.Context) error {
	e := m.e
	if err := ctx.Err(); err != nil {
		return err
	}
	m.turn = e.turnOf(ctx)
	if m.turn != nil && m.turn.denied != nil {
		return m.turn.denied
	}
	if e.closed.Load() {
		return m.deny(ctx, &Denial{Reason: ReasonClosed, Stage: MidTurn})
	}
	if c, _ := ctx.Value(capsKey{}).(*caps); c != nil && c.err != nil {
		return c.err
	}
	subject, _ := SubjectFrom(ctx)
	if m.turn != nil && subject.equal(&m.turn.subject) {
		m.scopes = m.turn.scopes
	} else if err := subject.Validate(); err != nil && e.cfg.Mode != Off {
		return fmt.Errorf("quota: a call is not made: %w", err)
	}
	w, d, err := e.look(ctx, subject, MidTurn)
	if err != nil {
		return err
	}
	m.who = w
	if d != nil {
		return m.deny(ctx, d)
	}
	now := time.Now()
	maxOutput := max(m.call.MaxOutput, 0)
	if m.turn != nil && e.cfg.Mode != Off {
		m.caps = m.turn.within(ctx)
		if maxOutput == 0 {
			maxOutput = m.caps.maxOutput()
		}
	}
	m.holds = e.holdsOf(&m.call, now, maxOutput)
	if d := m.takeCaps(ctx); d != nil {
		return m.deny(ctx, d)
	}
	a, got, d, err := m.take(ctx, now)
	if err != nil || d != nil {
		m.caps.correctAll(-m.calls(), -m.inTurn)
		if d != nil {
			return m.deny(ctx, d)
		}
		return err
	}
	if m.claims = a.claims; len(m.claims) > 0 {
		m.kept = kept{claims: m.claims, ctx: ctx, began: now}
		e.keeper.add(&m.kept)
	}
	passed := false
	defer func() {
		if !passed { // ctx has ended, or a hook has panicked
			m.caps.correctAll(-m.calls(), -m.inTurn)
			_ = e.releaseClaims(ctx, m.claims)
			m.drop()
		}
	}()
	if err := wait(ctx, got.wait); err != nil {
		return err
	}
	if m.inTurn == 0 && m.caps != nil {
		m.inTurn = m.held[Money]
		m.caps.correctAll(0, m.inTurn)
	}
	m.holds.usage(P95) // worked out now, and only read at the end of the call
	a.report(ctx, got, m.turnID(), m.call.ID, m.tool != nil)
	m.spared = a.spared()
	a.keep()
	passed = true
	return nil
}

// wait waits for rolling limits.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// calls is how many model calls it is.
func (m *metered) calls() int64 {
	if m.tool != nil {
		return 0
	}
	return 1
}

// takeCaps counts the call within the bounds of its turn.
func (m *metered) takeCaps(ctx context.Context) *Denial {
	if m.caps == nil {
		return nil
	}
	cost := int64(0)
	if m.tool != nil || m.caps.priced() {
		_, n, err := m.need(&Limit{}, Money)
		switch {
		case err == nil:
			cost = n
		case m.caps.priced() && m.e.cfg.Mode != Observe:
			return &Denial{Reason: ReasonUnpriced, Stage: MidTurn, Unit: Money, Err: err}
		}
	}
	d := m.caps.take(m.calls(), cost, m.e.cfg.Mode == Observe)
	if d != nil && m.e.cfg.Mode != Observe {
		return d
	}
	if d != nil {
		d.Observed = true
		m.e.denied(ctx, m.who.subject, m.who.plan, m.turnID(), m.call.ID, d, m.tool != nil)
	}
	m.inTurn, m.counted[Money] = cost, cost > 0
	return nil
}

func (m *metered) turnID() string {
	if m.turn == nil {
		return ""
	}
	return m.turn.id
}

// deny tells of a denial, and returns it.
func (m *metered) deny(ctx context.Context, d *Denial) error {
	d.Stage = MidTurn
	m.turn.stop(d)
	m.e.denied(ctx, m.who.subject, m.who.plan, m.turnID(), m.call.ID, d, m.tool != nil)
	return d
}

// need is what is to be reserved under a limit.
func (m *metered) need(l *Limit, u Unit) (counts bool, n int64, err error) {
	if m.tool != nil {
		return u != Calls, m.tool.amount(u), nil
	}
	n, err = m.holds.cost(u, m.holds.usage(l.Hold))
	return true, n, err
}

// take reserves under all limits, or under none. If a calendar limit has less left
// than is needed, less is asked for, as long as there is any point in it.
func (m *metered) take(ctx context.Context, now time.Time) (asking, taken, *Denial, error) {
	note := m.note()
	var exclusive scopeKey
	for try := 0; ; try++ {
		a := m.e.asking(&m.who, MidTurn, budget.NewID(), now)
		a.scopes = m.scopes
		a.boundBy(ctx)
		held, counted := m.held, m.counted
		d := a.amounts(func(l *Limit, u Unit) (int64, bool, *Denial) {
			counts, n, err := m.need(l, u)
			if err != nil {
				return 0, false, &Denial{
					Reason: ReasonUnpriced, Stage: MidTurn, Limit: l.Name, Scope: l.Scope, Unit: u, Max: l.Max[u], Err: err,
				}
			}
			held[u] = max(held[u], n)
			counted[u] = counted[u] || counts && (m.tool == nil || n > 0)
			return n, counts, nil
		})
		if d != nil {
			a.keep()
			return a, taken{}, d, nil
		}
		a.exclude(exclusive)
		got, d, err := a.take(ctx, note)
		if err == nil && d == nil {
			m.held, m.counted = held, counted
			return a, got, nil, nil
		}
		if err != nil || try >= finalTries || !m.lessen(&a, d) {
			a.keep()
			return a, taken{}, d, err
		}
		if try == 0 {
			exclusive = scopeKey{key: a.refused.entry.Key, tree: a.refused.tree}
		}
		a.keep()
	}
}

// finalTries is how often less is asked for: each limit that has too little left
// may say so once, and after that somebody else is quicker.
const finalTries = 4

// exclude makes the claim of a scope's tree exclusive: of the calls of that subject
// that get the last of a limit there is one at a time.
func (a *asking) exclude(k scopeKey) {
	for i := range a.claims {
		if k.key != "" && a.claims[i].tree == k.tree {
			a.claims[i].exclusive = k.key
		}
	}
}

// lessen has less output reserved after a denial, if that may help. If what is left
// is reserved by others, it says so in the denial.
func (m *metered) lessen(a *asking, d *Denial) bool {
	least, by := m.e.cfg.FinalOutput, &a.refused
	if least <= 0 || m.tool != nil || by.entry == nil || by.entry.Rolling || by.entry.Unit == Calls || d.Max == 0 {
		return false
	}
	output, ok := m.holds.fits(d.Unit, by.limit.Hold, d.Left())
	if ok && output >= least {
		m.holds.final, m.final = output, true
		return true
	}
	output, ok = m.holds.fits(d.Unit, by.limit.Hold, d.Max-by.committed)
	if ok && output >= least {
		d.Reason, d.RetryAfter, d.Never = ReasonBusy, busyRetry, false
	}
	return false
}

// Local reports that Settle, Release and Adjust only touch memory.
func (m *metered) Local() bool { return m.e.local }

// MaxOutput is the most output, in tokens, for which there is room: the call must be
// limited to it. ok is false if there is room for what was asked for.
func (m *metered) MaxOutput() (tokens int64, ok bool) {
	if !m.final {
		return 0, false
	}
	return m.holds.final, true
}

// Settle implements [budget.Reservation].
func (m *metered) Settle(ctx context.Context, actual usage.Usage) error {
	if m.end(true) {
		return m.charge(ctx, actual, 0)
	}
	return nil
}

// Adjust implements [budget.Adjuster]. Before the reservation is settled it settles;
// after it was released it does nothing.
func (m *metered) Adjust(ctx context.Context, actual usage.Usage) error {
	if m.end(true) {
		return m.charge(ctx, actual, 0)
	}
	m.mu.Lock()
	was := m.settled
	m.seq++
	seq := m.seq
	m.mu.Unlock()
	if !was {
		return nil
	}
	return m.charge(ctx, actual, seq)
}

// Release implements [budget.Reservation].
func (m *metered) Release(ctx context.Context) error {
	if !m.end(false) {
		return nil
	}
	m.caps.correctAll(0, -m.inTurn) // the call was made, so it counts as one
	err := m.e.releaseClaims(ctx, m.claims)
	m.drop()
	m.booked(usage.Usage{}, Amounts{}, true)
	return err
}

// end ends the reservation, and reports whether it was this time.
func (m *metered) end(settled bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return false
	}
	m.ended, m.settled = true, settled
	return true
}

// drop ends renewing what is held.
func (m *metered) drop() {
	if m.kept.ctx != nil {
		m.e.keeper.remove(&m.kept)
	}
}

// charge settles to a usage; seq is above 0 for a correction.
func (m *metered) charge(ctx context.Context, u usage.Usage, seq int64) error {
	u = u.Split(m.call.Usage).Clamp()
	reported := !u.IsZero()
	if !reported {
		u = m.holds.usage(P95)
		u.Flags |= usage.Estimated
	}
	n, priced := m.holds.actual(u, m.held, m.counted)
	if !reported {
		for unit, held := range m.held {
			n[unit] = max(n[unit], held)
		}
	}
	if !priced {
		m.e.cfg.Logger.WarnContext(ctx, "quota: what a call has used could not be priced; it is charged what was reserved",
			slog.String("model", m.call.Model), slog.String("call", m.call.ID))
	}
	if seq == 0 && reported && m.e.cfg.History != nil {
		m.e.cfg.History.Observe(m.call.Model, m.call.Agent, m.call.Usage, u, time.Now())
	}
	return m.book(ctx, u, n, seq)
}

// book tells everybody what was used.
func (m *metered) book(ctx context.Context, u usage.Usage, n Amounts, seq int64) error {
	m.mu.Lock()
	more := n[Money] - m.inTurn
	m.inTurn = n[Money]
	before, charged := m.last, m.charged
	m.last, m.charged = u, n
	m.mu.Unlock()
	m.caps.correctAll(0, more)
	err := m.e.settleClaims(ctx, m.claims, n, seq, m.note(), m.told(n, charged))
	if seq == 0 {
		m.drop()
		m.booked(u, n, false)
	} else {
		m.corrected(u, n, before, charged)
	}
	return err
}

func (m *metered) note() Note {
	return Note{Subject: m.e.note(m.who.subject), Turn: m.turnID(), Call: m.call.ID, Model: m.call.Model, Agent: m.call.Agent}
}
