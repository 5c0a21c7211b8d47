package journal

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/headgate-go/headgate/budget/internal/unset"
	"github.com/headgate-go/headgate/budget/quota"
)

// Ledger is a [quota.Ledger] with a journal before it. Only Reserve and Settle know of
// it: all else passes.
//
// A Settle returns when the ledger has answered. If it has not, the error is that of the
// ledger, and the settlement is in the journal: the caller may tell it again, as an
// Enforcer does, and if nobody does the Ledger will. If the ledger does not know the
// reservation any more, what it was settled to is booked anew, and its result is flagged
// Late. A settlement of nothing but rolling counters is not recorded.
//
// What an open reservation has taken is kept in memory, until it is settled or released or
// the ledger has forgotten it.
//
// TopUp and Reset are not recorded: a store that has lost them has to be told by
// whoever has asked for them. A threshold that is crossed when the ledger is told again is
// told to nobody; one that is crossed by what is booked anew then, to whoever settles next.
type Ledger struct {
	ledger quota.Ledger
	j      *Journal
	open   reservations
	seed   maphash.Seed

	mu sync.Mutex
	// mu guards pending: the last settlement of each reservation that is not answered.
	pending map[key]*pending

	replaying sync.Mutex // one Replay at a time
	retry     retry
}

var _ quota.Ledger = (*Ledger)(nil)

