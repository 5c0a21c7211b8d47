package quota

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// kept is something that holds claims and is at work: a turn, or a call.
type kept struct {
	claims []claim
	ctx    context.Context // when it ends, nothing is renewed any more
	began  time.Time
	expire func() // called when it has become too old; may be nil

	// The keeper's lock guards all that follows.
	prev, next *kept
	in         bool
	ended      bool            // it is settled, but the ledger has still to be told
	lapsed     map[string]bool // ids that are not held any more
}

// keeper renews what turns and calls hold, and ends turns that are too old. Its
// timer is armed only while there are any.
type keeper struct {
	e *Enforcer

	mu sync.Mutex
	// mu guards all that follows.
	first, last *kept // in the order in which they began
	timer       *time.Timer
	renewAt     time.Time
	closed      bool
	ticks       sync.WaitGroup
}

// renewBatch is how many ids are renewed in one operation.
const renewBatch = 256

func (p *keeper) init(e *Enforcer) { p.e = e }

// every is how long lies between two renewals: a third of the TTL, so that two may
// fail.
func (p *keeper) every() time.Duration { return p.e.cfg.TTL / 3 }

// add begins to keep k.
func (p *keeper) add(k *kept) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	k.prev, k.in = p.last, true
	if p.last == nil {
		p.first = k
		if p.timer == nil {
			p.renewAt = k.began.Add(p.every())
		}
	} else {
		p.last.next = k
	}
	p.last = k
	p.arm()
}

// arm sets the timer for whatever comes first. mu is held.
func (p *keeper) arm() {
	if p.first == nil || p.timer != nil {
		return
	}
	at := p.renewAt
	if old := p.first.began.Add(p.e.cfg.MaxTurn); old.Before(at) {
		at = old
	}
	p.timer = time.AfterFunc(time.Until(at), p.tick)
}

// remove ends keeping k. What the ledger has still to be told of is kept until it
// was.
func (p *keeper) remove(k *kept) {
	waits := false
	for i := range k.claims {
		waits = waits || k.claims[i].state == claimHeld && p.e.later.holds(k.claims[i].id)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.ended = true; !waits {
		p.unlink(k)
	}
}

// unlink takes k out. mu is held.
func (p *keeper) unlink(k *kept) {
	if !k.in {
		return
	}
	if k.prev == nil {
		p.first = k.next
	} else {
		k.prev.next = k.next
	}
	if k.next == nil {
		p.last = k.prev
	} else {
		k.next.prev = k.prev
	}
	k.prev, k.next, k.in = nil, nil, false
}

// holder is a claim that is renewed, and whose it is.
type holder struct {
	id string
	k  *kept
}

// tick does what is due.
func (p *keeper) tick() {
	p.mu.Lock()
	p.timer = nil
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.ticks.Add(1)
	defer p.ticks.Done()
	now := time.Now()
	var old []*kept
	for p.first != nil && now.Sub(p.first.began) >= p.e.cfg.MaxTurn {
		old = append(old, p.first)
		p.unlink(p.first)
	}
	trees := map[string][]holder{}
	if due := !now.Before(p.renewAt); due {
		p.renewAt = now.Add(p.every())
		p.collect(trees)
	}
	p.arm()
	p.mu.Unlock()
	for _, k := range old {
		if k.expire != nil {
			k.expire()
		}
	}
	if !p.renew(trees) {
		p.mu.Lock()
		p.renewAt = now.Add(p.every() / 4)
		if p.timer != nil && p.timer.Stop() {
			p.timer = nil
			p.arm()
		}
		p.mu.Unlock()
	}
}

// collect finds what is to be renewed. mu is held.
func (p *keeper) collect(trees map[string][]holder) {
	for k := p.first; k != nil; {
		next := k.next
		over := !k.ended && k.ctx.Err() != nil
		waits := false
		for i := range k.claims {
			c := &k.claims[i]
			if c.state != claimHeld || k.lapsed[c.id] {
				continue
			}
			if k.ended && !p.e.later.holds(c.id) {
				continue
			}
			waits = true
			if !over {
				trees[c.tree] = append(trees[c.tree], holder{c.id, k})
			}
		}
		if over && k.expire == nil || k.ended && !waits {
			p.unlink(k)
		}
		k = next
	}
}

// renew renews what was found; it is false if some of it could not be.
func (p *keeper) renew(trees map[string][]holder) bool {
	ok, lapsed := true, 0
	for tree, all := range trees {
		for len(all) > 0 {
			batch := all[:min(len(all), renewBatch)]
			all = all[len(batch):]
			ids := make([]string, len(batch))
			for i := range batch {
				ids[i] = batch[i].id
			}
			var lost []string
			err := p.e.ask(context.Background(), aside, func(ctx context.Context) (err error) {
				lost, err = p.e.cfg.Ledger.Renew(ctx, tree, p.e.cfg.TTL, ids...)
				return err
			})
			if err != nil {
				ok = false
				break // the others of the tree will not do better
			}
			lapsed += p.note(batch, lost)
		}
	}
	if lapsed > 0 {
		p.e.cfg.Logger.Warn("quota: leases or holds had lapsed in the ledger while they were in use",
			slog.Int("number", lapsed))
		if h := p.e.cfg.Hooks.Lapsed; h != nil {
			h(lapsed)
		}
	}
	return ok
}

// note remembers which ids are not held any more, and returns how many of them
// should be.
func (p *keeper) note(batch []holder, lost []string) (lapsed int) {
	if len(lost) == 0 {
		return 0
	}
	gone := make(map[string]bool, len(lost))
	for _, id := range lost {
		gone[id] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range batch {
		if !gone[h.id] || !h.k.in || h.k.ended { // it has ended meanwhile
			continue
		}
		if h.k.lapsed == nil {
			h.k.lapsed = map[string]bool{}
		}
		h.k.lapsed[h.id] = true
		lapsed++
	}
	return lapsed
}

// close ends the timer, and waits until what it does is done.
func (p *keeper) close() {
	p.mu.Lock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	p.mu.Unlock()
	p.ticks.Wait()
}
