package share

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// Constants of how a lessee asks.
const (
	lowStock   = 4                   // a stock is renewed when a part of so many is left
	drift      = 50                  // a lease is used for one part in so many less, because clocks run differently
	soon       = ticksPerSecond / 50 // after how long is given back what others wait for
	firstRetry = ticksPerSecond / 10
	lastRetry  = ticksPerSecond
	beat       = 2 // a replica that holds nothing tells of itself after so many TTLs
)

// Lessee is the replica's side of a shared quota: it holds what the coordinator
// has granted, gives it to a gate as limiters, and says when the coordinator
// should be asked, and what.
//
// It is pure: a shell sends what Request returns and hands back the answer, or
// tells that there was none. It keeps no goroutine and no lock, and is not safe
// for concurrent use: it lives under the lock of its gate.
type Lessee struct {
	cfg   LesseeConfig
	base  time.Time
	now   int64
	dims  []*Limiter
	slots *SlotLimiter

	seq         int64
	flight      *flight // the request that was not answered, or nil
	coordinator int64
	prevAt      int64 // Reply.At, and when it came
	prevIn      int64
	ttl         int64
	replicas    int
	counting    int64 // until then the coordinator may not know of all replicas
	expires     int64 // until when may be used what was granted
	resync      bool  // the coordinator must be told all that was spent

	random   *rand.Rand // spreads what replicas do after a failure
	failures int        // of requests, since one was answered
	retryAt  int64      // after a failure
	askAt    int64      // it is not worth asking for a need before that
	wanted   bool       // a call lacks something
	sent     int64      // when the last new request was made
	active   int64      // when something was taken last, or granted
	report   int64      // when what was spent is to be told, at the latest; never if there is nothing
	leaving  bool
	fenced   bool

	lowered   bool  // a static part is lowered, because the store is down
	local     bool  // its part is what it may use: static, or fallen back
	localAt   int64 // since when
	announced int64 // what Due answered last
}

const never = math.MaxInt64

// flight is a request under way.
type flight struct {
	req   Request
	first int64 // when it was sent first
	made  int64 // when its ages are counted from
	sent  bool  // and not answered, nor failed
}

// NewLessee returns a lessee that holds nothing. The error names the field that
// is wrong.
func NewLessee(cfg LesseeConfig) (*Lessee, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Lessee{
		cfg: cfg, ttl: DefaultTTL.Microseconds(), replicas: cfg.Replicas,
		report: never, announced: never, sent: never, wanted: true, active: -never / 2,
		random: rand.New(rand.NewPCG(seed(cfg.Replica), uint64(cfg.Epoch))),
	}
	for i, d := range cfg.Dims {
		if d.Shape == Slots {
			l.slots = &SlotLimiter{l: l, limit: d.Limit, whole: d.Limit}
			break
		}
		b := newLimiter(l, i, d)
		l.dims = append(l.dims, b)
	}
	if cfg.Mode == Static {
		part := 0.0
		if cfg.Alone {
			part = 1 / float64(cfg.Replicas)
		}
		l.local = true
		for i := range l.cfg.Dims {
			l.setPart(i, part)
		}
	}
	return l, nil
}

// seed is another one for every replica.
func seed(replica string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(replica))
	return h.Sum64()
}

// Limiter is the limiter of a dimension; nil for Slots.
func (l *Lessee) Limiter(i int) *Limiter {
	if i >= len(l.dims) {
		return nil
	}
	return l.dims[i]
}

// Slots lends slots; nil if they are not shared.
func (l *Lessee) Slots() *SlotLimiter { return l.slots }

// Replicas is how many replicas there are, as far as is known; 0 if it is not.
func (l *Lessee) Replicas() int { return l.replicas }

