package blocks_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
)

// What is leased lives on here while the ledger cannot be reached, and what is not lapses there.
func TestASettlementIsLateIfThePartThatIsNotLeasedHasLapsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Leased: func(_ string, c quota.Counter) bool { return c.Unit == quota.Tokens }})
		l := w.replicas[0]
		credits := w.hold(5, 100)
		credits.Unit = quota.Credits
		id := budget.NewID()
		res, err := l.Reserve(t.Context(), quota.Reserve{
			ID: id, Tree: "global", Entries: []quota.Entry{w.hold(10, 1000), credits}, TTL: time.Minute,
		})
		if err != nil || res.Denied >= 0 {
			t.Fatalf("Reserve = %+v, %v", res, err)
		}
		pass(50 * time.Second)
		w.links[0].set(func(k *link) { k.cut = true })
		if _, err := l.Renew(t.Context(), "global", time.Minute, id); !unavailable(err) {
			t.Errorf("Renew: %v", err)
		}
		pass(12 * time.Second)
		w.links[0].set(func(k *link) { k.cut = false })
		settled, err := l.Settle(context.Background(), quota.Settle{
			ID: id, Tree: "global", Actual: quota.Amounts{quota.Tokens: 8, quota.Credits: 4},
		})
		if err != nil || !settled.Late || len(settled.Status) != 2 {
			t.Errorf("Settle = %+v, %v, want one that is late", settled, err)
		}
		w.flush()
		w.stands(w.ledger, w.hold(0, 1000), 8, 0)
		w.stands(w.ledger, credits, 4, 0)
	})
}
