package blocks_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
)

// call is what a caller knows about a reservation.
type call struct {
	id            string
	at            int // the replica
	window        int
	kind          quota.Kind
	amount, used  int64
	expires       time.Time
	ended, lapsed bool
}

// callers make random calls of some replicas, and add up what they were allowed to do.
type callers struct {
	*world
	limit int64
	calls []*call
	fails bool // operations of the ledger fail now and then
	// excess is what may pass above the limit, by window.
	excess map[int]int64
}

func (c *callers) window() int { return int(time.Since(c.began) / window) }

// counts is what a call counts by now.
func (c *call) counts() int64 {
	switch {
	case c.ended, c.kind == quota.Count:
		return c.used
	case c.lapsed:
		return 0
	}
	return c.amount
}

// sum is what all calls of a window count, and over how much of it is above what they
// had reserved: what nobody could have denied.
func (c *callers) sum(window int) (sum, over int64) {
	for _, k := range c.calls {
		if k.window == window {
			sum += k.counts()
			if k.ended && k.lapsed {
				over += k.used
			} else if k.ended {
				over += max(k.used-k.amount, 0)
			}
		}
	}
	return sum, over
}

// idleElsewhere is what other replicas have leased and not used.
func (c *callers) idleElsewhere(at int) (n int64) {
	for i, l := range c.replicas {
		if i != at {
			n += l.Stats().Idle[quota.Tokens]
		}
	}
	return n
}

func (c *callers) expire() {
	for _, k := range c.calls {
		if !k.ended && !k.lapsed && !time.Now().Before(k.expires) {
			k.lapsed = true
		}
	}
}

func (c *callers) reserve(t *rapid.T) {
	c.reserveAt(t, rapid.IntRange(0, len(c.replicas)-1).Draw(t, "replica"))
}

func (c *callers) reserveAt(t *rapid.T, at int) {
	c.expire()
	k := &call{
		id: fmt.Sprint("call-", len(c.calls)), at: at,
		window: c.window(), kind: rapid.SampledFrom([]quota.Kind{quota.Hold, quota.Hold, quota.Count}).Draw(t, "kind"),
		amount:  rapid.Int64Range(1, c.limit/4).Draw(t, "amount"),
		expires: time.Now().Add(2 * time.Minute),
	}
	sum, over := c.sum(k.window)
	idle := c.idleElsewhere(k.at)
	res, err := c.replicas[k.at].Reserve(context.Background(), quota.Reserve{
		ID: k.id, Tree: "global", TTL: 2 * time.Minute, Entries: []quota.Entry{c.entry(k.kind, k.amount, c.limit)},
	})
	if err != nil {
		if !c.fails || !unavailable(err) {
			t.Fatalf("Reserve: %v", err)
		}
		return
	}
	if res.Denied >= 0 {
		if !c.fails && sum+k.amount+idle <= c.limit {
			t.Fatalf("%d denied at replica %d, although %d of %d are used and %d lie idle elsewhere", k.amount, k.at, sum, c.limit, idle)
		}
		return
	}
	if sum+k.amount > c.limit+over+c.excess[k.window] {
		t.Fatalf("%d passed at replica %d, with %d of %d used, %d of these above what was reserved", k.amount, k.at, sum, c.limit, over)
	}
	if k.kind == quota.Count {
		k.used, k.ended = k.amount, true
	}
	c.calls = append(c.calls, k)
}

// open draws a call that has not ended, or nil.
func (c *callers) open(t *rapid.T) *call {
	c.expire()
	var open []*call
	for _, k := range c.calls {
		if !k.ended {
			open = append(open, k)
		}
	}
	if len(open) == 0 {
		return nil
	}
	return rapid.SampledFrom(open).Draw(t, "call")
}

func (c *callers) end(t *rapid.T) {
	k := c.open(t)
	if k == nil {
		return
	}
	k.used = rapid.Int64Range(0, k.amount).Draw(t, "used")
	if rapid.IntRange(0, 9).Draw(t, "more") == 0 {
		k.used += k.amount
	}
	late := k.lapsed
	if res := c.settle(c.replicas[k.at], k.id, k.used); res.Late != late {
		t.Fatalf("Settle of %+v: Late = %v", k, res.Late)
	}
	k.ended = true
}

func (c *callers) giveUp(t *rapid.T) {
	if k := c.open(t); k != nil {
		c.release(c.replicas[k.at], k.id)
		k.used, k.ended = 0, true
	}
}

