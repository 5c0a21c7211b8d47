package journal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
)

// disk is where files can fail.
type disk struct {
	mu sync.Mutex
	// mu guards all that follows.
	room     int           // bytes that still fit; negative is no end
	sync     error         // of the next syncs
	fails    int           // how many of them fail
	truncate error         // while it is set
	stuck    chan struct{} // syncs wait until it is closed; nil is none
	syncs    int
}

func (d *disk) config(cfg journal.Config) journal.Config {
	journal.WrapFiles(&cfg, func(f journal.File) journal.File { return &diskFile{f, d} })
	return cfg
}

func (d *disk) set(change func(d *disk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

func (d *disk) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs
}

type diskFile struct {
	journal.File
	d *disk
}

func (f *diskFile) Write(p []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.room < 0 || f.d.room >= len(p) {
		if f.d.room > 0 {
			f.d.room -= len(p)
		}
		return f.File.Write(p)
	}
	n, err := f.File.Write(p[:f.d.room])
	if f.d.room = 0; err == nil {
		err = syscall.ENOSPC
	}
	return n, err
}

func (f *diskFile) Truncate(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.truncate != nil {
		return f.d.truncate
	}
	return f.File.Truncate(size)
}

func (f *diskFile) Sync() error {
	f.d.mu.Lock()
	f.d.syncs++
	var err error
	if f.d.fails > 0 {
		f.d.fails--
		err = f.d.sync
	}
	stuck := f.d.stuck
	f.d.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	if err != nil {
		return err
	}
	return f.File.Sync()
}

// onDisk runs a test in virtual time with a disk that can fail.
func onDisk(t *testing.T, cfg journal.Config, test func(w *world, d *disk)) {
	t.Helper()
	d := &disk{room: -1}
	virtual(t, d.config(cfg), func(w *world) { test(w, d) })
}

// ids are those of all records in the files, in order.
func (w *world) ids() string {
	w.Helper()
	var all []string
	for r, err := range journal.Read(w.dir) {
		if err != nil {
			w.Fatal(err)
		}
		all = append(all, r.ID)
	}
	return strings.Join(all, " ")
}

func TestOnAFullDiskSettlementsGoOnAndAreCounted(t *testing.T) {
	for name, truncate := range map[string]error{"can be cut off": nil, "cannot be cut off": syscall.EIO} {
		t.Run(name, func(t *testing.T) {
			onDisk(t, journal.Config{}, func(w *world, d *disk) {
				for i := range 6 {
					w.reserve(fmt.Sprint(i), w.day("ann", quota.Hold, 10))
				}
				w.settle("0", 1)
				time.Sleep(time.Second)
				d.set(func(d *disk) { d.room, d.truncate = 20, truncate }) // a part of the next one fits
				since := time.Now()
				for i := 1; i < 4; i++ {
					w.settle(fmt.Sprint(i), 1)
					time.Sleep(journal.FailPause / 2)
				}
				w.tokens2("ann", 4, 20)
				err := w.l.Healthy(w.Context())
				if !errors.Is(err, journal.ErrNotRecording) || !errors.Is(err, quota.ErrUnavailable) || !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("Healthy: %v", err)
				}
				if st := w.j.Stats(); st.Unrecorded != 3 || !st.Failing || st.WriteErrors == 0 || st.Unanswered != 0 {
					t.Errorf("stats are %+v", st)
				}

				d.set(func(d *disk) { d.room, d.truncate = -1, nil })
				time.Sleep(journal.FailPause + time.Second) // it finds out by itself
				if err := w.l.Healthy(w.Context()); err != nil {
					t.Errorf("Healthy: %v", err)
				}
				w.settle("4", 1)
				if began, ended := w.log.count("settlements cannot be recorded"), w.log.count("settlements are recorded again"); began != 1 || ended != 1 {
					t.Errorf("the beginning is logged %d times, the end %d:\n%s", began, ended, w.log.text.String())
				}
				w.restart()
				if got := w.ids(); got != "0 4" {
					t.Errorf("there are %q", got)
				}
				// Whoever relies on it is told that something is missing, also later.
				report, err := w.l.Replay(w.Context(), since)
				if want := (journal.Report{Known: 1, Missing: 3}); report != want || !errors.Is(err, journal.ErrIncomplete) {
					t.Errorf("Replay = %+v, %v, want %+v", report, err, want)
				}
				w.reserve("6", w.day("ann", quota.Hold, 10))
				time.Sleep(time.Minute)
				since = time.Now()
				w.settle("6", 1)
				w.replayed(since, journal.Report{Known: 1})
			})
		})
	}
}

