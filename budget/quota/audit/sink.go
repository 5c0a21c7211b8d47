package audit

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// Defaults of a [Config].
const (
	// DefaultMaxFile is how large a file becomes, in bytes.
	DefaultMaxFile = 64 << 20
	// DefaultMaxBuffer is how much is kept in memory until it is written, in bytes.
	DefaultMaxBuffer = 1 << 20
	// DefaultFlushEvery is how long a record stays in memory.
	DefaultFlushEvery = time.Second
)

// expireEvery is how often files are looked for that are older than Config.Keep. They
// are of a day each, so that nothing is gained by looking more often.
const expireEvery = time.Hour

// Config is what a [Sink] is made of. Dir must be set.
type Config struct {
	// Dir is the directory of the files. It is made if it is not there, and belongs to
	// this sink: another process needs another one.
	Dir string
	// FlushEvery is how long a record stays in memory before it is written, and made
	// durable as Sync says. So much is lost at most if the process dies. Defaults to
	// [DefaultFlushEvery].
	FlushEvery time.Duration
	// Keep is how long records are kept; whole files are removed whose records are
	// all older (see [Expire]): by [Open], when a file is begun, and once an hour until
	// Close. 0 keeps them for good.
	Keep time.Duration
	// Logger is told if something cannot be written. Defaults to [slog.Default].
	Logger *slog.Logger
	// MaxBuffer is how much is kept in memory at most, while it cannot be written.
	// Records beyond are dropped and counted. Defaults to [DefaultMaxBuffer].
	MaxBuffer int
	// MaxFile is how large a file may become, in bytes. Defaults to [DefaultMaxFile].
	MaxFile int64
	// Sync says when records are made durable. Defaults to [SyncFlush].
	Sync Sync
}

// Sync says when records are made durable (fsync).
type Sync uint8

const (
	// SyncFlush makes records durable whenever they are written: with every
	// FlushEvery. If the machine loses power, so much is lost at most.
	SyncFlush Sync = iota
	// SyncEach writes each record at once and makes it durable before the next event.
	// A disk does some hundreds to thousands of these a second, and events for which
	// that is too slow are dropped by the bus.
	SyncEach
	// SyncNever leaves it to the operating system.
	SyncNever
)

