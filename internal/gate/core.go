// Package gate is the pure core of Headgate's gate: which waiting call starts
// next, and when. It takes the current time as an argument, never waits, starts
// no goroutine and takes no lock. The shell in package ratelimited drives it
// under one mutex; simulators drive it directly.
//
// The order is start-time fair queueing for a server with several calls in
// flight: SFQ(D) (Jin, Chase, Kaur, SIGMETRICS 2004), fair over classes and
// then over the flows of a class, with the charge corrected when a call is
// settled. A charge is the dominant share (Ghodsi et al., SIGCOMM 2012) of what
// the call takes from the provider's limits and from the slots, measured in
// seconds of the whole quota.
package gate

import (
	"errors"
	"math"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// Never is a time in nanoseconds that does not come.
const never = math.MaxInt64

// MaxDims is the largest number of limiters that a Core can hold.
const MaxDims = 15

// Config describes a Core. It is taken as valid: the shell validates.
type Config struct {
	// Classes in a fixed order; a call names its class by index. At least one.
	Classes []Class
	// Dims are the provider's limits. At most MaxDims.
	Dims []Dim
	// FIFO serves all calls in order of arrival, whatever their class and flow.
	FIFO bool
	// FlowShare and RequestShare bound the part of every Dim that one flow or
	// one request may take per window; 0 is no bound.
	FlowShare, RequestShare float64
	// FlowSlots and RequestSlots bound the slots that one flow or one request
	// may hold; 0 is no bound.
	FlowSlots, RequestSlots int64
	// MaxWaiting bounds the number of waiting calls; 0 is no bound.
	MaxWaiting int
	// Slots is the number of slots, at least 1.
	Slots int64
}

// Class is a share of the gate.
type Class struct {
	// Weight is the class's share relative to the others, above 0.
	Weight float64
	// MaxSlots is the most slots the class may hold; 0 is no bound.
	MaxSlots int64
	// MinSlots are kept free for the class when it does not use them.
	MinSlots int64
}

// Dim is one limit of the provider.
type Dim struct {
	Limiter budget.Limiter
	// Window is the time in which Limiter.Limit() units may be used.
	Window time.Duration
	// Headroom is the part of the limit that is used at most, in (0, 1]; 0 is
	// 1. A cost between it and the full limit fits once nothing else is held.
	Headroom float64
}

// Spec describes a call to Enqueue.
type Spec struct {
	// Class is an index into Config.Classes.
	Class int
	// Flow is the key of the flow within its class.
	Flow string
	// FlowWeight is the flow's share within its class; 0 is 1. It is taken when
	// the flow becomes active and holds until it is idle.
	FlowWeight float64
	// Request is the key for the ceilings per request; "" has none.
	Request string
	// Slots is the number of slots, at least 1.
	Slots int32
	// Costs are the units to take from each Dim, in the order of Config.Dims.
	Costs []int64
	// Deadline is when the call stops waiting; zero is never.
	Deadline time.Time
	// Ready is kept with the call for the shell to find its waiter.
	Ready chan struct{}
}

// ID names a call. It stays safe to use after the call has ended: operations
// on an ended call do nothing and report false.
type ID struct {
	c   *call
	gen uint32
}

// call returns the live call, or nil.
func (id ID) call() *call {
	if id.c == nil || id.c.gen != id.gen {
		return nil
	}
	return id.c
}

// Ready is the channel that was given with the call.
func (id ID) Ready() chan struct{} {
	if c := id.call(); c != nil {
		return c.ready
	}
	return nil
}

type state uint8

const (
	stateFree    state = iota
	stateQueued        // in its flow's queue
	stateChosen        // picked, and waiting for a resource that it claims
	stateParked        // over its request's ceiling
	stateBacking       // in backoff until its not-before
	stateRunning       // granted
	stateFailed        // its deadline has passed
)

// resources is a set of resources: bit 0 the slots, bit 1+i the i-th Dim.
type resources uint16

const slotsBit resources = 1

func dimBit(i int) resources { return 1 << (i + 1) }

// call is one call from Enqueue to End. Its size matters: a hundred thousand of
// them may wait.
type call struct {
	gen      uint32
	timer    int32 // 1 + index in Core.timers; 0 is none
	slots    int32
	state    state
	freed    bool // its slots are back
	settled  bool
	seq      uint64
	deadline int64
	flow     *flow
	request  *ceiling // ceiling of its request, or nil
	next     *call
	prev     *call
	ready    chan struct{}
	costs    []int64   // per Dim
	need     resources // what it needs
	claim    resources // what it was found to lack since it was chosen
	flight   *flight   // while it runs
}

// flight is what only a running call has.
type flight struct {
	holds   []budget.Hold // per Dim
	rates   *rates        // with which it was charged
	charged int64         // quota-nanoseconds, before the weights
	used    int64         // the same as settled, without the slots' part
	started int64         // when it was granted
	held    int64         // for how long it held its slots, once freed
	next    *flight       // in the list of spare ones
}

// rates turn what a call takes into quota-seconds. A call keeps the rates with
// which it was charged, so a limit that changes meanwhile does not distort the
// correction.
type rates struct {
	perUnit []float64 // nanoseconds of the whole quota per unit of each Dim
	perSlot float64   // nanoseconds of all slots per slot-nanosecond
}

// Core decides which waiting call starts next. It is not safe for concurrent
// use. The zero Core is not usable; see New.
type Core struct {
	cfg     Config
	base    time.Time
	last    int64
	classes []class
	dims    []dim
	rates   *rates
	vtime   int64 // virtual time over the classes
	largest int64 // largest recent charge over the classes, weighted

	limit    int64   // slots, as configured
	share    float64 // part of limit in force
	eff      int64   // limit in force: max(1, limit·share)
	inUse    int64
	lastCut  int64 // when share was cut
	reserved int64 // sum of the classes' unused minimums

	seq      uint64
	waiting  int // queued + chosen + parked + backing
	waitSlot int64
	running  int
	chosen   []*call
	timers   heap[timer]
	wakes    heap[*ceiling]
	requests map[string]*ceiling
	free     *call
	freeLen  int
	flights  *flight
	plain    bool    // no ceilings are configured
	holdTime float64 // EWMA of the time that a call holds its slots, in ns
	rescale  int64   // when the shares are next looked at; never if all are 1

	grants []ID
	failed []Failure
}

// New makes a Core from a valid Config.
func New(cfg Config) *Core {
	c := &Core{
		cfg: cfg, limit: cfg.Slots, eff: cfg.Slots, share: 1,
		lastCut: -1, rescale: never, holdTime: float64(time.Second),
	}
	c.timers.moved = func(t timer, i int) { t.call.timer = int32(i + 1) }
	c.timers.less = func(a, b timer) bool { return a.at < b.at }
	c.wakes.moved = func(r *ceiling, i int) { r.wakeIndex = int32(i + 1) }
	c.wakes.less = func(a, b *ceiling) bool { return a.wakeAt < b.wakeAt }
	c.classes = make([]class, len(cfg.Classes))
	for i := range c.classes {
		c.classes[i].init(c, i, cfg.Classes[i])
		c.reserved += cfg.Classes[i].MinSlots
	}
	c.dims = make([]dim, len(cfg.Dims))
	for i := range c.dims {
		c.dims[i] = dim{Limiter: cfg.Dims[i].Limiter, window: cfg.Dims[i].Window, headroom: cfg.Dims[i].Headroom, share: 1, lastCut: -1}
		if d := &c.dims[i]; d.headroom <= 0 || d.headroom > 1 {
			d.headroom = 1
		} else {
			d.Scale(time.Time{}, d.headroom)
		}
	}
	c.newRates()
	c.plain = cfg.FlowSlots <= 0 && cfg.FlowShare <= 0 && cfg.RequestSlots <= 0 && cfg.RequestShare <= 0
	if cfg.RequestSlots > 0 || cfg.RequestShare > 0 {
		c.requests = make(map[string]*ceiling)
	}
	return c
}

func (c *Core) newRates() {
	r := &rates{perSlot: 1 / float64(c.limit), perUnit: make([]float64, len(c.dims))}
	for i := range c.dims {
		r.perUnit[i] = float64(c.dims[i].window) / math.Max(1, float64(c.dims[i].Limit()))
	}
	c.rates = r
}

// at turns an instant into nanoseconds since the first one. Time never runs
// backwards; the shell's instants are monotonic, a simulator's may not be.
func (c *Core) at(now time.Time) int64 {
	if c.base.IsZero() {
		c.base = now
		return 0
	}
	if ns := int64(now.Sub(c.base)); ns > c.last {
		c.last = ns
	}
	return c.last
}

func (c *Core) time(ns int64) time.Time { return c.base.Add(time.Duration(ns)) }

// Errors of Enqueue. The shell turns them into its typed errors.
var (
	ErrFull     = errors.New("too many calls are waiting")
	ErrTooLate  = errors.New("cannot start before its deadline")
	ErrNever    = errors.New("can never fit")
	ErrDeadline = errors.New("deadline has passed")
)

// Failure is a call whose wait has failed. It must be ended with End.
type Failure struct {
	ID ID
	// Dim is a limit that it waited for, or -1.
	Dim int
	// Never is true if a limit was lowered below what the call needs;
	// otherwise its deadline has passed.
	Never bool
}

// Refusal tells why Enqueue did not take a call.
type Refusal struct {
	Err error
	// Dim is the limit that refused, or -1.
	Dim int
	// At is the earliest instant at which the call could have started, where
	// that is known.
	At time.Time
}

// Enqueue takes a call in. If it can start at once, granted is true. Otherwise
// it waits, and the caller must call Poll. A refusal leaves no trace.
func (c *Core) Enqueue(now time.Time, s Spec) (id ID, granted bool, refused Refusal) {
	ns := c.at(now)
	if ns >= c.rescale {
		c.recover(now, ns)
	}
	if !c.plain {
		c.wake(ns)
	}
	cl := &c.classes[0]
	if c.cfg.FIFO {
		s.Flow = ""
	} else {
		cl = &c.classes[s.Class]
	}
	k := c.newCall()
	c.seq++
	k.seq, k.slots, k.ready, k.deadline, k.need = c.seq, s.Slots, s.Ready, never, slotsBit
	for i, cost := range s.Costs {
		if cost > 0 {
			k.need |= dimBit(i)
			k.costs[i] = cost
		}
	}
	if c.plain && c.waiting == 0 && cl.fits(c, k.slots) && c.lacks(now, ns, k) == 0 {
		c.join(k, cl, &s)
		c.start(now, ns, k)
		return ID{k, k.gen}, true, Refusal{}
	}
	if refused = c.refuse(now, ns, k, s.Deadline); refused.Err != nil {
		c.recycle(k)
		return ID{}, false, refused
	}
	if !s.Deadline.IsZero() {
		k.deadline = int64(s.Deadline.Sub(c.base))
		c.timers.push(timer{k.deadline, k})
	}
	c.join(k, cl, &s)
	c.countWaiting(k, 1)
	c.enqueue(k)
	return ID{k, k.gen}, false, Refusal{}
}

// refuse reports why k should not even wait.
func (c *Core) refuse(now time.Time, ns int64, k *call, deadline time.Time) Refusal {
	for i := range c.dims {
		if cost := k.costs[i]; cost > c.dims[i].Max() {
			return Refusal{Err: ErrNever, Dim: i}
		}
	}
	if !deadline.IsZero() {
		if !deadline.After(now) {
			at, dim := c.earliest(now, ns, k)
			return Refusal{Err: ErrDeadline, Dim: dim, At: at}
		}
		if at, dim := c.earliest(now, ns, k); at.After(deadline) {
			return Refusal{Err: ErrTooLate, Dim: dim, At: at}
		}
	}
	if c.cfg.MaxWaiting > 0 && c.waiting >= c.cfg.MaxWaiting {
		return Refusal{Err: ErrFull, Dim: -1}
	}
	return Refusal{}
}

// earliest is the instant before which k cannot start even if every hold were
// refunded and every slot came back now.
func (c *Core) earliest(now time.Time, ns int64, k *call) (at time.Time, dim int) {
	at, dim = now, -1
	for i := range c.dims {
		if k.need&dimBit(i) == 0 {
			continue
		}
		d := &c.dims[i]
		t, ok := d.Earliest(now, k.costs[i])
		if !ok {
			continue // a limit of 0 may be raised while the call waits
		}
		if d.closed(ns) {
			t = laterOf(t, c.time(d.until))
		}
		if t.After(at) {
			at, dim = t, i
		}
	}
	return at, dim
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// countWaiting books a call that starts or stops waiting.
func (c *Core) countWaiting(k *call, sign int) {
	c.waiting += sign
	c.waitSlot += int64(sign) * int64(k.slots)
	k.flow.class.waiting += sign
	for i := range c.dims {
		c.dims[i].queued += int64(sign) * k.costs[i]
	}
}

// Cancel takes a waiting call out, without a trace. It reports false if the
// call is not waiting: it was granted meanwhile, or has ended.
func (c *Core) Cancel(now time.Time, id ID) bool {
	k := id.call()
	if k == nil || k.state == stateRunning || k.state == stateFailed {
		return false
	}
	c.at(now)
	c.remove(k)
	c.leave(k)
	c.recycle(k)
	return true
}

// remove takes a waiting call out of wherever it waits.
func (c *Core) remove(k *call) {
	c.countWaiting(k, -1)
	c.unlink(k)
	if k.timer > 0 {
		c.timers.remove(int(k.timer - 1))
		k.timer = 0
	}
}

// unlink takes a waiting call out of its queue.
func (c *Core) unlink(k *call) {
	f := k.flow
	switch k.state {
	case stateQueued:
		first := f.queue.head == k
		f.queue.remove(k)
		if first {
			f.class.headChanged(f)
		}
	case stateChosen:
		for i := range c.chosen {
			if c.chosen[i] == k {
				c.chosen = append(c.chosen[:i], c.chosen[i+1:]...)
				break
			}
		}
		f.chosen = nil
		f.class.headChanged(f)
	case stateParked:
		k.request.parked.remove(k)
	}
}

// SetSlots changes the number of slots. Calls in flight keep theirs.
func (c *Core) SetSlots(n int64) {
	c.limit = max(n, 1)
	c.setShare(c.share)
	c.newRates()
}

func (c *Core) setShare(share float64) {
	c.share = share
	c.eff = max(1, int64(float64(c.limit)*share))
}

// SetLimit changes the units per window of a Dim.
func (c *Core) SetLimit(now time.Time, i int, limit int64) {
	c.at(now)
	d := &c.dims[i]
	d.SetLimit(now, limit)
	d.Scale(now, d.headroom*d.share)
	c.newRates()
	for k := range c.ceilings() {
		k.setLimit(now, i, limit)
	}
}

const maxFree = 1024 // spare call records that are kept

func (c *Core) newCall() *call {
	k := c.free
	if k == nil {
		return &call{costs: make([]int64, len(c.dims))}
	}
	c.free, k.next = k.next, nil
	c.freeLen--
	return k
}

// recycle ends the life of a call record; every ID of it becomes stale.
func (c *Core) recycle(k *call) {
	costs := k.costs
	clear(costs)
	*k = call{gen: k.gen + 1, costs: costs}
	if c.freeLen < maxFree {
		k.next, c.free = c.free, k
		c.freeLen++
	}
}
