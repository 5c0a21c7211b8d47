package redisledger_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/redisledger"
	"github.com/headgate-go/headgate/internal/servers"
)

// fiveLimits are the limits of a call over three scopes: a day's credits of the user,
// a month's of the team and the tenant, and the tokens a minute of the user and the
// tenant.
func fiveLimits(tenant string) []quota.Entry {
	const limit = 1 << 50
	now := time.Now().UTC()
	day := func(n int) quota.Span {
		start := now.Truncate(24*time.Hour).AddDate(0, 0, n)
		return quota.Span{Start: start, End: start.AddDate(0, 0, 1)}
	}
	month := func(n int) quota.Span {
		start := time.Date(now.Year(), now.Month()+time.Month(n), 1, 0, 0, 0, 0, time.UTC)
		return quota.Span{Start: start, End: start.AddDate(0, 1, 0)}
	}
	days := [3]quota.Span{day(-1), day(0), day(1)}
	months := [3]quota.Span{month(-1), month(0), month(1)}
	calendar := func(key, window string, spans [3]quota.Span) quota.Entry {
		return quota.Entry{
			Counter: quota.Counter{Key: key, Window: window, Unit: quota.Credits}, Amount: 4600,
			Limit: limit, Ceiling: -1, Spans: spans, Thresholds: []int{80, 100},
		}
	}
	rolling := func(key string) quota.Entry {
		return quota.Entry{
			Counter: quota.Counter{Key: key, Window: "rolling:1m", Unit: quota.Tokens}, Amount: 3400,
			Limit: limit, Ceiling: -1, Rolling: true, Per: time.Minute, Burst: limit, MaxWait: 2 * time.Second,
		}
	}
	user, team := tenant+"/user=alice", tenant+"/team=support"
	return []quota.Entry{
		calendar(user, "day", days), rolling(user), calendar(team, "month", months), calendar(tenant, "month", months), rolling(tenant),
	}
}

// An opponent does something to a server as one of some callers.
type opponent func(b testing.TB, caller, i int)

// A bench has callers do things on a server of its own.
type bench struct {
	client *redis.Client
	ledger *redisledger.Ledger
	run    int64 // so that ids are new
}

// newBench starts a server whose answers come so much later.
func newBench(b *testing.B, away time.Duration) *bench {
	addr := servers.StartRedis(b, servers.RedisOptions{}).Addr()
	if away > 0 {
		proxy := servers.NewProxy(b, addr)
		proxy.Delay(away)
		addr = proxy.Addr()
	}
	client := connect(b, addr)
	return &bench{client: client, ledger: open(b, client)}
}

// tree is one of each caller: the tenants of a server.
func tree(caller int) string { return "tenant=" + strconv.Itoa(caller) }

// noop is the least that a script costs.
func (x *bench) noop() opponent {
	script := redis.NewScript("return 1")
	return func(b testing.TB, caller, _ int) {
		if err := script.Run(context.Background(), x.client, []string{"{" + tree(caller) + "}"}).Err(); err != nil {
			b.Fatal(err)
		}
	}
}

// allowN is one limit of redis_rate.
func (x *bench) allowN() opponent {
	limiter := redis_rate.NewLimiter(x.client)
	return func(b testing.TB, caller, _ int) {
		res, err := limiter.AllowN(context.Background(), tree(caller), redis_rate.PerMinute(1<<40), 3400)
		if err != nil || res.Allowed == 0 {
			b.Fatal(res, err)
		}
	}
}

func (x *bench) ids() func(caller, i int) string {
	x.run++
	run := strconv.FormatInt(x.run, 36)
	return func(caller, i int) string { return run + "-" + strconv.Itoa(caller) + "-" + strconv.Itoa(i) }
}

func (x *bench) entries(callers int) [][]quota.Entry {
	all := make([][]quota.Entry, callers)
	for i := range all {
		all[i] = fiveLimits(tree(i))
	}
	return all
}

func (x *bench) reserve(callers int, id func(caller, i int) string) opponent {
	entries := x.entries(callers)
	room := make([][8]quota.Status, callers) // as an Enforcer has it
	return func(b testing.TB, caller, i int) {
		res, err := x.ledger.Reserve(context.Background(), quota.Reserve{
			ID: id(caller, i), Tree: tree(caller), Entries: entries[caller], Room: room[caller][:0],
		})
		if err != nil || res.Denied >= 0 || res.Repeated {
			b.Fatal(res, err)
		}
	}
}

func (x *bench) settle(id func(caller, i int) string) opponent {
	return func(b testing.TB, caller, i int) {
		res, err := x.ledger.Settle(context.Background(), quota.Settle{
			ID: id(caller, i), Tree: tree(caller), Actual: quota.Amounts{quota.Tokens: 3000, quota.Credits: 4000},
		})
		if err != nil || res.Repeated {
			b.Fatal(res, err)
		}
	}
}

// time has each caller do n things, and returns how long one took of the time of all.
func (x *bench) time(b testing.TB, callers, n int, do opponent) time.Duration {
	var wg sync.WaitGroup
	begin := time.Now()
	for c := range callers {
		wg.Go(func() {
			for i := range n {
				do(b, c, i)
			}
		})
	}
	wg.Wait()
	return time.Since(begin) / time.Duration(n*callers)
}

// A reservation over five limits, and its settlement, against the least that a script
// costs and against one limit of another library. All take turns, so that whatever else
// the machine does hits all; numbers are medians.
func BenchmarkReserveAndSettle(b *testing.B) {
	for _, c := range []struct {
		callers, each int
		away          time.Duration
	}{{1, 1280, 0}, {64, 20, 0}, {1, 100, time.Millisecond}} {
		b.Run(fmt.Sprintf("callers=%d/away=%v", c.callers, c.away), func(b *testing.B) {
			x := newBench(b, c.away)
			times := map[string][]time.Duration{}
			b.ResetTimer()
			for range max(b.N, 9) {
				id := x.ids()
				for _, o := range []struct {
					name string
					do   opponent
				}{
					{"noop", x.noop()}, {"allowN", x.allowN()}, {"reserve", x.reserve(c.callers, id)}, {"settle", x.settle(id)},
				} {
					times[o.name] = append(times[o.name], x.time(b, c.callers, c.each, o.do))
				}
			}
			median := func(name string) float64 {
				slices.Sort(times[name])
				return float64(times[name][len(times[name])/2])
			}
			b.ReportMetric(0, "ns/op")
			for name := range times {
				b.ReportMetric(median(name)/1e3, "µs/"+name)
			}
			b.ReportMetric(median("reserve")/median("allowN"), "reserve/allowN")
			b.ReportMetric(median("noop")/median("reserve"), "noop/reserve")
			b.ReportMetric(median("noop")/median("settle"), "noop/settle")
		})
	}
}
