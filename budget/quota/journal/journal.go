package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// ErrClosed is the error for a journal that was closed.
var ErrClosed = errors.New("journal: it is closed")

// ErrNotRecording is matched by the errors of Healthy while settlements are not
// recorded; they match [quota.ErrUnavailable], too.
var ErrNotRecording = errors.New("journal: settlements are not being recorded")

// errInUse is the error for a directory that another one has.
var errInUse = errors.New("it is in use")

// Journal is a directory of files to which records are appended. [New] puts it before a
// ledger.
//
// One goroutine writes, and makes durable what all callers have handed to it since it
// looked last. A Journal is safe for concurrent use.
type Journal struct {
	cfg    Config
	dir    string
	lock   *os.File
	writes string        // the writer's name, as long as there are files
	wake   chan struct{} // has something if there is something to do
	ended  chan struct{} // closed when the writer has ended

	mu sync.Mutex
	// mu guards all that follows.
	next         *commit // what is written next
	acks         []ack   // to be written with it
	acksSince    time.Time
	gap          gap // to be written with it
	last         uint64
	unanswered   map[uint64]*pending
	left         int            // of unanswered: those of earlier processes
	erased       map[key]uint64 // and with which record
	gaps         []gap
	segments     []*segment // the oldest first
	size         int64
	pinned       int    // how many are reading: no file is removed
	number       uint64 // of the newest segment
	failure      error  // nil while it works
	failedAt     time.Time
	retryAt      time.Time
	missedBefore int64 // stats.Unrecorded when it failed
	closed       bool
	stats        Stats

	writer writer // the goroutine's own
}

// key names a reservation of a tree, or a key of one.
type key struct{ tree, id string }

// pending is a settlement of which the ledger has not answered yet.
type pending struct {
	n      uint64
	at     time.Time
	key    key
	digest uint64
	again  bool    // the ledger was told before, by another number or none
	commit *commit // that writes it; nil if an earlier process has

	// Journal.mu guards all that follows.
	segment *segment // nil before it is written
	off     int64
	size    int
	outcome Outcome
	left    bool      // an earlier process has left it
	tried   time.Time // when the ledger was told last
}

// commit is what is written, and made durable, at a time.
type commit struct {
	done chan struct{} // closed when it is
	err  error         // then

	buf     []byte
	records int64      // in buf
	pending []*pending // of the records that are to be answered
	wanted  bool       // somebody waits
	sync    bool       // and for a sync in any case
}

func newCommit() *commit { return &commit{done: make(chan struct{})} }

// Open opens the journal of a directory, which is made if it is not there, and belongs
// to this process until Close. The error names the field that is wrong, or says what is
// wrong with the directory: that another process has it, or a file of it cannot be
// read.
//
// A record that was torn when the program died is cut off. One that is damaged, and
// those that were lost with it, are passed over, counted and logged.
func Open(path string, cfg Config) (*Journal, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if path == "" {
		return nil, errors.New("journal: path is empty")
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	name := filepath.Join(path, lockName)
	lock, err := lockFile(name)
	if errors.Is(err, errInUse) {
		return nil, fmt.Errorf("journal: %s: %w%s", path, err, owner(name))
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &Journal{
		cfg: cfg, dir: path, lock: lock,
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
		next: newCommit(), unanswered: map[uint64]*pending{}, erased: map[key]uint64{},
	}
	if err := j.load(); err != nil {
		_ = unlockFile(lock)
		return nil, err
	}
	if err := lock.Truncate(0); err == nil { // for people only
		_, _ = lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	j.writer.init(j)
	go j.writer.run()
	return j, nil
}

// owner says who has a directory, if the lock file tells.
func owner(lock string) string {
	text, err := os.ReadFile(lock)
	if pid, e := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && e == nil {
		return fmt.Sprintf(" by process %d", pid)
	}
	return ""
}

// Flush waits until everything that was handed over is durable, what the ledger has
// answered included.
func (j *Journal) Flush(ctx context.Context) error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return ErrClosed
	}
	c := j.next
	c.wanted, c.sync = true, true
	j.mu.Unlock()
	j.poke()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close writes what is still to be written, makes it durable, and gives the directory
// free. What is settled afterwards is not recorded, and counted as such. It may be called
// more than once.
func (j *Journal) Close() error {
	j.mu.Lock()
	first := !j.closed
	j.closed = true
	c := j.next
	j.mu.Unlock()
	j.poke()
	<-j.ended
	if !first {
		return nil
	}
	return errors.Join(c.err, unlockFile(j.lock))
}

// Healthy returns nil if settlements are recorded.
func (j *Journal) Healthy() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.closed:
		return fmt.Errorf("%w: %w: %w", ErrNotRecording, quota.ErrUnavailable, ErrClosed)
	case j.failure != nil:
		return fmt.Errorf("%w: %w: %w", ErrNotRecording, quota.ErrUnavailable, j.failure)
	}
	return nil
}

