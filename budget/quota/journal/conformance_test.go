package journal_test

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
	"github.com/headgate-go/headgate/budget/quota/ledgertest"
)

// A journal before a ledger changes nothing of what the ledger is.
func TestJournalKeepsTheContract(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, func(t testing.TB) ledgertest.Store {
		m, err := quota.NewMemory(quota.MemoryConfig{})
		if err != nil {
			t.Fatal(err)
		}
		j, err := journal.Open(t.TempDir(), journal.Config{Sync: journal.SyncInterval})
		if err != nil {
			t.Fatal(err)
		}
		l := before(t, m, j)
		t.Cleanup(func() {
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
			if st := j.Stats(); st.Unrecorded > 0 || st.WriteErrors > 0 {
				t.Errorf("not all was recorded: %+v", st)
			}
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		})
		return ledgertest.Store{Ledger: l}
	}, ledgertest.Options{Virtual: true})
}