// What a failed sync has lost nobody knows, and another one would not tell: the record is
// written again elsewhere, and counts once.
func TestAFailedSyncIsMadeUpForInAnotherFile(t *testing.T) {
	onDisk(t, journal.Config{}, func(w *world, d *disk) {
		for i := range 3 {
			w.reserve(fmt.Sprint(i), w.day("ann", quota.Hold, 10))
		}
		w.settle("0", 1)
		d.set(func(d *disk) { d.sync, d.fails = syscall.EIO, 1 })
		w.store.set(down)
		w.unsettled("1", 1, quota.ErrUnavailable)
		w.store.set(fine)
		w.settle("2", 1)
		if st := w.j.Stats(); st.Segments != 2 || st.Unrecorded != 0 || st.Failing || st.Unanswered != 1 {
			t.Errorf("stats are %+v", st)
		}
		w.restart()
		if got := w.ids(); got != "0 1 2" {
			t.Errorf("there are %q", got)
		}
		w.recovered(journal.Report{Settled: 1})
		w.unanswered(0)
		w.tokens("ann", 3)
		time.Sleep(3 * time.Hour)
		if got := w.ids(); got != "" {
			t.Errorf("after Keep there are %q", got)
		}
	})
}

// A disk that hangs makes nobody wait for long.
func TestAStalledDiskDelaysSettlementsByTheTimeoutOnce(t *testing.T) {
	onDisk(t, journal.Config{SyncTimeout: 200 * time.Millisecond}, func(w *world, d *disk) {
		for i := range 5 {
			w.reserve(fmt.Sprint(i), w.day("ann", quota.Hold, 10))
		}
		stuck := make(chan struct{})
		d.set(func(d *disk) { d.stuck = stuck })
		began := time.Now()
		for i := range 4 {
			w.settle(fmt.Sprint(i), 1)
		}
		if took := time.Since(began); took != 200*time.Millisecond {
			t.Errorf("four settlements took %v", took)
		}
		if err := w.j.Healthy(); !errors.Is(err, journal.ErrNotRecording) || !strings.Contains(err.Error(), "longer than 200ms") {
			t.Errorf("Healthy: %v", err)
		}
		d.set(func(d *disk) { d.stuck = nil })
		close(stuck)
		synctest.Wait()
		if err := w.j.Healthy(); err != nil {
			t.Errorf("Healthy: %v", err)
		}
		w.settle("4", 1)
		if st := w.j.Stats(); st.Stalled != 1 || st.Unrecorded != 3 || st.Records != 2 || st.Unanswered != 0 {
			t.Errorf("stats are %+v", st)
		}
		if got := w.ids(); got != "0 4" {
			t.Errorf("there are %q", got)
		}
		w.restart()
		w.recovered(journal.Report{})
		w.tokens("ann", 5)
	})
}

