package sqlledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/sqlledger"
)

// held is an entry that holds tokens under a limit of all time; below 0 there is none.
func held(key string, amount, limit int64) quota.Entry {
	return quota.Entry{
		Counter: quota.Counter{Key: key, Window: "ever", Unit: quota.Tokens},
		Amount:  amount, Limit: limit, Ceiling: -1,
	}
}

// flowing is an entry of a rolling limit without an end to its burst.
func flowing(key string, amount int64) quota.Entry {
	return quota.Entry{
		Counter: quota.Counter{Key: key, Window: "rolling-1m", Unit: quota.Credits},
		Amount:  amount, Limit: 1000, Ceiling: -1, Rolling: true, Per: time.Minute, Burst: 1 << 40,
	}
}

// take reserves, and returns the id.
func take(t testing.TB, l *sqlledger.Ledger, tree string, entries ...quota.Entry) string {
	t.Helper()
	id := budget.NewID()
	res, err := l.Reserve(context.Background(), quota.Reserve{ID: id, Tree: tree, Entries: entries})
	if err != nil || res.Denied >= 0 || res.Held {
		t.Errorf("Reserve = %+v, %v", res, err)
	}
	return id
}

func tokens(n int64) quota.Amounts { return quota.Amounts{quota.Tokens: n} }

// spend reserves and settles.
func spend(t testing.TB, l *sqlledger.Ledger, tree string, actual int64, entries ...quota.Entry) string {
	t.Helper()
	id := take(t, l, tree, entries...)
	if res, err := l.Settle(context.Background(), quota.Settle{ID: id, Tree: tree, Actual: tokens(actual)}); err != nil || res.Repeated {
		t.Errorf("Settle = %+v, %v", res, err)
	}
	return id
}

// stands checks what is committed and reserved.
func stands(t testing.TB, l *sqlledger.Ledger, tree string, e quota.Entry, committed, reserved int64) {
	t.Helper()
	all, err := l.Status(context.Background(), tree, e)
	if err != nil {
		t.Errorf("Status: %v", err)
		return
	}
	if st := all[0]; st.Committed != committed || st.Reserved != reserved {
		t.Errorf("%q of %q stands at %d committed and %d reserved, want %d and %d",
			e.Key, tree, st.Committed, st.Reserved, committed, reserved)
	}
}

// wander makes random calls in a few trees, each with some counters of every kind.
func wander(ctx context.Context, l *sqlledger.Ledger, r *rand.Rand, calls int) error {
	type call struct{ tree, id string }
	var open, ended []call
	seq := int64(0)
	pick := func(from []call) call { return from[r.IntN(len(from))] }
	for range calls {
		tree := fmt.Sprint("tenant=", r.IntN(3))
		key := fmt.Sprint(tree, "/user=", r.IntN(3))
		lease := quota.Entry{Counter: quota.Counter{Key: key, Unit: quota.ConcurrentTurns}, Kind: quota.Lease, Amount: 1, Limit: 20, Ceiling: -1}
		count := quota.Entry{Counter: quota.Counter{Key: key, Window: "ever", Unit: quota.Calls}, Kind: quota.Count, Amount: 1, Limit: 400, Ceiling: -1,
			Soft: true, Thresholds: []int{10, 50, 100}}
		var err error
		switch n := r.IntN(10); {
		case n < 4 || len(open) == 0:
			c := call{tree, budget.NewID()}
			var res quota.Reserved
			res, err = l.Reserve(ctx, quota.Reserve{ID: c.id, Tree: tree, Entries: []quota.Entry{
				held(key, r.Int64N(50), 2000), held(tree, r.Int64N(50), 5000), flowing(key, r.Int64N(50)), lease, count,
			}, TTL: []time.Duration{time.Millisecond, time.Hour}[r.IntN(2)], Note: quota.Note{Subject: key, Model: "m"}})
			if err == nil && res.Denied < 0 {
				open = append(open, c)
			}
		case n < 7:
			c := pick(open)
			actual := quota.Amounts{quota.Tokens: r.Int64N(80), quota.Credits: r.Int64N(80)}
			_, err = l.Settle(ctx, quota.Settle{ID: c.id, Tree: c.tree, Actual: actual, More: []quota.Entry{held(c.tree+"/team", r.Int64N(9), 100)}})
			ended = append(ended, c)
		case n < 8:
			c := pick(open)
			err = l.Release(ctx, c.tree, c.id)
		case n < 9 && len(ended) > 0:
			c := pick(ended)
			seq++
			_, err = l.Settle(ctx, quota.Settle{ID: c.id, Tree: c.tree, Actual: tokens(r.Int64N(80)), Adjust: true, Seq: seq})
		default:
			c := pick(open)
			if _, err = l.Renew(ctx, c.tree, time.Minute, c.id); err == nil && r.IntN(2) == 0 {
				_, err = l.TopUp(ctx, tree, held(key, 0, 2000), 30)
			} else if err == nil {
				_, err = l.Reset(ctx, tree, flowing(key, 0))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Two processes, with several callers each, do whatever can be done, and forget half of what
// they have reserved.
func TestTheAuditReproducesWhateverWasDoneAtOnce(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		ledgers := []*sqlledger.Ledger{d.ledger(t), d.ledger(t)}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 6))
				if err := wander(context.Background(), ledgers[i%2], r, 60); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		reproduced(t, ledgers[0])
		db := d.open(t)
		for table, least := range map[string]int64{"audit": 500, "calls": 50, "windows": 15, "buckets": 9, "reservations": 50} {
			if n := number(t, db, "SELECT count(*) FROM headgate_"+table); n < least {
				t.Errorf("%s has %d rows: too little was done", table, n)
			}
		}
	})
}

