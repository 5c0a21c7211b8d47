package blocks

import (
	"math"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// verdict is what a limit says to an entry.
type verdict struct {
	lacks  bool // it cannot be said before the ledger is asked
	queues bool // it lacks what others want who came before, and may not get it
	denied bool
	never  bool
	over   bool
	passed bool          // nothing is to be taken
	wait   time.Duration // before going on
	retry  int64         // nanoseconds until a denied one fits; math.MaxInt64 if time alone does not help
}

// ends are the limit of a calendar entry, and its hard end.
func ends(e *quota.Entry) (limit, hard int64) {
	limit = e.Limit
	if limit < 0 {
		limit = math.MaxInt64
	}
	switch {
	case e.Observe:
		return limit, math.MaxInt64
	case !e.Soft:
		return limit, limit
	case e.Ceiling < 0:
		return limit, math.MaxInt64
	default:
		return limit, e.Ceiling
	}
}

// need is what there must be room for.
func need(e *quota.Entry) int64 {
	if e.Kind == quota.Check {
		return max(e.Amount, 1) // something must be left
	}
	return e.Amount
}

// look asks the limit of an entry. before is what others will take first. fresh is
// true if the ledger was asked on behalf of this entry already, so that what lacks
// then is denied.
func (p *pool) look(e *quota.Entry, before int64, fresh bool, now int64) verdict {
	switch {
	case e.Rolling && e.Limit < 0:
		return verdict{passed: true}
	case !p.known:
		return verdict{lacks: true}
	case e.Rolling:
		return p.lookRolling(e, before, fresh, now)
	}
	n := need(e)
	limit, hard := ends(e)
	st := p.view(now)
	fits := func(end int64) bool { return n == 0 || n <= end && st.used() <= end-n }
	v := verdict{passed: e.Kind == quota.Check, over: (e.Soft || e.Observe) && !fits(limit)}
	v.never = n > hard
	switch {
	case n == 0:
		v.never = false
		return v
	case v.never:
	case e.Kind == quota.Check:
		if fits(hard) {
			v.lacks = !fresh && now-p.sawAt > int64(p.c.t.l.cfg.Ahead)
			return v
		}
	case p.free(now)-before >= n && p.within(hard):
		return v
	}
	v.queues = !v.never && p.queues(n, before, now)
	if v.queues || !v.never && !fresh && !p.usedUp(n, hard, st, now) {
		v.lacks = true
		return v
	}
	v.denied, v.over, v.retry = true, false, math.MaxInt64
	if !v.never && !p.span.End.IsZero() {
		v.retry = max(int64(p.span.End.Sub(p.c.t.ledgerNow(now))), 0)
	}
	return v
}

// queues reports whether there is enough, but others come first, who may still be
// denied because of something else.
func (p *pool) queues(n, before, now int64) bool {
	free := p.free(now)
	return free >= n && free-before < n
}

// within reports whether all that is leased is below a hard end, which may be lower
// than the one under which it was leased. Nobody can have leased above it since the
// ledger said so.
func (p *pool) within(hard int64) bool {
	if hard < p.hard {
		if sum(p.committed, p.reserved) > hard {
			return false
		}
		p.hard = hard
	}
	return true
}

// usedUp reports whether it was said lately that so much has been spent that an
// amount has no room, whoever gives back what.
func (p *pool) usedUp(n, hard int64, st standing, now int64) bool {
	if len(p.ended) > 0 { // the ledger may have counted what they were settled to, or not
		return false
	}
	return sum(st.committed, n) > hard && now-p.sawAt <= int64(p.c.t.l.cfg.Recheck)
}

// lookRolling is look for a rolling entry.
func (p *pool) lookRolling(e *quota.Entry, before int64, fresh bool, now int64) verdict {
	n := need(e)
	v := verdict{passed: e.Kind == quota.Check}
	if n == 0 {
		return v
	}
	no := func() verdict {
		if e.Observe {
			return verdict{over: true, passed: true}
		}
		v.denied, v.retry = true, math.MaxInt64
		return v
	}
	if e.Limit == 0 || refillTime(n-e.Burst, e) > int64(e.MaxWait) {
		v.never = true
		return no()
	}
	free := p.free(now) - before
	wait := p.waitFor(less(n, free), e, now)
	if wait <= int64(e.MaxWait) && p.limit == e.Limit && p.burst == e.Burst {
		if !e.Observe {
			v.wait = time.Duration(max(wait, 0))
		}
		switch {
		case e.Kind == quota.Check:
			v.lacks = !fresh && now-p.sawAt > int64(p.c.t.l.cfg.Ahead)
			return v
		case free >= n:
			return v
		}
	}
	if queues := p.queues(n, before, now); queues || !fresh {
		return verdict{lacks: true, queues: queues}
	}
	if v = no(); v.denied && wait < math.MaxInt64 {
		v.retry = max(wait-int64(e.MaxWait), 1)
	}
	return v
}

// waitFor is how long until the bucket has no debt if so much more than what is leased
// is taken from it; below 0 it is what stays free.
func (p *pool) waitFor(lacks int64, e *quota.Entry, now int64) int64 {
	missing := max(p.full-now, 0)
	if missing == math.MaxInt64 {
		return math.MaxInt64
	}
	more := refillTime(lacks-e.Burst, e)
	if more > math.MaxInt64-missing {
		return math.MaxInt64
	}
	return missing + more
}

// verdictOf asks the limit of an entry that is not leased, from how it stands. It is
// for entries of a reservation that is denied anyway.
func verdictOf(e *quota.Entry, st *quota.Status, now time.Time) (v verdict) {
	n := need(e)
	if n == 0 || e.Limit < 0 && e.Rolling {
		return v
	}
	v.retry = math.MaxInt64
	if e.Rolling {
		var missing int64
		if !st.FullAt.IsZero() {
			missing = max(int64(st.FullAt.Sub(now)), 0)
		} else if st.Committed > 0 {
			missing = math.MaxInt64 / 2
		}
		wait := missing + min(refillTime(n-e.Burst, e), math.MaxInt64/2)
		if e.Limit > 0 && wait <= int64(e.MaxWait) {
			return v
		}
		if v.over = e.Observe; v.over {
			return v
		}
		v.denied, v.never = true, e.Limit == 0 || refillTime(n-e.Burst, e) > int64(e.MaxWait)
		if !v.never {
			v.retry = max(wait-int64(e.MaxWait), 1)
		}
		return v
	}
	limit, hard := ends(e)
	used := sum(st.Committed, st.Reserved)
	if used <= hard && n <= hard-used {
		v.over = used > limit || n > limit-used
		return v
	}
	v.denied, v.never = true, n > hard
	if !v.never && !st.Span.End.IsZero() {
		v.retry = max(int64(st.Span.End.Sub(now)), 0)
	}
	return v
}