// The caller's deadline comes before the disk's.
func TestASettlementEndsWithItsContext(t *testing.T) {
	onDisk(t, journal.Config{SyncTimeout: time.Minute}, func(w *world, d *disk) {
		w.reserve("a", w.day("ann", quota.Hold, 10))
		stuck := make(chan struct{})
		d.set(func(d *disk) { d.stuck = stuck })
		ctx, cancel := contextWithTimeout(w, time.Second)
		defer cancel()
		began := time.Now()
		if _, err := w.l.Settle(ctx, used("a", 5)); !errors.Is(err, ctx.Err()) || err == nil {
			t.Errorf("Settle: %v", err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v", took)
		}
		close(stuck)
		// It is recorded, if late, and is told by the journal as its caller does not.
		time.Sleep(journal.RetryAfter + time.Second)
		w.unanswered(0)
		w.tokens("ann", 5)
	})
}

func TestAnIntervalSharesASyncAmongAllOfIt(t *testing.T) {
	onDisk(t, journal.Config{Sync: journal.SyncInterval, SyncEvery: time.Second}, func(w *world, d *disk) {
		for i := range 100 {
			id := fmt.Sprint(i)
			w.reserve(id, w.day("ann", quota.Hold, 10))
			w.settle(id, 1)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		before := d.count()
		if before < 9 || before > 12 {
			t.Errorf("%d syncs in 10 s, want one a second", before)
		}
		w.reserve("x", w.day("ann", quota.Hold, 10))
		w.settle("x", 1)
		if err := w.l.Flush(w.Context()); err != nil || d.count() != before+1 {
			t.Errorf("Flush: %v, %d syncs", err, d.count()-before)
		}
		// A failure is told though nobody waits for it, and it ends.
		d.set(func(d *disk) { d.sync, d.fails = syscall.EIO, 4 })
		w.reserve("y", w.day("ann", quota.Hold, 10))
		w.settle("y", 1)
		for range 3 {
			time.Sleep(1100 * time.Millisecond)
			if err := w.j.Healthy(); !errors.Is(err, syscall.EIO) {
				t.Errorf("Healthy: %v", err)
			}
		}
		time.Sleep(2 * time.Second)
		if err := w.j.Healthy(); err != nil {
			t.Errorf("Healthy: %v", err)
		}
	})
}

func TestFilesAreRemovedWhenTheyAreAcknowledgedAndOld(t *testing.T) {
	virtual(t, journal.Config{Keep: 8 * time.Hour}, func(w *world) {
		call := func(id string) {
			w.reserve(id, w.day("ann", quota.Hold, 10))
			w.settle(id, 1)
		}
		call("old")
		time.Sleep(time.Minute)
		w.store.setFor(func(op string) fault {
			if op == "settle" {
				return down
			}
			return fine
		})
		for i := range 10 { // a file an hour, an eighth of Keep
			id := "unanswered"
			if i > 0 {
				id = fmt.Sprint("n", i)
			}
			w.reserve(id, w.day("ann", quota.Hold, 10))
			w.unsettled(id, 1, quota.ErrUnavailable)
			time.Sleep(time.Hour)
		}
		if n := w.j.Stats().Segments; n < 10 {
			t.Errorf("there are %d files of 10 hours", n)
		}
		if got := w.ids(); !strings.HasPrefix(got, "old unanswered ") {
			t.Fatalf("there are %q", got)
		}
		w.store.set(fine)
		time.Sleep(10 * time.Minute) // all are told
		w.unanswered(0)
		time.Sleep(7 * time.Hour)
		if got := w.ids(); !strings.HasPrefix(got, "old unanswered ") {
			t.Errorf("before Keep there are %q", got)
		}
		time.Sleep(2 * time.Hour)
		if got := w.ids(); got != "" {
			t.Errorf("after Keep there are %q", got)
		}
		if names, _ := filepath.Glob(filepath.Join(w.dir, "segment-*")); len(names) > 0 {
			t.Errorf("there are still %q", names)
		}
		call("new")
		w.restart()
		if got := w.ids(); got != "new" {
			t.Errorf("there are %q", got)
		}
	})
}

// What was settled long before the ledger has answered is kept as long as what is new, as
// the answer is what may be lost.
func TestFilesAreKeptFromTheAnswerOn(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		w.reserve("a", w.day("ann", quota.Hold, 10))
		w.store.set(down)
		w.unsettled("a", 1, quota.ErrUnavailable)
		time.Sleep(50*time.Minute + between)
		w.store.set(fine)
		w.settle("a", 1)
		time.Sleep(time.Second)
		for _, restart := range []bool{false, true} {
			if restart {
				w.restart()
			}
			time.Sleep(25 * time.Minute)
			if got := w.ids(); got != "a" {
				t.Errorf("restarted %v: there are %q", restart, got)
			}
		}
		time.Sleep(20 * time.Minute)
		if got := w.ids(); got != "" {
			t.Errorf("after Keep there are %q", got)
		}
	})
}

