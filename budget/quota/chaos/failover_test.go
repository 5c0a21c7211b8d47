package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
	"github.com/headgate-go/headgate/internal/servers"
)

// A master is killed, and a replica takes its place that lacks what it did not get in time.
// Of what was acknowledged, no more is missing than since the replica had all of it for the last
// time; other masters' trees miss nothing; and nothing is missing when each program has replayed
// its journal since then, while calls go on and everybody gets an answer.
func TestFailoverLosesTheLagAndAReplayMakesItWhole(t *testing.T) {
	t.Parallel()
	cluster := servers.StartRedisCluster(t, 3, 1, servers.RedisOptions{})
	w := newPrograms(t, cluster)
	for round := 0; round < 2 || time.Since(w.begun) < havocFor(t, time.Second); round++ {
		// In one of two rounds the replica does not get anything for a while.
		w.failOver(cluster, w.trees[w.chance.IntN(len(w.trees))], round%2 == 0)
		if t.Failed() {
			return
		}
	}
}

// programs are callers of a cluster in this process, each with its journal.
type programs struct {
	*testing.T
	chance   *rand.Rand
	trees    []string
	books    *books
	ledger   quota.Ledger // without a journal
	journals []string
	all      []*journal.Ledger
	begun    time.Time
	lost     sums // at the most, over all failovers
}

func newPrograms(t *testing.T, cluster *servers.RedisCluster) *programs {
	t.Helper()
	w := &programs{T: t, chance: chance(t), trees: treesOnEach(cluster), books: newBooks(), begun: time.Now(), lost: sums{}}
	at := storeAt{"cluster", strings.Join(cluster.Addrs(), ",")}
	open := func() quota.Ledger {
		ledger, end, err := at.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = end() })
		return ledger
	}
	w.ledger = open()
	t.Cleanup(func() { _ = w.ledger.Close(context.Background()) })
	for i := range 2 {
		dir := filepath.Join(t.TempDir(), strconv.Itoa(i))
		j, err := journal.Open(dir, journalConfig)
		if err != nil {
			t.Fatal(err)
		}
		l := journaled(t, open(), j)
		t.Cleanup(func() {
			if err := errors.Join(l.Close(context.Background()), j.Close()); err != nil {
				t.Error(err)
			}
		})
		w.journals, w.all = append(w.journals, dir), append(w.all, l)
	}
	return w
}

// treesOnEach are trees of which each is on another master.
func treesOnEach(cluster *servers.RedisCluster) (trees []string) {
	masters := map[*servers.Redis]bool{}
	for i := 0; len(trees) < len(cluster.Nodes())/2; i++ {
		tree := fmt.Sprint("tenant-", i)
		if m := cluster.MasterOf(slotOf(tree)); !masters[m] {
			masters[m] = true
			trees = append(trees, tree)
		}
	}
	return trees
}

// slotOf is a key that is where those of a tree are.
func slotOf(tree string) string { return "{" + tree + "}" }

// work has all programs make calls until what is returned is called.
func (w *programs) work() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	for _, ledger := range w.all {
		c := caller{Trees: w.trees, Seed: w.chance.Uint64(), Workers: workers, Lossy: true}
		working.Go(func() {
			c.work(ctx, ledger, answerWithinJournaled, func(format string, args ...any) { w.books.note(fmt.Sprintf(format, args...)) })
		})
	}
	return func() { cancel(); working.Wait() }
}

