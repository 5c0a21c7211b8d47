package sqlledger

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// How often something is tried again, and after which pause.
const (
	firstPause   = time.Millisecond
	longestPause = 20 * time.Millisecond
	reconnects   = 3
)

// run does operations in one transaction, again while others are in their way, and
// answers them. It returns those that need another one: somebody else has locked their tree,
// or something was guessed that must be looked up.
func (l *Ledger) run(ops []*op) (again []*op) {
	ops = slices.Clone(ops) // the caller's stay as they are
	pause, lost := firstPause, 0
	careful := false
	for {
		ops = stillWanted(ops)
		if len(ops) == 0 {
			return nil
		}
		ctx, cancel := context.WithDeadline(context.Background(), latest(ops))
		begun := time.Now()
		done, again, err := l.quick(ctx, ops, careful)
		if err == nil && !done {
			done, again, err = l.try(ctx, ops, careful)
		}
		ended := ctx.Err() != nil
		cancel()
		switch {
		case err == nil && done:
			l.metric.done(begun, ops, len(ops)-len(again))
			return again
		case err == nil: // what has expired is ended now, or a part of it
			continue
		}
		l.metric.failed(err)
		var unsure *unsureError
		switch kind := failureOf(err); {
		case errors.As(err, &unsure), kind == disconnected && lost == reconnects, ended:
		case kind == stale:
			continue // and read what others have written
		case kind == duplicate && !careful:
			careful = true
			continue
		case kind == disconnected:
			lost++
			continue // the next connection is another one
		case kind == contended:
			time.Sleep(pause/2 + rand.N(pause/2))
			pause = min(2*pause, longestPause)
			continue
		case len(ops) > 1:
			// One of them may be why. The others have nothing to do with it.
			for i := range ops {
				l.run(ops[i : i+1])
			}
			return nil
		}
		answer(ops, unavailable(err))
		return nil
	}
}

// stillWanted answers the operations for which nobody waits any more, and returns the
// others.
func stillWanted(ops []*op) []*op {
	now := time.Now()
	return slices.DeleteFunc(ops, func(o *op) bool {
		if now.Before(o.until) {
			return false
		}
		o.finish(unavailable(errTimeout))
		return true
	})
}

func latest(ops []*op) time.Time {
	last := ops[0].until
	for _, o := range ops[1:] {
		if o.until.After(last) {
			last = o.until
		}
	}
	return last
}

func answer(ops []*op, err error) {
	for _, o := range ops {
		o.finish(err)
	}
}

// unsureError is the error of a transaction that may have been committed all the same.
type unsureError struct{ err error }

func (e *unsureError) Error() string { return "it is not known whether it was done: " + e.err.Error() }
func (e *unsureError) Unwrap() error { return e.err }

// quick does operations without reading anything, and writes what comes of them in one
// statement. done is false if they need more than that; then nothing has happened.
func (l *Ledger) quick(ctx context.Context, ops []*op, careful bool) (done bool, again []*op, err error) {
	clock, ok := l.store.guess()
	if !ok || careful {
		return false, nil, nil
	}
	for _, o := range ops {
		if _, is := o.req.(special); is || o.careful || o.contended || o.tree == 0 {
			return false, nil, nil
		}
	}
	trees := treesOf(ops)
	pages := make([]*page, len(trees))
	now := clock + l.offset.Load() // of tests
	for i, tree := range trees {
		pages[i] = l.cache.take(tree)
		ok = ok && pages[i].loaded && pages[i].due > now
	}
	b := newBook(clock, now, pages)
	if ok {
		for _, o := range ops {
			o.req.need(b)
		}
		ok = !b.mustRead() && !b.missing
	}
	if !ok {
		b.unwant()
		l.cache.put(pages)
		return false, nil, nil
	}
	for _, o := range ops {
		o.result = o.req.do(b)
	}
	if !b.changed() { // what was read must be looked at for that
		l.cache.put(pages)
		return false, nil, nil
	}
	if err := l.store.saveAtOnce(ctx, b, b.changes(nil)); err != nil {
		if failureOf(err) == stale {
			l.cache.stale(pages)
		}
		return false, nil, err
	}
	l.remember(b, nil)
	for _, o := range ops {
		if r, ok := o.req.(*reserving); ok && r.doubtful() {
			o.careful, r.careful = true, true
			again = append(again, o)
			continue
		}
		o.finish(o.result)
	}
	return true, again, nil
}

// remember has the pages remembered, which are what is in the database now.
func (l *Ledger) remember(b *book, fresh []*counter) {
	b.written(fresh)
	b.forget()
	l.cache.put(b.pages)
}

