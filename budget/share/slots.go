package share

import (
	"time"

	"github.com/headgate-go/headgate/budget"
)

// SlotLimiter lends the slots of a [Lessee] to a gate: those in use, and a stock
// of those that it will need soon, unless others wait for them.
type SlotLimiter struct {
	l      *Lessee
	limit  int64   // of all replicas
	whole  int64   // the same, as all replicas know it
	part   float64 // of them that may be used while the lessee is local
	has    int64   // lent to this one
	used   int64
	freed  int64 // when one came back last
	missed int64 // slots that were asked for and not there, since the last request
	kept   int64 // what was kept beside those in use, at the last request
	scarce bool  // others wait for slots
	yield  bool  // others wait: what comes back is theirs, until the coordinator has been asked
	recent recent
}

var _ budget.SlotLender = (*SlotLimiter)(nil)

// Fits implements [budget.SlotLender].
func (s *SlotLimiter) Fits(now time.Time, slots int64) bool {
	s.l.at(now)
	slots = s.wide(slots)
	if slots <= s.has-s.used && !s.yield || s.l.local && s.used == 0 && s.has > 0 { // one that is wider than the part runs alone
		return true
	}
	s.missed = max(s.missed, slots)
	s.l.want()
	return false
}

// Forecast is how long it takes, most likely, until so many slots may be in use, as far
// as that is the coordinator's doing; see [Limiter.Forecast].
func (s *SlotLimiter) Forecast(now time.Time, slots int64) time.Duration {
	s.l.at(now)
	if s.l.local || s.wide(slots) <= s.has-s.used {
		return 0
	}
	return micros(s.l.silence())
}

// Silence is the part of Forecast that is certain because the coordinator does not answer:
// as long as the lease lasts, slots that come back may be used again.
func (s *SlotLimiter) Silence(now time.Time, slots int64) time.Duration {
	if s.l.at(now) < s.l.expires && s.has > 0 {
		return 0
	}
	return s.Forecast(now, slots)
}

// Use implements [budget.SlotLender].
func (s *SlotLimiter) Use(now time.Time, slots int64) {
	s.l.at(now)
	s.used += slots
	if slots > 0 {
		s.l.active = s.l.now
		s.recent.take(s.l, slots)
		if s.low() {
			s.l.hasten(s.l.renewal())
		}
		return
	}
	s.freed = s.l.now
	if !s.l.local && s.l.now >= s.l.expires {
		s.has = min(s.has, s.used)
	}
	if s.yield && s.has > s.used {
		s.l.told()
	}
	s.l.hasten(s.back())
}

// SetLimit implements [budget.SlotLender]. The smallest limit of all replicas is in
// force.
func (s *SlotLimiter) SetLimit(now time.Time, slots int64) {
	s.l.at(now)
	s.limit = max(slots, 1)
	s.fewer(s.limit)
	if s.l.local {
		s.setPart(s.part)
	}
	s.l.told()
}

// fewer tells how many slots all replicas have. Where there have come to be fewer,
// each keeps as large a part of them as it had: what is in use above that is not
// used again. Otherwise replicas that are always busy would keep more than there are.
func (s *SlotLimiter) fewer(whole int64) {
	if whole < s.whole && !s.l.local {
		s.has = int64(float64(s.has) * float64(whole) / float64(s.whole))
	}
	s.whole = whole
}

// setPart puts a part of the slots in force for the replica alone: at least one,
// because no call takes less.
func (s *SlotLimiter) setPart(part float64) {
	s.part, s.has = part, int64(part*float64(s.limit)+slack)
	if part > 0 {
		s.has = max(s.has, 1)
	}
}

// wide is how many slots a call waits for: one that is wider than all there are runs
// when it has those. To wait for more would be to wait for those that it has itself.
func (s *SlotLimiter) wide(slots int64) int64 { return min(slots, max(s.whole, 1)) }

// expire voids the slots that nobody uses.
func (s *SlotLimiter) expire() { s.has, s.yield = min(s.has, s.used), false }

// comeBack ends a time in which a part of the slots was the replica's alone.
func (s *SlotLimiter) comeBack() { s.has, s.yield = s.used, false }

// stock is how many slots are kept beside those in use: none that others wait for.
func (s *SlotLimiter) stock() int64 {
	if s.scarce || s.l.cfg.Mode != Leased || s.l.local {
		return 0
	}
	return s.recent.stock(s.l)
}

// low reports whether the stock should be renewed.
func (s *SlotLimiter) low() bool {
	stock := s.stock()
	return stock > 0 && s.has-s.used < stock/lowStock
}

// back is when slots that nobody uses are to be given back.
func (s *SlotLimiter) back() int64 {
	if s.l.local || s.has-s.used <= max(s.stock(), s.kept) {
		return never
	}
	wait := s.l.cfg.Idle.Microseconds()
	if s.scarce {
		wait = soon
	}
	return max(s.freed, s.l.sent) + wait
}

// ask fills in a report and a question.
func (s *SlotLimiter) ask(r *DimReport, d *budget.Demand) {
	r.Limit = s.limit
	missed := s.missed
	s.missed = 0
	if s.l.local {
		r.Has = s.used
		return
	}
	next := missed // calls that do not wait find something only if it is there
	if d.Next != nil {
		next = s.wide(max(d.Slots, 0))
	}
	target := next
	if s.l.cfg.Mode == Leased {
		target = max(target, d.BacklogSlots, s.stock())
	}
	if s.l.leaving {
		next, target = 0, 0
	}
	if s.yield {
		s.has = min(s.has, s.used)
	}
	if s.kept = 0; d.Next != nil {
		s.kept = target
	}
	if s.has-s.used > target && (s.l.cfg.Mode == Central || s.l.leaving || s.l.now >= s.back()) {
		s.has = s.used + target
	}
	spare := max(s.has-s.used, 0)
	r.Has = max(s.has, s.used)
	r.Want = max(target-spare, 0)
	if d.Next != nil || s.l.cfg.Mode == Central {
		r.Need = max(next-spare, 0)
	}
}

// yields gives the slots back that a call which waits keeps from those before it,
// and those that come back until the coordinator has been asked again: it knows whose
// turn it is. A replica that is always busy would use each of them again at once.
func (s *SlotLimiter) yields() {
	s.yield = true
	if s.has > s.used {
		s.l.told()
	}
}

// granted takes in a grant, and how many slots there are.
func (s *SlotLimiter) granted(n, whole int64, scarce bool) {
	s.fewer(min(whole, s.limit))
	s.has += max(n, 0)
	s.missed, s.scarce = 0, scarce // who lacked something meanwhile waits, or is gone
}
