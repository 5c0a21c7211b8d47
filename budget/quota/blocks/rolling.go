package blocks

import (
	"slices"

	"github.com/headgate-go/headgate/budget/quota"
)

// roll is what has become of a block of a rolling counter. What is given back of it
// pays for what was taken from the bucket when the block was leased, and for nothing
// later: some of that may have refilled since, and flowed over. So a call takes from
// certain blocks and gives back to them, and a block is settled when all that have
// taken from it have ended. What they give back is not given out here again.
//
//	size = fresh + held + spent + what was given back
type roll struct {
	fresh, held, spent int64
	moved              *block // that has what was held, when it was leased anew
}

// part is what an entry has taken from a block.
type part struct {
	b *block
	n int64
}

// where is the block in which a part is by now.
func (x *part) where() *block {
	for x.b.moved != nil {
		x.b = x.b.moved
	}
	return x.b
}

// freeRolling is free of a rolling counter.
func (p *pool) freeRolling(now int64) int64 {
	free := p.fresh
	if now >= p.dies {
		free = 0
		for _, b := range p.blocks {
			if b.alive(now) {
				free += b.fresh
			}
		}
	}
	return max(free-p.over, -1<<62)
}

// takeRolling takes what an entry asks for, which is free, from the oldest blocks that
// have it.
func (p *pool) takeRolling(h *held, now int64) {
	lacks := h.amount
	for _, b := range p.blocks {
		n := min(b.fresh, lacks)
		if n == 0 || !b.alive(now) {
			continue
		}
		b.fresh -= n
		if h.kind == quota.Count {
			b.spent += n
		} else {
			b.held += n
		}
		h.parts = append(h.parts, part{b, n})
		if lacks -= n; lacks == 0 {
			break
		}
	}
	p.fresh -= h.amount
	if h.kind == quota.Count {
		p.spent = sum(p.spent, h.amount)
	} else {
		p.held = sum(p.held, h.amount)
	}
}

// release gives back what an entry holds of its blocks.
func (h *held) release() {
	for i := range h.parts {
		if b := h.parts[i].where(); !b.out {
			b.held -= h.parts[i].n
		}
	}
}

// consume replaces what an entry holds of its blocks by what was used; the rest is
// given back.
func (p *pool) consume(h *held, used int64) {
	p.spent = sum(p.spent, used)
	for i := range h.parts {
		b, n := h.parts[i].where(), h.parts[i].n
		if b.out { // it lapsed: what was used was given back, and is taken now
			continue
		}
		b.held -= n
		n = min(n, used)
		b.spent += n
		used -= n
	}
	p.owe(used)
}

// refund takes back what was spent of an entry's blocks, as far as they are not
// settled. What is counts as used.
func (p *pool) refund(h *held, n int64) {
	for i := range h.parts {
		b := h.parts[i].where()
		if b.out {
			continue
		}
		less := min(n, b.spent, h.parts[i].n)
		b.spent -= less
		p.spent -= less
		n -= less
	}
}

// owe notes that so much was spent above what is held. It is taken from what is free,
// or else becomes a debt when it is settled.
func (p *pool) owe(n int64) {
	for _, b := range slices.Backward(p.blocks) {
		x := min(n, b.fresh)
		b.fresh -= x
		b.spent += x
		p.fresh -= x
		n -= x
	}
	p.over = sum(p.over, n)
}

// leaseRolling adds what a new block has.
func (p *pool) leaseRolling(b *block, a *ask, now int64) {
	switch {
	case a.instead != nil && p.move(a.instead, b, now):
		return
	case a.forced && a.instead == nil: // for the debt, whatever its size
		b.spent, p.over = p.over, 0
		return
	}
	b.fresh = b.size
	p.fresh = sum(p.fresh, b.size)
	debt := p.over
	p.over = 0
	p.owe(debt)
}

// move has a block take over what is held of an older one, which ends. It is false if
// that is more than there is room for by now.
func (p *pool) move(from, to *block, now int64) bool {
	if from.out || from.held > to.size {
		return false
	}
	to.held = from.held
	to.fresh = min(from.fresh, to.size-to.held)
	p.fresh += to.fresh
	from.moved = to
	p.end(from, from.spent, now)
	return true
}

// nextRolling is next of a rolling counter.
func (p *pool) nextRolling(x extent, now int64) deed {
	for _, b := range p.blocks {
		if b.fresh|b.held == 0 {
			return deed{do: settleBlock, p: p, b: b, amount: b.spent}
		}
	}
	if p.over > 0 {
		return deed{do: coverSpent, p: p}
	}
	keep, swap := p.keep(x, now)
	swap = swap && !p.stuck
	for _, b := range slices.Backward(p.blocks) {
		unused := min(p.fresh-keep, b.fresh)
		switch {
		case unused <= 0:
		case b.held == 0 && unused == b.fresh:
			return deed{do: settleBlock, p: p, b: b, amount: b.spent}
		case swap:
			return deed{do: swapBlock, p: p, b: b, keep: b.held + b.fresh - unused}
		}
	}
	// A call that takes long must not keep what others have given back.
	cfg := &p.c.t.l.cfg
	for _, b := range p.blocks {
		old := now-p.tookAt >= int64(cfg.Idle) || now-b.leased >= int64(cfg.TTL)
		if (x != onlyDue || old && now >= p.swapAt) && b.fresh == 0 && b.held < b.size && !p.stuck {
			return deed{do: swapBlock, p: p, b: b, keep: b.held}
		}
	}
	return deed{}
}
