package ratelimited

import "context"

// longLine is the number of waiting calls from which on others get in line
// aside.
const longLine = 128

// askAside begins to ask on another goroutine's stack. A goroutine's stack starts
// with 2 kB and never shrinks back to that, and ask needs more; where many wait,
// it is their memory that counts, not the microsecond that this takes.
//
//go:noinline
func (g *Gate) askAside(ctx context.Context, call *Call) *aside {
	a := g.pools.asides.Get().(*aside)
	a.g, a.ctx, a.call = g, ctx, *call
	go a.ask()
	return a
}

// aside is one askAside; when it is done, answer tells the rest. They are used again, for what is allocated may need
// more stack than there is, too.
type aside struct {
	done     chan struct{} // has room for one
	g        *Gate
	ctx      context.Context
	call     Call
	place    place
	ready    <-chan struct{}
	err      error
	panicked bool
	panic    any
}

func (a *aside) ask() {
	a.panicked = true
	defer func() {
		if a.panicked { // in a function of the caller's: it is the caller's to meet
			a.panic = recover()
		}
		a.done <- struct{}{}
	}()
	a.ready, a.err = a.g.ask(a.ctx, &a.call, &a.place)
	a.panicked = false
}

// answer hands over what became of the call.
//
//go:noinline
func (a *aside) answer(p *place) (ready <-chan struct{}, err error) {
	*p = a.place
	ready, err = a.ready, a.err
	panicked, value := a.panicked, a.panic
	g := a.g
	*a = aside{done: a.done}
	g.pools.asides.Put(a)
	if panicked {
		panic(value)
	}
	return ready, err
}
