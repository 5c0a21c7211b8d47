package blocks_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
)

// visit is a call of a crowd.
type visit struct {
	start, lasts time.Duration
	at           int // the replica
	counters     int // a set of bits
	amount, used int64
}

// crowd are calls at the same time, while requests travel.
type crowd struct {
	*world
	limits [3]int64

	mu sync.Mutex
	// mu guards all that follows.
	used, over [3]int64
	passed     int
	longest    time.Duration
	wrong      []string
}

func (c *crowd) visit(v visit, n int) {
	time.Sleep(v.start)
	var entries []quota.Entry
	for i, limit := range c.limits {
		if v.counters&(1<<i) != 0 {
			e := c.hold(v.amount, limit)
			e.Key = fmt.Sprint("counter-", i)
			entries = append(entries, e)
		}
	}
	id, asked := fmt.Sprint("visit-", n), time.Now()
	res, err := c.replicas[v.at].Reserve(context.Background(), quota.Reserve{ID: id, Tree: "global", Entries: entries})
	c.mu.Lock()
	if err != nil {
		c.wrong = append(c.wrong, err.Error())
		c.mu.Unlock()
		return
	}
	c.longest = max(c.longest, time.Since(asked))
	if res.Denied < 0 {
		c.passed++
		for i := range c.limits {
			if v.counters&(1<<i) != 0 {
				if c.used[i] += v.amount; c.used[i] > c.limits[i]+c.over[i] {
					c.wrong = append(c.wrong, fmt.Sprintf("%d of %d are used, and only %d above what was reserved", c.used[i], c.limits[i], c.over[i]))
				}
			}
		}
	} else if i := int(entries[res.Denied].Key[len("counter-")] - '0'); c.limits[i] > 1<<40 {
		c.wrong = append(c.wrong, fmt.Sprintf("denied by counter %d, of which there is enough: %+v", i, res))
	}
	c.mu.Unlock()
	if res.Denied >= 0 {
		return
	}
	time.Sleep(v.lasts)
	c.mu.Lock()
	for i := range c.limits {
		if v.counters&(1<<i) != 0 {
			c.used[i] += v.used - v.amount
			c.over[i] += max(v.used-v.amount, 0)
		}
	}
	c.mu.Unlock()
	c.settle(c.replicas[v.at], id, v.used)
}

// However calls meet, and however long requests travel: no limit is passed, nobody is
// denied by a limit of which there is enough, or waits for those who are.
func TestCrowdsAreServedAsTheirLimitsSay(t *testing.T) {
	bubbles(t, func(t *testing.T, rt *rapid.T) {
		c := &crowd{world: newWorld(t, rapid.IntRange(1, 3).Draw(rt, "replicas"), blocks.Config{
			Share: rapid.SampledFrom([]float64{0, 1}).Draw(rt, "share"), Timeout: time.Minute,
		})}
		away := time.Duration(rapid.IntRange(1, 50).Draw(rt, "ms away")) * time.Millisecond
		for _, k := range c.links {
			k.set(func(k *link) { k.away = away })
		}
		// The first one is used up soon, of the last one there is enough for all.
		c.limits = [3]int64{rapid.Int64Range(1, 500).Draw(rt, "first"), rapid.Int64Range(500, 5000).Draw(rt, "second"), 1 << 50}
		visits := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) visit {
			v := visit{
				start:    time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms start")) * time.Millisecond,
				lasts:    time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond,
				at:       rapid.IntRange(0, 2).Draw(t, "at"),
				counters: rapid.IntRange(1, 7).Draw(t, "counters"),
				amount:   rapid.Int64Range(1, 50).Draw(t, "amount"),
			}
			v.used = rapid.Int64Range(0, v.amount+1).Draw(t, "used")
			return v
		}), 1, 120).Draw(rt, "visits")
		var wg sync.WaitGroup
		for i, v := range visits {
			v.at %= len(c.replicas)
			wg.Go(func() { c.visit(v, i) })
		}
		wg.Wait()
		if most := 40 * away; c.longest > most {
			c.wrong = append(c.wrong, fmt.Sprintf("somebody waited for %v, for %v to the ledger", c.longest, away))
		}
		if len(c.wrong) > 0 {
			rt.Fatal(c.wrong[0])
		}
		pass(time.Minute)
		c.flush()
		for i := range c.limits {
			e := c.hold(0, c.limits[i])
			e.Key = fmt.Sprint("counter-", i)
			c.stands(c.ledger, e, c.used[i], 0)
		}
	})
}

// Hundreds who need the same three limits, from nothing to a steady flow, are all
// served.
func TestNobodyIsDeniedWhereThereIsEnough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{world: newWorld(t, 1, blocks.Config{}), limits: [3]int64{1 << 50, 1 << 50, 1 << 50}}
		c.links[0].set(func(k *link) { k.away = 5 * time.Millisecond })
		var wg sync.WaitGroup
		for i := range 2000 {
			wg.Go(func() {
				c.visit(visit{
					start: time.Duration(i) * time.Millisecond, lasts: time.Second,
					counters: 1 + i%7, amount: int64(1 + i%97), used: int64(i % 89),
				}, i)
			})
		}
		wg.Wait()
		if c.passed != 2000 || len(c.wrong) > 0 {
			t.Errorf("%d of 2000 passed: %v", c.passed, c.wrong)
		}
		if c.longest > 100*time.Millisecond {
			t.Errorf("somebody waited for %v", c.longest)
		}
	})
}
