package quota

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Bounds of what waits for the ledger.
const (
	// maxLater is how many operations wait. Each is a few hundred bytes.
	maxLater = 1 << 14
	// laterMin and laterMax are how long is waited between tries: twice as long
	// after each one that did nothing.
	laterMin = time.Second
	laterMax = 30 * time.Second
	// laterTries is after how many failures in a row the others wait, too.
	laterTries = 8
	// laterTreeTries is after how many failures in a row those of the same tree wait.
	laterTreeTries = 2
	// laterLongest is how long is tried.
	laterLongest = 24 * time.Hour
	// laterRepeated is how long something is booked again that perhaps was booked
	// already: ledgers know reservations for [DefaultRemember] at least.
	laterRepeated = DefaultRemember - 5*time.Minute
)

// What an operation does to a reservation.
const (
	settleClaim  = iota // settles it
	releaseClaim        // gives it back
	bookClaim           // books what passed without the ledger, as a reservation of its own
)

// operation is something that the ledger is told after the fact: it is true
// already, whatever the ledger says.
type operation struct {
	do       int
	doubtful bool // perhaps there is nothing to be done; it lapses by itself
	tree, id string
	settle   Settle
	entries  []Entry // of bookClaim
	note     Note
	then     func(Settled) // told of the result; may be nil
	since    time.Time     // when it was first tried
	doubted  time.Time     // when it was first tried and perhaps done, if ever
}

// later makes operations, and remembers those that could not be made, so that what
// a call has used is not lost, nor its end kept waiting. Those of one reservation
// are made in order.
type later struct {
	e *Enforcer

	mu sync.Mutex
	// mu guards all that follows.
	waiting []operation
	taken   int            // of those that are being worked on, and are not in waiting
	ids     map[string]int // of waiting operations, by reservation
	timer   *time.Timer    // armed while something waits, unless it is being worked on
	delay   time.Duration
	working bool
	closed  bool
	losses  int64         // that were not logged yet
	logged  time.Time     // when the last ones were
	idle    chan struct{} // closed when working becomes false; nil without waiters
}

func (l *later) init(e *Enforcer) {
	l.e, l.ids, l.delay = e, map[string]int{}, laterMin
}

var (
	errLaterFull   = errors.New("quota: too many operations wait for the ledger")
	errLaterClosed = errors.New("quota: the enforcer is closed, and the ledger cannot be reached")
	errLaterTwice  = fmt.Errorf("%w: it was perhaps booked so long ago that it could be booked twice", ErrUnknownReservation)
)

// booker is a ledger that books what was spent without a reservation, in the windows
// in the middle of [Entry.Spans], and never twice.
type booker interface {
	Book(ctx context.Context, r Reserve, s Settle) (Settled, error)
}

// bookerOf is the ledger, or the first one below it, that is a booker; nil if none is.
func bookerOf(ledger Ledger) booker {
	for {
		if b, ok := ledger.(booker); ok {
			return b
		}
		above, ok := ledger.(interface{ Unwrap() Ledger })
		if !ok {
			return nil
		}
		ledger = above.Unwrap()
	}
}

// do makes an operation now, whether or not ctx has ended, or else later. It
// returns an error only if the operation is lost.
func (l *later) do(ctx context.Context, op operation) error {
	l.mu.Lock()
	first := l.ids[op.id] > 0 // one of the same reservation comes first
	l.mu.Unlock()
	if first {
		return l.add(ctx, op)
	}
	if !l.e.local {
		ctx = context.WithoutCancel(ctx)
	}
	err := l.make(ctx, caller, &op)
	if err == nil {
		return nil
	}
	if !unreachable(err) {
		l.lost(ctx, &op, err)
		return err
	}
	return l.add(ctx, op)
}