// New puts a journal before a ledger. A journal is of one ledger: what earlier processes
// have left unanswered in it is told to this one, at once and in the background; see
// [Ledger.Recover]. It is an error if one of them is nil, or a nil pointer.
func New(ledger quota.Ledger, j *Journal) (*Ledger, error) {
	var errs []error
	if unset.Is(ledger) {
		errs = append(errs, errors.New("journal: ledger is nil, must be set"))
	}
	if j == nil {
		errs = append(errs, errors.New("journal: j is nil, must be set"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	l := &Ledger{ledger: ledger, j: j, seed: maphash.MakeSeed(), pending: map[key]*pending{}}
	l.open.init(&j.cfg)
	l.retry.init(l)
	return l, nil
}

// Reserve implements [quota.Ledger]. If something was counted for good, it is recorded
// when the ledger has granted it, and durable when Reserve returns.
func (l *Ledger) Reserve(ctx context.Context, r quota.Reserve) (quota.Reserved, error) {
	taken := time.Now()
	res, err := l.ledger.Reserve(ctx, r)
	if err != nil || res.Denied >= 0 || res.Held {
		return res, err
	}
	x, holds, counts := newReservation(&r, &res, taken)
	if holds {
		l.open.put(key{r.Tree, r.ID}, x)
	}
	if counts {
		of := known{taken: x.taken, note: r.Note, entries: x.entries}
		body := appendBody(nil, &quota.Settle{Tree: r.Tree, ID: r.ID}, &of)
		if _, c, err := l.j.append(countKind, body, nil); err == nil {
			_ = l.j.await(ctx, c) // it is taken, whatever becomes of the record
		}
	}
	return res, nil
}

// Settle implements [quota.Ledger]. It is recorded, and durable, before the ledger is
// told.
func (l *Ledger) Settle(ctx context.Context, s quota.Settle) (quota.Settled, error) {
	if err := s.Validate(); err != nil {
		return quota.Settled{}, err
	}
	if err := ctx.Err(); err != nil {
		return quota.Settled{}, err
	}
	return l.settle(ctx, key{s.Tree, s.ID}, &s)
}

func (l *Ledger) settle(ctx context.Context, k key, s *quota.Settle) (quota.Settled, error) {
	x := l.open.get(k)
	of := l.open.settles(x)
	of.again = of.again || s.Writer != "" // by the caller's number, which is not recorded
	p, err := l.record(ctx, k, x, &of, s)
	if err != nil {
		return quota.Settled{}, err
	}
	told := *s
	at := time.Now()
	if p != nil {
		at = p.at
		if l.j.cfg.Watermarks && l.j.cfg.ago(at, time.Now()) > l.j.cfg.safely() {
			l.retry.arm(0)
			return quota.Settled{}, fmt.Errorf("journal: %w: what is long ago is told in order", quota.ErrUnavailable)
		}
		l.j.sign(&told, p.n, at)
	}
	res, err := l.tell(ctx, &told, at)
	outcome := Unanswered
	switch {
	case errors.Is(err, quota.ErrUnknownReservation):
		numbered := p != nil && !p.again
		res, outcome, err = l.anew(ctx, x, &of, numbered, &told, err)
	case err == nil:
		outcome = Answered
		if res.Repeated && x != nil && told.Writer == "" && released(&res, decodeEntries(of.entries)) {
			outcome = Void
		}
	}
	if outcome == Unanswered {
		l.retry.later(p)
		return res, err
	}
	l.open.drop(k)
	l.answered(p, outcome)
	return res, err
}

// record writes a settlement. p is nil if there is nothing to be recorded. The error is
// that of ctx: what could not be written goes on without, and is counted.
func (l *Ledger) record(ctx context.Context, k key, x *reservation, of *known, s *quota.Settle) (p *pending, err error) {
	if x != nil && !x.holds && !x.unmade && !slices.ContainsFunc(s.More, func(e quota.Entry) bool { return isCalendar(&e) }) {
		return nil, nil
	}
	first := *of
	first.again = false // whether the caller tries again is no difference
	body := appendBody(make([]byte, 0, 512), s, &first)
	p = &pending{key: k, digest: maphash.Bytes(l.seed, body), again: of.again}
	l.mu.Lock()
	if old := l.pending[k]; old != nil && old.digest == p.digest && !old.commit.failed() {
		p = old // the caller tries again
	} else if _, _, err := l.j.append(settleKind, appendBody(body[:0], s, of), p); err != nil {
		l.mu.Unlock()
		return nil, nil
	} else {
		l.pending[k] = p
	}
	l.mu.Unlock()
	err = l.j.await(ctx, p.commit)
	switch {
	case err == nil:
	case ctx.Err() != nil: // it is recorded all the same, if late
		l.retry.later(p)
		return nil, fmt.Errorf("journal: %w", ctx.Err())
	case p.commit.failed():
		l.forget(p)
		return nil, nil
	}
	return p, nil
}

// failed reports whether nothing was written.
func (c *commit) failed() bool {
	select {
	case <-c.done:
		return c.err != nil
	default:
		return false
	}
}

// answered notes what became of a settlement, if it was recorded.
func (l *Ledger) answered(p *pending, o Outcome) {
	if p != nil {
		l.j.answer(p, o)
		l.forget(p)
	}
}

func (l *Ledger) forget(p *pending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending[p.key] == p {
		delete(l.pending, p.key)
	}
}

// anew books what a reservation was settled to that the ledger does not know; unknown
// is its error. numbered is true if it was never told but by this number.
func (l *Ledger) anew(ctx context.Context, x *reservation, of *known, numbered bool, s *quota.Settle, unknown error) (quota.Settled, Outcome, error) {
	if x == nil {
		return quota.Settled{}, Unknown, unknown
	}
	now := time.Now()
	if !l.j.cfg.surely(of.told, numbered, now) {
		l.j.count(toldDoubtful)
		l.j.cfg.Logger.LogAttrs(ctx, slog.LevelError, "journal: the ledger does not know a reservation any more, and may have charged it; it is not charged again",
			slog.String("tree", s.Tree), slog.String("reservation", s.ID))
		return quota.Settled{}, Doubtful, unknown
	}
	b := booking{ttl: x.ttl, note: x.note, entries: decodeEntries(of.entries), counts: l.j.cfg.ago(x.taken, now) <= l.j.cfg.safely()}
	res, err := l.book(ctx, &b, s)
	switch {
	case err == nil:
		l.j.count(toldBooked)
		res.Late = true
		return res, Answered, nil
	case errors.Is(err, errNothing):
		return quota.Settled{}, Unknown, unknown
	case errors.Is(err, quota.ErrUnknownReservation): // it was forgotten in between
		err = fmt.Errorf("%w: %v", quota.ErrUnavailable, err)
	}
	return quota.Settled{}, Unanswered, err
}

// Release implements [quota.Ledger].
func (l *Ledger) Release(ctx context.Context, tree, id string) error {
	err := l.ledger.Release(ctx, tree, id)
	if err == nil || errors.Is(err, quota.ErrUnknownReservation) {
		l.open.drop(key{tree, id})
	}
	return err
}

// Renew implements [quota.Ledger].
func (l *Ledger) Renew(ctx context.Context, tree string, ttl time.Duration, ids ...string) (lost []string, err error) {
	lost, err = l.ledger.Renew(ctx, tree, ttl, ids...)
	if err == nil {
		l.open.renewed(tree, ttl, ids, lost)
	}
	return lost, err
}

// Status implements [quota.Ledger].
func (l *Ledger) Status(ctx context.Context, tree string, entries ...quota.Entry) ([]quota.Status, error) {
	return l.ledger.Status(ctx, tree, entries...)
}

// TopUp implements [quota.Ledger].
func (l *Ledger) TopUp(ctx context.Context, tree string, e quota.Entry, amount int64) (quota.Status, error) {
	return l.ledger.TopUp(ctx, tree, e, amount)
}

// Reset implements [quota.Ledger].
func (l *Ledger) Reset(ctx context.Context, tree string, e quota.Entry) (quota.Status, error) {
	return l.ledger.Reset(ctx, tree, e)
}

// History implements [quota.Ledger].
func (l *Ledger) History(ctx context.Context, tree string, c quota.Counter, n int) ([]quota.Status, error) {
	return l.ledger.History(ctx, tree, c, n)
}

// Erase implements [quota.Ledger]. What the journal has of the key is not told to the ledger
// again, and leaves the directory with the files that it is in. It is an error if that
// cannot be recorded, and then nothing is erased.
func (l *Ledger) Erase(ctx context.Context, tree, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := l.j.erase(ctx, tree, id); err != nil {
		return err
	}
	l.open.erase(tree, id)
	return l.ledger.Erase(ctx, tree, id)
}

// erase records that a key was erased.
func (j *Journal) erase(ctx context.Context, tree, id string) error {
	n, c, err := j.append(eraseKind, appendString(appendString(nil, tree), id), nil)
	if err == nil {
		err = j.await(ctx, c)
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("journal: an erasure cannot be recorded: %w: %w", quota.ErrUnavailable, err)
	}
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.erased[key{tree, id}] = n
	return nil
}

// Healthy implements [quota.Ledger]. It is an error, too, if settlements are not being
// recorded: one that matches [ErrNotRecording] and nothing of the ledger's.
func (l *Ledger) Healthy(ctx context.Context) error {
	return errors.Join(l.ledger.Healthy(ctx), l.j.Healthy())
}

// Flush implements [quota.Ledger]: it waits for the journal, and for the ledger.
func (l *Ledger) Flush(ctx context.Context) error {
	if err := l.j.Flush(ctx); err != nil {
		return err
	}
	return l.ledger.Flush(ctx)
}

// Close implements [quota.Ledger]: it ends telling the ledger again, and closes it. It does
// not close the journal.
func (l *Ledger) Close(ctx context.Context) error {
	l.retry.close(ctx)
	return l.ledger.Close(ctx)
}

// Stats is how the journal does, and the reservations that are open.
func (l *Ledger) Stats() Stats {
	st := l.j.Stats()
	st.Open, st.Forgotten = l.open.count()
	return st
}
