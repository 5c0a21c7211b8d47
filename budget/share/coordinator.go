package share

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Defaults of [CoordinatorConfig].
const (
	// DefaultTTL is how long a replica may use what it was granted without
	// asking again.
	DefaultTTL = 5 * time.Second
	// DefaultLate is how long after it was admitted a request may come to be
	// counted by the provider.
	DefaultLate = 2 * time.Second
	// DefaultPoll is when it is worth asking again where only other replicas can
	// tell.
	DefaultPoll = 100 * time.Millisecond
)

// CoordinatorConfig describes a [Coordinator].
type CoordinatorConfig struct {
	// Dims of the quota. At least one.
	Dims []Dim
	// DebitAtGrant books what is granted as spent at once, and lets nothing stay
	// outstanding: without the guard for spend after debit. It is for showing that
	// the guard matters, not for use.
	DebitAtGrant bool
	// Epoch of the coordinator, above 0: another one whenever the state is lost.
	// Defaults to 1.
	Epoch int64
	// Late is how long after the lease of a replica that is gone its last
	// requests may be counted. Defaults to DefaultLate.
	Late time.Duration
	// Learn: the coordinator starts where another one has lost its state. For one
	// TTL it grants nothing and learns what replicas have.
	Learn bool
	// Poll is when it is worth asking again where time alone does not tell.
	// Defaults to DefaultPoll.
	Poll time.Duration
	// Replicas is how many replicas there are at least: static ones have their
	// part of the quota from the beginning. Defaults to 1.
	Replicas int
	// TTL of leases. Defaults to DefaultTTL.
	TTL time.Duration
}