// A journal is bounded: what is acknowledged makes room, and a Replay says so; what is
// not stays, and nothing more is recorded.
func TestAFullJournalKeepsWhatIsNotAnswered(t *testing.T) {
	virtual(t, journal.Config{MaxBytes: 32 << 10, SegmentBytes: 4 << 10}, func(w *world) {
		begun := time.Now()
		settle := func(n int, each func(id string)) {
			for i := range n {
				id := fmt.Sprint(time.Now().Unix(), "-", i)
				w.reserve(id, w.day("ann", quota.Hold, 1))
				each(id)
			}
			time.Sleep(time.Second)
			if st := w.j.Stats(); st.Size > 32<<10 {
				t.Fatalf("it has %d bytes", st.Size)
			}
		}
		settle(500, func(id string) { w.settle(id, 1) })
		st := w.j.Stats()
		if st.Shortened == 0 || st.Unrecorded != 0 || st.Failing {
			t.Fatalf("stats are %+v", st)
		}
		report, err := w.l.Replay(w.Context(), begun)
		if !errors.Is(err, journal.ErrIncomplete) || report.Missing == 0 || report.Missing+int64(report.Known) != 500 {
			t.Fatalf("Replay = %+v, %v", report, err)
		}

		w.store.setFor(func(op string) fault {
			if op == "settle" {
				return down
			}
			return fine
		})
		settle(500, func(id string) { w.unsettled(id, 1, quota.ErrUnavailable) })
		st = w.j.Stats()
		if st.Unanswered < 50 || st.Unrecorded != int64(500-st.Unanswered) || !st.Failing {
			t.Fatalf("stats are %+v", st)
		}
		if err := w.j.Healthy(); !errors.Is(err, journal.ErrNotRecording) || !strings.Contains(err.Error(), "Config.MaxBytes") {
			t.Errorf("Healthy: %v", err)
		}
		w.restart()
		w.unanswered(st.Unanswered)
		w.store.set(fine)
		w.recovered(journal.Report{Settled: st.Unanswered})
		time.Sleep(5 * time.Second) // now there is room
		settle(10, func(id string) { w.settle(id, 1) })
		if st := w.j.Stats(); st.Failing || st.Unrecorded != 0 || st.Records != 10 {
			t.Errorf("stats are %+v", st)
		}
	})
}

// So is how many wait for the ledger, each of which takes memory.
func TestWhatIsNotAnsweredIsBounded(t *testing.T) {
	virtual(t, journal.Config{MaxUnanswered: 10}, func(w *world) {
		for i := range 30 {
			w.reserve(fmt.Sprint(i), w.day("ann", quota.Hold, 1))
		}
		w.store.set(down)
		for i := range 30 {
			w.unsettled(fmt.Sprint(i), 1, quota.ErrUnavailable)
			time.Sleep(journal.FailPause)
		}
		if st := w.j.Stats(); st.Unanswered != 10 || st.Records != 10 || st.Unrecorded != 20 || !st.Failing {
			t.Errorf("stats are %+v", st)
		}
		w.store.set(fine)
		for i := range 30 {
			w.settle(fmt.Sprint(i), 1)
		}
		time.Sleep(2 * time.Second)
		if st := w.j.Stats(); st.Unanswered != 0 || st.Failing {
			t.Errorf("stats are %+v", st)
		}
		if n := w.log.count("settlements cannot be recorded"); n != 1 {
			t.Errorf("the beginning is logged %d times:\n%s", n, w.log.text.String())
		}
		w.tokens("ann", 30)
	})
}

// The files are gone, as somebody has removed them: it goes on with new ones.
func TestADirectoryThatIsRemovedIsToldAndMadeUpFor(t *testing.T) {
	virtual(t, journal.Config{SegmentBytes: 4 << 10}, func(w *world) {
		if err := os.RemoveAll(w.dir); err != nil {
			t.Fatal(err)
		}
		w.reserve("a", w.day("ann", quota.Hold, 1))
		w.settle("a", 1)
		if err := w.j.Healthy(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Healthy: %v", err)
		}
		if err := os.Mkdir(w.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		w.reserve("b", w.day("ann", quota.Hold, 1))
		w.settle("b", 1)
		if got := w.ids(); got != "b" || w.j.Healthy() != nil {
			t.Errorf("there are %q; %v", got, w.j.Healthy())
		}
	})
}

func TestARecordTooLongIsNotWritten(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		e := w.day(strings.Repeat("k", journal.MaxPayload), quota.Hold, 5)
		w.reserve("a", e)
		w.settle("a", 5)
		if st := w.j.Stats(); st.Unrecorded != 1 || st.Failing || st.Records != 0 {
			t.Errorf("stats are %+v", st)
		}
	})
}

func TestAClosedJournalLetsSettlementsPass(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		w.reserve("a", w.day("ann", quota.Hold, 10))
		if err := w.j.Close(); err != nil {
			t.Fatal(err)
		}
		w.settle("a", 5)
		w.tokens("ann", 5)
		if err := w.l.Healthy(w.Context()); !errors.Is(err, journal.ErrClosed) {
			t.Errorf("Healthy: %v", err)
		}
		if err := w.l.Flush(w.Context()); !errors.Is(err, journal.ErrClosed) {
			t.Errorf("Flush: %v", err)
		}
		if st := w.j.Stats(); st.Unrecorded != 1 {
			t.Errorf("stats are %+v", st)
		}
	})
}
