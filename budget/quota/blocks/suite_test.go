package blocks_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
	"github.com/headgate-go/headgate/budget/quota/ledgertest"
)

func newMemory(t testing.TB) *quota.Memory {
	t.Helper()
	m, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newBlocks(t testing.TB, ledger quota.Ledger, cfg blocks.Config) *blocks.Ledger {
	t.Helper()
	l, err := blocks.New(ledger, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// faithful repeats a reservation as it was: one id never asks for two things.
type faithful struct {
	quota.Ledger
	mu    sync.Mutex
	first map[string][]quota.Entry // by tree and id
}

func (f *faithful) Reserve(ctx context.Context, r quota.Reserve) (quota.Reserved, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := r.Tree + " " + r.ID
	if first, ok := f.first[key]; ok {
		r.Entries = first
	}
	res, err := f.Ledger.Reserve(ctx, r)
	if err == nil && res.Denied < 0 && !res.Held {
		f.first[key] = slices.Clone(r.Entries)
	}
	return res, err
}

func suite(t *testing.T, leased func(string, quota.Counter) bool) {
	ledgertest.Run(t, func(t testing.TB) ledgertest.Store {
		l := newBlocks(t, newMemory(t), blocks.Config{Leased: leased})
		return ledgertest.Store{Ledger: &faithful{Ledger: l, first: map[string][]quota.Entry{}}}
	}, ledgertest.Options{Virtual: true})
}

// Trees that are not leased pass through.
func TestWhatIsNotLeasedIsALedger(t *testing.T) {
	t.Parallel()
	suite(t, nil)
}

// Of calendar limits nothing is weaker as long as there is one replica.
func TestLeasedCalendarLimitsOfOneReplicaAreALedger(t *testing.T) {
	t.Parallel()
	suite(t, func(_ string, c quota.Counter) bool { return c.Window != "rolling-1m" })
}
