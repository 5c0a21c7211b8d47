package blocks_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
)

// far is a ledger to which the way takes some time.
type far struct {
	quota.Ledger
	away  time.Duration
	trips atomic.Int64
}

func (f *far) Reserve(ctx context.Context, r quota.Reserve) (quota.Reserved, error) {
	f.travel()
	return f.Ledger.Reserve(ctx, r)
}

func (f *far) Settle(ctx context.Context, s quota.Settle) (quota.Settled, error) {
	f.travel()
	return f.Ledger.Settle(ctx, s)
}

func (f *far) Renew(ctx context.Context, tree string, ttl time.Duration, ids ...string) ([]string, error) {
	f.travel()
	return f.Ledger.Renew(ctx, tree, ttl, ids...)
}

func (f *far) travel() {
	f.trips.Add(1)
	if f.away > 0 {
		time.Sleep(f.away)
	}
}

// BenchmarkReserveAndSettle is a call under the limits of everybody: with every call
// at the ledger, and with blocks. The way there takes a millisecond, or nothing.
func BenchmarkReserveAndSettle(b *testing.B) {
	for _, away := range []time.Duration{0, time.Millisecond} {
		for _, c := range []struct {
			name string
			wrap func(quota.Ledger) quota.Ledger
		}{
			{"ledger", func(l quota.Ledger) quota.Ledger { return l }},
			{"blocks", func(l quota.Ledger) quota.Ledger { return newBlocks(b, l, blocks.Config{}) }},
		} {
			b.Run(c.name+"/away="+away.String(), func(b *testing.B) {
				ledger := &far{Ledger: newMemory(b), away: away}
				l := c.wrap(ledger)
				now := time.Now()
				entry := func(w quota.Window, u quota.Unit, amount int64) quota.Entry {
					return quota.Entry{
						Counter: quota.Counter{Key: "global", Window: w.ID(), Unit: u},
						Amount:  amount, Limit: 1 << 50, Ceiling: -1, Spans: w.Spans(now),
					}
				}
				b.ReportAllocs()
				b.SetParallelism(32)
				b.RunParallel(func(pb *testing.PB) {
					ctx := context.Background()
					for pb.Next() {
						r := quota.Reserve{ID: budget.NewID(), Tree: "global", Entries: []quota.Entry{
							entry(quota.Day, quota.Tokens, 4000), entry(quota.Month, quota.Money, 900),
						}}
						if res, err := l.Reserve(ctx, r); err != nil || res.Denied >= 0 {
							b.Error(res, err)
							return
						}
						s := quota.Settle{ID: r.ID, Tree: r.Tree, Actual: quota.Amounts{quota.Tokens: 3000, quota.Money: 700}}
						if _, err := l.Settle(ctx, s); err != nil {
							b.Error(err)
							return
						}
					}
				})
				b.ReportMetric(float64(ledger.trips.Load())/float64(b.N), "trips/op")
			})
		}
	}
}
