package observability

import (
	"context"
	"crypto/sha1"
	"database/sql"
	"encoding/hex"
	"errors"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // the driver of SQLite

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
	"github.com/headgate-go/headgate/budget/quota/redisledger"
	"github.com/headgate-go/headgate/budget/quota/sqlledger"
	"github.com/headgate-go/headgate/internal/servers"
)

// notRedis has a client of Redis believe that there is a server which can run scripts, until
// one is run: that fails.
type notRedis struct{ failure atomic.Pointer[error] }

func (*notRedis) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*notRedis) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (r *notRedis) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		if failure := r.failure.Load(); failure != nil {
			cmd.SetErr(*failure)
			return *failure
		}
		switch c := cmd.(type) {
		case *redis.StatusCmd:
			c.SetVal("PONG")
		case *redis.Cmd:
			c.SetVal("7.0.15 8")
		case *redis.StringCmd:
			if c.Name() != "script" { // INFO, which says nothing
				break
			}
			sum := sha1.Sum([]byte(c.Args()[2].(string))) // SCRIPT LOAD
			c.SetVal(hex.EncodeToString(sum[:]))
		}
		return nil
	}
}

// ofStores are the metrics of stores, and of blocks before them.
var ofStores = regexp.MustCompile(`^headgate_(store|redisledger|sqlledger|blocks)_`)

// full is an error that Redis answers with.
type full string

func (f full) Error() string { return string(f) }
func (full) RedisError()     {}

// stores makes a ledger of each kind, with metrics.
func stores(t *testing.T, reg prometheus.Registerer) (overRedis *redisledger.Ledger, server *notRedis) {
	t.Helper()
	closing := func(l quota.Ledger) {
		t.Cleanup(func() {
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "spend.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	overSQL, err := sqlledger.New(t.Context(), sqlledger.Config{DB: db, Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	closing(overSQL)
	leasing, err := blocks.New(overSQL, blocks.Config{Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	closing(leasing)
	server = &notRedis{}
	client := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(server)
	if overRedis, err = redisledger.New(t.Context(), redisledger.Config{Client: client, Registerer: reg}); err != nil {
		t.Fatal(err)
	}
	closing(overRedis)
	return overRedis, server
}

// failures are the values of the labels of a store's metrics after it has failed in every way.
func failures(t *testing.T) map[string][]string {
	t.Helper()
	reg := prometheus.NewRegistry()
	l, server := stores(t, reg)
	for _, err := range []error{
		context.DeadlineExceeded, &net.OpError{Op: "dial", Err: errors.New("connection refused")}, full("OOM command not allowed"),
	} {
		server.failure.Store(&err)
		if _, err := l.Reserve(t.Context(), quota.Reserve{ID: budget.NewID(), Tree: "t"}); !errors.Is(err, quota.ErrUnavailable) {
			t.Errorf("Reserve = %v", err)
		}
		if _, err := l.Settle(t.Context(), quota.Settle{ID: "x", Tree: "t"}); !errors.Is(err, quota.ErrUnavailable) {
			t.Errorf("Settle = %v", err)
		}
	}
	return valuesOf(t, reg)
}

// With a store of its own the example exports all that the dashboard asks of it; and when
// the store hangs, that is noticed, and of which.
func TestPrometheusSeesTheStoresOfTheExample(t *testing.T) {
	t.Parallel()
	path := program(t, "prometheus")
	server := servers.StartRedis(t, servers.RedisOptions{})
	overRedis := startSupport(t, "-store", "redis", "-dsn", "redis://"+server.Addr())
	overSQL := startSupport(t, "-store", "sqlite", "-dsn", filepath.Join(t.TempDir(), "spend.db"))
	p := startPrometheus(t, path, overRedis.url, overSQL.url)
	p.eventually(`sum(up{job="headgate"}) == 2`)
	talk(t, overRedis) // until everybody is denied, which is soon
	talk(t, overSQL)
	asked := 0
	for _, q := range dashboardQueries(t) {
		if !slices.ContainsFunc(q.selectors(), func(s selector) bool { return ofStores.MatchString(s.metric) }) {
			continue
		}
		asked++
		p.eventually(strings.ReplaceAll(q.expr, "[10s]", "[5m]"))
	}
	if asked < 25 {
		t.Errorf("the dashboard asks %d things of stores only", asked)
	}
	for _, ledger := range []string{"redis", "sqlite"} {
		p.eventually(`sum(headgate_store_operations_total{ledger="` + ledger + `", operation="reserve", outcome="ok"}) > 0`)
	}
	if got := p.query(`ALERTS{alertname=~"HeadgateStore.*|HeadgateBlocks.*|HeadgateSweeps.*", alertstate="firing"}`); len(got) > 0 {
		t.Errorf("nothing is wrong, and yet there is %s", got)
	}

	server.Pause()
	probing, stop := context.WithCancel(t.Context())
	probed := make(chan struct{})
	go func() { // as whoever runs the program does, also where nobody else asks the store any more
		defer close(probed)
		for probing.Err() == nil {
			overRedis.probe(probing)
			time.Sleep(50 * time.Millisecond)
		}
	}()
	p.eventually(`ALERTS{alertname="HeadgateStoreFailing", ledger="redis", alertstate="firing"}`)
	p.eventually(`ALERTS{alertname="HeadgateLedgerOutage", alertstate="firing"}`)
	p.eventually(`max(headgate_quota_paused) == 1`)
	stop()
	<-probed
	server.Resume()
	if got := p.query(`ALERTS{alertname="HeadgateStoreFailing", ledger!="redis", alertstate="firing"}`); len(got) > 0 {
		t.Errorf("SQLite works, and yet there is %s", got)
	}
	p.rulesAreHealthy()
}
