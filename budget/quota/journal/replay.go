package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// ErrTooOld is matched by the error of a Replay since an instant from which on the
// ledger may have forgotten what it has charged.
var ErrTooOld = errors.New("journal: the ledger may have forgotten what was settled then")

// ErrIncomplete is matched by the error of a Replay after which the ledger may still
// lack something: what it gave no answer to, what is doubtful, or what is missing in the
// journal. The report says how much.
var ErrIncomplete = errors.New("journal: not everything could be told to the ledger")

const (
	// replayTries is how often the ledger is asked for each record, and replayPause how long
	// is waited in between at first: twice as long each time.
	replayTries = 4
	replayPause = 100 * time.Millisecond
	// progressEvery is after how many records Config.Progress is called.
	progressEvery = 1000
)

// Replay tells the ledger again everything that was settled, and counted for good, since
// an instant by the clock of this process, acknowledged or not: for a store that has lost
// writes that it had acknowledged, as one does that fails over to a replica which had not
// got them yet, or that is restored from a copy. since is the last instant of which it
// surely has everything; earlier is fine. Reservations that are open are taken anew, so
// that what they hold counts. Nothing is charged twice; see the documentation of the
// package.
//
// Each process replays its own journal. It may go on working meanwhile. A since that is
// longer ago than Config.Remember is an error that matches [ErrTooOld], and nothing is
// told. If the ledger gives no answer to one record after the other, the rest is not told;
// a Replay may be repeated. One at a time goes on.
func (l *Ledger) Replay(ctx context.Context, since time.Time) (Report, error) {
	if !l.replaying.TryLock() {
		return Report{}, errors.New("journal: a Replay is under way")
	}
	defer l.replaying.Unlock()
	if ago := time.Since(since); ago > l.j.cfg.Remember {
		return Report{}, fmt.Errorf("%w: since is %v ago, at most %v are possible", ErrTooOld, ago.Round(time.Second), l.j.cfg.Remember)
	}
	if err := l.j.Flush(ctx); err != nil && ctx.Err() != nil {
		return Report{}, ctx.Err()
	} // else there is what was written before
	last := l.j.pin()
	defer l.j.unpin()

	r := replay{l: l, since: since, last: last}
	err := r.run(ctx)
	if err == nil {
		err = r.runMet(ctx)
	}
	r.report.Missing = l.j.missingSince(since)
	if p := l.j.cfg.Progress; p != nil {
		p(r.report)
	}
	if x := &r.report; x.Failed > 0 || x.Doubtful > 0 || x.Missing > 0 || err != nil {
		err = errors.Join(fmt.Errorf("%w: %d got no answer, %d are doubtful, %d are missing", ErrIncomplete, x.Failed, x.Doubtful, x.Missing), err)
	}
	return r.report, err
}

// pin has no file be removed, and returns the number of the last record.
func (j *Journal) pin() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pinned++
	return j.last
}

func (j *Journal) unpin() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pinned--
}

// missingSince is how many records are missing that are not from before an instant.
func (j *Journal) missingSince(since time.Time) (n int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.gap.to.Before(since) {
		n = j.gap.n
	}
	for _, g := range j.gaps {
		if !g.to.Before(since) {
			n += g.n
		}
	}
	return n
}

// replay is one Replay.
type replay struct {
	l     *Ledger
	since time.Time
	last  uint64 // what comes after it, the ledger is told by others

	mu     sync.Mutex
	report Report // guarded by mu
}

func (r *replay) run(ctx context.Context) error {
	done, err := r.done(ctx)
	if err != nil {
		return err
	}
	l := r.l
	var reading error
	err = l.crew(ctx, func(yield func(job) bool) {
		// What is open comes first: what it holds is more urgent than what was spent.
		for _, k := range l.open.open() {
			if !yield(job{k, func(ctx context.Context) error {
				return r.one(ctx, func(ctx context.Context) (told, error) { return l.hold(ctx, k) })
			}}) {
				return
			}
		}
		before := r.before()
		reading = records(l.j.dir, func(x *decoded) bool {
			old := before(x)
			switch x.kind {
			case settleKind, countKind:
			default:
				return true
			}
			if x.n > r.last || done.has(x.n) || x.kind == countKind && old {
				return true
			}
			return yield(r.job(x))
		})
	})
	return errors.Join(err, reading)
}