// try makes one transaction. done is false if something else had to be done first. Then,
// and if there is an error, nobody was answered.
func (l *Ledger) try(ctx context.Context, ops []*op, careful bool) (done bool, again []*op, err error) {
	tx, err := l.store.begin(ctx)
	if err != nil {
		return false, nil, err
	}
	defer tx.rollback() // after a commit it does nothing
	trees := treesOf(ops)
	locked, now, err := tx.lock(ctx, trees)
	if err != nil {
		return false, nil, err
	}
	ours := make([]*op, 0, len(ops))
	for _, o := range ops {
		if i, ok := slices.BinarySearch(trees, o.tree); ok && !locked[i] {
			o.contended = true
			again = append(again, o)
			continue
		}
		ours = append(ours, o)
	}
	if len(ours) == 0 {
		return true, again, nil
	}
	// From here on the pages are with this transaction. If it fails they are forgotten.
	pages := make([]*page, 0, len(trees))
	for i, tree := range trees {
		if locked[i] {
			p := l.cache.take(tree)
			if !tx.fresh(p) {
				p = newPage(tree)
			}
			pages = append(pages, p)
		}
	}
	clock := now
	now += l.offset.Load() // of tests
	if s, ok := ours[0].req.(special); ok {
		err = l.special(ctx, tx, now, s, trees)
	} else {
		for _, o := range ours {
			if r, ok := o.req.(*reserving); ok {
				r.careful = r.careful || careful
			}
		}
		done, err = l.ordinary(ctx, tx, newBook(clock, now, pages), ours)
		if err == nil && !done {
			return false, nil, nil
		}
	}
	if err != nil {
		if failureOf(err) == stale {
			l.cache.stale(pages)
		}
		return false, nil, err
	}
	for _, o := range ours {
		o.finish(o.result)
	}
	return true, again, nil
}

// treesOf are the trees of operations, rising, each once.
func treesOf(ops []*op) []int64 {
	trees := make([]int64, 0, len(ops))
	for _, o := range ops {
		if o.tree != 0 {
			trees = append(trees, o.tree)
		}
	}
	slices.Sort(trees)
	return slices.Compact(trees)
}

// special does what needs a transaction for itself. It changes things that are not on pages.
//
// The trees are touched first: whoever writes without having locked them comes to their rows
// first, too, and does not wait for this transaction while it waits for them.
func (l *Ledger) special(ctx context.Context, tx transaction, now int64, s special, trees []int64) error {
	for _, tree := range trees {
		if err := tx.touch(ctx, tree); err != nil {
			return err
		}
	}
	if err := s.within(ctx, tx, now); err != nil {
		return err
	}
	return commit(ctx, tx)
}

// ordinary does operations on a book. done is false if nothing but what has expired was
// dealt with.
func (l *Ledger) ordinary(ctx context.Context, tx transaction, b *book, ops []*op) (done bool, err error) {
	for _, o := range ops {
		o.req.need(b)
	}
	if b.mustRead() {
		if err := tx.load(ctx, b); err != nil {
			return false, err
		}
		b.resolve()
	}
	expired := b.expire()
	defer func() {
		if err == nil {
			l.metric.expired(expired)
		}
	}()
	if expired >= maxDue { // there may be more
		for _, p := range b.due {
			p.due = math.MinInt64
		}
		return false, l.write(ctx, tx, b)
	}
	for _, o := range ops {
		o.result = o.req.do(b)
	}
	doubts := false
	for _, o := range ops {
		if r, ok := o.req.(*reserving); ok && r.doubtful() {
			b.want.refs = append(b.want.refs, refOn{r.page, r.self})
			doubts = true
		}
	}
	if doubts {
		if err := tx.load(ctx, b); err != nil {
			return false, err
		}
		b.resolve()
		for _, o := range ops {
			if r, ok := o.req.(*reserving); ok {
				r.known()
			}
		}
	}
	return true, l.write(ctx, tx, b)
}

// write writes what has changed, and makes it durable. Then the pages are what is in the
// database, and are remembered.
func (l *Ledger) write(ctx context.Context, tx transaction, b *book) error {
	var fresh []*counter
	if b.changed() {
		fresh = b.fresh()
		if err := l.save(ctx, tx, b, fresh); err != nil {
			return err
		}
	} else if err := tx.check(ctx, b); err != nil {
		return err
	}
	l.remember(b, fresh)
	return nil
}

func (l *Ledger) save(ctx context.Context, tx transaction, b *book, fresh []*counter) error {
	if len(fresh) > 0 {
		ids, err := tx.counterIDs(ctx, len(fresh))
		if err != nil {
			return err
		}
		for i, c := range fresh {
			c.id = ids[i]
		}
	}
	if len(b.calls) > 0 {
		ids, err := tx.callIDs(ctx, len(b.calls))
		if err != nil {
			return err
		}
		for i := range b.calls {
			b.calls[i].record.call = ids[i]
		}
	}
	if err := tx.save(ctx, b, b.changes(fresh)); err != nil {
		return err
	}
	return commit(ctx, tx)
}

// commit commits. An error that is no answer of the database says that nobody knows what
// has happened.
func commit(ctx context.Context, tx transaction) error {
	err := tx.commit(ctx)
	if err != nil && !answered(err) {
		return &unsureError{err}
	}
	return err
}
