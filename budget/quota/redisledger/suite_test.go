package redisledger_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget/quota/ledgertest"
	"github.com/headgate-go/headgate/budget/quota/redisledger"
	"github.com/headgate-go/headgate/internal/servers"
)

// In real time, as in production: the clock is the server's.
func runInRealTime(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	ledgertest.Run(t, func(t testing.TB) ledgertest.Store {
		l := open(t, client)
		return ledgertest.Store{
			Ledger:  l,
			Now:     func() time.Time { return time.Now().Add(redisledger.Skew(l)) },
			Pass:    func(d time.Duration) { redisledger.Pass(l, d+time.Microsecond-1) },
			SetBack: func(d time.Duration) { redisledger.Pass(l, -d) },
		}
	}, ledgertest.Options{Resolution: time.Microsecond, Slack: 20 * time.Second})
}

func TestLedgerOnASingleServer(t *testing.T) {
	t.Parallel()
	runInRealTime(t, servers.SharedRedis(t).Client())
}

func TestLedgerOnACluster(t *testing.T) {
	t.Parallel()
	runInRealTime(t, servers.StartRedisCluster(t, 3, 1, servers.RedisOptions{}).Client())
}

// With a clock that stands still the suite also tells exact instants, and compares
// rolling counters with its model.
func runWithAStillClock(t *testing.T, change func(*redisledger.Ledger)) {
	t.Helper()
	addr := servers.SharedRedis(t).Addr()
	ledgertest.Run(t, func(t testing.TB) ledgertest.Store {
		// It is made in the bubble of the test, with all that waits for it.
		l := open(t, connect(t, addr))
		redisledger.SetClock(l, time.Now)
		change(l)
		return ledgertest.Store{Ledger: l}
	}, ledgertest.Options{Resolution: time.Microsecond, Virtual: true, Steps: 1000})
}

func TestLedgerWithAClockThatStandsStill(t *testing.T) {
	t.Parallel()
	runWithAStillClock(t, func(*redisledger.Ledger) {})
}

// The twins of the scripts for large amounts must be right with small ones, too.
func TestExactScriptsWithAClockThatStandsStill(t *testing.T) {
	t.Parallel()
	runWithAStillClock(t, redisledger.Exactly)
}
