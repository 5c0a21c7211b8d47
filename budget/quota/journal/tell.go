package journal

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"iter"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// Report says what came of what was told again.
type Report struct {
	// Known is what the ledger had taken already.
	Known int
	// Settled is what it had reserved, and had not settled.
	Settled int
	// Booked is what it did not know, and was booked anew.
	Booked int
	// Held is how many open reservations were taken anew: what they hold and lease
	// counts again, and they can be settled as if nothing had happened.
	Held int
	// Unknown is what it did not know, and could not be booked: see [Unknown].
	Unknown int
	// Doubtful is what it did not know and may have charged: see [Doubtful].
	Doubtful int
	// Failed is what the ledger gave no answer to.
	Failed int
	// Missing is how many settlements and counts of the time are not in the journal: they
	// could not be written, or had to make room.
	Missing int64
}

// told is what came of one.
type told uint8

const (
	toldKnown told = iota
	toldVoid       // it knew that it was released
	toldSettled
	toldBooked
	toldHeld
	toldUnknown
	toldDoubtful
	toldFailed
	toldNothing
)

// add counts one.
func (r *Report) add(t told) {
	switch t {
	case toldKnown, toldVoid:
		r.Known++
	case toldSettled:
		r.Settled++
	case toldBooked:
		r.Booked++
	case toldHeld:
		r.Held++
	case toldUnknown:
		r.Unknown++
	case toldDoubtful:
		r.Doubtful++
	case toldFailed:
		r.Failed++
	}
}

// total is how many there were.
func (r *Report) total() int {
	return r.Known + r.Settled + r.Booked + r.Held + r.Unknown + r.Doubtful + r.Failed
}

// outcome is what is recorded of a settlement.
func (t told) outcome() Outcome {
	switch t {
	case toldKnown, toldSettled, toldBooked:
		return Answered
	case toldVoid:
		return Void
	case toldUnknown:
		return Unknown
	case toldDoubtful:
		return Doubtful
	default:
		return Unanswered
	}
}

func (j *Journal) count(t told) {
	j.mu.Lock()
	j.stats.Told.add(t)
	j.mu.Unlock()
}

// tellTimeout is how long the ledger may take to answer, unless it gives up before.
const tellTimeout = 5 * time.Second

// again tells the ledger of a record. answered is true if it was, before it may have
// lost it, and numbered if it was never told but by this number.
func (l *Ledger) again(ctx context.Context, r *Record, answered, numbered bool) (told, error) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	l.j.withoutErased(r)
	if !r.Settled {
		return l.countAgain(ctx, r)
	}
	s := r.settle()
	l.j.sign(&s, r.Number, r.At)
	res, err := l.tell(ctx, &s, r.At)
	switch {
	case err == nil && s.Writer == "" && released(&res, r.Entries):
		return toldVoid, nil
	case err == nil && res.Repeated:
		return toldKnown, nil
	case err == nil:
		return toldSettled, nil
	case !errors.Is(err, quota.ErrUnknownReservation):
		return toldFailed, err
	case r.Taken.IsZero():
		return toldUnknown, nil
	}
	now := time.Now()
	if !l.j.cfg.surely(r.Told, numbered, now) {
		return toldDoubtful, nil
	}
	if !answered { // whoever crosses a threshold next is told of it, as nobody was yet
		for i := range r.Entries {
			r.Entries[i].Thresholds = nil
		}
	}
	b := booking{note: r.Note, entries: r.Entries, counts: l.j.cfg.ago(r.Taken, now) <= l.j.cfg.safely()}
	_, err = l.book(ctx, &b, &s)
	switch {
	case err == nil:
		return toldBooked, nil
	case errors.Is(err, errNothing):
		return toldUnknown, nil
	}
	return toldFailed, err
}

