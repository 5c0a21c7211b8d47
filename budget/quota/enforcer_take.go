package quota

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-go/headgate/budget/quota/internal/rolling"
)

// taken is what came of taking claims, besides a denial.
type taken struct {
	// wait is how long to wait before going on, and slow the entry to wait for.
	wait time.Duration
	slow *Denial
	// unchecked is true if some of it passed without the ledger.
	unchecked bool
}

// take reserves all claims, or none. A denial is a value; the error is that of ctx
// or says that something was asked that cannot be.
func (a *asking) take(ctx context.Context, note Note) (taken, *Denial, error) {
	var t taken
	for i := range a.claims {
		c := &a.claims[i]
		r := Reserve{ID: c.id, Tree: c.tree, Entries: c.entries, TTL: a.e.cfg.TTL, Exclusive: c.exclusive, Note: note}
		if c.scratch != nil {
			r.Room = c.scratch.room
		}
		res, err := a.e.reserve(ctx, r)
		if err != nil {
			if !a.e.local && !errors.Is(err, errNotAsked) { // it may have been done all the same
				_ = a.e.later.add(ctx, operation{do: releaseClaim, tree: c.tree, id: c.id, doubtful: true})
			}
			if end := ended(ctx); end != nil {
				a.giveBack(ctx, i)
				return t, nil, end
			}
			if d := a.without(c, err); d != nil {
				a.giveBack(ctx, i)
				return t, d, nil
			}
			c.state, t.unchecked = claimOpen, true
			continue
		}
		c.result = res
		if res.Held || res.Denied >= 0 {
			a.giveBack(ctx, i)
			return t, a.denial(c, &res), nil
		}
		c.state = claimHeld
		if res.Wait > t.wait {
			t.wait, t.slow = res.Wait, a.slowest(c, &res)
		}
	}
	return t, nil, nil
}

// reserve asks the ledger, and notes whether it could be reached.
func (e *Enforcer) reserve(ctx context.Context, r Reserve) (res Reserved, err error) {
	if e.local {
		res, err = e.cfg.Ledger.Reserve(ctx, r)
		e.outage.note(ctx, err)
		return res, err
	}
	asked := time.Now()
	err = e.ask(ctx, caller, func(ctx context.Context) (err error) {
		res, err = e.cfg.Ledger.Reserve(ctx, r)
		return err
	})
	if err == nil {
		e.clocks.compare(e.cfg.Logger, asked, &res)
	}
	return res, err
}

// giveBack releases what the first n claims hold.
func (a *asking) giveBack(ctx context.Context, n int) {
	for i := range a.claims[:n] {
		if c := &a.claims[i]; c.state == claimHeld {
			a.e.release(ctx, c.tree, c.id)
		}
		a.claims[i].state = claimNone
	}
}

// release gives back what a reservation holds, whether or not ctx has ended; if the
// ledger cannot be reached, later.
func (e *Enforcer) release(ctx context.Context, tree, id string) {
	_ = e.later.do(ctx, operation{do: releaseClaim, tree: tree, id: id}) // it lapses by itself
}

// closed reports whether the limit denies what the ledger could not be asked about. One
// that only observes denies nothing, whatever its policy will be.
func (l *Limit) closed(observed bool) bool { return !observed && l.Failure != Open }

// without decides about a claim when the ledger could not: nil lets it pass.
func (a *asking) without(c *claim, err error) *Denial {
	for i, l := range c.limits {
		if l.closed(c.entries[i].Observe) {
			return &Denial{
				Reason: ReasonUnavailable, Stage: a.stage, Limit: l.Name, Scope: l.Scope,
				RetryAfter: busyRetry, Err: err,
			}
		}
	}
	lack, ok := a.e.outage.fallBack(c.entries, a.now)
	if ok {
		return nil
	}
	e, l := &c.entries[lack.entry], c.limits[lack.entry]
	d := &Denial{
		Reason: ReasonRate, Stage: a.stage, Limit: l.Name, Scope: l.Scope, Unit: e.Unit,
		Max: lack.max, Used: lack.used, Requested: e.Amount, RetryAfter: lack.retry, Err: ErrUnavailable,
	}
	if d.Max == 0 { // nothing ever passes, and the ledger would say no other
		d.Reason, d.Never, d.RetryAfter, d.Err = ReasonExhausted, true, 0, nil
	}
	return d
}

