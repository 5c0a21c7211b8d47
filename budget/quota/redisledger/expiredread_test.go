package redisledger_test

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/redisledger"
)

// Reads come first, before anything else has swept: however many holds have expired,
// none of them is told as reserved.
func TestNoReadTellsExpiredHoldsAsReservedHoweverManyThereAre(t *testing.T) {
	t.Parallel()
	const holds = 150 // several scripts' worth
	for name, read := range map[string]func(l *redisledger.Ledger, e quota.Entry) (quota.Status, error){
		"Status": func(l *redisledger.Ledger, e quota.Entry) (quota.Status, error) {
			all, err := l.Status(t.Context(), "t", e)
			if err != nil {
				return quota.Status{}, err
			}
			return all[0], nil
		},
		"TopUp": func(l *redisledger.Ledger, e quota.Entry) (quota.Status, error) {
			return l.TopUp(t.Context(), "t", e, 1)
		},
		"Reset": func(l *redisledger.Ledger, e quota.Entry) (quota.Status, error) { return l.Reset(t.Context(), "t", e) },
		"History, once the window has passed": func(l *redisledger.Ledger, e quota.Entry) (st quota.Status, err error) {
			redisledger.Pass(l, 2*time.Hour)
			all, err := l.History(t.Context(), "t", e.Counter, 9)
			for i := range all {
				st.Reserved += all[i].Reserved
			}
			return st, err
		},
	} {
		for kind, entry := range map[string]quota.Entry{
			"calendar": always("u", quota.Hold, 1, holds), "hour": hourly("u", quota.Hold, 1, holds), "rolling": perMinute("u", quota.Hold, 1, holds), "lease": lease("u", holds),
		} {
			t.Run(name+" of "+kind, func(t *testing.T) {
				t.Parallel()
				l := open(t, shared(t), prefix(t))
				for i := range holds {
					other := always("v", quota.Hold, 1, -1) // expire in turns
					if i%2 == 0 {
						other.Key = "w"
					}
					take(t, l, "t", entry, other)
				}
				redisledger.Pass(l, quota.DefaultTTL+time.Second)
				st, err := read(l, entry)
				if err != nil || st.Reserved != 0 || st.Committed > 0 && kind != "rolling" {
					t.Errorf("%+v, %v", st, err)
				}
			})
		}
	}
}
