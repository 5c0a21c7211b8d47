package redisledger_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/redisledger"
	"github.com/headgate-go/headgate/internal/promtest"
	"github.com/headgate-go/headgate/internal/servers"
)

// metered has a ledger's metrics registered.
func metered(reg prometheus.Registerer) func(*redisledger.Config) {
	return func(c *redisledger.Config) { c.Registerer = reg }
}

// series are the values of all series, by name and labels.
func series(t testing.TB, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	return promtest.Series(t, reg, "headgate_")
}

// hasSeries checks the series of the ledger "redis" whose names and labels are given.
func hasSeries(t testing.TB, reg prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	got := series(t, reg)
	for at, v := range want {
		name, labels, _ := strings.Cut(at, "{")
		at = strings.TrimSuffix(name+"{ledger=redis,"+labels, ",}") + "}"
		if have := got[strings.Replace(at, "}}", "}", 1)]; have != v {
			t.Errorf("%s is %v, want %v", at, have, v)
		}
	}
	if t.Failed() {
		t.Logf("there is %v", got)
	}
}

func TestMetricsTellWhatCameOfOperations(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	client := servers.StartRedis(t, servers.RedisOptions{}).Client()
	l := open(t, client, metered(reg))
	ctx, e := t.Context(), hourly("u", quota.Hold, 10, 100)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	take(t, l, "t", e)
	id, other := take(t, l, "t", e), take(t, l, "t", e)
	settle(t, l, "t", id, 7)
	if _, err := l.Reserve(ctx, quota.Reserve{ID: budget.NewID(), Tree: "t", Entries: []quota.Entry{hourly("u", quota.Hold, 100, 100)}}); err != nil {
		t.Fatal(err) // a denial is an answer
	}
	if res, err := l.Reserve(ctx, quota.Reserve{ID: id, Tree: "t", Entries: []quota.Entry{e}}); err != nil || !res.Repeated {
		t.Fatalf("Reserve = %+v, %v", res, err) // a repeat is rare
	}
	ok(l.Release(ctx, "t", other))
	_, err := l.Renew(ctx, "t", time.Minute, id)
	ok(err)
	_, err = l.TopUp(ctx, "t", e, 2)
	ok(err)
	stands(t, l, "t", e, 5, 10)
	_, err = l.History(ctx, "t", e.Counter, 3)
	ok(err)
	ok(l.Erase(ctx, "t", "u"))
	ok(l.Healthy(ctx))
	for _, err := range []error{l.Release(ctx, "t", "nobody's"), func() error {
		_, err := l.Settle(ctx, quota.Settle{ID: "nobody's", Tree: "t"})
		return err
	}()} {
		if !errors.Is(err, quota.ErrUnknownReservation) {
			t.Errorf("got %v", err)
		}
	}
	hasSeries(t, reg, map[string]float64{
		"store_operations_total{operation=reserve,outcome=ok}":      5,
		"store_operations_total{operation=settle,outcome=ok}":       1,
		"store_operations_total{operation=settle,outcome=unknown}":  1,
		"store_operations_total{operation=release,outcome=ok}":      1,
		"store_operations_total{operation=release,outcome=unknown}": 1,
		"store_operations_total{operation=renew,outcome=ok}":        1,
		"store_operations_total{operation=status,outcome=ok}":       2, // and a top-up
		"store_operations_total{operation=history,outcome=ok}":      1,
		"store_operations_total{operation=erase,outcome=ok}":        1,
		"store_operations_total{operation=health,outcome=ok}":       1,
		"store_operation_seconds_count{operation=reserve}":          5,
		"store_operation_seconds_count{operation=settle}":           2,
		"redisledger_repeated_scripts_total{reason=large}":          0,
		"redisledger_resent_scripts_total{}":                        0,
		"redisledger_waiting_operations{}":                          0,
	})
	s := series(t, reg)
	rare := s["redisledger_repeated_scripts_total{ledger=redis,reason=rare}"]
	if trips := s["redisledger_round_trips_total{ledger=redis}"]; rare == 0 || trips != 14+rare {
		t.Errorf("14 scripts, of which %v ran twice, made %v round trips", rare, trips)
	}

	ok(client.ScriptFlush(ctx).Err())
	id = take(t, l, "t", always("u", quota.Hold, 1, -1))
	large := always("large", quota.Hold, 1<<60, -1)
	take(t, l, "t", large)
	if now := series(t, reg); now["redisledger_resent_scripts_total{ledger=redis}"] == 0 ||
		now["redisledger_repeated_scripts_total{ledger=redis,reason=large}"] != 0 { // it is known before it is sent
		t.Errorf("after a flush there is %v", now)
	}
	for range 4 { // together they are larger than plain numbers are exact
		take(t, l, "sum", always("large", quota.Count, 1<<51-1, -1))
	}
	hasSeries(t, reg, map[string]float64{"redisledger_repeated_scripts_total{reason=large}": 1})

	ok(l.Close(ctx))
	unavailable(t, "Release of a closed ledger", l.Release(ctx, "t", id))
	hasSeries(t, reg, map[string]float64{"store_operations_total{operation=release,outcome=closed}": 1})
}

