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

// MaxDims is the largest number of limiters that a Core can hold.
const MaxDims = 15

// Config describes a Core. It is taken as valid: the shell validates.
type Config struct {
	// Classes in a fixed order; a call names its class by index. At least one,
	// at most 64.
	Classes []Class
	// Dims are the provider's limits. At most MaxDims.
	Dims []Dim
	// FIFO serves all calls in order of arrival, whatever their class and flow.
	// The bounds of classes and flows are then off: the line is one flow of the
	// first class. Those of requests stay.
	FIFO bool
	// Lender lends the slots, if they are shared with other gates; nil if they are
	// not. Slots is then the number of all, and bounds what is borrowed.
	Lender budget.SlotLender
	// FlowShare and RequestShare bound the part of every Dim that one flow or
	// one request may take per window; 0 is no bound.
	FlowShare, RequestShare float64
	// FlowSlots and RequestSlots bound the slots that one flow or one request
	// may hold; 0 is no bound.
	FlowSlots, RequestSlots int64
	// MaxWaiting bounds the number of waiting calls; 0 is no bound. A call that
	// was admitted before it was full is requeued all the same.
	MaxWaiting int
	// Replicas share the quota without telling each other what they use; less than 1
	// is 1. See Core.SetReplicas.
	Replicas int
	// SearchSlots is true if nobody has told how many calls the provider takes at a
	// time: the number is found, at most Slots.
	SearchSlots bool
	// Slots is the number of slots, at least 1.
	Slots int64
}

// Class is a share of the gate.
type Class struct {
	// Weight is the class's share relative to the others, above 0.
	Weight float64
	// MaxSlots is the most slots the class may hold; 0 is no bound. A single
	// call that is wider runs when the class holds nothing else.
	MaxSlots int64
	// MinSlots are kept free for the class when it does not use them. While the
	// gate has fewer slots than all minimums together, they shrink in proportion.
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
	// Search says that the limit is not known, and how it is found; nil if it is
	// known. Headroom does not apply to what was found.
	Search *Search
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
	// Deadline is when the call stops waiting; zero is never. It may still start
	// at that very instant, so a deadline of now is a call that does not wait.
	Deadline time.Time
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

// running returns the live running call, or nil.
func (id ID) running() *call {
	if k := id.call(); k != nil && k.state == stateRunning {
		return k
	}
	return nil
}

// Ready is the channel that the call's record keeps; see Core.SetReady.
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
	stateFailed        // its wait has failed
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
	need     resources // what it needs
	state    state
	marks    marks
	seq      uint64
	deadline int64
	flow     *flow
	next     *call
	prev     *call
	ready    chan struct{}
	few      [fewDims]int64 // its costs per Dim, if they are few
	more     *more          // nil if few is enough
	flight   *flight        // while it runs
}

// marks tell how far a running call has come.
type marks uint8

const (
	freed    marks = 1 << iota // its slots are back
	settled                    // it was settled
	answered                   // Succeeded was told
	left                       // Leave was told
)

func (k *call) is(m marks) bool { return k.marks&m != 0 }

// more is what the calls of some gates need beside the rest.
type more struct {
	request *ceiling       // of its request, or nil
	costs   [MaxDims]int64 // per Dim
}

// request is the ceiling of the call's request, or nil.
func (k *call) request() *ceiling {
	if k.more == nil {
		return nil
	}
	return k.more.request
}

// fewDims is how many costs have room in a call's record. Most providers limit
// requests and tokens.
const fewDims = 2

// costs are what a call takes from each Dim.
func (c *Core) costs(k *call) []int64 {
	if n := len(c.dims); n > fewDims {
		return k.more.costs[:n]
	}
	return k.few[:len(c.dims)]
}

