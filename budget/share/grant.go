package share

import (
	"math"
	"slices"
	"time"
)

// answer grants what p may have, or tells when it is worth asking again.
func (c *Coordinator) answer(p *replica, r *Request) Reply {
	reply := c.stale()
	reply.Stale = false
	waits := false
	for i := range r.Dims {
		h := &p.dims[i]
		h.need = max(r.Dims[i].Need, 0)
		h.want = max(r.Dims[i].Want, h.need)
		waits = waits || h.need > 0
	}
	switch {
	case r.Mode == Static:
		c.unclaim(p)
		reply.Parts = c.parts(p)
		return reply
	case c.now < c.learning:
		c.unclaim(p)
		reply.RetryAfter = micros(c.learning - c.now)
		return reply
	}
	ahead, others := c.claimed(p, waits)
	if waits {
		if wait, fits := c.fits(p, ahead); !fits {
			reply.RetryAfter = micros(wait)
			c.keep(p, wait)
			if k := len(ahead) - 1; c.dims[k].cfg.Shape == Slots {
				ahead[k] = others[k] // time brings none back: they go round
			}
			c.scarce(ahead, reply.Scarce)
			return reply
		}
	}
	c.unclaim(p)
	for i := range p.dims {
		h, a := &p.dims[i], &c.dims[i]
		grant := h.need
		if r.Mode == Leased {
			grant += c.extra(p, i, others[i])
		}
		h.want = max(h.want-grant, 0)
		reply.Granted[i] = grant
		if c.debited(i) {
			a.books.debit(grant)
		}
		h.out += grant
		a.out += grant
	}
	c.charge(p, reply.Granted)
	c.scarce(others, reply.Scarce)
	return reply
}

func micros(ticks int64) time.Duration {
	return time.Duration(min(ticks, math.MaxInt64/2000)) * time.Microsecond
}

// free is what can be granted of a dimension, in units.
func (c *Coordinator) free(i int) int64 {
	a := &c.dims[i]
	free := whole(a.books.level())
	if !c.debited(i) {
		free -= a.out
	}
	return free
}

// room is what must be free for a need to be granted: a cost above what a bucket
// holds waits until it is full, and goes into debt; one above a window's limit
// in force waits until it is empty.
func (c *Coordinator) room(i int, need int64) int64 {
	return min(need, whole(c.dims[i].books.capacity()))
}

// never reports whether a need can never be granted.
func (c *Coordinator) never(i int, need int64) bool {
	a := &c.dims[i]
	return a.books.limit <= 0 || a.cfg.Shape == Window && need > a.limit
}

// claimed sums up what is kept for others than p: all of it, and what comes before
// p, which is one of those that wait or has everybody before it.
func (c *Coordinator) claimed(p *replica, waits bool) (ahead, others []int64) {
	ahead, others = make([]int64, len(c.dims)), make([]int64, len(c.dims))
	mine := p.claim
	if mine == nil || mine.units == nil {
		mine = c.newClaim(p)
	}
	kept := c.claims[:0]
	for _, k := range c.claims {
		if k.until < c.now && k != p.claim {
			k.units = nil
			continue
		}
		kept = append(kept, k)
		if k == p.claim {
			continue
		}
		before := !waits || k.before(mine)
		for i, n := range k.units {
			others[i] += n
			if before {
				ahead[i] += n
			}
		}
	}
	clear(c.claims[len(kept):])
	c.claims = kept
	return ahead, others
}

// fits reports whether all needs of p can be granted beside the claims before
// its own; if not, after how long it is worth asking again.
func (c *Coordinator) fits(p *replica, ahead []int64) (wait int64, ok bool) {
	ok = true
	for i := range p.dims {
		need := p.dims[i].need
		if need == 0 {
			continue
		}
		if c.never(i, need) {
			return c.ttl / 2, false
		}
		if short := ahead[i] + c.room(i, need) - c.free(i); short > 0 {
			ok = false
			wait = max(wait, c.waitFor(p, i, short))
		}
	}
	return max(min(wait, c.ttl/2), ticksPerSecond/1000), ok
}

// waitFor is how long it takes until so many more units can be granted to p, as far
// as time alone decides; otherwise when it is worth asking again.
func (c *Coordinator) waitFor(p *replica, i int, short int64) int64 {
	a := &c.dims[i]
	if need := a.books.level() + float64(short); need <= a.books.capacity()+slack {
		if wait, ok := a.books.wait(need); ok {
			return wait
		}
	}
	if a.out == p.dims[i].out {
		return c.ttl / 2 // it has all there is itself
	}
	return max(c.poll, ticksPerSecond/1000*int64(len(c.claims)))
}

// newClaim is a claim of p that is made now.
func (c *Coordinator) newClaim(p *replica) *claim {
	c.order++
	return &claim{tag: max(c.virtual, p.tag), order: c.order, units: make([]int64, len(c.dims))}
}

