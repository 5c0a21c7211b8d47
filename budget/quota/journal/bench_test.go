package journal_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
)

// settledRecord is about as long as the record of a settlement of one limit.
const settledRecord = 200

// BenchmarkSettle settles with each record durable before the ledger is told. Beside it
// is the loop that one would write by hand: append a record of the same length to a file
// and sync it, one after the other.
func BenchmarkSettle(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("journal/callers=%d", callers), func(b *testing.B) {
			l, j := openBench(b)
			ctx := context.Background()
			ids := make([]quota.Settle, b.N)
			for i := range ids {
				ids[i] = quota.Settle{ID: budget.NewID(), Tree: fmt.Sprint("tenant-", i%256), Actual: quota.Amounts{quota.Tokens: 700}}
				if _, err := l.Reserve(ctx, quota.Reserve{ID: ids[i].ID, Tree: ids[i].Tree, Entries: []quota.Entry{hold("user", 1000)}, TTL: time.Hour}); err != nil {
					b.Fatal(err)
				}
			}
			before := j.Stats()
			each(b, callers, func(i int) error {
				_, err := l.Settle(ctx, ids[i])
				return err
			})
			after := j.Stats()
			b.ReportMetric(float64(after.Records-before.Records)/float64(max(after.Syncs-before.Syncs, 1)), "records/sync")
			if after.Unrecorded > 0 {
				b.Fatalf("not all was recorded: %+v", after)
			}
		})
		b.Run(fmt.Sprintf("bare/callers=%d", callers), func(b *testing.B) {
			f, err := os.Create(filepath.Join(b.TempDir(), "bare"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			record := make([]byte, settledRecord)
			var mu sync.Mutex
			each(b, callers, func(int) error {
				mu.Lock()
				defer mu.Unlock()
				if _, err := f.Write(record); err != nil {
					return err
				}
				return f.Sync()
			})
		})
	}
}

// each has callers do b.N things.
func each(b *testing.B, callers int, do func(i int) error) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				if err := do(int(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "settled/s")
}

func openBench(b *testing.B) (*journal.Ledger, *journal.Journal) {
	b.Helper()
	m, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		b.Fatal(err)
	}
	j, err := journal.Open(b.TempDir(), journal.Config{SyncTimeout: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	l := before(b, m, j)
	b.Cleanup(func() {
		_ = l.Close(context.Background())
		if err := j.Close(); err != nil {
			b.Error(err)
		}
	})
	return l, j
}

func hold(key string, amount int64) quota.Entry {
	return quota.Entry{
		Counter: quota.Counter{Key: key, Window: "total", Unit: quota.Tokens},
		Kind:    quota.Hold, Amount: amount, Limit: 1 << 40, Ceiling: -1,
	}
}