// SetReplicas tells a lessee that is Alone that there is another number of replicas now,
// at least 1; it does nothing for others, which the coordinator tells. A smaller part
// is in force at once. A larger one of a window is when that has forgotten what those
// used that are gone.
func (l *Lessee) SetReplicas(now time.Time, n int) {
	l.at(now)
	if !l.cfg.Alone || n < 1 {
		return
	}
	l.replicas, l.cfg.Replicas = n, n
	part := 1 / float64(n)
	for _, b := range l.dims {
		b.advance()
		if b.cfg.Shape == Window && part > b.part {
			b.used, b.from = b.own.limit, l.now+b.own.window+b.own.cell
		}
		b.setPart(part)
	}
	if l.slots != nil {
		l.slots.setPart(part)
	}
}

// Local reports whether the lessee goes by its part of the quota: it is static,
// or the store is down.
func (l *Lessee) Local() bool { return l.local }

// Failing reports whether the coordinator did not answer the last request.
func (l *Lessee) Failing() bool { return l.failures > 0 }

// Fenced reports whether another replica of the same name has come after this
// one, which is granted nothing any more.
func (l *Lessee) Fenced() bool { return l.fenced }

// silence is how long it will take, most likely, until there is something that is not at
// hand: 0 if the coordinator has answered the last request, for ever if it grants
// nothing to this replica any more.
func (l *Lessee) silence() int64 {
	switch {
	case l.fenced:
		return never / 4
	case l.flight == nil || l.failures == 0 && l.now-l.flight.first < firstRetry:
		return 0
	}
	wait := max(l.now-l.flight.first, 1)
	if l.replicas > 0 && l.cfg.Fallback > 0 {
		wait = min(wait, max(l.expires-l.now, 1))
	}
	return wait
}

// at brings the lessee up to now, which never runs backwards.
func (l *Lessee) at(now time.Time) int64 {
	if l.base.IsZero() {
		l.base = now
	}
	if t := now.Sub(l.base).Microseconds(); t > l.now {
		l.now = t
	}
	if l.now >= l.expires {
		l.expire()
	}
	return l.now
}

// time is the instant of a reading.
func (l *Lessee) time(t int64) time.Time { return l.base.Add(micros(t)) }

// expire ends the lease: what was granted and not taken is void. If the store
// does not answer, the replica goes on with its part of the quota.
func (l *Lessee) expire() {
	if l.local {
		if l.cfg.Mode == Static && l.failures > 0 && !l.lowered && l.cfg.Fallback > 0 {
			l.lowered = true
			for i := range l.cfg.Dims {
				l.setPart(i, l.part(i)*l.cfg.Fallback)
			}
		}
		return
	}
	for _, b := range l.dims {
		b.credit = 0
	}
	if l.slots != nil {
		l.slots.expire()
	}
	if l.failures > 0 && !l.fenced && l.replicas > 0 && l.cfg.Fallback > 0 {
		l.fallBack()
	}
}

// fallBack begins to go by the replica's part of the quota.
func (l *Lessee) fallBack() {
	l.local, l.localAt = true, l.now
	for _, b := range l.dims {
		b.fallBack()
	}
	if l.slots != nil {
		l.slots.setPart(l.alonePart())
	}
}

// alonePart is the part of the quota that a replica goes by alone: one of as many as it
// knows to be there. At the beginning it may not have heard of all.
func (l *Lessee) alonePart() float64 {
	return l.cfg.Fallback / float64(max(l.replicas, l.cfg.Replicas))
}

// comeBack ends fallBack.
func (l *Lessee) comeBack() {
	l.local = false
	for _, b := range l.dims {
		b.foreign.takeBack(b.own)
	}
	if l.slots != nil {
		l.slots.comeBack()
	}
}

func (l *Lessee) part(i int) float64 {
	if i < len(l.dims) {
		return l.dims[i].part
	}
	return l.slots.part
}

func (l *Lessee) setPart(i int, part float64) {
	if i < len(l.dims) {
		l.dims[i].setPart(part)
	} else {
		l.slots.setPart(part)
	}
}