func TestMetricsTellScriptsThatHaveMoreToSweepThanOneDoes(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	l := open(t, shared(t), prefix(t), metered(reg))
	for range 70 {
		take(t, l, "t", always("u", quota.Hold, 1, 70))
	}
	redisledger.Pass(l, quota.DefaultTTL+time.Minute)
	res, err := l.Reserve(t.Context(), quota.Reserve{ID: budget.NewID(), Tree: "t", Entries: []quota.Entry{always("u", quota.Hold, 71, 70)}})
	if err != nil || res.Denied != 0 {
		t.Fatalf("Reserve = %+v, %v", res, err)
	}
	hasSeries(t, reg, map[string]float64{"redisledger_repeated_scripts_total{reason=expired}": 2}) // 32 at a time
}

func TestMetricsTellApartHowAStoreFails(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, servers.RedisOptions{AppendOnly: "always"})
	for name, client := range clients(t, server.Addr()) {
		reg := prometheus.NewPedanticRegistry()
		l := open(t, client, within(150*time.Millisecond), metered(reg))
		reserve := func(ctx context.Context) error {
			_, err := l.Reserve(ctx, quota.Reserve{ID: budget.NewID(), Tree: "t", Entries: []quota.Entry{hourly("u", quota.Hold, 1, -1)}})
			return err
		}
		took := func(want string, n float64) {
			t.Helper()
			t.Log("client", name, want)
			hasSeries(t, reg, map[string]float64{"store_operations_total{operation=reserve,outcome=" + want + "}": n})
		}
		eventually(t, func() error { return reserve(t.Context()) })

		server.Pause()
		unavailable(t, "Reserve", reserve(t.Context()))
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := reserve(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		cancel()
		took("timeout", 2)
		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, leave)
		if err := reserve(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		took("cancelled", 1)
		server.Resume()

		admin := connect(t, server.Addr())
		eventually(t, func() error { return admin.ConfigSet(t.Context(), "maxmemory", "1").Err() })
		eventually(t, func() error {
			if err := reserve(t.Context()); err == nil || !redis.HasErrorPrefix(errors.Unwrap(err), "OOM") && !strings.Contains(err.Error(), "OOM") {
				return errors.Join(errors.New("the server is full, and takes something"), err)
			}
			return nil
		})
		took("refused", 1)
		if err := admin.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
			t.Fatal(err)
		}

		server.Kill()
		eventually(t, func() error {
			unavailable(t, "Reserve", reserve(t.Context()))
			if series(t, reg)["store_operations_total{ledger=redis,operation=reserve,outcome=unreachable}"] == 0 {
				return errors.New("nothing is counted as unreachable")
			}
			return nil
		})
		server.Restart()
	}
}

// Two ledgers of one name cannot share a registry, which stays as it was; nor does it forget
// one that was closed. Who cannot begin has registered nothing.
func TestLedgersShareARegistryByName(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	dead := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer dead.Close()
	if _, err := redisledger.New(t.Context(), redisledger.Config{Client: dead, Registerer: reg}); err == nil {
		t.Fatal("nobody listens, and there is a ledger")
	}
	client := shared(t)
	l := open(t, client, prefix(t), metered(reg))
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := len(series(t, reg))
	_, err := redisledger.New(t.Context(), redisledger.Config{Client: client, Registerer: reg})
	if already := (prometheus.AlreadyRegisteredError{}); !errors.As(err, &already) || !strings.Contains(err.Error(), `redisledger: Config.Registerer: ledger "redis"`) {
		t.Errorf("got %v, want an error of Config.Registerer", err)
	}
	if after := len(series(t, reg)); after != before || before == 0 {
		t.Errorf("there were %d series and there are %d after a ledger that was refused", before, after)
	}
	open(t, client, prefix(t), metered(reg), func(c *redisledger.Config) { c.Name = "other" })
	open(t, client, prefix(t), metered((*prometheus.Registry)(nil)))
}

func TestScrapesWhileCallersWorkCountAll(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	l := open(t, shared(t), prefix(t), metered(reg))
	var calls, scrapes sync.WaitGroup
	done := make(chan struct{})
	scrapes.Go(func() {
		for {
			series(t, reg)
			select {
			case <-done:
				return
			default:
			}
		}
	})
	const callers, each = 16, 20
	for range callers {
		calls.Go(func() {
			for range each {
				settle(t, l, "t", take(t, l, "t", always("u", quota.Hold, 2, -1)), 1)
			}
		})
	}
	calls.Wait()
	close(done)
	scrapes.Wait()
	hasSeries(t, reg, map[string]float64{
		"store_operations_total{operation=reserve,outcome=ok}": callers * each, "store_operation_seconds_count{operation=reserve}": callers * each,
		"store_operations_total{operation=settle,outcome=ok}": callers * each, "redisledger_waiting_operations{}": 0,
	})
	if trips := series(t, reg)["redisledger_round_trips_total{ledger=redis}"]; trips == 0 || trips > 2*callers*each+2 {
		t.Errorf("%d operations made %v round trips", 2*callers*each, trips)
	}
}