// flight is what only a running call has.
type flight struct {
	holds   []budget.Hold // per Dim
	shares  []budget.Hold // per Dim of its flow's, then of its request's ceiling; nil without
	rates   *rates        // with which it was charged
	charged int64         // quota-nanoseconds, before the weights
	used    int64         // the same as settled, without the slots' part
	started int64         // when it was granted
	held    int64         // for how long it held its slots, once freed
	refused resources     // the Dims that are searched for and of which the provider had too little
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
	clock
	cfg     Config
	classes []class
	dims    []dim
	rates   *rates
	order   virtual // over the classes

	limit    int64   // slots, as configured or found
	share    float64 // part of limit in force
	eff      int64   // limit in force: max(1, limit·share)
	inUse    int64
	lastCut  int64 // when share was cut
	outage   outage
	replicas int

	searching  bool    // for slots or for the limit of a Dim
	most       int64   // slots, as configured
	found      float64 // slots, if they are searched for
	foundCut   int64   // when they were cut
	ramp       bool    // they were not cut yet
	quotaSlots int64   // as the order knows them

	minimums int64 // sum of the classes' minimums in force
	reserved int64 // the unused part of it

	seq       uint64
	waiting   int // queued + chosen + parked + backing
	waitSlot  int64
	running   int
	lone      *call // the only call there is, as long as it is not booked; see company
	loneClass *class
	active    int  // classes with active flows
	unfit     bool // a waiting call may need more than a limit that was lowered
	chosen    []*call
	timers    heap[timer]
	wakes     heap[*ceiling]
	requests  map[string]*ceiling
	free      *call
	freeLen   int
	flights   *flight
	plain     bool    // no ceilings are configured
	holdTime  float64 // EWMA of the time that a call holds its slots, in ns
	rescale   int64   // when the shares are next looked at; never if all are 1

	grants []ID
	failed []Failure
}

// New makes a Core from a valid Config.
func New(cfg Config) *Core {
	classes := append([]Class(nil), cfg.Classes...)
	if cfg.FIFO { // one line, and nothing that bounds a part of it
		cfg.FlowSlots, cfg.FlowShare = 0, 0
		for i := range classes {
			classes[i].MaxSlots, classes[i].MinSlots = 0, 0
		}
	}
	cfg.Classes = classes
	c := &Core{
		cfg: cfg, limit: cfg.Slots, share: 1, most: cfg.Slots, replicas: max(cfg.Replicas, 1), searching: cfg.SearchSlots,
		lastCut: -1, rescale: never, holdTime: float64(time.Second),
	}
	c.timers.moved = func(t timer, i int) { t.call.timer = int32(i + 1) }
	c.timers.less = timer.before
	c.wakes.moved = func(r *ceiling, i int) { r.wakeIndex = int32(i + 1) }
	c.wakes.less = func(a, b *ceiling) bool { return a.wakeAt < b.wakeAt }
	c.classes = make([]class, len(classes))
	for i := range c.classes {
		c.classes[i].init(c, i, classes[i])
	}
	if cfg.SearchSlots {
		c.limit = min(cfg.Slots, startSlots)
		c.found, c.foundCut, c.ramp = float64(c.limit), -1, true
	}
	c.quotaSlots = c.limit
	c.setShare(1)
	c.dims = make([]dim, len(cfg.Dims))
	for i := range c.dims {
		c.dims[i].init(cfg.Dims[i])
		c.searching = c.searching || cfg.Dims[i].Search != nil
	}
	c.newRates()
	c.plain = cfg.FlowSlots <= 0 && cfg.FlowShare <= 0 && cfg.RequestSlots <= 0 && cfg.RequestShare <= 0
	if cfg.RequestSlots > 0 || cfg.RequestShare > 0 {
		c.requests = make(map[string]*ceiling)
	}
	return c
}

func (c *Core) newRates() {
	r := &rates{perSlot: 1 / float64(c.quotaSlots), perUnit: make([]float64, len(c.dims))}
	for i := range c.dims {
		units, window := c.dims[i].quotaOf()
		r.perUnit[i] = float64(window) / math.Max(1, units)
	}
	c.rates = r
}

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
	// Never is true if a limit is below what the call needs, because it was lowered;
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

const maxFree = 1024 // spare call records that are kept

func (c *Core) newCall() *call {
	k := c.free
	if k == nil {
		k = &call{}
		if len(c.dims) > fewDims || c.requests != nil {
			k.more = new(more)
		}
		return k
	}
	c.free, k.next = k.next, nil
	c.freeLen--
	return k
}

// recycle ends the life of a call record; every ID of it becomes stale. The
// record keeps its channel for the next call that waits.
func (c *Core) recycle(k *call) {
	k.gen++
	k.state, k.marks = stateFree, 0
	k.flow, k.prev = nil, nil
	if k.more != nil {
		k.more.request = nil
	}
	if c.freeLen < maxFree {
		k.next, c.free = c.free, k
		c.freeLen++
	}
}