// sign says who has written a settlement, and which it is, for a ledger that keeps
// watermarks. A writer is the journal in some minutes, so that what is told long after
// is overtaken by little.
func (j *Journal) sign(s *quota.Settle, n uint64, at time.Time) {
	if j.cfg.Watermarks && s.Writer == "" {
		s.Writer = j.writes + "." + strconv.FormatInt(at.UnixNano()/int64(max(j.cfg.Remember/4, 1)), 36)
		s.WriterSeq = int64(n)
	}
}

// tell tells the ledger of a settlement, which was written at an instant. Whether one is
// below the watermark of its writer says nothing while the ledger must know it, as it may
// have lost it since; so it is asked for without, and comes back so.
func (l *Ledger) tell(ctx context.Context, s *quota.Settle, at time.Time) (quota.Settled, error) {
	res, err := l.ledger.Settle(ctx, *s)
	if err != nil || s.Writer == "" || !res.Repeated || len(res.Status) > 0 || l.j.cfg.ago(at, time.Now()) > l.j.cfg.safely() {
		return res, err
	}
	asked := *s
	asked.Writer, asked.WriterSeq = "", 0
	if res, err = l.ledger.Settle(ctx, asked); err == nil {
		*s = asked
	}
	return res, err
}

// released reports whether a result is that of a reservation that was released, which says
// nothing of the counters that it held.
func released(res *quota.Settled, entries []quota.Entry) bool {
	return res.Repeated && len(res.Status) == 0 &&
		slices.ContainsFunc(entries, func(e quota.Entry) bool { return e.Kind == quota.Hold })
}

// countAgain tells the ledger what a reservation has counted for good.
func (l *Ledger) countAgain(ctx context.Context, r *Record) (told, error) {
	if l.j.cfg.ago(r.Taken, time.Now()) > l.j.cfg.safely() {
		return toldDoubtful, nil // asking for it would be to take it
	}
	b := booking{note: r.Note, entries: r.Entries, counts: true}
	reserve := b.reserve(r.Tree, r.ID)
	if !slices.ContainsFunc(reserve.Entries, func(e quota.Entry) bool { return e.Kind == quota.Count }) {
		return toldUnknown, nil
	}
	known, err := l.take(ctx, reserve)
	switch {
	case err != nil:
		return toldFailed, err
	case known:
		return toldKnown, nil
	}
	return toldBooked, nil
}

// withoutErased takes the entries out of a record whose keys were erased after it.
func (j *Journal) withoutErased(r *Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.erased) == 0 {
		return
	}
	erased := func(e quota.Entry) bool { return j.erased[key{r.Tree, e.Key}] > r.Number }
	r.Entries = slices.DeleteFunc(r.Entries, erased)
	r.More = slices.DeleteFunc(r.More, erased)
}

// job is something to be told: those of one key are told in order.
type job struct {
	key key
	do  func(ctx context.Context) error
}

// tellFailures is after how many failures in a row the ledger is given up.
const tellFailures = 8

// treeFailures is after how many failures in a row the rest of a tree is passed over, and
// errPassedOver what becomes of it.
const treeFailures = 2

var errPassedOver = errors.New("the ledger does not answer for the tree")