func (c CoordinatorConfig) withDefaults() (CoordinatorConfig, error) {
	var err error
	if len(c.Dims) == 0 {
		return c, errors.New("share: CoordinatorConfig.Dims is empty")
	}
	if c.Dims, err = Complete(c.Dims); err != nil {
		return c, err
	}
	if c.Epoch == 0 {
		c.Epoch = 1
	}
	if c.Late == 0 {
		c.Late = DefaultLate
	}
	if c.Poll == 0 {
		c.Poll = DefaultPoll
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	switch {
	case c.Epoch < 0:
		return c, fmt.Errorf("share: CoordinatorConfig.Epoch is %d, must not be negative", c.Epoch)
	case c.Late < 0:
		return c, fmt.Errorf("share: CoordinatorConfig.Late is %v, must not be negative", c.Late)
	case c.Poll < time.Millisecond:
		return c, fmt.Errorf("share: CoordinatorConfig.Poll is %v, must be at least a millisecond", c.Poll)
	case c.Replicas < 0:
		return c, fmt.Errorf("share: CoordinatorConfig.Replicas is %d, must not be negative", c.Replicas)
	case c.TTL < time.Millisecond:
		return c, fmt.Errorf("share: CoordinatorConfig.TTL is %v, must be at least a millisecond", c.TTL)
	}
	return c, nil
}

// Coordinator shares a quota between replicas. It is the reference for what the
// scripts of a store do, and serves simulations and tests; one program with
// several gates can use it as it is.
//
// It keeps two books per dimension: what was spent, as the provider sees it,
// and what is outstanding with each replica, granted and neither reported as spent
// nor given back. What it grants comes out of the level of the first less the sum
// of the second. So whatever a replica holds may be spent at any later time
// without the provider being asked for more than it has.
//
// Each replica has a counter of what it was granted, as a part of the whole quota
// and over its weight, and the one with the least is served first: start-time
// fair queueing over replicas. A replica whose Need cannot be granted has a
// claim: it is kept for it ahead of those that have had more, so that a large
// call is not starved. What nobody claims is divided max-min fairly over what
// replicas want.
//
// A Coordinator is not safe for concurrent use.
type Coordinator struct {
	clock
	cfg    CoordinatorConfig
	ttl    int64
	late   int64
	poll   int64
	memory int64 // how long a replica that is gone is remembered
	now    int64
	heard  int64 // time in which somebody was heard of: outages do not count

	dims     []account
	replicas map[string]*replica
	list     []*replica // the same, in the order in which they came
	ghosts   []*ghost   // of former epochs
	claims   []*claim   // in the order in which they are served
	learning int64      // until then
	learned  bool       // the state was lost once
	virtual  float64    // start tag of the last grant
	order    int64      // of claims
	nextLook int64      // the first expiry, at the earliest
	changed  bool       // limits or shares may be others
	open     []part     // those that want some, while it is divided
}

// account is one dimension.
type account struct {
	cfg   Dim
	books *mirror
	out   int64 // sum of what is outstanding
	limit int64 // published, the smallest of all replicas
}

// replica is what is known of one replica.
type replica struct {
	name       string
	epoch, seq int64
	weight     float64
	joins      int64 // when it may use its part of a static quota
	placed     bool  // it had a place in that from the beginning
	seen       int64
	heard      int64 // the coordinator's at that time
	expires    int64
	lapsed     bool
	dims       []holding
	tag        float64 // virtual time at which it has had its part of what it was granted
	claim      *claim  // nil if it has none
	reply      Reply
}

// claim keeps what a replica needs for it.
type claim struct {
	tag   float64 // start tag: who has had less comes first
	order int64   // among equals
	until int64   // a replica that does not ask again loses it
	units []int64 // per dimension
}

// holding is what a replica has of one dimension.
type holding struct {
	out    int64
	want   int64
	need   int64
	limit  int64
	share  float64
	lapsed int64 // booked as spent when the lease expired
	cell   int64 // in which
}

// ghost is what a replica had before it was restarted, or left.
type ghost struct {
	name       string
	epoch, seq int64
	expires    int64
	out        []int64
}

// Books are what a coordinator knows of a dimension.
type Books struct {
	// Limit is the number of units per window in force, and Level what could be
	// spent if nothing were outstanding.
	Limit, Level float64
	// Outstanding is what was granted and is neither spent nor given back.
	Outstanding int64
}

// Books returns the books of all dimensions, for metrics and tests.
func (c *Coordinator) Books(now time.Time) []Books {
	c.tick(now)
	list := make([]Books, len(c.dims))
	for i := range c.dims {
		a := &c.dims[i]
		list[i] = Books{Limit: a.books.limit, Level: a.books.level(), Outstanding: a.out}
	}
	return list
}

// NewCoordinator returns a coordinator. The error names the field that is wrong.
func NewCoordinator(cfg CoordinatorConfig) (*Coordinator, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Coordinator{
		cfg: cfg, ttl: cfg.TTL.Microseconds(), late: cfg.Late.Microseconds(), poll: cfg.Poll.Microseconds(),
		replicas: make(map[string]*replica),
	}, nil
}

// begin is the first step.
func (c *Coordinator) begin() {
	c.nextLook = math.MaxInt64
	for _, d := range c.cfg.Dims {
		c.dims = append(c.dims, account{cfg: d, books: newMirror(d, c.now), limit: d.Limit})
		c.memory = max(c.memory, 2*d.Window.Microseconds())
	}
	c.memory = max(min(c.memory, maxMemory), c.ttl+c.late)
	if c.cfg.Learn {
		c.learn()
	}
}

// maxMemory is for how long a replica that says nothing is remembered at most, in
// ticks.
const maxMemory = 300 * ticksPerSecond

// Do takes in a report and answers a question, in one step.
func (c *Coordinator) Do(now time.Time, r Request) Reply {
	c.tick(now)
	if len(r.Dims) != len(c.dims) {
		return c.stale()
	}
	p, newest := c.enter(&r)
	if p == nil {
		reply := c.stale()
		reply.Newest = newest
		return reply
	}
	if r.Seq == p.seq {
		if !p.lapsed {
			c.renew(p)
		}
		return p.reply
	}
	c.suspect(p, r.Alone)
	c.report(p, &r)
	if r.Leave {
		return c.leave(p, &r)
	}
	p.seq, p.weight = r.Seq, 1
	if r.Weight > 0 && r.Weight < maxWeight {
		p.weight = r.Weight
	}
	c.renew(p)
	c.limits()
	for i := range r.Dims {
		if left := r.Dims[i].Left; left != nil && !c.debited(i) {
			a := &c.dims[i] // what is outstanding may have been counted already
			a.books.lower(float64(max(left.Units, 0))+float64(a.out), max(left.Reset.Microseconds(), 0))
		}
	}
	p.reply = c.answer(p, &r)
	return p.reply
}

// tick brings the coordinator up to now.
func (c *Coordinator) tick(now time.Time) {
	before := c.now
	c.now = c.read(now.UnixMicro())
	if c.dims == nil {
		c.begin()
	} else {
		c.heard += min(c.now-before, c.ttl)
	}
	c.advance()
	c.limits()
}

// renew notes that a replica was heard of.
func (c *Coordinator) renew(p *replica) {
	p.seen, p.heard, p.expires = c.now, c.heard, c.now+c.ttl+c.late
	c.nextLook = min(c.nextLook, p.expires)
}

// maxWeight bounds the weight of a replica.
const maxWeight = 1 << 20

// stale is the reply to a request that was not taken in.
func (c *Coordinator) stale() Reply {
	return Reply{
		Granted: make([]int64, len(c.dims)), TTL: c.cfg.TTL, Epoch: c.cfg.Epoch, At: c.now,
		Replicas: len(c.list), Limits: c.wholeLimits(), Scarce: make([]bool, len(c.dims)), Stale: true,
	}
}

// advance brings all books up to date: what leases that have expired have left
// unreported counts as spent.
func (c *Coordinator) advance() {
	for i := range c.dims {
		c.dims[i].books.advance(c.now)
	}
	if c.now >= c.nextLook {
		c.expire()
	}
}

// expire ends the leases whose time has come.
func (c *Coordinator) expire() {
	c.nextLook = math.MaxInt64
	kept := c.list[:0]
	for _, p := range c.list {
		if !p.lapsed && c.now >= p.expires {
			c.lapse(p)
		}
		next := p.expires
		if p.lapsed {
			if next = c.now + p.heard + c.memory - c.heard; c.now >= next {
				delete(c.replicas, p.name)
				continue
			}
		}
		kept = append(kept, p)
		c.nextLook = min(c.nextLook, next)
	}
	clear(c.list[len(kept):])
	c.list = kept
	c.ghosts = slices.DeleteFunc(c.ghosts, func(g *ghost) bool {
		if c.now < g.expires {
			c.nextLook = min(c.nextLook, g.expires)
			return false
		}
		for i, n := range g.out {
			c.dims[i].out -= n
			c.spend(i, g.expires, n)
		}
		return true
	})
}

// spend books an amount of a dimension.
func (c *Coordinator) spend(i int, at, amount int64) (cell int64) {
	if c.debited(i) || amount == 0 {
		return 0
	}
	return c.dims[i].books.spend(at, amount)
}

// debited reports whether a dimension is debited when it is granted.
func (c *Coordinator) debited(i int) bool {
	return c.dims[i].cfg.Pace || c.cfg.DebitAtGrant && c.dims[i].cfg.Shape != Slots
}

// lapse ends the lease of a replica that has not come back.
func (c *Coordinator) lapse(p *replica) {
	c.unclaim(p)
	p.lapsed, c.changed = true, true
	for i := range p.dims {
		h := &p.dims[i]
		c.dims[i].out -= h.out
		if c.dims[i].cfg.Shape != Slots && !c.debited(i) {
			h.lapsed, h.cell = h.out, c.spend(i, p.expires, h.out)
		}
		h.out, h.want, h.need = 0, 0, 0
	}
}

// enter finds the replica of a request, or makes one; nil if the request is not to be
// taken in. newest is then the epoch of the replica that is gone by, if that is why.
func (c *Coordinator) enter(r *Request) (p *replica, newest int64) {
	if r.Coordinator != 0 && r.Coordinator != c.cfg.Epoch {
		if !c.learned {
			c.learn() // somebody knows a coordinator that we know nothing of
		}
		return nil, 0
	}
	old := false
	for _, g := range c.ghosts { // it comes again, though its reply was on its way
		if g.name == r.Replica && (r.Epoch < g.epoch || r.Epoch == g.epoch && r.Seq <= g.seq) {
			old, newest = true, max(newest, g.epoch)
		}
	}
	p = c.replicas[r.Replica]
	if p != nil && (r.Epoch < p.epoch || r.Epoch == p.epoch && r.Seq < p.seq) {
		old, newest = true, max(newest, p.epoch)
	}
	placed := true
	switch {
	case old:
		return nil, newest
	case p != nil && r.Epoch == p.epoch:
		return p, 0
	case p != nil:
		c.bury(p)
		placed = false // what it has used in its former life is still remembered
	}
	p = &replica{
		name: r.Replica, epoch: r.Epoch, weight: 1, seen: c.now, heard: c.heard, expires: c.now + c.ttl + c.late,
		dims: make([]holding, len(c.dims)), tag: c.virtual, lapsed: true,
	}
	if p.placed = placed && len(c.list) < c.cfg.Replicas; !p.placed {
		p.joins = c.now + c.ttl
	}
	c.replicas[r.Replica] = p
	c.list = append(c.list, p)
	return p, 0
}

// bury keeps what a former epoch of a replica had outstanding until its lease
// expires.
func (c *Coordinator) bury(p *replica) {
	c.unclaim(p)
	g := &ghost{name: p.name, epoch: p.epoch, seq: p.seq, expires: p.expires, out: make([]int64, len(p.dims))}
	for i := range p.dims {
		g.out[i] = p.dims[i].out
	}
	c.ghosts = append(c.ghosts, g)
	c.nextLook = min(c.nextLook, g.expires)
	delete(c.replicas, p.name)
	c.list = slices.DeleteFunc(c.list, func(q *replica) bool { return q == p })
	c.changed = true
}

// leave takes a replica out.
func (c *Coordinator) leave(p *replica, r *Request) Reply {
	p.seq, p.expires = r.Seq, c.now+c.ttl+c.late
	c.bury(p)
	reply := c.stale()
	reply.Stale = false
	return reply
}

// learn begins a time in which nothing is granted, and replicas tell what they
// have. Nobody knows the level of a bucket: it has nothing.
func (c *Coordinator) learn() {
	c.learned, c.learning = true, c.now+c.ttl
	for i := range c.dims {
		if b := c.dims[i].books; b.shape == Bucket {
			b.restart(min(b.level(), 0))
		}
	}
}

// suspect looks for others that may have gone by their parts of the quota, as p has
// for a time, and have not told yet what they have used. If that is half of
// them, all are waited for; one that was cut off alone is not.
func (c *Coordinator) suspect(p *replica, alone time.Duration) {
	if alone <= 0 {
		return
	}
	since := c.now - alone.Microseconds()
	silent := max(c.cfg.Replicas-len(c.list), 0) // those that were never heard of
	others := silent
	for _, q := range c.list {
		// A lease was good for one more TTL, and who had none told of itself every
		// now and then.
		if q == p || q.seen < since-(1+beat)*c.ttl-c.late {
			continue
		}
		if others++; q.seen < since {
			silent++
		}
	}
	if silent > 0 && 2*silent >= others {
		c.learning = max(c.learning, c.now+c.ttl)
	}
}

// report takes in what a replica tells.
func (c *Coordinator) report(p *replica, r *Request) {
	returned := 0.0
	for i := range r.Dims {
		d, a, h := &r.Dims[i], &c.dims[i], &p.dims[i]
		if h.lapsed > 0 { // it is back, and tells itself
			a.books.takeBack(h.cell, h.lapsed)
			h.lapsed = 0
		}
		spent := int64(0)
		for _, s := range d.Spent {
			age := max(s.Age.Microseconds(), 0)
			switch {
			case s.Amount > 0:
				spent += s.Amount
				c.spend(i, c.now-age, s.Amount)
			case r.Prev > 0 && !c.debited(i):
				sent := min(r.Prev+r.Since.Microseconds(), c.now)
				a.books.refund(sent-age-1, -s.Amount)
			}
		}
		has := max(d.Has, 0)
		if back := h.out - spent - has; back > 0 {
			if c.debited(i) && !p.lapsed {
				a.books.debit(-back)
			}
			if a.cfg.Shape != Slots && a.books.limit > 0 {
				returned = max(returned, float64(back)/a.books.limit)
			}
		}
		a.out += has - h.out
		h.out = has
		limit, share := max(d.Limit, 0), d.Share
		if !(share > 0 && share < 1) {
			share = 1
		}
		c.changed = c.changed || p.lapsed || limit != h.limit || share != h.share
		h.limit, h.share = limit, share
	}
	p.lapsed = false
	p.tag -= returned / p.weight
}

// limits puts the smallest limits and shares of all replicas in force.
func (c *Coordinator) limits() {
	if !c.changed {
		return
	}
	c.changed = false
	for i := range c.dims {
		a := &c.dims[i]
		limit, share := int64(math.MaxInt64), 1.0
		for _, p := range c.list {
			if !p.lapsed {
				limit, share = min(limit, p.dims[i].limit), min(share, p.dims[i].share)
			}
		}
		if limit == math.MaxInt64 {
			continue
		}
		a.limit = limit
		burst := float64(a.cfg.Burst)
		if a.cfg.Limit > 0 {
			burst = max(min(float64(limit), 1), burst*float64(limit)/float64(a.cfg.Limit))
		}
		a.books.set(float64(limit)*share, burst*share)
	}
}

func (c *Coordinator) wholeLimits() []int64 {
	list := make([]int64, len(c.dims))
	for i := range list {
		list[i] = c.dims[i].limit
	}
	return list
}