func (c *callers) pass(t *rapid.T) {
	most := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 5 * time.Second, time.Minute, window}).Draw(t, "at most")
	pass(time.Duration(rapid.Int64Range(1, int64(most)).Draw(t, "for")))
}

// agree checks that the ledger has all that was used, and nothing else, when all
// replicas have told it.
func (c *callers) agree(t *rapid.T) {
	if c.fails {
		for _, k := range c.links {
			k.set(func(k *link) { k.cut, k.lose = false, 0 })
		}
		pass(blocks.DefaultTTL) // what was taken by a request whose reply was lost lapses
	}
	c.expire()
	c.flush()
	now := c.window()
	e := c.hold(0, c.limit)
	history, err := c.ledger.History(context.Background(), "global", e.Counter, 1000)
	if err != nil {
		t.Fatal(err)
	}
	current, err := c.ledger.Status(context.Background(), "global", e)
	if err != nil {
		t.Fatal(err)
	}
	got := map[int]quota.Status{}
	for _, st := range append(history, current...) {
		got[int(st.Span.Start.Sub(c.began)/window)] = st
	}
	for n := max(now-10, 0); n <= now; n++ { // as many as are kept
		var committed, reserved int64
		for _, k := range c.calls {
			switch {
			case k.window != n:
			case k.ended:
				committed += k.used
			case !k.lapsed:
				reserved += k.amount
			}
		}
		if st := got[n]; st.Committed != committed || st.Reserved != reserved {
			t.Fatalf("window %d stands at %d committed and %d reserved, want %d and %d", n, st.Committed, st.Reserved, committed, reserved)
		}
	}
}

func (c *callers) run(t *rapid.T, more map[string]func(*rapid.T)) {
	actions := map[string]func(*rapid.T){
		"reserve":      c.reserve,
		"reserve more": c.reserve,
		"settle":       c.end,
		"release":      c.giveUp,
		"pass":         c.pass,
		"flush": func(t *rapid.T) {
			_ = c.replicas[rapid.IntRange(0, len(c.replicas)-1).Draw(t, "replica")].Flush(context.Background())
		},
		"": func(*rapid.T) { synctest.Wait() },
	}
	for name, action := range more {
		actions[name] = action
	}
	t.Repeat(actions)
	c.agree(t)
}

// Whatever replicas do, what they let pass together is below the limit, they deny only
// what others' idle blocks hold, and nothing gets lost.
func TestReplicasShareALimitExactly(t *testing.T) {
	bubbles(t, func(t *testing.T, rt *rapid.T) {
		c := &callers{
			world: newWorld(t, rapid.IntRange(1, 4).Draw(rt, "replicas"), blocks.Config{
				Share: rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(rt, "share"),
				Min:   quota.Amounts{quota.Tokens: rapid.SampledFrom([]int64{0, 0, 150}).Draw(rt, "min")},
			}),
			limit: rapid.SampledFrom([]int64{100, 1000}).Draw(rt, "limit"),
		}
		c.run(rt, nil)
	})
}

// Replies that are lost after the ledger has done its work, and short outages, change
// nothing in what is counted: what was asked for is asked for again under the same id.
func TestNothingIsCountedTwiceOrLostWhenRepliesAreLost(t *testing.T) {
	bubbles(t, func(t *testing.T, rt *rapid.T) {
		c := &callers{
			world: newWorld(t, rapid.IntRange(1, 3).Draw(rt, "replicas"), blocks.Config{Share: 0.5}),
			limit: 1000, fails: true,
		}
		at := func(t *rapid.T) *link { return c.links[rapid.IntRange(0, len(c.links)-1).Draw(t, "link")] }
		c.run(rt, map[string]func(*rapid.T){
			"lose replies": func(t *rapid.T) {
				n := rapid.IntRange(1, 3).Draw(t, "replies")
				at(t).set(func(k *link) { k.lose = n })
			},
			"cut for a while": func(t *rapid.T) {
				k := at(t)
				k.set(func(k *link) { k.cut = true })
				// Blocks are renewed at least TTL/3 before they end.
				d := rapid.Int64Range(1, int64(blocks.DefaultTTL/4)).Draw(t, "for")
				time.AfterFunc(time.Duration(d), func() { k.set(func(k *link) { k.cut = false }) })
				c.reserve(t)
				c.end(t)
				c.reserve(t)
				pass(time.Duration(d))
			},
		})
	})
}
