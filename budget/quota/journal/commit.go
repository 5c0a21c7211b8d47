package journal

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"slices"
	"time"
)

// ackDelay is how long it may take until an answer of the ledger is written, if
// nothing else is. One that was not is only told again.
const ackDelay = 100 * time.Millisecond

// maxAcks bounds how many answers wait while they cannot be written.
const maxAcks = 1 << 16

// The failures of a journal that has no room.
var (
	errFull = errors.New("the directory has Config.MaxBytes of what the ledger has not answered")
	errMany = errors.New("there are Config.MaxUnanswered settlements that the ledger has not answered")
)

// file is what the writer does with a segment.
type file interface {
	Write([]byte) (int, error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// writer is the goroutine that writes. Nobody else touches what is its own.
type writer struct {
	j       *Journal
	f       file // the newest segment; nil before the first record, and after a failure
	segment *segment
	dirty   bool      // something was written since the last sync
	syncAt  time.Time // when it must be, with SyncInterval
	cleanAt time.Time
	spare   []byte // to be written to again
	acks    []ack
}

func (w *writer) init(j *Journal) {
	w.j = j
	w.cleanAt = time.Now() // what is old goes at once
}

// run writes until the journal is closed.
func (w *writer) run() {
	defer close(w.j.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-w.j.wake:
		case <-timer.C:
		}
		runtime.Gosched() // whoever is about to hand something over goes first: they share the sync
		now := time.Now()
		c, closing := w.due(now)
		if c != nil {
			w.commit(c, now, closing)
		}
		if closing {
			w.leave()
			return
		}
		if w.dirty && w.j.cfg.Sync == SyncInterval && !now.Before(w.syncAt) {
			if err := w.sync(); err != nil {
				w.j.failed(err)
			}
		}
		if !now.Before(w.cleanAt) {
			w.clean(now, 0)
			w.cleanAt = now.Add(w.cleanEvery())
		}
		timer.Reset(w.wait(now))
	}
}

// cleanEvery is how often it is looked whether files can be removed, and how long one
// is written to.
func (w *writer) cleanEvery() time.Duration { return max(w.j.cfg.Keep/8, time.Millisecond) }

// due takes what is to be written now.
func (w *writer) due(now time.Time) (c *commit, closing bool) {
	j := w.j
	j.mu.Lock()
	defer j.mu.Unlock()
	closing = j.closed
	switch {
	case closing, j.next.wanted:
	case len(j.acks) > 0 && now.Sub(j.acksSince) >= ackDelay:
	case j.failure != nil && !now.Before(j.retryAt): // does it work again?
	default:
		return nil, false
	}
	c = j.next
	j.next = newCommit()
	j.next.buf, w.spare = w.spare[:0], nil
	w.acks, j.acks = j.acks, w.acks[:0]
	return c, closing
}

// wait is how long there is nothing to do, unless somebody wakes the writer.
func (w *writer) wait(now time.Time) time.Duration {
	j := w.j
	at := w.cleanAt
	earlier := func(t time.Time) {
		if t.Before(at) {
			at = t
		}
	}
	if w.dirty && j.cfg.Sync == SyncInterval {
		earlier(w.syncAt)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.acks) > 0 {
		earlier(j.acksSince.Add(ackDelay))
	}
	if j.failure != nil {
		earlier(j.retryAt)
	}
	return max(at.Sub(now), 0)
}

// commit writes, and tells those who wait.
func (w *writer) commit(c *commit, now time.Time, closing bool) {
	j := w.j
	j.mu.Lock()
	failing, missing := j.failure != nil, j.gap
	j.gap = gap{}
	j.mu.Unlock()
	var full error
	buf := c.buf
	if c.records > 0 || failing {
		if full = w.room(c, now); full != nil {
			buf = buf[:0] // what the ledger has answered is written all the same: it makes room
		}
	}
	frame := func(payload func([]byte) []byte) {
		at := len(buf)
		buf = payload(beginFrame(buf))
		endFrame(buf, at)
	}
	for acks := w.acks; len(acks) > 0; {
		some := acks[:min(len(acks), acksInFrame)]
		acks = acks[len(some):]
		frame(func(b []byte) []byte { return appendAcks(b, now, some) })
	}
	switch {
	case full != nil: // and so is what is missing, once it has an end
	case missing.n > 0:
		frame(func(b []byte) []byte { return appendGap(b, now, missing) })
	case failing && len(buf) == 0: // only writing tells whether it works again
		frame(func(b []byte) []byte { return appendAcks(b, now, nil) })
	}
	sync := failing || closing || c.sync || c.wanted && j.cfg.Sync == SyncAlways
	at, err := w.store(buf, now, sync)
	if w.spare = buf[:0]; cap(w.spare) > maxBuffer/8 {
		w.spare = nil
	}
	c.buf = nil
	w.finish(c, written{at, len(buf), missing, full, err}, now)
}

// acksInFrame bounds how many answers are in a frame.
const acksInFrame = 1 << 10

// written is what became of a commit.
type written struct {
	at        int64
	size      int
	missing   gap
	full, err error // records were left out, or all was
}

// finish notes how a commit has ended.
func (w *writer) finish(c *commit, x written, now time.Time) {
	j := w.j
	err := cmp.Or(x.full, x.err)
	j.mu.Lock()
	began, recovered := false, error(nil)
	lasted, n := now.Sub(j.failedAt), j.stats.Unrecorded-j.missedBefore
	if x.err != nil {
		if len(j.acks)+len(w.acks) <= maxAcks {
			j.acks, w.acks = append(w.acks, j.acks...), nil
		}
		j.acksSince = now.Add(failPause)
	} else {
		j.stats.Bytes += int64(x.size)
		if w.segment != nil && x.size > 0 {
			w.segment.happened(now)
		}
	}
	if err != nil {
		began = j.fails(err, time.Now())
		j.missed(now, c.records)
		if m := x.missing; m.n > 0 {
			j.gap.add(m.from, m.to, m.n)
		}
	} else {
		recovered, j.failure = j.failure, nil
		if x.missing.n > 0 {
			j.gaps = append(j.gaps, x.missing)
		}
		j.wrote(c, w.segment, x.at)
	}
	c.err = err
	close(c.done)
	j.mu.Unlock()
	switch {
	case began:
		j.logFailure(err)
	case recovered != nil:
		j.cfg.Logger.Info("journal: settlements are recorded again", "after", lasted, "unrecorded", n)
	}
}

// wrote notes the records that a segment has now. mu is held.
func (j *Journal) wrote(c *commit, s *segment, at int64) {
	if c.records == 0 {
		return
	}
	j.stats.Records += c.records
	s.records += c.records
	for _, p := range c.pending {
		p.segment, p.off = s, at+p.off
		s.unanswered++
		j.unanswered[p.n] = p
		if p.outcome != Unanswered { // it did not wait
			j.answered(p)
		}
	}
}

// store appends to the newest segment, or begins one, and returns the offset. Where a
// sync fails, nobody knows what is durable, and another one would not tell: so all is
// written again, to another file, if it is all that waited for it.
func (w *writer) store(buf []byte, now time.Time, sync bool) (at int64, err error) {
	for try := 0; ; try++ {
		if at, err = w.write(buf, now); err != nil || !sync {
			return at, err
		}
		err = w.sync()
		if err == nil || try > 0 || len(buf) == 0 || w.j.cfg.Sync != SyncAlways {
			return at, err
		}
	}
}

// write appends to the newest segment, or begins one.
func (w *writer) write(buf []byte, now time.Time) (at int64, err error) {
	if len(buf) == 0 {
		return 0, nil
	}
	if err := w.ready(now); err != nil {
		return 0, err
	}
	at = w.segment.size
	n, err := w.f.Write(buf)
	if err != nil {
		// Nothing of it may stay: it was not recorded. If it does, it is known by its
		// checksum, or as a record of which the ledger is told in vain.
		if n > 0 && w.f.Truncate(at) != nil {
			w.grow(int64(n))
			w.abandon()
		}
		return 0, err
	}
	w.grow(int64(n))
	if !w.dirty {
		w.dirty, w.syncAt = true, now.Add(w.j.cfg.SyncEvery)
	}
	return at, nil
}

func (w *writer) grow(n int64) {
	w.j.mu.Lock()
	w.segment.size += n
	w.j.size += n
	w.j.mu.Unlock()
}

// ready sees to it that there is a segment to write to.
func (w *writer) ready(now time.Time) error {
	if w.f != nil {
		if w.segment.size < w.j.cfg.SegmentBytes && now.Sub(w.segment.created) < w.cleanEvery() {
			return nil
		}
		if err := w.sync(); err != nil {
			return err
		}
		w.abandon()
		w.clean(now, 0)
	}
	w.j.mu.Lock()
	w.j.number++
	number, last := w.j.number, w.j.last
	w.j.mu.Unlock()
	s, f, err := create(w.j.dir, w.j.writes, number, last, now)
	if err != nil {
		return err
	}
	w.f, w.segment = f, s
	if w.j.cfg.wrap != nil {
		w.f = w.j.cfg.wrap(f)
	}
	w.j.mu.Lock()
	w.j.segments = append(w.j.segments, s)
	w.j.size += s.size
	w.j.mu.Unlock()
	return nil
}

// sync makes durable what was written.
func (w *writer) sync() error {
	if !w.dirty {
		return nil
	}
	w.dirty = false
	if err := w.f.Sync(); err != nil {
		w.abandon()
		return err
	}
	w.j.mu.Lock()
	w.j.stats.Syncs++
	w.j.mu.Unlock()
	return nil
}

// abandon leaves the segment: what comes next is written to another one.
func (w *writer) abandon() {
	if w.f != nil {
		_ = w.f.Close() // it was synced, or nobody knows
		w.f, w.dirty = nil, false
	}
}

// leave ends the writer.
func (w *writer) leave() {
	j := w.j
	j.mu.Lock()
	c := j.next // what came since is not recorded
	j.missed(time.Now(), c.records)
	c.err = ErrClosed
	close(c.done)
	j.mu.Unlock()
	w.abandon()
}

// room sees to it that there is room for a commit.
func (w *writer) room(c *commit, now time.Time) error {
	j := w.j
	j.mu.Lock()
	over := j.size + int64(len(c.buf)) - j.cfg.MaxBytes
	many := len(j.unanswered)+max(len(c.pending), 1) > j.cfg.MaxUnanswered
	j.mu.Unlock()
	switch {
	case many:
		return errMany
	case over <= 0:
		return nil
	}
	if freed := w.clean(now, over); freed < over {
		return errFull
	}
	return nil
}

// clean removes files from the oldest on: those that are acknowledged and old enough,
// and as many that are acknowledged as are needed to free so many bytes, but for the
// newest. It returns how many it has freed.
func (w *writer) clean(now time.Time, need int64) (freed int64) {
	j := w.j
	for {
		j.mu.Lock()
		if j.pinned > 0 || len(j.segments) == 0 || j.segments[0].unanswered > 0 {
			break
		}
		s := j.segments[0]
		old := now.Sub(s.last) >= j.cfg.Keep
		if !old && (freed >= need || len(j.segments) == 1) {
			break
		}
		j.mu.Unlock()
		if s == w.segment {
			w.abandon()
		}
		if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			j.cfg.Logger.Error("journal: a file cannot be removed", "file", s.path, "error", err)
			return freed
		}
		j.mu.Lock()
		j.segments = j.segments[1:]
		j.size -= s.size
		freed += s.size
		if !old && s.records > 0 {
			j.stats.Shortened++
			j.gap.add(s.created, s.last, s.records)
		}
		j.mu.Unlock()
	}
	j.forget(now)
	j.mu.Unlock()
	return freed
}

// forget drops what is known about files that are gone. mu is held.
func (j *Journal) forget(now time.Time) {
	j.gaps = slices.DeleteFunc(j.gaps, func(g gap) bool { return now.Sub(g.to) >= j.cfg.Keep })
	if len(j.segments) == 0 {
		clear(j.erased)
		return
	}
	maps.DeleteFunc(j.erased, func(_ key, n uint64) bool { return n <= j.segments[0].before })
}
