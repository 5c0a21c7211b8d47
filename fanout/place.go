package fanout

import "sync"

// place is a branch's place in a shared width, and all around it. The branch
// lends it while it waits: any number of its goroutines may be waiting at a time,
// and the place is away from the first that starts to wait until the last has
// ended. All methods do nothing on nil, the place of code that is in no branch.
type place struct {
	shared *shared

	mu      sync.Mutex
	waiting int  // goroutines of the branch that wait in a nested fan-out; guarded by mu
	held    bool // the place is the branch's; guarded by mu
	taking  bool // one of its goroutines is taking it again; guarded by mu
	left    bool // the branch has returned; guarded by mu
	taken   sync.Cond
}

// newPlace is a place in s that the branch has entered.
func newPlace(s *shared) *place {
	p := &place{shared: s, held: true}
	p.taken.L = &p.mu
	return p
}

// lend gives the place away while the branch waits; restore ends it.
func (p *place) lend() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting++
	p.give()
}

// restore returns when the branch has its place again, or when it needs none
// because another of its goroutines still waits or it has returned.
func (p *place) restore() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting--
	for p.waiting == 0 && !p.held && !p.left {
		if p.taking {
			p.taken.Wait()
			continue
		}
		p.taking = true
		p.mu.Unlock()
		p.shared.reenter()
		p.mu.Lock()
		p.taking, p.held = false, true
		if p.waiting > 0 || p.left { // it has come too late to be of use
			p.give()
		}
		p.taken.Broadcast()
	}
}

// leave gives the place back when the branch's function has returned.
func (p *place) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = true
	p.give()
	p.taken.Broadcast()
}

// give gives the place back if it is held. The caller holds mu.
func (p *place) give() {
	if p.held {
		p.held = false
		p.shared.exit()
	}
}
