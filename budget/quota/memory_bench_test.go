package quota_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
)

// fiveLimits are the limits of a call over three scopes: a day's credits of the
// user, a month's of the team and the tenant, and the tokens a minute of the user
// and the tenant.
func fiveLimits(tenant string, limit int64) []quota.Entry {
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
			Counter: quota.Counter{Key: key, Window: "rolling/1m0s", Unit: quota.Tokens}, Amount: 3400,
			Limit: limit, Ceiling: -1, Rolling: true, Per: time.Minute, Burst: limit, MaxWait: 2 * time.Second,
		}
	}
	user, team := tenant+"/user=alice", tenant+"/team=support"
	return []quota.Entry{
		calendar(user, "day/UTC", days), rolling(user),
		calendar(team, "month/UTC", months),
		calendar(tenant, "month/UTC", months), rolling(tenant),
	}
}

// pair reserves and settles.
func pair(b testing.TB, m *quota.Memory, tree, id string, entries []quota.Entry) {
	pairIn(b, m, tree, id, entries, nil)
}

func pairIn(b testing.TB, m *quota.Memory, tree, id string, entries []quota.Entry, room []quota.Status) {
	ctx := context.Background()
	if res, err := m.Reserve(ctx, quota.Reserve{ID: id, Tree: tree, Entries: entries, Room: room}); err != nil || res.Denied >= 0 {
		b.Fatalf("Reserve = %+v, %v", res, err)
	}
	if res, err := m.Settle(ctx, quota.Settle{ID: id, Tree: tree, Actual: quota.Amounts{quota.Tokens: 3000, quota.Credits: 4000}, Room: room}); err != nil || res.Repeated {
		b.Fatalf("Settle = %+v, %v", res, err)
	}
}

// ids are made before the clock runs: a call has its own anyway. They come round
// again when the ledger has forgotten them.
var ids = func() (all [1 << 14]string) {
	for i := range all {
		all[i] = budget.NewID()
	}
	return all
}()

