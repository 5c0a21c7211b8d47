package gate

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/headgate-go/headgate/budget"
)

func TestAWaitingCallIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(call{}); size > 112 {
		t.Errorf("a call takes %d bytes, want at most 112, a size class of the allocator", size)
	}
	const calls, flows = 100_000, 10_000
	c := New(Config{Slots: 1, Classes: []Class{{Weight: 1}}, Dims: wide(t)})
	now := time.Unix(1_700_000_000, 0)
	keys := make([]string, flows)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	costs := []int64{1, 1000}
	ids := make([]ID, 0, calls+1)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range calls + 1 {
		id, _, refused := c.Enqueue(now, Spec{Flow: keys[i%flows], Slots: 1, Costs: costs, Deadline: now.Add(time.Hour)})
		if refused.Err != nil {
			t.Fatal(refused.Err)
		}
		ids = append(ids, id)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if c.waiting != calls {
		t.Fatalf("%d calls wait, want %d", c.waiting, calls)
	}
	each := float64(after.HeapAlloc-before.HeapAlloc) / calls
	t.Logf("%.0f bytes for a waiting call with a deadline and two costs, over %d flows", each, flows)
	if each > 220 {
		t.Errorf("%.0f bytes for a waiting call, want at most 220", each)
	}
	runtime.KeepAlive(ids)
}

// wide are two limits that never bind.
func wide(tb testing.TB) (dims []Dim) {
	for range 2 {
		b, err := budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: 1 << 50})
		if err != nil {
			tb.Fatal(err)
		}
		dims = append(dims, Dim{Limiter: b, Window: time.Minute})
	}
	return dims
}

// BenchmarkGrant measures one round of a line in which as many calls wait as
// there are flows: a call ends, the next one in fair order is granted, and a new
// one of its flow comes in.
func BenchmarkGrant(b *testing.B) {
	for _, flows := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(flows), func(b *testing.B) {
			c := New(Config{Slots: 1, Classes: []Class{{Weight: 1}}, Dims: wide(b)})
			now := time.Unix(1_700_000_000, 0)
			costs := []int64{1, 1000}
			ask := func(flow string) ID {
				id, _, refused := c.Enqueue(now, Spec{Flow: flow, Slots: 1, Costs: costs})
				if refused.Err != nil {
					b.Fatal(refused.Err)
				}
				return id
			}
			running := ask("0")
			for i := range flows {
				ask(strconv.Itoa(i))
			}
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Millisecond)
				c.End(now, running)
				grants, _, _ := c.Poll(now)
				running = grants[0]
				ask(running.c.flow.key)
			}
		})
	}
}

// BenchmarkRound measures what a call costs that need not wait.
func BenchmarkRound(b *testing.B) {
	c := New(Config{Slots: 1 << 20, Classes: []Class{{Weight: 1}}, Dims: wide(b)})
	now := time.Unix(1_700_000_000, 0)
	costs := []int64{1, 1000}
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Microsecond)
		id, _, _ := c.Enqueue(now, Spec{Slots: 1, Costs: costs})
		c.FreeSlot(now, id)
		c.Settle(now, id, costs)
		c.End(now, id)
	}
}
