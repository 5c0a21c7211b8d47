package sqlledger_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/sqlledger"
	"github.com/headgate-go/headgate/internal/servers"
)

// TestProcess is a process of a test below: it reserves and settles until it is killed, and says
// what was acknowledged.
func TestProcess(t *testing.T) {
	if !servers.Respawned(t) {
		t.Skip("runs as a process of other tests")
	}
	d := database{os.Getenv("HEADGATE_TEST_DRIVER"), os.Getenv("HEADGATE_TEST_DSN")}
	l := d.ledger(t)
	var wg sync.WaitGroup
	for i := range processCallers {
		wg.Go(func() {
			for n := int64(1); ; n++ {
				id := budget.NewID()
				tree := fmt.Sprint("tenant=", i%3)
				res, err := l.Reserve(context.Background(), quota.Reserve{ID: id, Tree: tree, Entries: []quota.Entry{
					held(fmt.Sprint(tree, "/user=", i), 50, -1), held(tree, 50, -1), flowing(tree, 50),
				}})
				if err != nil || res.Denied >= 0 {
					t.Errorf("Reserve = %+v, %v", res, err)
					return
				}
				used := n % 70
				_, err = l.Settle(context.Background(), quota.Settle{ID: id, Tree: tree, Actual: quota.Amounts{quota.Tokens: used, quota.Credits: used}})
				if err != nil {
					t.Errorf("Settle: %v", err)
					return
				}
				fmt.Println("settled", tree, id, used)
			}
		})
	}
	wg.Wait()
}

const processCallers = 6

// Two processes work on one database. One is killed in the middle, and the other one goes on, to
// be killed itself.
func TestWhatWasSettledSurvivesAKilledProcess(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		d.ledger(t) // makes the tables
		type call struct{ tree, id string }
		acknowledged := map[call]int64{}
		read := func(line string) {
			var c call
			var used int64
			if _, err := fmt.Sscanf(line, "settled %s %s %d", &c.tree, &c.id, &used); err != nil {
				t.Fatalf("a process says %q", line)
			}
			acknowledged[c] = used
		}
		var processes []*servers.Process
		for range 2 {
			processes = append(processes, servers.Respawn(t, "TestProcess", "HEADGATE_TEST_DRIVER="+d.driver, "HEADGATE_TEST_DSN="+d.dsn))
		}
		for _, p := range processes {
			for range 60 {
				line, ok := <-p.Lines()
				if !ok {
					t.Fatal("a process has ended by itself")
				}
				read(line)
			}
			p.Kill()
			for line := range p.Lines() { // what it had said meanwhile
				read(line)
			}
		}
		l := d.ledger(t)
		reproduced(t, l)
		sums := map[string]int64{}
		settled := map[call]int64{}
		for i := range 3 {
			tree := fmt.Sprint("tenant=", i)
			for c, err := range l.Changes(t.Context(), tree, held(tree, 0, -1).Counter, 0) {
				if err != nil {
					t.Fatal(err)
				}
				if sums[tree] += c.Committed; c.What == "settle" {
					settled[call{tree, c.Reservation}] = c.Amount
				}
			}
		}
		for c, used := range acknowledged {
			if got, ok := settled[c]; !ok || got != used {
				t.Errorf("%v was settled to %d, and the ledger has %d (%v)", c, used, got, ok)
			}
			res, err := l.Settle(t.Context(), quota.Settle{ID: c.id, Tree: c.tree, Actual: tokens(used + 1)})
			if err != nil || !res.Repeated {
				t.Errorf("settling %v again = %+v, %v, want a repeat", c, res, err)
			}
		}
		// Nothing is there that nobody can have asked for.
		if more := len(settled) - len(acknowledged); more < 0 || more > 2*processCallers {
			t.Errorf("%d calls are settled, %d were acknowledged", len(settled), len(acknowledged))
		}
		for tree, sum := range sums {
			if st, err := l.Status(t.Context(), tree, held(tree, 0, -1)); err != nil || st[0].Committed != sum {
				t.Errorf("%s: Status = %+v, %v, want %d", tree, st, err, sum)
			}
		}
	})
}

// repeat does something again until the ledger can be reached.
func repeat(t testing.TB, f func() error) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if !errors.Is(err, quota.ErrUnavailable) || time.Since(begun) > 30*time.Second {
			t.Fatal(err)
		}
	}
}