// hasten tells that there is something to do at t. While a request is under way, or
// waits to be sent again, there is nothing: its answer is looked at first.
func (l *Lessee) hasten(t int64) {
	if t < l.announced && l.flight == nil && !l.fenced && !l.cfg.Alone {
		l.announced = t
		if l.cfg.Wake != nil {
			l.cfg.Wake()
		}
	}
}

// want tells that a call lacks something.
func (l *Lessee) want() {
	if !l.wanted && !l.local {
		l.wanted = true
		l.hasten(max(l.now, l.askAt))
	}
}

// told tells that the coordinator should hear of something at once.
func (l *Lessee) told() {
	l.report = l.now
	l.hasten(l.now)
}

// spent tells that there is something to report.
func (l *Lessee) spent() {
	if at := l.now + l.cfg.Idle.Microseconds(); at < l.report {
		l.report = at
		l.hasten(at)
	}
}

// Due is when the shell should next call Request, or if that returns nothing,
// let calls start: a lease may end then. A zero time is never, unless something
// happens, which Wake tells.
func (l *Lessee) Due(now time.Time) time.Time {
	l.at(now)
	for _, b := range l.dims {
		b.advance()
	}
	due := l.due()
	l.announced = due
	if due == never {
		return time.Time{}
	}
	return l.time(max(due, l.now))
}

func (l *Lessee) due() int64 {
	if l.fenced || l.cfg.Alone {
		return never
	}
	due := int64(never)
	switch {
	case l.flight != nil && l.flight.sent:
	case l.flight != nil:
		due = l.retryAt
	default:
		due = l.dueRequest()
	}
	if l.now < l.expires && (l.failures > 0 || l.holdsCredit()) {
		due = min(due, l.expires)
	}
	for _, b := range l.dims {
		due = min(due, b.turns())
	}
	return due
}

// dueRequest is when a new request is due.
func (l *Lessee) dueRequest() int64 {
	if l.sent == never || l.resync || l.leaving {
		return l.now
	}
	due := l.sent + beat*l.ttl
	if l.cfg.Mode == Static {
		return l.sent + l.ttl/2
	}
	if l.wanted {
		due = min(due, max(l.now, l.askAt))
	}
	due = min(due, l.report)
	switch {
	case l.holds():
		due = min(due, l.sent+l.ttl/2)
	case l.remembers(): // a coordinator that has lost its state learns for one TTL
		due = min(due, l.sent+l.ttl/2+l.ttl/4)
	}
	if l.local {
		return due
	}
	idle := l.active + l.cfg.Idle.Microseconds()
	for _, b := range l.dims {
		if b.credit > 0 && idle > l.sent {
			due = min(due, idle)
		}
		if b.low() {
			due = min(due, l.renewal())
		}
	}
	if l.slots != nil {
		due = min(due, l.slots.back())
		if l.slots.low() {
			due = min(due, l.renewal())
		}
	}
	return due
}

// renewal is when a low stock may be renewed: not all the time, if there is none
// to be had.
func (l *Lessee) renewal() int64 {
	return max(l.now, l.askAt, l.sent+l.cfg.Stock.Microseconds()/lowStock)
}

// holds reports whether the replica has anything outstanding.
func (l *Lessee) holds() bool {
	for _, b := range l.dims {
		if b.credit+b.open > 0 {
			return true
		}
	}
	return l.slots != nil && l.slots.has > 0
}

// remembers reports whether a window still has something that the replica spent.
func (l *Lessee) remembers() bool {
	for _, b := range l.dims {
		if b.own.sum > 0 && b.cfg.Shape == Window {
			return true
		}
	}
	return false
}

func (l *Lessee) holdsCredit() bool {
	for _, b := range l.dims {
		if b.credit > 0 {
			return true
		}
	}
	return l.slots != nil && l.slots.has > l.slots.used
}

// Leave makes the next request the last one: it gives everything back.
func (l *Lessee) Leave() {
	l.leaving = true
	l.hasten(l.now)
}

