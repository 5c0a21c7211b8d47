package share

import (
	"math"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// Limiter is one dimension of a [Lessee] as a gate uses it: what fits is what was
// granted. Where only another grant helps, Fits tells no instant; the lessee then
// asks for it. Limit and Max are those of the whole quota.
//
// While the lessee goes by its part of the quota, the limiter is a mirror of the
// provider that has this part for its limit.
type Limiter struct {
	l     *Lessee
	i     int
	cfg   Dim
	limit int64   // published
	share float64 // part of it in force
	whole int64   // what is published as all replicas know it

	credit int64 // may be taken
	missed int64 // was asked for and not there, since the last request
	left   *Left // what the provider said, since then
	leftAt int64 // when it said so
	yield  bool  // others that come before need it
	open   int64 // taken, and not counted by the provider
	alone  int64 // the part of it that was taken of the replica's part of the quota

	spends  []dated // not reported, oldest first
	refunds []dated

	recent recent

	own     *mirror // what this replica has spent
	foreign foreign // and what is booked there beside that, while the store is down
	part    float64 // of the quota that it may use, while it is local
	from    int64   // from when on it may use all of its part
	used    float64 // what it may use until then
}

var _ budget.Limiter = (*Limiter)(nil)

// dated is an amount of which the first part was counted at from and the last at at;
// as a whole it is dated by the safe one of them.
type dated struct{ from, at, amount int64 }

// maxDated is how many amounts a limiter keeps apart until they are reported.
const maxDated = 64

func newLimiter(l *Lessee, i int, d Dim) *Limiter {
	b := &Limiter{l: l, i: i, cfg: d, limit: d.Limit, whole: d.Limit, share: 1}
	b.own = newMirror(d, 0)
	return b
}

// Fits implements [budget.Limiter].
func (b *Limiter) Fits(now time.Time, cost int64) (bool, time.Time) {
	b.l.at(now)
	if cost <= 0 {
		return true, time.Time{}
	}
	if !b.l.local {
		if cost <= b.credit {
			return true, time.Time{}
		}
		b.missed = max(b.missed, cost)
		b.l.want()
		return false, time.Time{}
	}
	b.advance()
	busy := b.busy()
	free := b.own.level() - float64(busy)
	need := min(float64(cost), math.Floor(b.own.capacity()+slack))
	switch {
	case b.from > 0 && float64(cost) > b.own.limit+slack:
		return false, b.l.time(b.from)
	case b.own.limit <= 0 || b.cfg.Shape == Window && cost > b.whole:
		return false, time.Time{}
	}
	if free+slack >= need {
		return true, time.Time{}
	}
	at := b.turns()
	if wait, ok := b.own.wait(need + float64(busy)); ok {
		at = min(at, b.l.now+wait)
	}
	if at == never {
		return false, time.Time{}
	}
	return false, b.l.time(at)
}

// busy is what is in flight and will count against the replica's part.
func (b *Limiter) busy() int64 {
	if b.cfg.Shape == Window {
		return b.open
	}
	return b.alone
}

// Earliest implements [budget.Limiter]: of what others may give back nobody
// knows when.
func (b *Limiter) Earliest(now time.Time, cost int64) (time.Time, bool) {
	return now, cost <= b.Max()
}

// Take implements [budget.Limiter].
func (b *Limiter) Take(now time.Time, cost int64) budget.Hold {
	b.l.at(now)
	cost = max(min(cost, math.MaxInt64/4-b.open), 0)
	b.take(cost)
	b.recent.take(b.l, cost)
	b.l.active = b.l.now
	if b.low() {
		b.l.hasten(b.l.renewal())
	}
	if b.l.local {
		b.alone += cost
		return budget.MakeHold(cost, takenAlone)
	}
	return budget.MakeHold(cost, 0)
}

// takenAlone is the mark of a hold that was taken of the replica's part of the
// quota, and was not counted yet. Other holds have 0 until they are counted, and
// then 1 and the time of that.
const takenAlone = -1

// landed ends the flight of a hold, as far as n units of it are concerned.
func (b *Limiter) landed(h budget.Hold, n int64) {
	b.open -= n
	if h.Mark() == takenAlone {
		b.alone -= n
	}
}

// TryTake is Fits and Take in one step: it takes cost if it fits now.
func (b *Limiter) TryTake(now time.Time, cost int64) (budget.Hold, bool) {
	if ok, _ := b.Fits(now, cost); !ok {
		return budget.Hold{}, false
	}
	return b.Take(now, cost), true
}

// take moves an amount from credit into flight.
func (b *Limiter) take(cost int64) {
	b.credit -= min(cost, b.credit)
	b.open += cost
}

// Counted implements [budget.Limiter].
func (b *Limiter) Counted(now time.Time, h budget.Hold) budget.Hold {
	if h.Mark() > 0 || h.Cost() == 0 {
		return h
	}
	b.l.at(now)
	b.landed(h, h.Cost())
	b.spend(h.Cost(), h.Mark() == takenAlone)
	return budget.MakeHold(h.Cost(), b.l.now+1)
}

// Settle implements [budget.Limiter].
func (b *Limiter) Settle(now time.Time, h budget.Hold, actual int64) {
	b.l.at(now)
	actual = max(min(actual, math.MaxInt64/4), 0)
	cost := h.Cost()
	switch {
	case cost == 0:
	case h.Mark() > 0:
		if actual < cost {
			b.refund(h.Mark()-1, cost-actual)
		}
	default:
		b.landed(h, cost)
		if n := min(actual, cost); n > 0 {
			b.spend(n, h.Mark() == takenAlone)
		}
		if actual == 0 { // it was not sent
			b.recent.untake(cost)
		}
		b.giveBack(cost - min(actual, cost))
	}
	if over := actual - cost; over > 0 {
		b.credit -= min(over, b.credit) // the provider has counted it already
		b.spend(over, true)
	}
}

// Revise replaces a hold by one of another cost.
func (b *Limiter) Revise(now time.Time, h budget.Hold, cost int64) budget.Hold {
	b.l.at(now)
	cost = max(min(cost, math.MaxInt64/4), 0)
	switch more := cost - h.Cost(); {
	case h.Mark() <= 0 && more > 0:
		b.take(more)
		if h.Mark() == takenAlone {
			b.alone += more
		}
	case h.Mark() <= 0:
		b.landed(h, -more)
		b.giveBack(-more)
	case more > 0:
		b.credit -= min(more, b.credit)
		b.spend(more, true)
	case more < 0:
		b.refund(h.Mark()-1, -more)
	}
	return budget.MakeHold(cost, h.Mark())
}

// giveBack makes credit of what was taken and will not be counted.
func (b *Limiter) giveBack(n int64) {
	if n > 0 && !b.l.local && b.l.now < b.l.expires {
		b.credit += n
	}
}

// spend notes that the provider has counted an amount by now. A bucket that is the
// replica's alone pays for what was taken of it: before it was, the coordinator
// had made sure that the provider has enough.
func (b *Limiter) spend(n int64, alone bool) {
	b.advance()
	if alone || b.cfg.Shape == Window || !b.l.local {
		b.own.spend(b.l.now, n)
	}
	b.l.spent()
	if b.l.cfg.Mode == Static {
		return
	}
	if k := len(b.spends); k > 0 && b.l.now-b.spends[k-1].at < b.own.cell/4 {
		b.spends[k-1].at = b.l.now // later than it was, which is the safe side
		b.spends[k-1].amount += n
		return
	}
	b.spends = append(b.spends, dated{b.l.now, b.l.now, n})
	if len(b.spends) > maxDated {
		b.spends[1].from = b.spends[0].from
		b.spends[1].amount += b.spends[0].amount
		b.spends = append(b.spends[:0], b.spends[1:]...)
	}
}

// refund notes that of what was counted at a time less was used in the end.
func (b *Limiter) refund(at, n int64) {
	b.advance()
	b.own.takeBack(floorDiv(at, b.own.cell), n)
	b.l.spent()
	if b.l.cfg.Mode == Static {
		return
	}
	for k := range b.spends {
		if s := &b.spends[k]; s.from <= at && at <= s.at { // it was not reported
			m := min(n, s.amount)
			s.amount -= m
			n -= m
			break
		}
	}
	if n == 0 {
		return
	}
	if k := len(b.refunds); k > 0 && (len(b.refunds) >= maxDated || at-b.refunds[k-1].from < b.own.cell/4 && at >= b.refunds[k-1].from) {
		b.refunds[k-1].from = min(b.refunds[k-1].from, at)
		b.refunds[k-1].amount += n
		return
	}
	b.refunds = append(b.refunds, dated{at, at, n})
}

// Level implements [budget.Limiter]: what was granted and not taken.
func (b *Limiter) Level(now time.Time) int64 {
	b.l.at(now)
	if !b.l.local {
		return b.credit
	}
	b.advance()
	return whole(b.own.level()) - b.busy()
}

// Forecast is how long it takes, most likely, until so many units may have been taken.
// What is not at hand is a round trip away, which counts as nothing, unless the
// coordinator has just refused it: then it takes as long as the replica's part of the
// quota needs. While the coordinator does not answer, it will take as long again as it has
// been so, or until the replica goes by its part. It asks for nothing.
func (b *Limiter) Forecast(now time.Time, units int64) time.Duration {
	l := b.l
	l.at(now)
	if l.local {
		b.advance()
		if short := float64(units+b.busy()) - b.own.level(); short > slack {
			return micros(b.own.refills(short))
		}
		return 0
	}
	short := float64(units - b.credit)
	if short <= 0 {
		return 0
	}
	if silence := b.Silence(now, units); silence > 0 {
		return silence
	}
	if l.askAt == 0 || l.now > l.askAt+refused {
		return 0
	}
	limit := b.share * float64(min(b.limit, b.whole)) / float64(max(l.replicas, 1))
	wait := short * float64(b.own.window) / max(limit, slack)
	return micros(max(l.askAt-l.now, int64(min(wait, never/4))))
}

// Silence is the part of Forecast that is there because the coordinator does not answer: 0
// if it does, if the replica goes by its part, or if so many units are at hand.
func (b *Limiter) Silence(now time.Time, units int64) time.Duration {
	if b.l.at(now); b.l.local || units <= b.credit {
		return 0
	}
	return micros(b.l.silence())
}

// refused is for how long a refusal of the coordinator says something, beyond the
// time at which it is worth asking again.
const refused = ticksPerSecond

// Limit implements [budget.Limiter].
func (b *Limiter) Limit() int64 { return b.limit }

// Max implements [budget.Limiter].
func (b *Limiter) Max() int64 {
	if b.cfg.Shape == Bucket && b.limit > 0 && b.whole > 0 {
		return math.MaxInt64
	}
	return min(b.limit, b.whole)
}

// SetLimit implements [budget.Limiter]. The other replicas must be told, too: the
// smallest of their limits is in force.
func (b *Limiter) SetLimit(_ time.Time, limit int64) {
	b.limit, b.share = max(limit, 0), 1
	b.whole = max(b.whole, b.limit)
	if b.l.cfg.Alone {
		b.whole = b.limit
	}
	b.setPart(b.part)
	b.l.told()
}

// Scale implements [budget.Limiter]. The smallest share of all replicas is in
// force.
func (b *Limiter) Scale(_ time.Time, share float64) {
	if share == b.share || !(share > 0) {
		return
	}
	b.share = min(share, 1)
	b.setPart(b.part)
	b.l.spent()
}

// Lower tells that the provider says that no more than left units are left, and
// that all will be back after reset (0 if that is not known). All replicas hear
// of it: what each was granted stays. One that goes by its part of the quota has no
// more left than that either.
func (b *Limiter) Lower(now time.Time, left int64, reset time.Duration) {
	b.l.at(now)
	b.left, b.leftAt = &Left{Units: max(left, 0), Reset: max(reset, 0)}, b.l.now
	if b.l.local {
		b.advance()
		most := float64(b.left.Units) + float64(b.busy())
		cell, over := b.own.lower(most, b.left.Reset.Microseconds())
		if b.cfg.Shape == Window && b.l.cfg.Mode != Static {
			b.foreign.add(cell, over, b.own.oldest())
		}
	}
	b.l.spent()
}

// later is what a provider's word means some time after it was given; nil is nothing any
// more. Of a window all is back after the reset, or the window's length; a bucket
// refills.
func (b *Limiter) later(left *Left, age int64) *Left {
	if left == nil || age <= 0 {
		return left
	}
	l := *left
	if b.cfg.Shape == Bucket {
		refilled := float64(min(b.limit, b.whole)) * float64(age) / float64(b.own.window)
		l.Units = satAdd(l.Units, int64(min(refilled, 1<<62)))
		return &l
	}
	known := l.Reset > 0
	if l.Reset -= micros(age); known && l.Reset <= 0 || age >= b.own.window {
		return nil
	}
	l.Reset = max(l.Reset, 0)
	return &l
}

// Emptied is Lower for a bucket whose provider has refused a call, because no more
// than left units are left.
func (b *Limiter) Emptied(now time.Time, _ budget.Hold, left int64) {
	if b.cfg.Shape == Bucket {
		b.Lower(now, left, 0)
	}
}

// advance brings the replica's own books up to date.
func (b *Limiter) advance() {
	b.own.advance(b.l.now)
	if b.l.local && b.from > 0 && b.l.now >= b.from {
		b.from = 0
		b.setPart(b.part)
	}
}

// turns is when the limiter lets more pass without being asked.
func (b *Limiter) turns() int64 {
	if b.l.local && b.from > 0 {
		return b.from
	}
	return never
}

// setPart puts a part of the quota in force for the replica alone.
func (b *Limiter) setPart(part float64) {
	b.part = part
	if !b.l.local {
		return
	}
	b.own.advance(b.l.now)
	limit, burst := part*b.share*float64(min(b.limit, b.whole)), part*b.share*float64(b.cfg.Burst)
	if b.cfg.Limit > 0 {
		burst *= float64(min(b.limit, b.whole)) / float64(b.cfg.Limit)
	}
	if b.from > 0 {
		limit = min(limit, b.used)
	}
	if b.cfg.Shape == Bucket && b.own.limit == 0 && limit > 0 && !b.l.cfg.Alone {
		b.own.restart(0)
	}
	b.own.set(limit, burst)
}

// fallBack begins to go by the replica's part of the quota. A bucket begins with
// nothing. In a window all that the replicas have used before is still
// remembered, and until it is forgotten each goes on with what it had itself: so
// that they never have more than the quota together.
func (b *Limiter) fallBack() {
	b.own.advance(b.l.now)
	if b.cfg.Shape == Bucket {
		b.own.restart(0)
		b.from = 0
	} else {
		b.used, b.from = float64(b.own.within()+b.open), b.l.localAt+b.own.window+b.own.cell+b.l.ttl
	}
	b.setPart(b.l.alonePart())
}

// stock is what the replica takes in the time for which a stock lasts, as it has
// taken lately.
func (b *Limiter) stock() int64 {
	if b.l.cfg.Mode != Leased || b.cfg.Pace {
		return 0
	}
	return b.recent.stock(b.l)
}

// low reports whether the stock should be renewed.
func (b *Limiter) low() bool {
	if b.l.local || b.l.cfg.Mode != Leased {
		return false
	}
	stock := b.stock()
	return stock > 0 && b.credit < stock/lowStock
}

// ask fills in a report and a question. waits tells whether a call waits; next is
// what the first one takes, and backlog what all take.
func (b *Limiter) ask(d *DimReport, waits bool, next, backlog int64, idle bool) {
	now, l := b.l.now, b.l
	b.advance()
	if l.resync && b.cfg.Shape == Window {
		b.spends, b.refunds = b.history(), nil
	}
	for _, s := range b.spends {
		if s.amount > 0 {
			d.Spent = append(d.Spent, Spend{micros(now - s.at), s.amount})
		}
	}
	for _, s := range b.refunds {
		d.Spent = append(d.Spent, Spend{micros(now - s.from), -s.amount})
	}
	b.spends, b.refunds = b.spends[:0], b.refunds[:0]
	missed := b.missed
	d.Limit, d.Share, d.Left = b.limit, b.share, b.later(b.left, now-b.leftAt)
	b.left, b.missed = nil, 0
	if l.local {
		d.Has = b.open
		if l.cfg.Mode != Static {
			d.Need, d.Want = next, next
		}
		return
	}
	// Calls that do not wait find something only if it is there before them.
	hopes := int64(0)
	if !waits && missed > b.credit && missed <= b.Max() {
		hopes, idle = missed, false
	}
	target := max(next, hopes)
	if l.cfg.Mode == Leased {
		if target = max(target, satAdd(backlog, b.stock())); idle {
			target = 0
		}
	}
	switch {
	case l.leaving, b.yield, next > b.credit && b.large(next):
		b.credit, b.yield = 0, false
	case b.credit > target && (idle || l.cfg.Mode == Central || b.credit/2 > target):
		b.credit = target
	}
	d.Has = b.credit + b.open
	d.Need = max(next-b.credit, 0)
	if l.cfg.Mode == Central {
		d.Need = max(d.Need, hopes-b.credit)
	}
	d.Want = max(target-b.credit, 0)
}

// large reports whether a call takes more than there ever is in force. It waits until
// everything is there: what the replica holds of it itself would be missing for ever.
func (b *Limiter) large(cost int64) bool {
	limit := b.share * float64(min(b.limit, b.whole))
	if b.cfg.Shape == Bucket && b.cfg.Limit > 0 {
		limit *= float64(b.cfg.Burst) / float64(b.cfg.Limit)
	}
	return float64(cost) > limit
}

// history is all that the replica has spent in the last window, dated late.
func (b *Limiter) history() (list []dated) {
	b.foreign.takeBack(b.own)
	for cell := b.own.oldest(); cell <= b.own.cur; cell++ {
		if n := *b.own.at(cell); n > 0 {
			list = append(list, dated{cell * b.own.cell, min((cell+1)*b.own.cell, b.l.now), n})
		}
	}
	return list
}

// untold takes back what was in a report that was not taken in.
func (b *Limiter) untold(list []Spend, made int64) {
	var spends []dated
	for _, s := range list {
		if s.Amount > 0 {
			at := made - s.Age.Microseconds()
			spends = append(spends, dated{at, at, s.Amount})
		}
	}
	b.spends = append(spends, b.spends...)
	b.refunds = b.refunds[:0] // the coordinator no longer knows what they are of
}

// yields gives the credit back that a call which waits keeps from those before it.
func (b *Limiter) yields() {
	if b.credit > 0 {
		b.yield = true
		b.l.told()
	}
}

// granted takes in a grant.
func (b *Limiter) granted(n, limit int64) {
	b.credit += max(n, 0)
	b.missed, b.whole = 0, limit // who lacked something meanwhile waits, or is gone
}
