//go:build unix

package sqlledger_test

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/internal/servers"
)

// TestProcessWithoutRoom is a process of the test below: none of its files may become larger than
// the system says, and then may again.
func TestProcessWithoutRoom(t *testing.T) {
	if !servers.Respawned(t) {
		t.Skip("runs as a process of another test")
	}
	signal.Ignore(syscall.SIGXFSZ) // so that writing fails instead
	d := database{"sqlite", os.Getenv("HEADGATE_TEST_DSN")}
	l := d.ledger(t)
	spend(t, l, "acme", 0, held("acme", 5, -1))
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	limit := before
	limit.Cur = 400 << 10
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	settled, failed := 0, 0
	call := func(i int) error {
		id := fmt.Sprint("call-", i)
		_, err := l.Reserve(t.Context(), quota.Reserve{ID: id, Tree: "acme", Entries: []quota.Entry{held("acme", 5, -1), held("acme/user=1", 5, -1)}})
		if err != nil {
			return err
		}
		res, err := l.Settle(t.Context(), quota.Settle{ID: id, Tree: "acme", Actual: tokens(3)})
		if err == nil && res.Repeated {
			t.Errorf("%s was settled before", id)
		}
		return err
	}
	i := 0
	for ; failed < 3; i++ {
		switch err := call(i); {
		case err == nil:
			settled++
		case errors.Is(err, quota.ErrUnavailable):
			failed++
		default:
			t.Fatalf("without room: %v, want %v", err, quota.ErrUnavailable)
		}
		if i > 5000 {
			t.Fatal("there is always room")
		}
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	st, err := l.Status(t.Context(), "acme", held("acme", 0, -1))
	if err != nil || st[0].Committed != int64(3*settled) {
		t.Errorf("Status = %+v, %v, want %d committed", st, err, 3*settled)
	}
	reproduced(t, l)
	for range 10 {
		if err := call(i); err != nil {
			t.Errorf("with room again: %v", err)
		}
		settled++
		i++
	}
	st, err = l.Status(t.Context(), "acme", held("acme", 0, -1))
	if err != nil || st[0].Committed != int64(3*settled) {
		t.Errorf("Status = %+v, %v, want %d committed", st, err, 3*settled)
	}
	reproduced(t, l)
}

// The system's word for a disk without room comes from writing to it, in the middle of a
// transaction or at its end.
func TestAFailedWriteLeavesNothingHalfWritten(t *testing.T) {
	t.Parallel()
	d := newSQLite(t)
	if err := servers.Respawn(t, "TestProcessWithoutRoom", "HEADGATE_TEST_DSN="+d.dsn).Wait(); err != nil {
		t.Errorf("the process: %v", err)
	}
	reproduced(t, d.ledger(t))
}
