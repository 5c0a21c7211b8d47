package audit

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// A disk that is full in the middle of a record: nothing is written twice, and no line
// is left half.
func TestAFullDiskNeitherTearsNorRepeatsRecords(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full")
	}
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	add := func(call string) {
		if err := s.Append(Record{V: Version, Kind: quota.KindCall, At: at, Call: call}); err != nil {
			t.Fatal(err)
		}
	}
	add("a")
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	add("b")
	good := s.f
	s.f = full
	if err := s.Flush(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("Flush says %v", err)
	}
	good.Close()
	if st := s.Stats(); st.Written != 1 || st.Buffered != 1 {
		t.Errorf("stats are %+v", st)
	}
	add("c")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got := ""
	for r, err := range Read(dir, time.Time{}, time.Time{}) {
		if err != nil {
			t.Fatal(err)
		}
		got += r.Call
	}
	if got != "abc" {
		t.Errorf("read %s, want abc", got)
	}
}

func TestAWriteThatStopsHalfWayIsTakenBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "x")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s.f = f
	s.buf, s.records = []byte("one\ntwo\nthree\n"), 3
	if _, err := f.WriteString("one\ntw"); err != nil { // what the disk took of it
		t.Fatal(err)
	}
	if err := s.written(len("one\ntw"), syscall.ENOSPC); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != "one\n" || string(s.buf) != "two\nthree\n" || s.records != 2 || s.stats.Written != 1 || s.size != 4 {
		t.Errorf("the file has %q, %q waits, %d records; %+v", text, s.buf, s.records, s.stats)
	}
}