func (k *claim) before(o *claim) bool {
	return k.tag < o.tag || k.tag == o.tag && k.order < o.order
}

// keep keeps what p needs for it, ahead of those that have had more. A replica
// that does not ask again loses its claim.
func (c *Coordinator) keep(p *replica, wait int64) {
	if p.claim == nil || p.claim.units == nil {
		p.claim = c.newClaim(p)
		at, _ := slices.BinarySearchFunc(c.claims, p.claim, func(a, b *claim) int {
			if a.before(b) {
				return -1
			}
			return 1
		})
		c.claims = slices.Insert(c.claims, at, p.claim)
	}
	p.claim.until = c.now + max(2*wait, ticksPerSecond)
	for i := range p.dims {
		p.claim.units[i] = 0
		if need := p.dims[i].need; !c.never(i, need) {
			p.claim.units[i] = c.room(i, need)
		}
	}
}

// unclaim ends the claim of p.
func (c *Coordinator) unclaim(p *replica) {
	if p.claim == nil {
		return
	}
	c.claims = slices.DeleteFunc(c.claims, func(k *claim) bool { return k == p.claim })
	p.claim = nil
}

// extra is what p gets of a dimension beyond its need, out of what nobody claims:
// as much as brings all that want some to the same level of what they have, over
// their weights, as far as they want it.
func (c *Coordinator) extra(p *replica, i int, claimed int64) int64 {
	h := &p.dims[i]
	want, has := h.want-h.need, h.out+h.need
	pool := c.free(i) - h.need - claimed
	if want <= 0 || pool <= 0 {
		return 0
	}
	sum := want
	open := append(c.open[:0], part{float64(has), float64(want), p.weight}) // p is the first
	for _, q := range c.list {
		if o := &q.dims[i]; q != p && !q.lapsed && o.want > 0 {
			open = append(open, part{float64(o.out), float64(o.want), q.weight})
			sum = satAdd(sum, o.want)
		}
	}
	c.open = open
	if sum <= pool {
		return want
	}
	return min(want, whole(fill(open, float64(pool))))
}

// part is what one replica has, wants beside it, and weighs.
type part struct{ has, want, weight float64 }

// fill divides a pool that is less than all want together so that the levels,
// (has + part)/weight, of those that get some but not all are the same, and no
// lower than those of who gets nothing. It returns the part of the first.
func fill(open []part, pool float64) float64 {
	first := open[0]
	for {
		has, weight := 0.0, 0.0
		for _, o := range open {
			has += o.has
			weight += o.weight
		}
		level := (pool + has) / weight
		// Who would be above the level without a part, and who would be full below it,
		// is out of this; but only one kind at a time, the one that is further off.
		below, above := 0.0, 0.0
		for _, o := range open {
			above += max(o.has-level*o.weight, 0)
			below += max(level*o.weight-o.has-o.want, 0)
		}
		if above == 0 && below == 0 {
			return max(level*first.weight-first.has, 0)
		}
		kept := open[:0]
		for k, o := range open {
			switch {
			case above >= below && o.has > level*o.weight:
				if k == 0 {
					return 0
				}
			case above < below && o.has+o.want < level*o.weight:
				if k == 0 {
					return o.want
				}
				pool -= o.want
			default:
				kept = append(kept, o)
			}
		}
		open = kept
	}
}

func satAdd(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// charge counts what p was granted: the dominant part of the whole quota, over
// its weight.
func (c *Coordinator) charge(p *replica, granted []int64) {
	part := 0.0
	for i, n := range granted {
		if b := c.dims[i].books; b.shape != Slots && b.limit > 0 {
			part = max(part, float64(n)/b.limit)
		}
	}
	if part == 0 {
		return
	}
	start := max(c.virtual, p.tag)
	c.virtual = start
	p.tag = start + part/p.weight
}

// scarce tells of which dimensions more is claimed than there is.
func (c *Coordinator) scarce(claimed []int64, scarce []bool) {
	for i, n := range claimed {
		scarce[i] = n > 0 && n > c.free(i)
	}
}

// parts are what a static replica may use of each limit. The parts of all replicas
// never add up to more than 1: who joins waits until all others have heard of it, and
// where a window remembers what they have used, until that is forgotten; and
// the part of one that is gone is shared out when a window has forgotten it.
func (c *Coordinator) parts(p *replica) []float64 {
	list := make([]float64, len(c.dims))
	for i := range list {
		memory := int64(0)
		if c.dims[i].cfg.Shape == Window {
			memory = c.dims[i].books.window + c.dims[i].books.cell
		}
		if !p.placed && c.now < p.joins+memory {
			continue
		}
		n := c.cfg.Replicas
		there := 0
		for _, q := range c.list {
			if !q.lapsed || c.now < q.expires+memory {
				there++
			}
		}
		list[i] = 1 / float64(max(n, there))
	}
	return list
}
