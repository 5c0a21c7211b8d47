package journal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
)

// written is a segment, and where its records end.
type written struct {
	text []byte
	ends []int // of the record of "call-0", "call-1", …
}

// write settles some calls that a ledger has not answered, so that nothing but them is
// written.
func write(t *testing.T, calls int) written {
	t.Helper()
	dir := t.TempDir()
	j, err := journal.Open(dir, journal.Config{Logger: silent, SyncTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(t)
	l := before(t, s, j)
	var w written
	for i := range calls {
		id := fmt.Sprint("call-", i)
		if _, err := l.Reserve(t.Context(), quota.Reserve{ID: id, Tree: tree, Entries: []quota.Entry{hold("ann", 10)}}); err != nil {
			t.Fatal(err)
		}
		s.set(down)
		if _, err := l.Settle(t.Context(), used(id, int64(i+1))); !errors.Is(err, quota.ErrUnavailable) {
			t.Fatal(err)
		}
		s.set(fine)
		w.ends = append(w.ends, int(j.Stats().Size))
	}
	_ = l.Close(context.Background())
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	w.text = segments(t, dir)[0]
	return w
}

// segments are the contents of the files of a directory.
func segments(t *testing.T, dir string) (all [][]byte) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "segment-*.journal"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	return all
}

// recordsOf opens a directory with one segment in it, as a process does after a crash, adds
// a record, and returns the ids that are in it after another restart.
func recordsOf(t *testing.T, dir string, text []byte) (ids string, damaged int64) {
	t.Helper()
	name := filepath.Join(dir, "segment-0000000001.journal")
	old, err := filepath.Glob(filepath.Join(dir, "segment-*.journal"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(dir, journal.Config{Logger: silent, Sync: journal.SyncInterval, SyncTimeout: time.Minute})
	if err != nil {
		t.Fatalf("with %d bytes: %v", len(text), err)
	}
	damaged = j.Stats().Damaged
	s := newStore(t)
	s.set(down) // so that what was left stays
	l := before(t, s, j)
	if _, err := l.Settle(t.Context(), used("next", 1)); !errors.Is(err, quota.ErrUnavailable) {
		t.Fatal(err)
	}
	_ = l.Close(context.Background())
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	var all []string
	for r, err := range journal.Read(dir) {
		if damage := (*journal.DamageError)(nil); errors.As(err, &damage) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, r.ID)
	}
	return strings.Join(all, " "), damaged
}

// A process may die, and a machine, at any time: what was durable is there, what was torn
// is not, and nothing keeps the next process from going on.
func TestWhatWasDurableIsThereWhereverTheFileEnds(t *testing.T) {
	t.Parallel()
	w := write(t, 5)
	dir := t.TempDir()
	for size := range len(w.text) + 1 {
		want := ""
		for i, end := range w.ends {
			if end <= size {
				want += fmt.Sprint("call-", i, " ")
			}
		}
		got, damaged := recordsOf(t, dir, w.text[:size])
		if got != want+"next" || damaged > 0 {
			t.Fatalf("of %d bytes of %d there are %q, want %q; %d damaged", size, len(w.text), got, want+"next", damaged)
		}
	}
}

// A machine that loses power may leave anything at the end of a file.
func TestWhatFollowsTheLastRecordIsCutOff(t *testing.T) {
	t.Parallel()
	w := write(t, 2)
	for name, tail := range map[string]string{
		"zeros": strings.Repeat("\x00", 5000), "marks": strings.Repeat("\xc5", 3000), "text": "HTTP/1.1 200 OK\r\n",
	} {
		dir := t.TempDir()
		got, _ := recordsOf(t, dir, append(w.text[:len(w.text):len(w.text)], tail...))
		if got != "call-0 call-1 next" || len(segments(t, dir)[0]) != len(w.text) {
			t.Errorf("%s: there are %q in %d bytes of %d", name, got, len(segments(t, dir)[0]), len(w.text))
		}
	}
}

// A disk may lie: one record is lost at most, and that is told.
func TestADamagedByteCostsOneRecordAtMost(t *testing.T) {
	t.Parallel()
	w := write(t, 3)
	dir := t.TempDir()
	first := w.ends[0] - (w.ends[1] - w.ends[0]) // where call-0 begins: all are of one length
	for at := range w.text {
		text := append([]byte(nil), w.text...)
		text[at] ^= 0x10
		want := "call-0 call-1 call-2 next"
		for i, end := range w.ends {
			if from := end - (w.ends[1] - w.ends[0]); at >= from && at < end {
				want = strings.Replace(want, fmt.Sprint("call-", i, " "), "", 1)
			}
		}
		got, damaged := recordsOf(t, dir, text)
		if got != want {
			t.Fatalf("with byte %d of %d changed there are %q, want %q", at, len(text), got, want)
		}
		if last := at >= w.ends[1]; damaged == 0 && !last || damaged > 1 {
			t.Fatalf("with byte %d of %d changed %d are damaged (the first record begins at %d)", at, len(text), damaged, first)
		}
	}
}

// A file of which nothing can be read may be of use to somebody, and is left alone; one that
// was just begun is not.
func TestAFileWithNothingInItThatCanBeReadIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"segment-0000000003.journal": strings.Repeat("x", 1000), "segment-0000000004.journal": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	j, err := journal.Open(dir, journal.Config{Logger: silent, SyncTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	l := before(t, newStore(t), j)
	if _, err := l.Settle(t.Context(), used("nobody", 1)); !errors.Is(err, quota.ErrUnknownReservation) {
		t.Fatal(err)
	}
	if st := j.Stats(); st.Damaged != 1 || st.Segments != 1 || st.Records != 1 {
		t.Errorf("stats are %+v", st)
	}
	if err := errors.Join(l.Close(context.Background()), j.Close()); err != nil {
		t.Fatal(err)
	}
	files := segments(t, dir)
	if len(files) != 2 || string(files[0]) != strings.Repeat("x", 1000) {
		t.Errorf("there are %d files", len(files))
	}
}

// A version that is not known is left alone.
func TestFilesOfAnotherVersionAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "segment-0000000001.journal"), journal.HeaderOfVersion(2), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := journal.Open(dir, journal.Config{})
	if err == nil || !strings.Contains(err.Error(), "segment-0000000001.journal: it was written by another version") {
		t.Errorf("Open: %v", err)
	}
}

func TestADirectoryIsOfOneProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, err := journal.Open(dir, journal.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = journal.Open(dir, journal.Config{})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("it is in use by process %d", os.Getpid())) {
		t.Errorf("a second Open: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	j, err = journal.Open(dir, journal.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestConfigErrorsNameTheField(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]journal.Config{
		"Config.Keep is -1ns":             {Keep: -1},
		"Config.Keep is 1m0s":             {Keep: 60e9},
		"Config.Remember is -1ns":         {Remember: -1},
		"Config.MaxBytes is 5":            {MaxBytes: 5},
		"Config.MaxOpen is -1":            {MaxOpen: -1},
		"Config.MaxUnanswered is -1":      {MaxUnanswered: -1},
		"Config.SegmentBytes is 9":        {SegmentBytes: 9},
		"Config.SegmentBytes is 20000":    {SegmentBytes: 20000, MaxBytes: 40000},
		"Config.SegmentBytes is 67108865": {SegmentBytes: 64<<20 + 1},
		"Config.Sync is 7":                {Sync: 7},
		"Config.SyncEvery is -1ns":        {SyncEvery: -1},
		"Config.SyncTimeout is -1ns":      {SyncTimeout: -1},
		"Config.Workers is -1":            {Workers: -1},
		"Config.Workers is 1000":          {Workers: 1000},
	} {
		if _, err := journal.Open(t.TempDir(), cfg); err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "Config.") != 1 {
			t.Errorf("error is %v, want one with %q and no other field", err, want)
		}
	}
	if _, err := journal.Open("", journal.Config{}); err == nil || !strings.Contains(err.Error(), "path is empty") {
		t.Errorf("error for no path is %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := journal.Open(file, journal.Config{}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error for a file is %v", err)
	}
}
