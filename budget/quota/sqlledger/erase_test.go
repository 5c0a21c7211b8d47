package sqlledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
)

// found are the tables that have a text anywhere.
func found(t testing.TB, db *sql.DB, text string) (tables []string) {
	t.Helper()
	for _, table := range []string{"counters", "windows", "buckets", "reservations", "writers", "calls", "audit", "audit_log"} {
		all, err := db.Query("SELECT * FROM headgate_" + table)
		if err != nil {
			t.Fatal(err)
		}
		names, err := all.Columns()
		if err != nil {
			t.Fatal(err)
		}
		is := false
		for all.Next() {
			values := make([]any, len(names))
			for i := range values {
				values[i] = new(any)
			}
			if err := all.Scan(values...); err != nil {
				t.Fatal(err)
			}
			for _, v := range values {
				value := *v.(*any)
				if bytes, ok := value.([]byte); ok {
					value = string(bytes)
				}
				is = is || strings.Contains(fmt.Sprint(value), text)
			}
		}
		if err := all.Err(); err != nil {
			t.Fatal(err)
		}
		all.Close()
		if is {
			tables = append(tables, table)
		}
	}
	return tables
}

func TestWhoIsErasedIsNamedNowhere(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		l, db := d.ledger(t), d.open(t)
		call := func(user string) string {
			key := "acme/user=" + user
			id := budget.NewID()
			res, err := l.Reserve(t.Context(), quota.Reserve{
				ID: id, Tree: "acme", Entries: []quota.Entry{held(key, 5, -1), flowing(key, 5), held(key+"/session=s", 5, -1), held("acme", 5, -1)},
				Note:      quota.Note{Subject: key + "/session=s", Turn: "turn-of-" + user, Call: "call-of-" + user},
				Exclusive: "session-of-" + user,
			})
			if err != nil || res.Denied >= 0 || res.Held {
				t.Fatalf("Reserve = %+v, %v", res, err)
			}
			return id
		}
		settle := func(id string) {
			t.Helper()
			if _, err := l.Settle(t.Context(), quota.Settle{ID: id, Tree: "acme", Actual: tokens(3), Writer: "w", WriterSeq: 1}); err != nil {
				t.Fatalf("Settle: %v", err)
			}
		}
		for range 3 {
			for _, user := range []string{"bob", "bobby", "Bob", "alice"} {
				settle(call(user))
			}
		}
		open := call("bob")
		if got := fmt.Sprint(found(t, db, "user=bob/")); got != "[counters calls audit_log]" {
			t.Fatalf("bob is named in %s", got)
		}
		for _, key := range []string{"acme/user=bob", "acme/user=bob/session=s"} {
			if err := l.Erase(t.Context(), "acme", key); err != nil {
				t.Fatal(err)
			}
		}
		for _, text := range []string{"user=bob/", open} {
			if tables := found(t, db, text); len(tables) > 0 {
				t.Errorf("%q is in %v after bob was erased", text, tables)
			}
		}
		for _, text := range []string{"turn-of-bob", "call-of-bob"} {
			if n := number(t, db, "SELECT count(*) FROM headgate_calls WHERE turn = '"+text+"' OR call = '"+text+"'"); n != 0 {
				t.Errorf("%q is in %d rows after bob was erased", text, n)
			}
		}
		reproduced(t, l)
		stands(t, l, "acme", held("acme/user=bob", 0, -1), 0, 0)
		for range l.Changes(t.Context(), "acme", held("acme/user=bob", 0, -1).Counter, 0) {
			t.Fatal("the audit has something about bob")
		}
		// Others are as they were, and what he holds elsewhere is settled there.
		for _, user := range []string{"bobby", "Bob", "alice"} {
			stands(t, l, "acme", held("acme/user="+user, 0, -1), 9, 0)
			if n := number(t, db, "SELECT count(*) FROM headgate_calls WHERE turn = 'turn-of-"+user+"' AND subject = 'acme/user="+user+"/session=s'"); n != 3 {
				t.Errorf("%d calls of %s are left, want 3", n, user)
			}
		}
		stands(t, l, "acme", held("acme", 0, -1), 36, 5)
		settle(open)
		stands(t, l, "acme", held("acme", 0, -1), 39, 0)
		reproduced(t, l)
	})
}

// Another process remembers the counters that are erased, and goes on with them.
func TestErasingWhileOthersWorkLeavesNothingThatIsWrong(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		l, other := d.ledger(t), d.ledger(t)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range 25 {
					spend(t, other, "acme", 2, held("acme/user=bob", 5, -1), held("acme", 5, -1))
				}
			})
		}
		for range 5 {
			if err := l.Erase(context.Background(), "acme", "acme/user=bob"); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
		stands(t, l, "acme", held("acme", 0, -1), 150, 0)
		reproduced(t, l)
		if err := l.Erase(context.Background(), "acme", "acme/user=bob"); err != nil {
			t.Error(err)
		}
		db := d.open(t)
		const orphans = "SELECT count(*) FROM headgate_windows WHERE counter NOT IN (SELECT id FROM headgate_counters)"
		if n := number(t, db, orphans); n != 0 {
			t.Errorf("%d windows are of nobody", n)
		}
		stands(t, other, "acme", held("acme/user=bob", 0, -1), 0, 0)
	})
}

// Whoever has no tenant is a tree of their own, which is named by their key.
func TestWhoIsATreeIsErasedFromCallsToo(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		l, db := d.ledger(t), d.open(t)
		for _, user := range []string{"user=bob", "user=bobby"} {
			res, err := l.Reserve(t.Context(), quota.Reserve{
				ID: "call-of-" + user, Tree: user, Entries: []quota.Entry{held(user, 5, -1)}, Note: quota.Note{Subject: user},
			})
			if err != nil || res.Denied >= 0 {
				t.Fatalf("Reserve = %+v, %v", res, err)
			}
		}
		if err := l.Erase(t.Context(), "user=bob", "user=bob"); err != nil {
			t.Fatal(err)
		}
		for user, want := range map[string]int64{"user=bob": 0, "user=bobby": 1} {
			if n := number(t, db, "SELECT count(*) FROM headgate_calls WHERE tree = '"+user+"' OR subject = '"+user+"' OR reservation = 'call-of-"+user+"'"); n != want {
				t.Errorf("%s is named in %d calls, want %d", user, n, want)
			}
		}
		reproduced(t, l)
	})
}