// failOver kills the master of a tree in the middle of the work.
func (w *programs) failOver(cluster *servers.RedisCluster, tree string, lags bool) {
	w.Helper()
	stop := sync.OnceFunc(w.work())
	defer stop()
	time.Sleep(between(w.chance, 200*time.Millisecond, 600*time.Millisecond))
	master := cluster.MasterOf(slotOf(tree))
	since := w.replicated(master, tree, lags)
	time.Sleep(between(w.chance, 100*time.Millisecond, 400*time.Millisecond))
	master.Kill()
	killed := time.Now()
	cluster.AwaitFailover(slotOf(tree), master)
	w.goesOn(tree)
	time.Sleep(between(w.chance, 200*time.Millisecond, 600*time.Millisecond))
	stop()
	w.books.complaints(w.T)

	// What is acknowledged later comes from the new master, which takes longer to be one.
	lag := w.books.between(since, killed.Add(servers.NodeTimeout/2))
	least, most := w.books.acknowledged()
	have := w.books.standing(w.T, w.ledger)
	lost := int64(0)
	for p := range least {
		if p.tree == tree {
			lost += max(least[p]-have[p], 0)
			least[p] -= lag[p]
			w.lost[p] += lag[p]
		}
	}
	have.within(w.T, "after the failover", least, most)
	if lags && lost == 0 {
		w.Error("the replica lagged, and nothing is missing: nothing was tested")
	}

	// Once more, with calls going on.
	stopAgain := sync.OnceFunc(w.work())
	defer stopAgain()
	for i, l := range w.all {
		if report, err := l.Replay(w.Context(), since); err != nil {
			w.Errorf("program %d: Replay = %+v, %v", i, report, err)
		}
	}
	stopAgain()
	w.books.complaints(w.T)
	recorded := map[string]bool{}
	for i, l := range w.all {
		if err := l.Flush(w.Context()); err != nil {
			w.Error(err)
		}
		for id := range settledIn(w.T, w.journals[i]) {
			recorded[id] = true
		}
	}
	doubtful := w.books.resolve(w.T, w.ledger, recorded)
	least, most = w.books.acknowledged()
	have = w.books.standing(w.T, w.ledger)
	have.within(w.T, "after the replay", least, most)
	w.books.bounds(w.T, time.Since(w.begun), w.lost)
	w.books.audit(w.T, have, w.journals)
	lapse(w.T, w.ledger, w.trees)
	all, denied, settled, late := w.books.count()
	w.Logf("%d calls, %d denied, %d settled, %d of them late, %d that nobody was told of; lost and found %d units", all, denied, settled, late, doubtful, lost)

	master.Restart()
	cluster.AwaitWhole()
}

// goesOnWithin is how long after a failover a program may not know of it: about two seconds, and
// more on a machine with much else to do.
const goesOnWithin = 10 * time.Second

// goesOn waits until the programs have found the new master of a tree.
func (w *programs) goesOn(tree string) {
	w.Helper()
	for begun := time.Now(); ; time.Sleep(pause) {
		var errs []error
		for _, l := range w.all {
			_, err := l.Status(w.Context(), tree, callsOf(team))
			errs = append(errs, err)
		}
		switch err := errors.Join(errs...); {
		case err == nil:
			return
		case time.Since(begun) > goesOnWithin:
			w.Fatalf("%v after the failover: %v", time.Since(begun).Round(time.Millisecond), err)
		}
	}
}

// replicated returns an instant of which the replica of a master has everything. If it
// lags, it gets nothing of what comes after that instant or a little later.
func (w *programs) replicated(master *servers.Redis, tree string, lags bool) (since time.Time) {
	w.Helper()
	ctx := w.Context()
	conn := master.Client().Conn()
	defer conn.Close()
	since = time.Now()
	if err := conn.Set(ctx, slotOf(tree)+"mark", since.UnixNano(), time.Minute).Err(); err != nil {
		w.Fatal(err)
	}
	if n, err := conn.Do(ctx, "wait", 1, 5000).Int(); err != nil || n < 1 {
		w.Fatalf("%d replicas have it, %v", n, err)
	}
	if !lags {
		return since
	}
	// It may not begin anew, and what it has is ended.
	if err := conn.Do(ctx, "acl", "setuser", "default", "-psync", "-sync").Err(); err != nil {
		w.Fatal(err)
	}
	if n, err := conn.Do(ctx, "client", "kill", "type", "replica").Int(); err != nil || n < 1 {
		w.Fatalf("%d replicas were cut off, %v", n, err)
	}
	return since
}
