package journal_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
	"github.com/headgate-go/headgate/internal/servers"
)

const killDir = "HEADGATE_TEST_JOURNAL"

// A process is killed in the middle of its work, again and again, and with it all that its
// ledger had in memory. What a caller was told is settled is charged, once.
func TestKilledProcessesLoseNothingThatACallerWasTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begun := time.Now().Add(-time.Second)
	promised := map[string]bool{}
	for round := range 4 {
		p := servers.Respawn(t, "TestSettlesUntilItIsKilled", killDir+"="+dir)
		enough := 20 + rand.IntN(200)
		for line := range p.Lines() {
			if id, ok := strings.CutPrefix(line, "settled "); ok {
				promised[id] = true
			}
			if enough--; enough == 0 {
				p.Kill() // the rest of what it has printed is still to come
			}
		}
		if enough > 0 {
			t.Fatalf("round %d: the process ended by itself: %v", round, p.Wait())
		}
	}

	j, err := journal.Open(dir, journal.Config{Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	m, err := quota.NewMemory(quota.MemoryConfig{MaxRemembered: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	l := before(t, m, j)
	if _, err := l.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := l.Replay(t.Context(), begun); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	recorded := int64(0)
	for r, err := range journal.All(dir) {
		if err != nil {
			t.Fatal(err)
		}
		recorded++
		delete(promised, r.ID)
	}
	if len(promised) > 0 {
		t.Errorf("%d settlements of which callers were told are lost", len(promised))
	}
	all, err := m.Status(t.Context(), tree, hold("ann", 0))
	if err != nil || all[0].Committed != recorded {
		t.Errorf("the counter is %+v, %v, want %d", all, err, recorded)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

func TestSettlesUntilItIsKilled(t *testing.T) {
	if !servers.Respawned(t) {
		t.Skip("runs as a process of TestKilledProcessesLoseNothingThatACallerWasTold")
	}
	j, err := journal.Open(os.Getenv(killDir), journal.Config{Logger: silent, SyncTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	m, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		t.Fatal(err)
	}
	l := before(t, m, j)
	ctx := context.Background()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				id := budget.NewID()
				if _, err := l.Reserve(ctx, quota.Reserve{ID: id, Tree: tree, Entries: []quota.Entry{hold("ann", 5)}}); err != nil {
					t.Error(err)
					return
				}
				if _, err := l.Settle(ctx, used(id, 1)); err != nil {
					t.Error(err)
					return
				}
				fmt.Println("settled", id)
			}
		})
	}
	wg.Wait()
}