// silent reports whether an error is that of a ledger that does not answer, rather than of
// one that does not want what it is told.
func silent(err error) bool {
	return errors.Is(err, quota.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// errGivenUp is the cause of the end of what is told to a ledger that does not answer.
var errGivenUp = errors.New("the ledger does not answer")

// crew does jobs, some at a time, until one after the other fails or ctx ends. It
// returns when all that were begun are done.
func (l *Ledger) crew(ctx context.Context, jobs iter.Seq[job]) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	lines := make([]chan job, l.j.cfg.Workers)
	var mu sync.Mutex
	failures, last := 0, error(nil) // mu guards both
	work := func(line chan job) {
		for x := range line {
			if ctx.Err() != nil {
				continue
			}
			err := x.do(ctx)
			mu.Lock()
			switch {
			case err == nil:
				failures = 0
			case silent(err):
				if failures++; failures >= tellFailures {
					cancel(errGivenUp)
				}
				last = err
			}
			mu.Unlock()
		}
	}
	for i := range lines {
		lines[i] = make(chan job, 16)
		wg.Go(func() { work(lines[i]) })
	}
	for x := range jobs {
		if l.j.cfg.Watermarks { // then those of a tree are told in order
			x.key.id = ""
		}
		line := lines[maphash.Comparable(l.seed, x.key)%uint64(len(lines))]
		select {
		case line <- x:
			continue
		case <-ctx.Done():
		}
		break
	}
	for _, line := range lines {
		close(line)
	}
	wg.Wait()
	if errors.Is(context.Cause(ctx), errGivenUp) {
		return errors.Join(errGivenUp, last)
	}
	return ctx.Err()
}

// retry tells the ledger what it has not answered: what earlier processes have left, at
// once, and what nobody has told it again for a while.
type retry struct {
	l *Ledger

	mu sync.Mutex
	// mu guards all that follows.
	timer     *time.Timer // armed while something is to be told
	delay     time.Duration
	working   chan struct{} // closed when the work is done; nil while there is none
	cancel    context.CancelFunc
	closed    bool
	recovered chan struct{} // closed when nothing is left of earlier processes
	report    Report        // of that
}

const (
	// retryAfter is for how long a settlement must not have been told until it is told
	// again: longer than an Enforcer waits between its own tries.
	retryAfter = 2 * time.Minute
	// retryMin and retryMax are how long is waited after a try that did nothing: twice as
	// long after each.
	retryMin = time.Second
	retryMax = 30 * time.Second
)

func (t *retry) init(l *Ledger) {
	t.l, t.delay = l, retryMin
	t.recovered = make(chan struct{})
	l.j.mu.Lock()
	left := l.j.left
	l.j.mu.Unlock()
	if left == 0 {
		close(t.recovered)
		return
	}
	l.j.cfg.Logger.Info("journal: the ledger is told what was left unanswered", "number", left)
	t.arm(0)
}

// arm has the work begin after a while. A timer that is armed stays, unless it would
// come later.
func (t *retry) arm(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed && t.timer == nil && t.working == nil {
		t.timer = time.AfterFunc(d, t.work)
	}
}

// later notes that a settlement was told and not answered. p may be nil.
func (t *retry) later(p *pending) {
	if p == nil {
		return
	}
	t.l.j.mu.Lock()
	p.tried = time.Now()
	t.l.j.mu.Unlock()
	t.arm(retryAfter)
}

// work tells what is due.
func (t *retry) work() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	t.mu.Lock()
	t.timer = nil
	if t.closed {
		t.mu.Unlock()
		return
	}
	t.working, t.cancel = make(chan struct{}), cancel
	t.mu.Unlock()

	err := t.tell(ctx)

	l := t.l
	l.j.mu.Lock()
	waiting, left := len(l.j.unanswered), l.j.left
	l.j.mu.Unlock()
	t.mu.Lock()
	close(t.working)
	t.working = nil
	if t.delay = min(2*t.delay, retryMax); err == nil {
		t.delay = retryMin
	}
	delay := t.delay
	done := false
	if left == 0 {
		delay = max(delay, retryAfter/4)
		select {
		case <-t.recovered:
		default:
			close(t.recovered)
			done = true
		}
	}
	report := t.report
	t.mu.Unlock()
	if waiting > 0 {
		t.arm(delay)
	}
	if done {
		level := slog.LevelInfo
		if report.Doubtful+report.Unknown > 0 {
			level = slog.LevelWarn
		}
		l.j.cfg.Logger.Log(ctx, level, "journal: the ledger was told what was left unanswered", slog.Any("report", report))
	}
}