// poke wakes the writer.
func (j *Journal) poke() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// maxBuffer bounds what waits for a disk that is slow.
const maxBuffer = 8 << 20

// append hands a record over, and returns its number and what it is written with. The
// body follows the prefix that all records have. p, if there is one, is what is to be
// answered.
func (j *Journal) append(k kind, body []byte, p *pending) (uint64, *commit, error) {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.refuses(len(body), now)
	if err != nil {
		if k != eraseKind {
			j.missed(now, 1)
		}
		return 0, nil, err
	}
	j.last++
	c := j.next
	at := len(c.buf)
	c.buf = appendPrefix(beginFrame(c.buf), k, j.last, now)
	c.buf = append(c.buf, body...)
	endFrame(c.buf, at)
	c.wanted = true
	if k != eraseKind {
		c.records++
	}
	if p != nil {
		p.n, p.at, p.commit = j.last, now, c
		p.off, p.size = int64(at), len(c.buf)-at
		c.pending = append(c.pending, p)
	}
	j.poke()
	return j.last, c, nil
}

// refuses says why nothing can be recorded now. mu is held.
func (j *Journal) refuses(n int, now time.Time) error {
	switch {
	case j.closed:
		return ErrClosed
	case j.failure != nil && now.Before(j.retryAt):
		return j.failure
	case len(j.next.buf) > maxBuffer:
		return fmt.Errorf("%d bytes wait to be written", len(j.next.buf))
	case n > maxPayload-64: // more than the prefix can take
		return fmt.Errorf("a record has %d bytes", n)
	}
	return nil
}

// missed counts records that are missing. mu is held.
func (j *Journal) missed(at time.Time, n int64) {
	if n > 0 {
		j.stats.Unrecorded += n
		j.gap.add(at, at, n)
	}
}

// await waits until a commit is done. An error that is none of ctx says that nothing
// was recorded.
func (j *Journal) await(ctx context.Context, c *commit) error {
	select {
	case <-c.done:
		return c.err
	default:
	}
	timer := time.NewTimer(j.cfg.SyncTimeout)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return j.stalled(c)
	}
}

// stalled notes that the disk takes too long.
func (j *Journal) stalled(c *commit) error {
	err := fmt.Errorf("the disk takes longer than %v", j.cfg.SyncTimeout)
	j.mu.Lock()
	select {
	case <-c.done: // just now
		j.mu.Unlock()
		return c.err
	default:
	}
	j.stats.Stalled++
	j.mu.Unlock()
	j.failed(err) // until the disk has caught up nobody else waits for it
	return err
}

// failPause is how long nothing is tried after the disk has failed.
const failPause = time.Second

// fails notes a failure, and reports whether it is the first. mu is held.
func (j *Journal) fails(err error, now time.Time) (began bool) {
	began = j.failure == nil
	if began {
		j.failedAt, j.missedBefore = now, j.stats.Unrecorded
	}
	j.failure, j.retryAt = err, now.Add(failPause)
	j.stats.WriteErrors++
	return began
}

// failed notes a failure that nobody waits for.
func (j *Journal) failed(err error) {
	j.mu.Lock()
	began := j.fails(err, time.Now())
	j.mu.Unlock()
	if began {
		j.logFailure(err)
	}
}

func (j *Journal) logFailure(err error) {
	j.cfg.Logger.Error("journal: settlements cannot be recorded; they are told to the ledger without", "error", err)
}

// answer notes what became of a settlement.
func (j *Journal) answer(p *pending, o Outcome) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if p.outcome != Unanswered {
		return
	}
	p.outcome = o
	if p.segment != nil { // else the writer does it
		j.answered(p)
	}
}

// answered has what became of a written settlement be written. mu is held.
func (j *Journal) answered(p *pending) {
	delete(j.unanswered, p.n)
	if p.left {
		j.left--
	}
	now := time.Now()
	p.segment.unanswered--
	p.segment.happened(now)
	if len(j.acks) == 0 {
		j.acksSince = now
		j.poke()
	}
	j.acks = append(j.acks, ack{p.n, p.outcome})
}
