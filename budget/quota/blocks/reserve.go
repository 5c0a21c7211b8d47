package blocks

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/internal/unasked"
)

// leases reports whether an entry is served from a block.
func (l *Ledger) leases(tree string, e *quota.Entry) bool {
	return e.Kind != quota.Lease && l.cfg.Leased(tree, e.Counter)
}

// Reserve implements [quota.Ledger]. Entries that are leased are taken from blocks.
// If those have no room the ledger underneath is asked before anything is denied,
// until ctx ends. What is not leased is asked for there afterwards, and if it is
// denied, or unknown, nothing was taken.
func (l *Ledger) Reserve(ctx context.Context, r quota.Reserve) (quota.Reserved, error) {
	none := quota.Reserved{Denied: -1}
	if err := l.ready(ctx); err != nil {
		return none, err
	}
	a := attempt{r: &r}
	a.wants = a.room[:0]
	for i := range r.Entries {
		if l.leases(r.Tree, &r.Entries[i]) {
			a.wants = append(a.wants, wanted{at: i})
		}
	}
	if len(a.wants) == 0 {
		l.stats.pass(ctx)
		return l.next.Reserve(ctx, r)
	}
	if err := r.Validate(); err != nil {
		return none, err
	}
	a.below = len(r.Entries) - len(a.wants)
	out := l.attempt(ctx, &a)
	switch {
	case out.err != nil:
		return none, out.err
	case out.repeated:
		return l.repeat(ctx, &r, out.rec)
	case out.denied:
		if out.local && a.below == 0 && r.Exclusive == "" {
			unasked.Say(ctx)
		}
		return l.denied(ctx, &a, out.result)
	}
	return l.granted(ctx, &a, out)
}

// attempt takes what is leased, or denies it.
func (l *Ledger) attempt(ctx context.Context, a *attempt) outcome {
	t := l.tree(a.r.Tree)
	now := l.now()
	if t.expire(now) {
		t.serve(now)
	}
	t.begin(a, now)
	out, done := t.try(a, false, now)
	if done {
		if out.rec != nil && !out.repeated && !out.rec.below {
			t.keep(out.rec)
		}
		t.mu.Unlock()
		l.stats.local.Add(1)
		out.local = true
		return out
	}
	if err := unasked.Barred(ctx); err != nil {
		t.mu.Unlock()
		return outcome{err: err}
	}
	w := t.wait(a)
	t.mu.Unlock()
	if w == nil {
		return outcome{err: errClosed}
	}
	l.stats.waited.Add(1)
	select {
	case <-w.done:
	case <-ctx.Done():
		t.mu.Lock()
		left := t.leave(w)
		if left {
			t.serve(l.now()) // somebody may get what it wanted
		}
		t.mu.Unlock()
		if left {
			return outcome{err: ctx.Err()}
		}
		<-w.done
	}
	a.wants = w.wants
	return w.out
}

// granted takes what is not leased.
func (l *Ledger) granted(ctx context.Context, a *attempt, out outcome) (quota.Reserved, error) {
	r, rec, res := a.r, out.rec, out.result
	if a.below > 0 || r.Exclusive != "" {
		below, err := l.reserveBelow(ctx, r, rec)
		switch {
		case err != nil:
			t := l.tree(r.Tree)
			t.revoke(a, rec)
			t.mu.Unlock()
			return quota.Reserved{Denied: -1}, err
		case below.Held || below.Denied >= 0:
			return l.takeBack(a, rec, res, below), nil
		}
		t := l.tree(r.Tree)
		if known := t.records[rec.id]; known != nil { // somebody else has repeated it
			t.revoke(a, rec)
			t.mu.Unlock()
			return l.repeat(ctx, r, known)
		}
		t.keep(rec)
		t.mu.Unlock()
		merge(rec, &res, &below)
	}
	switch {
	case out.told || len(out.reached) > 0:
		l.tellCounted(ctx, a, out, &res)
	case out.local && a.below == 0 && r.Exclusive == "":
		unasked.Say(ctx)
	}
	return res, nil
}