// One call over five limits, against ten calls of a local limiter: what as many
// decisions and corrections cost without scopes, ids and windows. Both take turns,
// so that whatever else the machine does hits both; the ratio is that of the
// medians.
func BenchmarkMemoryAgainstTenAllowN(b *testing.B) {
	m := newMemory(b, quota.MemoryConfig{MaxRemembered: 1 << 10})
	entries := fiveLimits("tenant=acme", 1<<52)
	var limiters [10]*rate.Limiter
	for i := range limiters {
		limiters[i] = rate.NewLimiter(1<<40, 1<<40)
	}
	const turn = 1000
	var ours, theirs []float64
	next := 0
	b.ResetTimer()
	for done := 0; done < b.N; done += turn {
		begun := time.Now()
		for range turn {
			pair(b, m, "tenant=acme", ids[next%len(ids)], entries)
			next++
		}
		ours = append(ours, float64(time.Since(begun))/turn)
		begun = time.Now()
		for range turn {
			for _, l := range limiters {
				if !l.AllowN(time.Now(), 3400) {
					b.Fatal("refused")
				}
			}
		}
		theirs = append(theirs, float64(time.Since(begun))/turn)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ours), "ns/pair")
	b.ReportMetric(median(theirs), "ns/10AllowN")
	b.ReportMetric(median(ours)/median(theirs), "ratio")
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// What an admitted and a denied Reserve cost, in turns. Each admitted one is
// released off the clock.
func BenchmarkMemoryDenied(b *testing.B) {
	m := newMemory(b, quota.MemoryConfig{MaxRemembered: 1 << 10})
	admitted, denied := fiveLimits("tenant=acme", 1<<52), fiveLimits("tenant=acme", 1<<52)
	pair(b, m, "tenant=acme", "first", admitted)
	denied[4].Limit, denied[4].Burst = 1, 1
	const turn = 1000
	var took [2][]float64
	for done := 0; done < b.N; done += turn {
		for i, entries := range [][]quota.Entry{admitted, denied} {
			begun := time.Now()
			for _, id := range ids[:turn] {
				res, err := m.Reserve(b.Context(), quota.Reserve{ID: id, Tree: "tenant=acme", Entries: entries})
				if err != nil || (res.Denied < 0) != (i == 0) {
					b.Fatalf("Reserve = %+v, %v", res, err)
				}
			}
			took[i] = append(took[i], float64(time.Since(begun))/turn)
			if i == 0 {
				for _, id := range ids[:turn] {
					if err := m.Release(b.Context(), "tenant=acme", id); err != nil {
						b.Fatal(err)
					}
				}
				for _, id := range ids[turn : 3*turn] { // so that the ids are forgotten
					pair(b, m, "tenant=acme", id, entries)
				}
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(took[0]), "ns/admitted")
	b.ReportMetric(median(took[1]), "ns/denied")
	b.ReportMetric(median(took[1])/median(took[0]), "ratio")
}

// Reserve and Settle of one call, with and without room for the results.
func BenchmarkMemoryReserveSettle(b *testing.B) {
	for _, room := range []int{0, 5} {
		b.Run(fmt.Sprintf("room=%d", room), func(b *testing.B) {
			m := newMemory(b, quota.MemoryConfig{MaxRemembered: 1 << 10})
			entries, room := fiveLimits("tenant=acme", 1<<52), make([]quota.Status, room)
			b.ReportAllocs()
			next := 0
			for b.Loop() {
				pairIn(b, m, "tenant=acme", ids[next%len(ids)], entries, room)
				next++
			}
		})
	}
}

// Eight goroutines on tenants of their own, against one, in turns. The speedup
// needs two cores that have nothing else to do; whether they have is told by the
// opponent, goroutines that share nothing and leave nothing to the garbage
// collector.
func BenchmarkMemoryParallel(b *testing.B) {
	for _, room := range []int{0, 5} {
		b.Run(fmt.Sprintf("room=%d", room), func(b *testing.B) {
			m := newMemory(b, quota.MemoryConfig{MaxRemembered: 1 << 6})
			parallel(b, func(tree string, ids []string) {
				entries, room := fiveLimits(tree, 1<<52), make([]quota.Status, room)
				for _, id := range ids {
					pairIn(b, m, tree, id, entries, room)
				}
			})
		})
	}
	b.Run("opponent=sharing nothing", func(b *testing.B) {
		parallel(b, func(tree string, ids []string) {
			l := rate.NewLimiter(1<<40, 1<<40)
			for range ids {
				for range 10 {
					l.AllowN(time.Now(), 3400)
				}
			}
		})
	})
}

func parallel(b *testing.B, f func(tree string, ids []string)) {
	const turn = 8000
	run := func(goroutines int) float64 {
		begun := time.Now()
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() { f("tenant="+strconv.Itoa(g), ids[g*turn/goroutines:(g+1)*turn/goroutines]) })
		}
		wg.Wait()
		return float64(time.Since(begun)) / turn
	}
	var one, eight []float64
	for done := 0; done < b.N; done += turn {
		one = append(one, run(1))
		eight = append(eight, run(8))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(one), "ns/one")
	b.ReportMetric(median(eight), "ns/eight")
	b.ReportMetric(median(one)/median(eight), "speedup")
}

// What a subject with two limits takes, with all the rest of the ledger.
func BenchmarkMemoryBytesPerSubject(b *testing.B) {
	const subjects = 1_000_000
	for name, tree := range map[string]func(i int) (tree, user string){
		"lone users": func(i int) (string, string) { u := fmt.Sprintf("user=user-%07d", i); return u, u },
		"users of 1k tenants": func(i int) (string, string) {
			t := fmt.Sprintf("tenant=tenant-%04d", i%1000)
			return t, fmt.Sprintf("%s/user=user-%07d", t, i)
		},
	} {
		for _, kinds := range []string{"calendar", "rolling"} {
			b.Run(name+"/"+kinds, func(b *testing.B) {
				for range b.N {
					var before, after runtime.MemStats
					runtime.GC()
					runtime.ReadMemStats(&before)
					m := newMemory(b, quota.MemoryConfig{})
					for i := range subjects {
						tree, user := tree(i)
						e := fiveLimits("x", 1<<52)[:2]
						if kinds == "calendar" {
							e[1] = e[0]
							e[1].Unit = quota.Money
						} else {
							e[0] = e[1]
							e[0].Unit = quota.Credits
						}
						e[0].Key, e[1].Key = user, user
						pair(b, m, tree, strconv.Itoa(i), e)
					}
					runtime.GC()
					runtime.ReadMemStats(&after)
					b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/subjects, "bytes/subject")
					if st := m.Stats(); st.Subjects != subjects {
						b.Fatalf("%+v", st)
					}
				}
			})
		}
	}
}