// Poolers that give each transaction another connection need one of the latter two.
func TestAnyWayToSendStatementsWillDo(t *testing.T) {
	t.Parallel()
	d := newPostgres(t)
	for i, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		l := database{d.driver, d.dsn + "&default_query_exec_mode=" + mode}.ledger(t)
		if err := wander(t.Context(), l, rand.New(rand.NewPCG(uint64(i), 8)), 40); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		if err := l.Erase(t.Context(), "tenant=0", "tenant=0/user=0"); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		sweep(t, l)
		reproduced(t, l)
	}
}

func TestCallersOfTwoLedgersNeverPassALimitTogether(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		const amount, limit, most = 7, 700 + 6, 100
		ledgers := []*sqlledger.Ledger{d.ledger(t), d.ledger(t)}
		var wg sync.WaitGroup
		var mu sync.Mutex
		granted := map[string]bool{}
		for i := range 12 {
			wg.Go(func() {
				l := ledgers[i%2]
				for n := 0; ; n++ {
					id := budget.NewID()
					res, err := l.Reserve(context.Background(), quota.Reserve{ID: id, Tree: "acme", Entries: []quota.Entry{
						held(fmt.Sprint("acme/user=", i), amount, -1), held("acme", amount, limit),
					}})
					if err != nil {
						t.Error(err)
						return
					}
					if st := res.Status[1]; st.Committed+st.Reserved > limit {
						t.Errorf("%d of %d are used", st.Committed+st.Reserved, limit)
					}
					if res.Denied >= 0 {
						return
					}
					mu.Lock()
					granted[id] = true
					mu.Unlock()
					if n%2 == 0 {
						_, err = l.Settle(context.Background(), quota.Settle{ID: id, Tree: "acme", Actual: tokens(amount)})
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if len(granted) != most {
			t.Errorf("%d calls of %d were granted under %d, want %d", len(granted), amount, limit, most)
		}
		st, err := ledgers[0].Status(t.Context(), "acme", held("acme", 0, limit))
		if err != nil || st[0].Committed+st[0].Reserved != most*amount {
			t.Errorf("Status = %+v, %v, want %d in all", st, err, most*amount)
		}
		reproduced(t, ledgers[1])
	})
}

// Each caller goes through all trees, half of them backwards, so that batches of two processes
// come to the same rows from both ends. Erasing changes rows that others are about to change.
func TestNobodyDeadlocksInTreesOfOppositeOrder(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		const trees, rounds, callers = 6, 2, 12
		ledgers := []*sqlledger.Ledger{d.ledger(t), d.ledger(t)}
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for n := range rounds * trees {
					at := n % trees
					if i%4 < 2 {
						at = trees - 1 - at
					}
					tree, l := fmt.Sprint("tenant=", at), ledgers[i%2]
					id := budget.NewID()
					entries := []quota.Entry{held(tree, 1, -1), held(tree+"/user=1", 1, -1), flowing(tree, 1)}
					if i >= callers/2 {
						entries[0], entries[1] = entries[1], entries[0]
					}
					_, err := l.Reserve(context.Background(), quota.Reserve{ID: id, Tree: tree, Entries: entries})
					if err == nil {
						_, err = l.Settle(context.Background(), quota.Settle{ID: id, Tree: tree, Actual: tokens(1)})
					}
					if err == nil && i == 0 {
						err = l.Erase(context.Background(), tree, tree+"/user=1")
					}
					if err != nil {
						t.Errorf("caller %d: %v", i, err)
						return
					}
				}
			})
		}
		wg.Wait()
		for i := range trees {
			tree := fmt.Sprint("tenant=", i)
			stands(t, ledgers[0], tree, held(tree, 0, -1), rounds*callers, 0)
		}
		reproduced(t, ledgers[0])
		if d.driver == "pgx" {
			const deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
			db := d.open(t)
			if _, err := db.Exec("SELECT pg_stat_clear_snapshot()"); err != nil {
				t.Fatal(err)
			}
			if n := number(t, db, deadlocks); n != 0 {
				t.Errorf("%d deadlocks", n)
			}
		}
	})
}