// job tells the ledger of a record.
func (r *replay) job(x *decoded) job {
	rec, numbered := x.record, !x.again
	return job{key{rec.Tree, rec.ID}, func(ctx context.Context) error {
		return r.one(ctx, func(ctx context.Context) (told, error) { return r.l.replay(ctx, &rec, numbered) })
	}}
}

// runMet tells what came meanwhile and met the ledger before what it corrects was told.
func (r *replay) runMet(ctx context.Context) error {
	j := r.l.j
	if err := j.Flush(ctx); err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	met := map[uint64]bool{}
	if err := records(j.dir, func(x *decoded) bool {
		for _, a := range x.acks {
			if a.n > r.last && a.outcome == Unknown {
				met[a.n] = true
			}
		}
		return true
	}); err != nil || len(met) == 0 {
		return err
	}
	var reading error
	err := r.l.crew(ctx, func(yield func(job) bool) {
		reading = records(j.dir, func(x *decoded) bool {
			return x.kind != settleKind || !met[x.n] || yield(r.job(x))
		})
	})
	return errors.Join(err, reading)
}

// before returns what reports of one record after the other whether it is from before
// since. What follows one that is not is not either, whatever a clock says that was set
// back.
func (r *replay) before() func(*decoded) bool {
	reached := false
	return func(x *decoded) bool {
		reached = reached || !x.at.Before(r.since)
		return !reached
	}
}

// done are the settlements that are not to be told: those that were answered before since,
// and those that the ledger must not charge.
func (r *replay) done(ctx context.Context) (numbers, error) {
	all := numbers{}
	before := r.before()
	err := records(r.l.j.dir, func(x *decoded) bool {
		old := before(x)
		for _, a := range x.acks {
			if a.outcome == Void || a.outcome == Doubtful || old {
				all.add(a.n)
			}
		}
		return ctx.Err() == nil
	})
	return all, errors.Join(err, ctx.Err())
}

// one tells one, several times if need be.
func (r *replay) one(ctx context.Context, tell func(context.Context) (told, error)) error {
	pause := replayPause
	for try := 1; ; try++ {
		was, err := tell(ctx)
		if err != nil && try < replayTries && wait(ctx, pause) {
			pause *= 2
			continue
		}
		r.mu.Lock()
		r.report.add(was)
		if n := r.report.total(); n%progressEvery == 0 && was != toldNothing {
			if p := r.l.j.cfg.Progress; p != nil {
				p(r.report)
			}
		}
		r.mu.Unlock()
		r.l.j.count(was)
		return err
	}
}

// wait waits, and reports whether ctx did not end.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// replay tells the ledger of a record, and notes its answer if it is the first.
func (l *Ledger) replay(ctx context.Context, rec *Record, numbered bool) (told, error) {
	l.j.mu.Lock()
	p := l.j.unanswered[rec.Number]
	l.j.mu.Unlock()
	was, err := l.again(ctx, rec, p == nil, numbered)
	if err == nil && p != nil {
		l.answered(p, was.outcome())
	}
	return was, err
}

// hold takes an open reservation anew, if the ledger does not know it.
func (l *Ledger) hold(ctx context.Context, k key) (told, error) {
	x, entries := l.open.held(k)
	if x == nil || len(entries) == 0 {
		return toldNothing, nil
	}
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	r := quota.Reserve{ID: k.id, Tree: k.tree, TTL: x.ttl, Note: x.note}
	counted := l.j.cfg.ago(x.taken, time.Now()) <= l.j.cfg.safely()
	for _, e := range entries {
		if e.Kind != quota.Count || counted {
			r.Entries = append(r.Entries, e)
		}
	}
	known, err := l.take(ctx, r)
	switch {
	case err != nil:
		return toldFailed, err
	case l.open.get(k) != x:
		// It has ended meanwhile. If it was settled, this changes nothing.
		if err := l.ledger.Release(ctx, k.tree, k.id); err != nil && !errors.Is(err, quota.ErrUnknownReservation) {
			return toldFailed, err
		}
		return toldNothing, nil
	case known:
		return toldKnown, nil
	}
	return toldHeld, nil
}
