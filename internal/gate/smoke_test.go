package gate

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
)

func TestSmoke(t *testing.T) {
	w, _ := budget.NewWindowBudget(budget.WindowBudgetConfig{Limit: 10})
	c := New(Config{Classes: []Class{{Weight: 1}}, Slots: 2, Dims: []Dim{{Limiter: w, Window: time.Minute}}})
	now := time.Unix(1000, 0)
	var ids []ID
	for i := 0; i < 4; i++ {
		id, ok, ref := c.Enqueue(now, Spec{Flow: "a", Slots: 1, Costs: []int64{4}})
		t.Log(i, ok, ref)
		ids = append(ids, id)
		g, f, n := c.Poll(now)
		t.Log(g, f, n)
	}
	now = now.Add(time.Second)
	c.Counted(now, ids[0])
	c.Settle(now, ids[0], []int64{4})
	c.FreeSlot(now, ids[0])
	c.End(now, ids[0])
	g, f, n := c.Poll(now)
	t.Log(len(g), f, n.Sub(now))
	g, f, n = c.Poll(n)
	t.Log(len(g), f, n, c.Stats(now))
}
func BenchmarkSerial(b *testing.B) {
	r, _ := budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: 1 << 40})
	w, _ := budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: 1 << 50})
	c := New(Config{Classes: []Class{{Weight: 1}}, Slots: 1 << 30, Dims: []Dim{{Limiter: r, Window: time.Minute}, {Limiter: w, Window: time.Minute}}})
	now := time.Now()
	costs := []int64{1, 1000}
	b.ReportAllocs()
	for b.Loop() {
		id, _, _ := c.Enqueue(now, Spec{Slots: 1, Costs: costs})
		c.FreeSlot(now, id)
		c.Settle(now, id, costs)
		c.End(now, id)
	}
}