func (c *Config) withDefaults() error {
	if c.Dir == "" {
		return errors.New("audit: Config.Dir is not set")
	}
	switch {
	case c.FlushEvery < 0:
		return fmt.Errorf("audit: Config.FlushEvery is %v, must not be negative", c.FlushEvery)
	case c.Keep < 0:
		return fmt.Errorf("audit: Config.Keep is %v, must not be negative", c.Keep)
	case c.MaxBuffer < 0:
		return fmt.Errorf("audit: Config.MaxBuffer is %d, must not be negative", c.MaxBuffer)
	case c.MaxFile < 0:
		return fmt.Errorf("audit: Config.MaxFile is %d, must not be negative", c.MaxFile)
	case c.Sync > SyncNever:
		return fmt.Errorf("audit: Config.Sync is %d, there are %d", c.Sync, SyncNever+1)
	}
	if c.FlushEvery == 0 {
		c.FlushEvery = DefaultFlushEvery
	}
	if c.MaxBuffer == 0 {
		c.MaxBuffer = DefaultMaxBuffer
	}
	if c.MaxFile == 0 {
		c.MaxFile = DefaultMaxFile
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return nil
}

// Sink writes an audit. It is a listener for a [quota.Bus] (see [Sink.Listen]), whose
// queue keeps calls from waiting for a disk.
//
// Records are appended to files of one day and of a bounded size. A file is begun
// with the first record after the sink is opened, of a new day, or when the last one
// is full; those of earlier runs are never touched. If something cannot be written,
// it is tried again with the next flush, as far as MaxBuffer goes. A line that was
// torn by a crash is the last one of its file, and [Read] passes over it.
//
// A Sink is safe for concurrent use.
type Sink struct {
	cfg     Config
	erasing sync.Mutex // one erasure at a time

	mu sync.Mutex
	// mu guards all that follows. It is held while the disk works.
	f       *os.File // nil before the first record, and after an error
	day     time.Time
	size    int64 // of f, up to the end of the last whole record
	buf     []byte
	records int64 // in buf
	timer   *time.Timer
	expirer *time.Timer // nil where records are kept for good
	closed  bool
	failing bool // the last flush failed
	stats   Stats
}

// Stats is how a [Sink] does.
type Stats struct {
	// Written is how many records were written, Lost how many never will be, and
	// Buffered how many wait.
	Written, Lost, Buffered int64
	// Files is how many files were begun.
	Files int64
}

// ErrClosed is the error for a sink that was closed.
var ErrClosed = errors.New("audit: the sink is closed")

// Open makes a sink, and removes what is older than Config.Keep. Close it. The error
// names the field that is wrong, or says what is wrong with the directory; that old
// files cannot be removed is only logged.
func Open(cfg Config) (*Sink, error) {
	if err := cfg.withDefaults(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("audit: Config.Dir: %w", err)
	}
	if err := removeHalf(cfg.Dir, time.Time{}); err != nil {
		return nil, fmt.Errorf("audit: Config.Dir: %w", err)
	}
	s := &Sink{cfg: cfg}
	if cfg.Keep > 0 {
		s.mu.Lock() // the timer may be faster
		defer s.mu.Unlock()
		s.expire()
		s.expirer = time.AfterFunc(expireEvery, s.expireAgain)
	}
	return s, nil
}

// Listen is the [quota.Listener].
func (s *Sink) Listen(e quota.Event) {
	if r, ok := RecordOf(e); ok {
		_ = s.Append(r) // counted, and logged
	}
}

// Append adds a record, whose V it sets; Kind and At must be set. With [SyncEach] it is
// durable when Append returns nil; else after the next flush. An error means that it is
// lost, but for one of SyncEach, after which it is tried again, unless it was written
// and only could not be made durable.
func (s *Sink) Append(r Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.stats.Lost++
		return ErrClosed
	}
	if r.V = Version; r.Kind == "" || r.At.IsZero() { // nobody could read it
		s.stats.Lost++
		return errors.New("audit: a record cannot be written: Kind or At is not set")
	}
	// A clock that was ahead for a moment must not put all that follows into a file of a
	// day that is still to come, where nobody looks for it.
	if at := startOf(r.At); at.After(s.day) || at.Before(s.day.Add(-day)) {
		_ = s.flush() // what still waits then is written with what is new
		s.abandon()
		s.day = at
	}
	before := len(s.buf)
	buf, err := r.appendTo(s.buf)
	switch {
	case err != nil:
		s.stats.Lost++
		return fmt.Errorf("audit: a record cannot be written: %w", err)
	case len(buf) > s.cfg.MaxBuffer && before > 0:
		s.buf = buf[:before]
		if _ = s.flush(); len(s.buf) > 0 {
			s.stats.Lost++
			return fmt.Errorf("audit: a record is lost, as %d bytes wait", len(s.buf))
		}
		return s.add(r)
	}
	s.buf = buf
	return s.added()
}

// add appends a record to the empty buffer. mu is held.
func (s *Sink) add(r Record) (err error) {
	if s.buf, err = r.appendTo(s.buf); err != nil {
		return err
	}
	return s.added()
}

// added takes care of what was put into the buffer. mu is held.
func (s *Sink) added() error {
	s.records++
	var err error
	if s.cfg.Sync == SyncEach {
		err = s.flush()
	}
	if len(s.buf) > 0 && s.timer == nil {
		s.timer = time.AfterFunc(s.cfg.FlushEvery, s.tick)
	}
	return err
}

