package redisledger_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/redisledger"
	"github.com/headgate-go/headgate/internal/servers"
)

// Two instances, as two processes have them.
func twice(t *testing.T) [2]*redisledger.Ledger {
	return [2]*redisledger.Ledger{open(t, shared(t), prefix(t)), open(t, shared(t), prefix(t))}
}

func TestInstancesTogetherNeverPassALimit(t *testing.T) {
	t.Parallel()
	instances := twice(t)
	const limit = 1000
	var passed, sum atomic.Int64
	var wg sync.WaitGroup
	for g := range 40 {
		wg.Go(func() {
			l := instances[g%2]
			for i := range 25 {
				id, amount := budget.NewID(), int64(1+(g+i)%9)
				user := hourly(fmt.Sprint("user-", g%5), quota.Hold, amount, limit/2)
				res, err := l.Reserve(t.Context(), quota.Reserve{ID: id, Tree: "t", Entries: []quota.Entry{user, hourly("all", quota.Hold, amount, limit), lease("all", 1000)}})
				if err != nil {
					t.Error(err)
					return
				}
				if st := res.Status[1]; st.Committed+st.Reserved > limit {
					t.Errorf("it stands at %+v", st)
				}
				switch {
				case res.Denied >= 0:
					continue
				case i%4 == 0:
					err = l.Release(t.Context(), "t", id)
				default:
					passed.Add(1)
					sum.Add(amount)
					_, err = l.Settle(t.Context(), quota.Settle{ID: id, Tree: "t", Actual: quota.Amounts{quota.Tokens: amount}})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if sum.Load() > limit || sum.Load() < limit-9 {
		t.Errorf("%d units have passed, want %d", sum.Load(), limit)
	}
	for _, l := range instances {
		stands(t, l, "t", hourly("all", quota.Hold, 0, limit), sum.Load(), 0)
		stands(t, l, "t", lease("all", 1000), 0, 0)
	}
}

func TestThresholdsFireOnceOverAllInstances(t *testing.T) {
	t.Parallel()
	instances := twice(t)
	var mu sync.Mutex
	fired := map[int]int{}
	var wg sync.WaitGroup
	for g := range 20 {
		wg.Go(func() {
			for range 10 {
				e := hourly("u", quota.Hold, 5, 1000)
				e.Thresholds = []int{25, 50, 80, 100}
				l := instances[g%2]
				res := settle(t, l, "t", take(t, l, "t", e), 5)
				mu.Lock()
				for _, c := range res.Crossed {
					fired[c.Percent]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if got := fmt.Sprint(fired); got != "map[25:1 50:1 80:1 100:1]" {
		t.Errorf("fired %s, want each once", got)
	}
}

func TestReservationOfOneInstanceIsSettledByAnother(t *testing.T) {
	t.Parallel()
	instances := twice(t)
	e := hourly("user=x", quota.Hold, 50, 100)
	e.Thresholds = []int{50}
	id := take(t, instances[0], "t", e, perMinute("user=x", quota.Hold, 50, 60))
	res := settle(t, instances[1], "t", id, 60)
	switch st := res.Status; {
	case len(st) != 2, st[0].Counter != e.Counter, st[0].Limit != 100, st[0].Committed != 60, !st[0].Span.Start.Equal(e.Spans[1].Start), !st[0].Span.End.Equal(e.Spans[1].End),
		!st[1].Rolling, st[1].Counter.Window != "rolling:1m", st[1].Burst != 60, st[1].Limit != 60, st[1].Committed < 59,
		len(res.Crossed) != 1, res.Crossed[0].Percent != 50, res.Crossed[0].Counter != e.Counter:
		t.Errorf("Settle = %+v", res)
	}
	if lost, err := instances[0].Renew(t.Context(), "t", 0, id); err != nil || len(lost) != 1 {
		t.Errorf("Renew lost %v, %v; it has ended", lost, err)
	}
}

func TestManyAreRenewedAndLookedAtTogether(t *testing.T) {
	t.Parallel()
	l := open(t, shared(t), prefix(t))
	var ids, want []string
	var entries []quota.Entry
	for i := range 100 {
		id := fmt.Sprint("never-", i)
		if i%3 > 0 {
			id = take(t, l, "t", hourly(fmt.Sprint("user-", i), quota.Hold, int64(i), -1))
		} else {
			want = append(want, id)
		}
		ids = append(ids, id)
	}
	if lost, err := l.Renew(t.Context(), "t", 0, ids...); err != nil || fmt.Sprint(lost) != fmt.Sprint(want) {
		t.Errorf("Renew lost %v, %v, want %v", lost, err, want)
	}
	for i := range 600 {
		entries = append(entries, hourly(fmt.Sprint("user-", i), quota.Hold, 0, -1))
	}
	all, err := l.Status(t.Context(), "t", entries...)
	if err != nil || len(all) != len(entries) {
		t.Fatalf("Status of %d: %d, %v", len(entries), len(all), err)
	}
	for i, st := range all {
		reserved := int64(0)
		if i < 100 && i%3 > 0 {
			reserved = int64(i)
		}
		if st.Counter.Key != entries[i].Key || st.Reserved != reserved {
			t.Errorf("%d stands at %+v, want %d reserved", i, st, reserved)
		}
	}
}

func TestTreesAreSpreadOverAClusterAndEachIsInOnePlace(t *testing.T) {
	t.Parallel()
	cluster := servers.StartRedisCluster(t, 3, 0, servers.RedisOptions{})
	l := open(t, cluster.Client())
	for i := range 60 {
		tree := fmt.Sprintf("tenant=%d}{", i)
		take(t, l, tree, hourly(tree, quota.Hold, 1, 10), hourly(tree+"/user=x", quota.Hold, 1, 10), perMinute("{other}", quota.Hold, 1, 60), lease("u", 3))
	}
	places := map[string]string{}
	for _, node := range cluster.Nodes() {
		client := connect(t, node.Addr())
		trees := map[string]bool{}
		for key := range keysOf(t, client, redisledger.DefaultPrefix) {
			_, tag, _ := strings.Cut(key, "{")
			tag, _, _ = strings.Cut(tag, "}")
			trees[tag] = true
			if other, ok := places[tag]; ok && other != node.Addr() {
				t.Errorf("tree %s is at %s and %s", tag, other, node.Addr())
			}
			places[tag] = node.Addr()
		}
		if len(trees) < 60/3/3 {
			t.Errorf("a node has %d of 60 trees", len(trees))
		}
	}
	if len(places) != 60 {
		t.Errorf("there are %d trees, want 60", len(places))
	}
}