// denial says what a denied reservation was denied by.
func (a *asking) denial(c *claim, r *Reserved) *Denial {
	if r.Held {
		for i := range c.entries {
			if c.entries[i].Key == c.exclusive {
				d := a.stands(c, i, r)
				d.Reason, d.RetryAfter = ReasonBusy, busyRetry
				return d
			}
		}
		return &Denial{Reason: ReasonBusy, Stage: a.stage, RetryAfter: busyRetry}
	}
	at, never := r.Denied, r.Never
	if a.e.cfg.FinalOutput <= 0 || a.stage == Admission { // it will not be asked for less
		for i := range c.entries {
			if !never && a.never(c, i) {
				at, never = i, true // the first one passes some day, and all together never do
			}
		}
	}
	d := a.stands(c, at, r)
	e := &c.entries[at]
	a.refused = refusal{e, c.limits[at], c.tree, r.committed(at)}
	d.Never, d.RetryAfter = never, r.RetryAfter
	if e.Rolling && e.Limit > 0 && d.RetryAfter == 0 {
		wait := rolling.Quantity{Units: max(addAmounts(a.refused.committed, max(e.Amount, 1))-e.Burst, 0)}.Time(e.Limit, int64(e.Per))
		if d.Never = a.never(c, at); never && !d.Never { // with more time than ctx has
			d.RetryAfter = time.Duration(wait)
		} else if !d.Never { // the ledger does not tell, as time does not help with another limit
			d.RetryAfter = max(time.Duration(wait)-e.MaxWait, 1)
		}
	}
	switch {
	case d.Max == 0: // nothing ever passes
		d.Reason, d.Never, d.RetryAfter, d.ResetsAt = ReasonExhausted, true, 0, time.Time{}
	case d.Never:
		d.Reason, d.RetryAfter, d.ResetsAt = ReasonNeverFits, 0, time.Time{}
	case e.Unit == ConcurrentTurns:
		d.Reason = ReasonConcurrency
	case e.Rolling:
		d.Reason = ReasonRate
	default:
		d.Reason = ReasonExhausted
		if max(e.Amount, 1) <= d.Max-a.refused.committed {
			d.Reason, d.RetryAfter = ReasonBusy, busyRetry
		} else if d.RetryAfter == 0 && !d.ResetsAt.IsZero() {
			d.RetryAfter = max(d.ResetsAt.Sub(r.Now), 0)
		}
	}
	return d
}

// never reports whether an entry can never pass, whatever was spent: it asks for
// more than its limit ever lets pass at once.
func (a *asking) never(c *claim, i int) bool {
	e := &c.entries[i]
	amount := e.Amount
	if e.Kind == Check {
		amount = max(amount, 1)
	}
	switch {
	case e.Observe || e.Limit < 0 || amount == 0 || e.Soft && e.Ceiling < 0:
		return false
	case e.Rolling:
		wait := rolling.Quantity{Units: max(amount-e.Burst, 0)}.Time(e.Limit, int64(e.Per))
		return e.Limit == 0 || wait > int64(a.patience(c.limits[i]))
	case e.Soft:
		return amount > e.Ceiling
	}
	return amount > e.Limit
}

// committed is what is spent of an entry's counter.
func (r *Reserved) committed(i int) int64 {
	if i < len(r.Status) {
		return r.Status[i].Committed
	}
	return 0
}

// stands says how the counter of an entry stands, as a Denial without a reason.
func (a *asking) stands(c *claim, i int, r *Reserved) *Denial {
	e, l := &c.entries[i], c.limits[i]
	d := &Denial{Stage: a.stage, Limit: l.Name, Scope: l.Scope, Unit: e.Unit, Max: e.Limit, Requested: e.Amount}
	switch {
	case e.Rolling && e.Limit > 0:
		d.Max = e.Burst
	case e.Soft && e.Ceiling >= 0:
		d.Max = e.Ceiling
	}
	if i < len(r.Status) {
		st := &r.Status[i]
		if d.Used = st.Committed; !e.Rolling {
			d.Used = addAmounts(st.Committed, st.Reserved)
		}
		d.ResetsAt = st.Span.End
	}
	return d
}

// slowest says which rolling entry of a claim is in debt most.
func (a *asking) slowest(c *claim, r *Reserved) (slow *Denial) {
	var most time.Duration
	for i := range c.entries {
		e := &c.entries[i]
		if !e.Rolling || e.Observe || e.Limit <= 0 || i >= len(r.Status) {
			continue
		}
		debt := time.Duration(float64(r.Status[i].Committed-e.Burst) / float64(e.Limit) * float64(e.Per))
		if slow == nil || debt > most {
			most = debt
			slow = a.stands(c, i, r)
			slow.Reason = ReasonRate
		}
	}
	return slow
}

// keep makes of what is taken what is kept until the end: the entries are not
// needed any more, but for what passed without the ledger. Nor are they after a
// denial.
func (a *asking) keep() []claim {
	for i := range a.claims {
		c := &a.claims[i]
		if c.state == claimOpen {
			continue
		}
		if s := c.scratch; s != nil {
			clear(c.entries)
			clear(c.limits)
			if res := c.result.Status; cap(res) > cap(s.room) {
				s.room = res
			}
			clear(s.room[:cap(s.room)])
			s.room = s.room[:0]
			s.entries, s.limits = c.entries[:0], c.limits[:0]
			a.e.scratch.Put(s)
		}
		c.entries, c.limits, c.scratch, c.result = nil, nil, nil, Reserved{}
	}
	return a.claims
}