func startOf(at time.Time) time.Time {
	y, m, d := at.UTC().Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// tick flushes what waits, and what could not be written again.
func (s *Sink) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	if s.closed {
		return
	}
	if _ = s.flush(); len(s.buf) > 0 { // told by flush
		s.timer = time.AfterFunc(s.cfg.FlushEvery, s.tick)
	}
}

// Flush writes what waits, and makes it durable unless Sync is [SyncNever]. What is
// still in the queue of a bus is not there yet; see [quota.Bus.Flush].
func (s *Sink) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flush()
}

// flush is Flush; mu is held. What could not be written stays in the buffer.
func (s *Sink) flush() error {
	if len(s.buf) == 0 {
		return nil
	}
	err := s.write()
	switch {
	case err == nil:
		s.failing = false
		return nil
	case !s.failing:
		s.failing = true
		s.cfg.Logger.Error("audit: records cannot be written; it is tried again", slog.Any("error", err))
	}
	return err
}

// write writes the buffer to the file. mu is held.
func (s *Sink) write() error {
	if err := s.ready(); err != nil {
		return err
	}
	if err := s.written(s.f.Write(s.buf)); err != nil {
		return err
	}
	if s.cfg.Sync != SyncNever {
		if err := s.f.Sync(); err != nil {
			// What a failed sync has lost nobody knows, and the next would not tell.
			s.abandon()
			return fmt.Errorf("audit: %w", err)
		}
	}
	if s.size >= s.cfg.MaxFile {
		s.abandon()
	}
	return nil
}

// written takes what the file took out of the buffer. mu is held.
func (s *Sink) written(n int, err error) error {
	if err != nil {
		// Whole records are written; of the rest nothing may stay, or the next one
		// would follow half a line.
		n = bytes.LastIndexByte(s.buf[:max(n, 0)], '\n') + 1
		if s.f.Truncate(s.size+int64(n)) != nil {
			s.abandon()
		}
		err = fmt.Errorf("audit: %w", err)
	}
	done := int64(bytes.Count(s.buf[:n], []byte{'\n'}))
	s.size += int64(n)
	s.records -= done
	s.stats.Written += done
	s.buf = append(s.buf[:0], s.buf[n:]...)
	return err
}

// ready sees to it that there is a file to write to. A file that somebody has moved or
// removed is left alone. mu is held.
func (s *Sink) ready() error {
	if s.f != nil {
		is, err1 := s.f.Stat()
		named, err2 := os.Stat(s.f.Name())
		if err1 == nil && err2 == nil && os.SameFile(is, named) {
			return nil
		}
		s.abandon()
	}
	if s.cfg.Keep > 0 {
		s.expire()
	}
	f, err := create(s.cfg.Dir, s.day)
	if f == nil {
		return err
	}
	s.f, s.size = f, 0
	s.stats.Files++
	return err
}

// expire removes the files that are older than Config.Keep, which may be the one that
// was written to last. mu is held.
func (s *Sink) expire() {
	before := time.Now().Add(-s.cfg.Keep)
	if _, err := Expire(s.cfg.Dir, before); err != nil {
		s.cfg.Logger.Error("audit: old records cannot be removed", slog.Any("error", err))
	}
	if s.f != nil && !s.day.Add(day).After(before) {
		s.abandon()
	}
}

// expireAgain expires, and will again.
func (s *Sink) expireAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.expire()
		s.expirer.Reset(expireEvery)
	}
}

// abandon leaves the file. mu is held.
func (s *Sink) abandon() {
	if s.f != nil {
		_ = s.f.Close() // it was synced, or nobody cares
		s.f = nil
	}
}

// Stats is how the sink does.
func (s *Sink) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Buffered = s.records
	return st
}

// Close writes what waits. What cannot be written then is lost, which the error says.
// Close the bus first. It may be called more than once.
func (s *Sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if s.expirer != nil {
		s.expirer.Stop()
	}
	err := s.flush()
	s.abandon()
	s.stats.Lost += s.records
	s.buf, s.records = nil, 0
	return err
}
