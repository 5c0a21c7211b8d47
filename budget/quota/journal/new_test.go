package journal_test

import (
	"strings"
	"testing"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
)

func TestNewNamesWhatIsNil(t *testing.T) {
	t.Parallel()
	for name, ledger := range map[string]quota.Ledger{"nil": nil, "a nil pointer": (*quota.Memory)(nil)} {
		l, err := journal.New(ledger, nil)
		if l != nil || err == nil || !strings.Contains(err.Error(), "journal: ledger is nil") || !strings.Contains(err.Error(), "journal: j is nil") {
			t.Errorf("of %s and no journal: %v, %v", name, l, err)
		}
	}
}
