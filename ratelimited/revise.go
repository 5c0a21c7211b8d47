package ratelimited

import (
	"github.com/headgate-go/headgate/internal/gate"
	"github.com/headgate-go/headgate/usage"
)

// When what was learned about a party changes, the estimates of its calls that
// have not ended change with it: of those in line, so that a burst does not go on
// at the rate of a wrong guess, and of those in flight, which will not use what
// was guessed either.

const (
	// reviseAt is how far a factor must have moved since the last revision.
	reviseAt = 1.1
	// revisePace is how many calls are revised at most for each call that was
	// learned from, in the long run: so the work for a call stays bounded however
	// many wait and however much its factors waver.
	revisePace = 64
)

// revisable is a model call whose estimate may be revised. Its party's mu guards
// it, but for the id, which the gate's mu guards.
type revisable struct {
	next, prev *revisable // in the party's list; nil outside
	id         gate.ID    // zero until the call has its place
	life       uint32     // how often it was listed or limited: a revision under way is void then
	raw        estimate
	most       int64       // limit of its output; 0 is none
	held       usage.Usage // the corrected estimate that the gate holds or will take
}

// revisions are the calls of a party that may be revised. The party's mu guards
// them.
type revisions struct {
	list    revisable // the head of a ring
	n       int
	at      [2]float64 // the factors of input and output at the last revision; 0 before
	learned int        // calls that were learned from since
	busy    bool       // one is under way
}

// enlist corrects the raw estimate of a call by what was learned, and goes on
// doing so until the call is withdrawn.
func (p *party) enlist(r *revisable, raw usage.Usage, most int64) usage.Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.raw, r.most, r.held, r.id = estimateOf(raw), most, p.estimate(raw, most), gate.ID{}
	r.life++
	head := &p.calls.list
	if head.next == nil {
		head.next, head.prev = head, head
	}
	r.next, r.prev = head, head.prev
	r.prev.next, head.prev = r, r
	p.calls.n++
	return r.held
}

// limit limits the output of a call, and returns the estimate that is held then.
func (p *party) limit(r *revisable, most int64) usage.Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.most = most
	r.life++
	r.raw.output = min(r.raw.output, most)
	r.held = p.estimate(r.raw.over(r.held), most)
	return r.held
}

// holds is the estimate that is held for a call.
func (p *party) holds(r *revisable) usage.Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return r.held
}

// withdraw takes a call off the list, and returns the estimate that is held for
// it, which stays as it is now.
func (p *party) withdraw(r *revisable) usage.Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.next != nil {
		r.prev.next, r.next.prev = r.next, r.prev
		r.next, r.prev = nil, nil
		p.calls.n--
	}
	return r.held
}

// due notes that a call was learned from, and tells whether the calls of the
// party should be revised now. mu is held.
func (p *party) due() bool {
	c := &p.calls
	c.learned = min(c.learned+1, 1<<30)
	at := p.factors()
	if !moved(at[0], c.at[0]) && !moved(at[1], c.at[1]) {
		return false
	}
	if c.busy || c.at[0] > 0 && c.learned*revisePace < c.n {
		return false
	}
	c.at, c.learned = at, 0
	c.busy = c.n > 0
	return c.busy
}

func moved(factor, from float64) bool {
	if from == 0 {
		from = 1
	}
	return factor > from*reviseAt || factor*reviseAt < from
}

// revision is a call on its way through revise.
type revision struct {
	call *revisable
	life uint32
	raw  estimate
	most int64
	held usage.Usage
}

// revise gives the calls of a party new estimates, in the gate's limits too. The
// functions of the profile may panic: nothing has changed then.
func (g *Gate) revise(p *party) {
	defer func() {
		p.mu.Lock()
		p.calls.busy = false
		p.mu.Unlock()
	}()
	p.mu.Lock()
	list := make([]revision, 0, p.calls.n)
	for r := p.calls.list.next; r != &p.calls.list; r = r.next {
		list = append(list, revision{r, r.life, r.raw, r.most, r.held})
	}
	p.mu.Unlock()

	n := len(g.owner)
	all := make([]int64, 2*n*len(list))
	learned, raw := all[:n*len(list)], all[n*len(list):]
	for i := range list {
		r := &list[i]
		before := r.raw.over(r.held)
		r.held = p.estimate(before, r.most)
		g.admissionCosts(learned[i*n:(i+1)*n], &r.held)
		g.admissionCosts(raw[i*n:(i+1)*n], &before)
		g.keepLimit(learned[i*n:(i+1)*n], r.held, r.most, false)
		g.keepLimit(raw[i*n:(i+1)*n], before, r.most, false)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	g.lock()
	defer g.unlock()
	now := g.now()
	for i := range list {
		r := &list[i]
		if r.call.life != r.life || r.call.next == nil {
			continue
		}
		costs := learned[i*n : (i+1)*n]
		g.admissible(costs, raw[i*n:(i+1)*n])
		if g.core.Revise(now, r.call.id, costs) {
			r.call.held = r.held
		}
	}
	g.poll(now)
}