// reserveBelow reserves what of a record is not leased.
func (l *Ledger) reserveBelow(ctx context.Context, r *quota.Reserve, rec *record) (quota.Reserved, error) {
	b := *r
	b.Entries, b.Room = nil, nil
	for _, i := range rec.at {
		b.Entries = append(b.Entries, r.Entries[i])
	}
	l.stats.pass(ctx)
	return l.next.Reserve(ctx, b)
}

// merge puts the result for what is not leased to that for what is.
func merge(rec *record, res, below *quota.Reserved) {
	at := rec.at
	for i, st := range below.Status {
		if i < len(at) {
			res.Status[at[i]] = st
		}
	}
	for _, i := range below.Over {
		if i < len(at) {
			res.Over = append(res.Over, at[i])
		}
	}
	slices.Sort(res.Over)
	res.Wait = max(res.Wait, below.Wait)
	res.Crossed = append(res.Crossed, below.Crossed...)
}

// notLeased are the indices of the entries that are not leased.
func (a *attempt) notLeased() (at []int) {
	leased := a.wants
	for i := range a.r.Entries {
		if len(leased) > 0 && leased[0].at == i {
			leased = leased[1:]
			continue
		}
		at = append(at, i)
	}
	return at
}

// revoke gives back what an attempt has taken that does not pass after all.
func (t *tree) revoke(a *attempt, rec *record) {
	t.giveBack(rec)
	for i := range rec.held {
		switch h := &rec.held[i]; {
		case h.pool == nil || h.passed || h.kind != quota.Count:
		case h.rolling:
			h.pool.refund(h, h.amount)
		default:
			h.pool.unspend(h.amount)
		}
	}
	now := t.l.now()
	t.serve(now)
	for i := range a.wants {
		a.wants[i].c.look(now)
	}
}

// takeBack gives back what was taken, because of how it went with the rest.
func (l *Ledger) takeBack(a *attempt, rec *record, res, below quota.Reserved) quota.Reserved {
	l.stats.denied.Add(1)
	t := l.tree(a.r.Tree)
	t.revoke(a, rec)
	now := l.now()
	for i := range a.wants {
		w := &a.wants[i]
		w.status(&res.Status[w.at], &a.r.Entries[w.at], now)
	}
	t.mu.Unlock()
	merge(rec, &res, &below)
	res.Wait, res.Crossed = 0, nil
	res.Held, res.RetryAfter, res.Never = below.Held, below.RetryAfter, below.Never
	if at := rec.at; below.Denied >= 0 && below.Denied < len(at) {
		res.Denied = at[below.Denied]
	}
	if below.Held {
		res.Over = nil
	}
	return res
}

// denied looks at what is not leased, after what is leased was denied: it may be
// denied, too, and for longer.
func (l *Ledger) denied(ctx context.Context, a *attempt, res quota.Reserved) (quota.Reserved, error) {
	r := a.r
	l.stats.denied.Add(1)
	if r.Exclusive != "" {
		// Whether another one holds comes first. There is no other way to find out
		// than to try.
		probe := quota.Reserve{ID: budget.NewID(), Tree: r.Tree, Exclusive: r.Exclusive, TTL: l.cfg.TTL, Note: r.Note}
		l.stats.pass(ctx)
		held, err := l.next.Reserve(ctx, probe)
		if err != nil {
			return quota.Reserved{Denied: -1}, err
		}
		if held.Held {
			res.Held, res.Denied, res.Never, res.RetryAfter, res.Over = true, -1, false, held.RetryAfter, nil
		} else if err := l.Release(context.WithoutCancel(ctx), r.Tree, probe.ID); err != nil {
			return quota.Reserved{Denied: -1}, err
		}
	}
	if a.below == 0 {
		return res, nil
	}
	at := a.notLeased()
	entries := make([]quota.Entry, len(at))
	for i := range at {
		entries[i] = r.Entries[at[i]]
	}
	l.stats.pass(ctx)
	all, err := l.next.Status(ctx, r.Tree, entries...)
	if err == nil && len(all) != len(entries) {
		err = errNoStatus
	}
	if err != nil {
		return quota.Reserved{Denied: -1}, err
	}
	retry := res.RetryAfter
	if retry == 0 && !res.Held {
		retry = math.MaxInt64
	}
	for i := range all {
		res.Status[at[i]] = all[i]
		if res.Held {
			continue
		}
		v := verdictOf(&entries[i], &all[i], res.Now)
		if v.denied {
			if at[i] < res.Denied {
				res.Denied, res.Never = at[i], v.never
			}
			retry = max(retry, time.Duration(v.retry))
		}
		if v.over {
			res.Over = append(res.Over, at[i])
		}
	}
	slices.Sort(res.Over)
	if res.RetryAfter = retry; retry == math.MaxInt64 {
		res.RetryAfter = 0
	}
	return res, nil
}