// make makes an operation. What the ledger does not know any more needs no release.
func (l *later) make(ctx context.Context, who asker, op *operation) error {
	var result Settled
	var err error
	if !op.doubted.IsZero() && time.Since(op.doubted) > laterRepeated {
		return errLaterTwice
	}
	if l.e.local { // it neither waits nor looks into ctx for anything but its end
		if l.e.reuse && op.do == settleClaim {
			room := l.e.getScratch()
			op.settle.Room = room.room
			defer func() { op.settle.Room = nil; l.e.scratch.Put(room) }()
		}
		result, err = l.tell(context.Background(), op)
		l.e.outage.note(ctx, err)
	} else {
		err = l.e.ask(ctx, who, func(ctx context.Context) (err error) {
			result, err = l.tell(ctx, op)
			return err
		})
	}
	if op.do == bookClaim && err != nil && op.doubted.IsZero() && !notTold(err) && l.e.booker == nil {
		op.doubted = time.Now()
	}
	switch {
	case err == nil && op.then != nil:
		op.then(result)
	case op.do == releaseClaim && errors.Is(err, ErrUnknownReservation):
		return nil
	}
	return err
}

// tell tells the ledger of an operation.
func (l *later) tell(ctx context.Context, op *operation) (Settled, error) {
	ledger := l.e.cfg.Ledger
	switch op.do {
	case releaseClaim:
		return Settled{}, ledger.Release(ctx, op.tree, op.id)
	case bookClaim:
		// Nothing denies it: it is spent. A repeat changes nothing.
		r := Reserve{ID: op.id, Tree: op.tree, Entries: op.entries, TTL: l.e.cfg.TTL, Note: op.note}
		if l.e.booker != nil && !op.settle.Adjust {
			return l.e.booker.Book(ctx, r, op.settle)
		} else if l.e.booker != nil {
			break // it knows what it was told to book
		}
		if _, err := ledger.Reserve(ctx, r); err != nil {
			return Settled{}, err
		}
	}
	return ledger.Settle(ctx, op.settle)
}

// notTold reports whether an operation has not even reached the ledger.
func notTold(err error) bool {
	var failed *net.OpError
	return errors.Is(err, errNotAsked) || errors.As(err, &failed) && failed.Op == "dial"
}

// add has an operation made later.
func (l *later) add(ctx context.Context, op operation) error {
	op.since = time.Now()
	l.mu.Lock()
	waits := len(l.waiting) + l.taken
	if op.doubtful && (l.closed || waits >= maxLater/2) {
		l.mu.Unlock()
		return nil
	}
	if full := waits >= maxLater; full || l.closed && !l.working {
		l.mu.Unlock()
		err := errLaterClosed
		if full {
			err = errLaterFull
		}
		l.lost(ctx, &op, err)
		return err
	}
	l.waiting = append(l.waiting, op)
	l.ids[op.id]++
	n := waits + 1
	if !l.working && !l.closed && l.timer == nil {
		l.timer = time.AfterFunc(l.delay, l.work)
	}
	l.mu.Unlock()
	l.e.queued(n)
	return nil
}

// hurry has what waits be tried at once: the ledger is back.
func (l *later) hurry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = laterMin
	if l.timer != nil {
		l.timer.Reset(0)
	}
}

// lost tells of an operation that cannot be made. It is logged once a minute at most.
func (l *later) lost(ctx context.Context, op *operation, err error) {
	if h := l.e.cfg.Hooks.Lost; h != nil {
		h()
	}
	l.mu.Lock()
	l.losses++
	n, now := l.losses, time.Now()
	if quiet := now.Sub(l.logged) < time.Minute; quiet {
		l.mu.Unlock()
		return
	}
	l.losses, l.logged = 0, now
	l.mu.Unlock()
	l.e.cfg.Logger.ErrorContext(ctx, "quota: the ledger was not told how calls have ended; what they hold lapses by itself",
		slog.Int64("number", n), slog.String("reservation", op.id), slog.Any("error", err))
}

// work makes what waits.
func (l *later) work() {
	l.mu.Lock()
	l.timer = nil
	if l.working || l.closed {
		l.mu.Unlock()
		return
	}
	l.working = true
	l.mu.Unlock()
	progress := l.pass(context.Background())

	l.mu.Lock()
	defer l.mu.Unlock()
	l.working = false
	if l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
	switch {
	case l.closed || len(l.waiting) == 0:
		l.delay = laterMin
		return
	case progress:
		l.delay = laterMin
	default:
		l.delay = min(2*l.delay, laterMax)
	}
	l.timer = time.AfterFunc(l.delay, l.work)
}

