package audit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota/audit"
)

func TestOldFilesExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		keep := open(t, audit.Config{Dir: dir, Keep: 30 * 24 * time.Hour})
		began := time.Now()
		for i := range 60 {
			r := at(0, fmt.Sprint(i))
			r.At = time.Now()
			write(t, keep, r)
			time.Sleep(24 * time.Hour)
		}
		if err := keep.Close(); err != nil { // or it might remove one more now
			t.Fatal(err)
		}
		got := records(t, dir)
		if first := got[0].At; first.Before(began.Add(28*24*time.Hour)) || first.After(began.Add(30*24*time.Hour)) || len(got) < 30 {
			t.Errorf("after 60 days %d records are kept, the first of day %v", len(got), first.Sub(began)/(24*time.Hour))
		}
		other := filepath.Join(dir, "audit-20000101-notes.jsonl")
		if err := os.WriteFile(other, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		day := got[9].At
		n, err := audit.Expire(dir, day)
		if err != nil || n != 9 {
			t.Errorf("%d files were removed, %v; want 9", n, err)
		}
		if got := records(t, dir)[0].At; !got.Equal(day) {
			t.Errorf("the first record is of %v, want %v", got, day)
		}
		if _, err := os.Stat(other); err != nil {
			t.Errorf("a file of somebody else is gone: %v", err)
		}
	})
}

// Nobody writes: what is too old goes all the same, when the sink is opened and while it
// idles, until it is closed.
func TestOldFilesExpireWhileNothingIsWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const keep = 30 * 24 * time.Hour
		dir := t.TempDir()
		leave := func(age time.Duration) string { // a file whose last record may be so old
			name := fmt.Sprintf("audit-%s-000001.jsonl", time.Now().Add(-age-24*time.Hour).UTC().Format("20060102"))
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return name
		}
		leave(keep)
		younger := leave(keep - 24*time.Hour)
		s := open(t, audit.Config{Dir: dir, Keep: keep})
		if got, want := files(t, dir), []string{younger}; !reflect.DeepEqual(got, want) {
			t.Fatalf("a sink that was opened has %v, want %v", got, want)
		}
		time.Sleep(23 * time.Hour)
		if got, want := files(t, dir), []string{younger}; !reflect.DeepEqual(got, want) {
			t.Fatalf("an hour before its time there are %v, want %v", got, want)
		}
		time.Sleep(2 * time.Hour)
		if got := files(t, dir); got != nil {
			t.Fatalf("an idle sink has kept %v", got)
		}
		r := at(0, "a")
		r.At = time.Now()
		write(t, s, r)
		time.Sleep(keep + 25*time.Hour)
		if got := files(t, dir); got != nil {
			t.Fatalf("the sink has kept the file that it had last written to: %v", got)
		}
		r.Call, r.At = "b", time.Now()
		write(t, s, r)
		if got := ids(records(t, dir)); got != "b" {
			t.Errorf("after the file was removed the sink wrote %q, want b", got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		left := leave(2 * keep)
		time.Sleep(2 * time.Hour)
		if _, err := os.Stat(filepath.Join(dir, left)); err != nil {
			t.Errorf("a closed sink still removes files: %v", err)
		}
	})
}
