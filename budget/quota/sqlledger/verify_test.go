package sqlledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/sqlledger"
)

// number is what a query returns.
func number(t testing.TB, db *sql.DB, query string) (n int64) {
	t.Helper()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func run(t testing.TB, db *sql.DB, query string) {
	t.Helper()
	res, err := db.Exec(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		t.Fatalf("%s: %d rows, %v", query, n, err)
	}
}

func TestVerifyFindsWhateverSomebodyHasChanged(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		l, db := d.ledger(t), d.open(t)
		spend(t, l, "acme", 90, held("acme", 100, 1000))
		take(t, l, "acme", held("acme", 30, 1000), flowing("acme", 50))
		spend(t, l, "acme", 10, held("acme/user=1", math.MaxInt64/2, -1)) // sums of large numbers
		reproduced(t, l)
		const acme = "counter = (SELECT id FROM headgate_counters WHERE key = 'acme' AND per = 0)"
		for _, tt := range []struct {
			name, tamper, mend string
			what               string
			unit               quota.Unit
			by                 int64
		}{
			{"a counter that is lower", "UPDATE headgate_windows SET committed = committed - 1 WHERE " + acme,
				"UPDATE headgate_windows SET committed = committed + 1 WHERE " + acme, "committed", quota.Tokens, -1},
			{"a counter that is higher", "UPDATE headgate_windows SET committed = committed + 5000000000 WHERE " + acme,
				"UPDATE headgate_windows SET committed = committed - 5000000000 WHERE " + acme, "committed", quota.Tokens, 5000000000},
			{"a hold that is gone", "UPDATE headgate_windows SET reserved = 0 WHERE " + acme,
				"UPDATE headgate_windows SET reserved = 30 WHERE " + acme, "reserved", quota.Tokens, -30},
			{"a row of the audit that is another", "UPDATE headgate_audit SET committed = committed - 3 WHERE what = 4 AND " + acme,
				"UPDATE headgate_audit SET committed = committed + 3 WHERE what = 4 AND " + acme, "committed", quota.Tokens, 3},
			{"a row of the audit that is gone", "UPDATE headgate_audit SET counter = -counter WHERE what = 4 AND " + acme,
				"UPDATE headgate_audit SET counter = -counter WHERE what = 4 AND counter < 0", "committed", quota.Tokens, 90},
			{"a rolling counter that is lower", "UPDATE headgate_buckets SET units = units - 1, part = 0", // of 50 units, or a little less
				"", "committed", quota.Credits, math.MinInt64},
		} {
			run(t, db, tt.tamper)
			all, err := l.Verify(context.Background())
			if err != nil || len(all) == 0 {
				t.Errorf("%s: Verify = %v, %v, want what was changed", tt.name, all, err)
				continue
			}
			if diff := all[0]; diff.What != tt.what || diff.Tree != "acme" || diff.Counter.Key != "acme" || diff.Counter.Unit != tt.unit ||
				tt.by != math.MinInt64 && diff.Have-diff.Want != tt.by {
				t.Errorf("%s: Verify found %v, want %s to be off by %d", tt.name, diff, tt.what, tt.by)
			}
			if tt.mend != "" {
				run(t, db, tt.mend)
				reproduced(t, l)
			}
		}
	})
}

// Both a counter and the audit may be changed so that they agree. The reservation still tells.
func TestVerifyFindsAHoldThatNobodyHas(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		l, db := d.ledger(t), d.open(t)
		take(t, l, "acme", held("acme", 30, 1000))
		run(t, db, "UPDATE headgate_windows SET reserved = 31")
		run(t, db, "UPDATE headgate_audit SET reserved = 31")
		all, err := l.Verify(context.Background())
		if err != nil || len(all) != 1 || all[0].What != "held" || all[0].Have != 31 || all[0].Want != 30 {
			t.Errorf("Verify = %v, %v, want a hold of 31 that is 30", all, err)
		}
	})
}

func TestChangesSayWhoHasUsedUpACounter(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		l := d.ledger(t)
		note := quota.Note{Subject: "acme/user=1", Turn: "t1", Call: "c1", Model: "pro", Agent: "writer"}
		res, err := l.Reserve(t.Context(), quota.Reserve{ID: "r1", Tree: "acme", Entries: []quota.Entry{held("acme", 30, 100)}, Note: note})
		if err != nil || res.Denied >= 0 {
			t.Fatal(res, err)
		}
		if _, err := l.Settle(t.Context(), quota.Settle{ID: "r1", Tree: "acme", Actual: tokens(120)}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.TopUp(t.Context(), "acme", held("acme", 0, 100), 50); err != nil {
			t.Fatal(err)
		}
		var got []string
		for c, err := range l.Changes(t.Context(), "acme", held("acme", 0, 100).Counter, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if c.What != "top-up" && (c.Note != note || c.Reservation != "r1") {
				t.Errorf("%s was by %q for %+v, want r1 for %+v", c.What, c.Reservation, c.Note, note)
			}
			got = append(got, fmt.Sprintf("%s %d: %+d committed, %+d reserved, over %v", c.What, c.Amount, c.Committed, c.Reserved, c.Over))
		}
		want := []string{
			"hold 30: +0 committed, +30 reserved, over false",
			"settle 120: +120 committed, -30 reserved, over true",
			"top-up 50: -50 committed, +0 reserved, over false",
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the changes are\n%q, want\n%q", got, want)
		}
	})
}

func TestTheAuditReproducesWhatIsRefilledBetweenCorrections(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		l := d.ledger(t)
		id := take(t, l, "acme", held("acme", 1, -1))
		s := quota.Settle{ID: id, Tree: "acme", Actual: tokens(1), More: []quota.Entry{flowing("acme", 500)}}
		if _, err := l.Settle(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		sqlledger.Pass(l, 6*time.Second) // 100 flow back
		s.Actual, s.More, s.Adjust, s.Seq = tokens(2), nil, true, 1
		if res, err := l.Settle(t.Context(), s); err != nil || len(res.Status) != 2 || res.Status[1].Committed > 400 {
			t.Fatalf("Settle = %+v, %v", res, err)
		}
		reproduced(t, l)
	})
}
