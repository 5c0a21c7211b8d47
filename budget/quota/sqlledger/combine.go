package sqlledger

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// request is what an operation does: it says what it needs, and then does it, which
// cannot fail in the middle. After a conflict both are called again, with another
// book.
type request interface {
	need(b *book)
	do(b *book) error
}

// special requests have a transaction for themselves.
type special interface {
	request
	within(ctx context.Context, tx transaction, now int64) error
}

// op is an operation that waits to be done.
type op struct {
	tree  int64 // 0 for none
	req   request
	until time.Time // nobody waits for it after that

	state     atomic.Int32
	contended bool  // somebody else has its tree locked
	careful   bool  // nothing is to be guessed
	result    error // of the request, until it is known to be so

	done chan struct{}
	err  error // before done is closed
}

// States of an op. Only one of the caller, who gives up, and a batch, which begins, gets
// it out of waiting.
const (
	opWaiting int32 = iota
	opBegun
	opGone
)

func (o *op) finish(err error) {
	o.err = err
	close(o.done)
}

// combiner makes one transaction of all operations that have come while others were
// under way, so that they share what a transaction costs: one wait for the disk, and a
// few round trips. An operation that finds nothing under way begins at once and alone.
//
// Transactions of one process never meet at a tree. Each runs in a goroutine that ends
// when nothing waits any more.
type combiner struct {
	run  func(ops []*op) (again []*op) // and which are to be done in another transaction
	most int                           // transactions at a time

	mu sync.Mutex
	// mu guards:
	queue   []*op
	busy    map[int64]struct{} // trees of transactions under way
	running int
	blocked int // of these, those that wait for a tree that somebody else has locked
	closed  bool
	idle    chan struct{} // closed when nothing runs, after closed
}

// maxBatch is how many operations a transaction has at most, so that none takes long.
const maxBatch = 128

func newCombiner(most int, run func([]*op) []*op) *combiner {
	return &combiner{run: run, most: most, busy: make(map[int64]struct{}), idle: make(chan struct{})}
}

// add has an operation done.
func (c *combiner) add(o *op) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return unavailable(errClosed)
	}
	c.queue = append(c.queue, o)
	if c.begins(len(c.queue)) {
		c.running++
		go c.work()
	}
	return nil
}

// worthwhile is how many operations must wait for each transaction that is under way for
// another one to begin beside them. Fewer are better done together, a little later.
const worthwhile = 16

// begins reports whether another transaction begins when so many operations wait. mu is
// held.
func (c *combiner) begins(waiting int) bool {
	return c.running < c.most && waiting > 0 && waiting >= worthwhile*(c.running-c.blocked)
}

// work makes transactions until nothing is left to be done.
func (c *combiner) work() {
	var batch []*op
	blocked := 0
	for {
		c.mu.Lock()
		c.blocked -= blocked
		for _, o := range batch {
			delete(c.busy, o.tree)
		}
		var more int
		batch, more = c.next(batch[:0])
		if len(batch) == 0 {
			c.running--
			if c.closed && c.running == 0 {
				close(c.idle)
			}
			c.mu.Unlock()
			return
		}
		if blocked = 0; batch[0].contended {
			blocked = 1
		}
		c.blocked += blocked
		if c.begins(more) {
			c.running++
			go c.work()
		}
		c.mu.Unlock()
		again := c.run(batch)
		// Those who were answered may have something else to be done. It is better to have
		// it in the next transaction than in the one after.
		runtime.Gosched()
		if len(again) > 0 {
			c.mu.Lock()
			for _, o := range again {
				o.state.Store(opWaiting)
			}
			c.queue = append(again, c.queue...)
			c.mu.Unlock()
		}
	}
}

// next takes the operations of the next transaction out of the queue. more is how many are
// left that could be done at the same time. mu is held.
//
// Whoever needs a transaction for themselves gets one, and so does a tree that another
// process has locked: nobody else must wait for that.
func (c *combiner) next(batch []*op) (_ []*op, more int) {
	now := time.Now()
	alone := false
	rest := c.queue[:0]
	for _, o := range c.queue {
		if _, busy := c.busy[o.tree]; busy {
			rest = append(rest, o)
			continue
		}
		_, is := o.req.(special)
		fits := len(batch) == 0 || !is && len(batch) < maxBatch && o.careful == batch[0].careful &&
			(!alone && !o.contended || o.contended && batch[0].contended && o.tree == batch[0].tree)
		switch {
		case !fits:
			rest = append(rest, o)
			if !batchHas(batch, o.tree) {
				more++
			}
		case !now.Before(o.until) && o.state.CompareAndSwap(opWaiting, opGone):
			o.finish(unavailable(errNotNow))
		case o.state.CompareAndSwap(opWaiting, opBegun):
			batch = append(batch, o)
			alone = is || o.contended
		}
	}
	clear(c.queue[len(rest):])
	c.queue = rest
	for _, o := range batch {
		if o.tree != 0 {
			c.busy[o.tree] = struct{}{}
		}
	}
	return batch, more
}

func batchHas(batch []*op, tree int64) bool {
	for _, o := range batch {
		if o.tree == tree {
			return tree != 0
		}
	}
	return false
}

// ready returns an error if nothing can be done any more.
func (c *combiner) ready(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return unavailable(errClosed)
	}
	return ctx.Err()
}

// close refuses what comes from now on, and waits for what is under way.
func (c *combiner) close(ctx context.Context) error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		if c.running == 0 {
			close(c.idle)
		}
	}
	c.mu.Unlock()
	select {
	case <-c.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// do has a request done, and returns when it is, when its time is up or ctx ends. Then
// it may still be done, unless the error says otherwise.
func (c *combiner) do(ctx context.Context, limit time.Duration, tree int64, req request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o := &op{tree: tree, req: req, until: time.Now().Add(limit), done: make(chan struct{})}
	if end, ok := ctx.Deadline(); ok && end.Before(o.until) {
		o.until = end
	}
	if err := c.add(o); err != nil {
		return err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var err error
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = unavailable(errTimeout)
	}
	if o.state.CompareAndSwap(opWaiting, opGone) {
		if errors.Is(err, errTimeout) {
			err = unavailable(errNotNow)
		}
		return err
	}
	select {
	case <-o.done: // just now
		return o.err
	default:
		return err
	}
}