func TestAnOutageOfPostgresIsAnErrorInTimeAndEndsWithIt(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t, servers.PostgresOptions{})
	d := database{"pgx", server.NewDatabase(t)}
	const timeout = 300 * time.Millisecond
	var l *sqlledger.Ledger
	repeat(t, func() (err error) {
		l, err = sqlledger.New(t.Context(), sqlledger.Config{DB: d.open(t), Timeout: timeout, SweepEvery: -1})
		return err
	})
	defer func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	total := int64(0)
	settle := func(id string) {
		t.Helper()
		repeat(t, func() error {
			_, err := l.Settle(context.Background(), quota.Settle{ID: id, Tree: "acme", Actual: tokens(3)})
			return err
		})
		total += 3
	}
	reserve := func(id string) error {
		_, err := l.Reserve(context.Background(), quota.Reserve{ID: id, Tree: "acme", Entries: []quota.Entry{held("acme", 5, -1)}})
		return err
	}
	repeat(t, func() error { return reserve("before") })
	settle("before")
	for i, outage := range []struct {
		name       string
		begin, end func()
	}{
		{"killed", server.Kill, server.Restart},
		{"stopped", server.Pause, server.Resume},
		{"killed again", server.Kill, server.Restart},
	} {
		id, during := fmt.Sprint("open-", i), fmt.Sprint("during-", i)
		repeat(t, func() error { return reserve(id) })
		outage.begin()
		var wg sync.WaitGroup
		for _, f := range []func() error{
			func() error { return reserve(during) },
			func() error {
				_, err := l.Settle(context.Background(), quota.Settle{ID: id, Tree: "acme", Actual: tokens(3)})
				return err
			},
			func() error { return l.Healthy(context.Background()) },
			func() error {
				_, err := l.Status(context.Background(), "other", held("other", 0, -1))
				return err
			},
		} {
			wg.Go(func() {
				begun := time.Now()
				err := f()
				if !errors.Is(err, quota.ErrUnavailable) {
					t.Errorf("%s: %v, want %v", outage.name, err, quota.ErrUnavailable)
				}
				// No measure of speed: without the timeout there is no answer at all.
				if took := time.Since(begun); took > timeout+5*time.Second {
					t.Errorf("%s: the answer took %v, with a timeout of %v", outage.name, took, timeout)
				}
			})
		}
		wg.Wait()
		outage.end()
		settle(id)
		repeat(t, func() error { return reserve(during) })
		settle(during)
	}
	repeat(t, func() error {
		st, err := l.Status(context.Background(), "acme", held("acme", 0, -1))
		if err == nil && (st[0].Committed != total || st[0].Reserved != 0) {
			t.Errorf("%d are committed and %d reserved, want %d and 0", st[0].Committed, st[0].Reserved, total)
		}
		return err
	})
	reproduced(t, d.ledger(t))
}

// through is the same database behind a proxy that breaks things.
func (d database) through(t testing.TB, server *servers.Postgres) (database, *servers.Proxy) {
	p := servers.NewProxy(t, server.Addr())
	return database{d.driver, strings.Replace(d.dsn, server.Addr(), p.Addr(), 1)}, p
}

func TestALostReplyToACommitChargesOnce(t *testing.T) {
	t.Parallel()
	server := servers.SharedPostgres(t)
	d := database{"pgx", server.NewDatabase(t)}
	far, proxy := d.through(t, server)
	l := far.ledger(t)
	lose := func(what string, f func() error) {
		t.Helper()
		if err := f(); !errors.Is(err, quota.ErrUnavailable) {
			t.Errorf("%s without a reply: %v, want %v", what, err, quota.ErrUnavailable)
		}
		repeat(t, f)
		for range 2 { // a new connection has all statements prepared, and what is asked next is one
			spend(t, l, "other", 1, held("other", 1, -1))
		}
	}
	for i := range 6 {
		id := fmt.Sprint("call-", i)
		tree := fmt.Sprint("tenant=", i/2)
		// The first call in a tree makes a transaction, and the second one is a single statement.
		proxy.DropRepliesTo(1, []string{"commit\x00", id}[i%2])
		lose("Reserve", func() error {
			_, err := l.Reserve(t.Context(), quota.Reserve{ID: id, Tree: tree, Entries: []quota.Entry{held(tree, 9, -1)}})
			return err
		})
		proxy.DropReplies(1)
		lose("Settle", func() error {
			_, err := l.Settle(t.Context(), quota.Settle{ID: id, Tree: tree, Actual: tokens(4)})
			return err
		})
	}
	for i := range 3 {
		tree := fmt.Sprint("tenant=", i)
		stands(t, l, tree, held(tree, 0, -1), 8, 0)
		if n := number(t, d.open(t), "SELECT count(*) FROM headgate_audit_log WHERE what = 'settle' AND key = '"+tree+"'"); n != 2 {
			t.Errorf("%s was settled %d times, want 2", tree, n)
		}
	}
	reproduced(t, l)
}

// Replies are lost at any moment, also in the middle of transactions.
func TestLostRepliesChargeOnce(t *testing.T) {
	t.Parallel()
	server := servers.SharedPostgres(t)
	d := database{"pgx", server.NewDatabase(t)}
	far, proxy := d.through(t, server)
	l := far.ledger(t)
	const callers, calls = 4, 12
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			tree := fmt.Sprint("tenant=", i%2)
			for n := range calls {
				id := fmt.Sprint(i, "-", n)
				for _, f := range []func() error{
					func() error {
						_, err := l.Reserve(context.Background(), quota.Reserve{ID: id, Tree: tree, Entries: []quota.Entry{held(tree, 9, -1), flowing(tree, 9)}})
						return err
					},
					func() error {
						_, err := l.Settle(context.Background(), quota.Settle{ID: id, Tree: tree, Actual: quota.Amounts{quota.Tokens: 4, quota.Credits: 4}})
						return err
					},
				} {
					if (n+i)%3 == 0 {
						proxy.DropReplies(1)
					}
					for {
						err := f()
						if err == nil {
							break
						}
						if !errors.Is(err, quota.ErrUnavailable) {
							t.Error(err)
							return
						}
					}
				}
			}
		})
	}
	wg.Wait()
	proxy.DropReplies(0)
	if proxy.Dropped() < calls {
		t.Errorf("only %d replies were lost", proxy.Dropped())
	}
	for i := range 2 {
		tree := fmt.Sprint("tenant=", i)
		stands(t, l, tree, held(tree, 0, -1), callers/2*calls*4, 0)
	}
	reproduced(t, l)
}