func TestKeysAreTheSameOnlyByteForByte(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		ledgers := []*sqlledger.Ledger{d.ledger(t), d.ledger(t)}
		keys := []string{
			"user=a", "user=A", "USER=a", "user=a ", " user=a", "user=a/", "user=\u00e1", "user=a\u0301", "user=\uff41", "user=a\x00", "user=a\xff",
			`\x757365723d61`, `user=\`, `user="`, "user={", "user=NULL", "", strings.Repeat("a", 3000), strings.Repeat("a", 2999) + "b",
		}
		for i, key := range keys {
			spend(t, ledgers[i%2], "acme", int64(i+1), held(key, 1, -1))
		}
		for i, key := range keys {
			stands(t, ledgers[(i+1)%2], "acme", held(key, 0, -1), int64(i+1), 0)
		}
		for i, tree := range []string{"ACME", "acme ", "acme\x00"} { // trees, too
			spend(t, ledgers[i%2], tree, int64(i+1), held("user=a", 1, -1))
			stands(t, ledgers[(i+1)%2], tree, held("user=a", 0, -1), int64(i+1), 0)
		}
		reproduced(t, ledgers[0])
	})
}

// A caller whose context has ended gets its answer at once, and what it has asked for is done
// once or not at all.
func TestACallEndsWithItsContext(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		l := d.ledger(t)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := l.Reserve(ctx, quota.Reserve{ID: "gone", Tree: "acme", Entries: []quota.Entry{held("acme", 5, -1)}})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Reserve: %v, want %v", err, context.Canceled)
		}
		stands(t, l, "acme", held("acme", 0, -1), 0, 0)
	})
}

// One row that cannot be read is of no other tree's concern, whatever is done together.
func TestWhatCannotBeReadFailsNobodyElse(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		broken := take(t, d.ledger(t), "broken", held("broken", 1, -1))
		run(t, d.open(t), "UPDATE headgate_reservations SET body = '9/' || body")
		l := d.ledger(t)
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				tree := fmt.Sprint("tenant=", i%4)
				spend(t, l, tree, 1, held(tree, 1, -1))
			})
			wg.Go(func() {
				_, err := l.Settle(t.Context(), quota.Settle{ID: broken, Tree: "broken", Actual: tokens(1)})
				if !errors.Is(err, quota.ErrUnavailable) {
					t.Errorf("Settle of what cannot be read: %v, want %v", err, quota.ErrUnavailable)
				}
			})
		}
		wg.Wait()
	})
}