// pass tries each operation that waits once, until too many have failed in a row
// or ctx ends. It reports whether any was made. Where a tree has failed twice the rest of
// it waits, and those that were not tried come first in the next pass: what waits for a
// part of the store that is gone delays nothing else.
func (l *later) pass(ctx context.Context) (progress bool) {
	l.mu.Lock()
	todo := l.waiting
	l.waiting, l.taken = nil, len(todo)
	l.mu.Unlock()
	failures := 0
	trees := map[string]int{}   // how often each has failed
	failed := map[string]bool{} // those after it must wait
	var untried, tried []operation
	for i := range todo {
		op := todo[i]
		todo[i] = operation{}
		switch {
		case failed[op.id], trees[op.tree] >= laterTreeTries:
			failed[op.id] = true
			tried = append(tried, op)
			continue
		case failures >= laterTries || ctx.Err() != nil:
			untried = append(untried, op)
			continue
		}
		err := l.make(ctx, aside, &op)
		if err != nil && unreachable(err) && time.Since(op.since) < laterLongest {
			failures++
			trees[op.tree]++
			failed[op.id] = true
			tried = append(tried, op)
			continue
		}
		failures, progress = 0, true
		trees[op.tree] = 0
		if h := l.e.cfg.Hooks.Told; err != nil {
			l.lost(ctx, &op, err)
		} else if h != nil {
			h()
		}
		l.mu.Lock()
		if l.ids[op.id]--; l.ids[op.id] == 0 {
			delete(l.ids, op.id)
		}
		l.taken--
		n := len(l.waiting) + l.taken
		l.mu.Unlock()
		l.e.queued(n)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(append(untried, tried...), l.waiting...)
	l.taken = 0
	return progress
}

// holds reports whether something is still to be done about a reservation.
func (l *later) holds(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ids[id] > 0
}

// close makes what waits, until ctx ends, and returns how much is left. What is
// added afterwards is not made.
func (l *later) close(ctx context.Context) (left int) {
	l.mu.Lock()
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	for l.working {
		if l.idle == nil {
			l.idle = make(chan struct{})
		}
		idle := l.idle
		l.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return l.count()
		}
		l.mu.Lock()
	}
	l.working = true
	l.mu.Unlock()
	for delay := laterMin; l.count() > 0 && ctx.Err() == nil; {
		if l.pass(ctx) {
			delay = laterMin
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
			delay = min(2*delay, laterMax)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.working = false
	if l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
	return len(l.waiting)
}

func (l *later) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) + l.taken
}

// settleClaims tells the ledger what the holders of claims have used. seq is above
// 0 for a correction. An error means that something is lost.
func (e *Enforcer) settleClaims(ctx context.Context, claims []claim, actual Amounts, seq int64, note Note, then func(Settled)) error {
	var errs []error
	for i := range claims {
		c := &claims[i]
		op := operation{
			do: settleClaim, tree: c.tree, id: c.id, note: note, then: then,
			settle: Settle{ID: c.id, Tree: c.tree, Actual: actual, Adjust: seq > 0, Seq: seq},
		}
		switch c.state {
		case claimHeld:
		case claimOpen:
			// Nobody knows what became of the reservation, so this is another one.
			op.do, op.id = bookClaim, c.id+".o"
			op.settle.ID = op.id
			for i := range c.entries {
				if e := &c.entries[i]; e.Kind == Hold && !e.Rolling {
					op.entries = append(op.entries, e.spent(actual[e.Unit]))
				}
			}
			if len(op.entries) == 0 {
				continue
			}
		default:
			continue
		}
		errs = append(errs, e.later.do(ctx, op))
	}
	return errors.Join(errs...)
}

// spent is an entry that books what was spent, in the window in which it was taken,
// however late the ledger is told. Rolling entries have none: a rate is about how much
// passes now, and not about the past.
func (e *Entry) spent(amount int64) Entry {
	s := *e
	s.Kind, s.Amount, s.Observe, s.Spans = Hold, amount, true, [3]Span{1: e.Spans[1]}
	return s
}

// releaseClaims gives back what claims hold.
func (e *Enforcer) releaseClaims(ctx context.Context, claims []claim) error {
	var errs []error
	for i := range claims {
		if c := &claims[i]; c.state == claimHeld {
			errs = append(errs, e.later.do(ctx, operation{do: releaseClaim, tree: c.tree, id: c.id}))
		}
	}
	return errors.Join(errs...)
}