// repeat is the first result of a reservation.
func (l *Ledger) repeat(ctx context.Context, r *quota.Reserve, rec *record) (quota.Reserved, error) {
	var below quota.Reserved
	if len(rec.at) > 0 {
		var err error
		if below, err = l.reserveBelow(ctx, r, rec); err != nil {
			return quota.Reserved{Denied: -1}, err
		}
	}
	t := l.tree(r.Tree)
	defer t.mu.Unlock()
	res := quota.Reserved{
		Denied: -1, Wait: rec.wait, Now: rec.saidAt, Repeated: true,
		Over: slices.Clone(rec.over), Crossed: slices.Clone(rec.crossed),
		Status: make([]quota.Status, rec.entries),
	}
	for i := range res.Status {
		if h := &rec.held[i]; !h.below {
			h.status(&res.Status[i], h.first)
		}
	}
	merge(rec, &res, &below)
	return res, nil
}

// tellCounted has what was counted settled at once, where that is known to have
// crossed a threshold, and puts into the result what was crossed.
func (l *Ledger) tellCounted(ctx context.Context, a *attempt, out outcome, res *quota.Reserved) {
	l.report(ctx, out.reached)
	t := l.tree(a.r.Tree)
	defer t.mu.Unlock()
	for i := range a.wants {
		c := a.wants[i].c
		out.rec.crossed = append(out.rec.crossed, c.crossed...)
		c.crossed = nil
	}
	res.Crossed = append(res.Crossed, out.rec.crossed...)
}

// reaches reports whether the spend of what is held is known to have reached a
// threshold that it had not.
func (p *pool) reaches(h *held, now int64) bool {
	if len(h.thresholds) == 0 || h.limit <= 0 || h.rolling {
		return false
	}
	committed := p.view(now).committed
	for _, percent := range slices.Backward(h.thresholds) {
		if percent <= p.crossed {
			return false
		}
		part, more := mulDiv(h.limit, int64(percent), 100)
		if more {
			part++
		}
		if committed >= part {
			p.crossed = percent
			return true
		}
	}
	return false
}

// report has what was spent settled at once, and asks how things stand where that is
// not known. If it cannot be done now, it is done later.
func (l *Ledger) report(ctx context.Context, pools []*pool) {
	if unasked.Barred(ctx) != nil {
		return // it is told with the rest
	}
	for _, p := range pools {
		c := p.c
		if c.turn(ctx) != nil {
			return
		}
		err := c.settleAll(ctx, allSpent)
		c.t.mu.Lock()
		unknown, e := !p.known, c.entry
		c.t.mu.Unlock()
		if err == nil && unknown {
			e.Spans = [3]quota.Span{1: p.span}
			_ = c.refresh(ctx, &e)
		}
		c.pass()
	}
}

// checkTTL returns an error if a ttl cannot be one.
func checkTTL(ttl time.Duration) (time.Duration, error) {
	switch {
	case ttl < 0:
		return 0, fmt.Errorf("quota: ttl is %v, must not be negative", ttl)
	case ttl == 0:
		return quota.DefaultTTL, nil
	}
	return ttl, nil
}