// tell tells what is due, and returns an error if the ledger did not answer. What is due
// for a part of the ledger that is gone delays nothing else.
func (t *retry) tell(ctx context.Context) error {
	l := t.l
	var failed error
	trees := map[string]int{} // how often each has failed in a row
	var mu sync.Mutex         // guards both
	err := l.crew(ctx, func(yield func(job) bool) {
		for _, p := range l.j.due(time.Now()) {
			if !yield(job{p.key, func(ctx context.Context) error {
				mu.Lock()
				over := trees[p.key.tree] >= treeFailures
				mu.Unlock()
				if over {
					return errPassedOver
				}
				err := t.one(ctx, p)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					trees[p.key.tree] = 0
					return nil
				}
				failed = err
				if !silent(err) {
					return err
				}
				if trees[p.key.tree]++; trees[p.key.tree] > treeFailures { // some at a time
					return errPassedOver
				}
				return err
			}}) {
				return
			}
		}
	})
	return errors.Join(err, failed)
}

// one tells one.
func (t *retry) one(ctx context.Context, p *pending) error {
	l := t.l
	r, err := l.j.read(p)
	if err != nil {
		if l.j.isAnswered(p) { // in between, and its file may be gone
			return nil
		}
		// It is lost, and so is what may be in its place.
		l.j.cfg.Logger.Error("journal: a settlement cannot be read any more, and is not told to the ledger", "error", err)
		l.answered(p, Doubtful)
		t.count(p, toldDoubtful)
		return nil
	}
	was, err := l.again(ctx, &r, false, !p.again)
	if err != nil {
		l.j.mu.Lock()
		p.tried = time.Now()
		l.j.mu.Unlock()
		return err
	}
	t.count(p, was)
	if was == toldDoubtful || was == toldUnknown {
		l.j.cfg.Logger.Warn("journal: the ledger did not take a settlement",
			"why", was.outcome().String(), "tree", r.Tree, "reservation", r.ID, "settled", r.At)
	}
	l.answered(p, was.outcome())
	return nil
}

func (t *retry) count(p *pending, was told) {
	t.l.j.count(was)
	if p.commit == nil {
		t.mu.Lock()
		t.report.add(was)
		t.mu.Unlock()
	}
}

// due are the settlements that are to be told again: those of a tree in order, and the
// trees in that in which they were tried last.
func (j *Journal) due(now time.Time) []*pending {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []*pending
	tried := map[string]time.Time{}
	for _, p := range j.unanswered {
		if p.tried.After(tried[p.key.tree]) {
			tried[p.key.tree] = p.tried
		}
		since := p.at
		if p.tried.After(since) {
			since = p.tried
		}
		if p.left || now.Sub(since) >= retryAfter || j.cfg.Watermarks && j.cfg.ago(p.at, now) > j.cfg.safely() {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *pending) int {
		return cmp.Or(tried[a.key.tree].Compare(tried[b.key.tree]), cmp.Compare(a.key.tree, b.key.tree), cmp.Compare(a.n, b.n))
	})
	return all
}

func (j *Journal) isAnswered(p *pending) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return p.outcome != Unanswered
}

// close ends the work, and waits until it has.
func (t *retry) close(ctx context.Context) {
	t.mu.Lock()
	t.closed = true
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	working := t.working
	if working != nil {
		t.cancel()
	}
	t.mu.Unlock()
	if working == nil {
		return
	}
	select {
	case <-working:
	case <-ctx.Done():
	}
}

// Recover waits until the ledger was told everything that earlier processes have left
// unanswered in the journal, or ctx ends. [New] has begun that already: it goes on in the
// background, also while the ledger cannot be reached, until Close. The report is of
// what was told so far.
func (l *Ledger) Recover(ctx context.Context) (Report, error) {
	var err error
	select {
	case <-l.retry.recovered:
	case <-ctx.Done():
		err = ctx.Err()
	}
	l.retry.mu.Lock()
	defer l.retry.mu.Unlock()
	return l.retry.report, err
}
