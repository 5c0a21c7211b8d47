package ratelimited

import (
	"context"
	"time"
)

// longLine is the number of waiting calls from which on others get in line
// aside.
const longLine = 1024

// askAside is ask on another goroutine's stack. A goroutine's stack starts with
// 2 kB and never shrinks back to that, and ask needs more; where many wait, it
// is their memory that counts, not the microsecond that this takes.
//
//go:noinline
func (g *Gate) askAside(ctx context.Context, call *Call, maxWait *time.Duration) (place, error) {
	a := &aside{g: g, ctx: ctx, call: *call, maxWait: maxWait, done: make(chan struct{})}
	go a.ask()
	<-a.done
	if a.panicked {
		panic(a.panic)
	}
	return a.place, a.err
}

// aside is one askAside.
type aside struct {
	g        *Gate
	ctx      context.Context
	call     Call
	maxWait  *time.Duration
	done     chan struct{}
	place    place
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
		close(a.done)
	}()
	a.place, a.err = a.g.ask(a.ctx, &a.call, a.maxWait)
	a.panicked = false
}