// Request makes the request that is due now; ok is false if none is. Its answer
// must be handed to Reply, or its failure told to Failed, before there is another
// one. A request that has failed comes again, with its Seq.
func (l *Lessee) Request(now time.Time, d *budget.Demand) (r Request, ok bool) {
	l.at(now)
	switch f := l.flight; {
	case l.fenced || l.cfg.Alone || f != nil && f.sent:
		return Request{}, false
	case f != nil:
		if l.now < l.retryAt {
			return Request{}, false
		}
		f.sent = true
		return l.again(f), true
	}
	l.wanted = l.wanted && l.lacks(d)
	if l.dueRequest() > l.now {
		return Request{}, false
	}
	l.seq++
	r = Request{
		Replica: l.cfg.Replica, Epoch: l.cfg.Epoch, Seq: l.seq, Mode: l.cfg.Mode,
		Coordinator: l.coordinator, Prev: l.prevAt, Weight: float64(d.Flows), Leave: l.leaving,
		Dims: make([]DimReport, len(l.cfg.Dims)),
	}
	if l.prevAt != 0 {
		r.Since = micros(l.now - l.prevIn)
	}
	if l.local && l.cfg.Mode != Static {
		r.Alone = micros(max(l.now-l.localAt, 1))
	}
	idle := l.now >= l.active+l.cfg.Idle.Microseconds()
	for i, b := range l.dims {
		next, backlog := int64(0), int64(0)
		if d.Next != nil {
			next = d.Next[i]
		}
		if d.Backlog != nil {
			backlog = d.Backlog[i]
		}
		b.ask(&r.Dims[i], d.Next != nil, next, backlog, idle && d.Next == nil)
	}
	if l.slots != nil {
		l.slots.ask(&r.Dims[len(l.dims)], d)
	}
	l.flight = &flight{req: r, first: l.now, made: l.now, sent: true}
	l.sent, l.wanted, l.report, l.resync = l.now, false, never, false
	return r, true
}

// lacks reports whether the first waiting call takes more than there is.
func (l *Lessee) lacks(d *budget.Demand) bool {
	if d.Next == nil {
		for _, b := range l.dims {
			if b.missed > b.credit {
				return true
			}
		}
		return l.slots != nil && l.slots.missed > l.slots.has-l.slots.used
	}
	for i, b := range l.dims {
		if d.Next[i] > b.credit {
			return true
		}
	}
	return l.slots != nil && l.slots.wide(d.Slots) > l.slots.has-l.slots.used
}

// again is a request that has failed, as it is sent now.
func (l *Lessee) again(f *flight) Request {
	more := micros(l.now - f.made)
	r := f.req
	if r.Prev != 0 {
		r.Since += more
	}
	if l.local && l.cfg.Mode != Static {
		r.Alone = micros(max(l.now-l.localAt, 1))
	}
	r.Dims = make([]DimReport, len(f.req.Dims))
	for i, d := range f.req.Dims {
		d.Spent = append([]Spend(nil), d.Spent...)
		for j := range d.Spent {
			d.Spent[j].Age += more
		}
		if i < len(l.dims) {
			d.Left = l.dims[i].later(d.Left, l.now-f.made)
		}
		r.Dims[i] = d
	}
	return r
}

// Failed tells that a request had no answer. It comes again after a time that grows with
// the failures, and of which half is random: not all replicas come at once.
func (l *Lessee) Failed(now time.Time, r Request) {
	l.at(now)
	if l.flight == nil || l.flight.req.Seq != r.Seq {
		return
	}
	l.flight.sent = false
	wait := int64(min(firstRetry<<min(l.failures, 10), lastRetry))
	l.retryAt = l.now + wait - l.random.Int64N(wait/2)
	l.failures++
	if l.slots != nil {
		l.slots.yield = false // nobody tells whose turn it is
	}
	if l.now >= l.expires {
		l.expire()
	}
}
