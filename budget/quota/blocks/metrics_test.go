package blocks_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
	"github.com/headgate-go/headgate/internal/promtest"
)

// series are the values of all series, by name and labels but that of the ledger.
func series(t testing.TB, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	return promtest.Series(t, reg, "headgate_blocks_", "ledger")
}

func wantSeries(t testing.TB, reg prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	got := series(t, reg)
	for at, v := range want {
		if have, ok := got[at]; !ok || have != v {
			t.Errorf("%s is %v (there: %v), want %v", at, have, ok, v)
		}
	}
}

func TestMetricsTellWhatBlocksSaveAndWhatIsAtRisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		w := newWorld(t, 1, blocks.Config{Registerer: reg})
		l, k := w.replicas[0], w.links[0]
		wantSeries(t, reg, map[string]float64{"reservations_total{way=local}": 0, "lapsed_total{}": 0, "open_blocks{}": 0})

		var held []string
		for range 20 { // the first ones wait for a block, and the others do not
			held = append(held, w.take(l, w.hold(10, 10_000)))
			pass(10 * time.Millisecond)
		}
		s := series(t, reg)
		local, waited := s["reservations_total{way=local}"], s["reservations_total{way=waited}"]
		if local+waited != 20 || local < 10 || waited == 0 {
			t.Errorf("of 20 reservations %v were local and %v have waited", local, waited)
		}
		if s["units{state=held,unit=tokens}"] != 200 || s["units{state=idle,unit=tokens}"] == 0 || s["open_blocks{}"] == 0 {
			t.Errorf("while 200 tokens are held there is %v", s)
		}
		for _, id := range held {
			w.settle(l, id, 7)
		}
		if spent := series(t, reg)["units{state=spent,unit=tokens}"]; spent <= 0 || spent > 140 {
			t.Errorf("of 140 tokens that were just spent %v are not settled", spent)
		}
		pass(3 * blocks.DefaultIdle)
		s = series(t, reg)
		if leased, returned := s["leased_units_total{unit=tokens}"], s["returned_units_total{unit=tokens}"]; leased-returned != 140 || returned == 0 {
			t.Errorf("%v tokens were leased and %v returned, of which 140 were spent", leased, returned)
		}
		wantSeries(t, reg, map[string]float64{
			"units{state=held,unit=tokens}": 0, "units{state=spent,unit=tokens}": 0, "units{state=idle,unit=tokens}": 0, "units{state=unanswered,unit=tokens}": 0, "open_blocks{}": 0,
			"round_trips_total{purpose=blocks}": float64(k.all()), "round_trips_total{purpose=passed}": 0,
			"requests_total{outcome=leased}": float64(k.sent("reserve")), "requests_total{outcome=refused}": 0,
			"denied_total{}": 0, "failures_total{}": 0,
		})
		if _, there := s["units{state=held,unit=money}"]; there {
			t.Error("there are series of money, of which nothing was leased")
		}

		// What is not leased passes.
		lease := quota.Entry{Counter: quota.Counter{Key: "global", Unit: quota.ConcurrentTurns}, Kind: quota.Lease, Amount: 1, Limit: 9}
		before := float64(k.all())
		w.release(l, w.take(l, lease))
		wantSeries(t, reg, map[string]float64{"round_trips_total{purpose=passed}": float64(k.all()) - before, "round_trips_total{purpose=blocks}": before})

		// Others hold all that is left.
		others := w.take(w.ledger, w.hold(9_860, 10_000))
		w.refuse(l, w.hold(10, 10_000))
		wantSeries(t, reg, map[string]float64{"denied_total{}": 1, "denied_busy_total{}": 1})
		w.release(w.ledger, others)

		// The ledger is out of reach for longer than a block lives.
		pass(blocks.DefaultRecheck)
		id := w.take(l, w.hold(100, 10_000))
		pass(10 * time.Millisecond)
		k.set(func(k *link) { k.cut = true })
		w.settle(l, id, 100)
		pass(blocks.DefaultTTL + time.Second)
		s = series(t, reg)
		if spent, unanswered := s["units{state=spent,unit=tokens}"], s["units{state=unanswered,unit=tokens}"]; spent+unanswered != 100 || unanswered == 0 {
			t.Errorf("of 100 tokens that are spent and cannot be settled there are %v and %v", spent, unanswered)
		}
		k.set(func(k *link) { k.cut = false })
		pass(blocks.DefaultTTL)
		s = series(t, reg)
		if s["lapsed_total{}"] == 0 || s["late_total{}"] == 0 || s["failures_total{}"] == 0 || s["lost_total{}"] != 0 {
			t.Errorf("a block has lapsed, and there is %v", s)
		}
		w.stands(w.ledger, w.hold(0, 10_000), 240, 0)
	})
}

// Two ledgers of one name cannot share a registry, which stays as it was; nor does it forget
// one that was closed.
func TestLedgersShareARegistryByName(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	make := func(cfg blocks.Config) (*blocks.Ledger, error) {
		l, err := blocks.New(newMemory(t), cfg)
		if l != nil {
			t.Cleanup(func() { _ = l.Close(context.Background()) })
		}
		return l, err
	}
	first, err := make(blocks.Config{Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := len(series(t, reg))
	_, err = make(blocks.Config{Registerer: reg})
	if already := (prometheus.AlreadyRegisteredError{}); !errors.As(err, &already) || !strings.Contains(err.Error(), `blocks: Config.Registerer: ledger "blocks"`) {
		t.Errorf("got %v, want an error of Config.Registerer", err)
	}
	if after := len(series(t, reg)); after != before || before == 0 {
		t.Errorf("there were %d series and there are %d after a ledger that was refused", before, after)
	}
	if _, err := make(blocks.Config{Registerer: reg, Name: "other"}); err != nil {
		t.Errorf("another name: %v", err)
	}
	if _, err := make(blocks.Config{Registerer: (*prometheus.Registry)(nil)}); err != nil {
		t.Errorf("a nil registry that is dressed up: %v", err)
	}
}

// No counter ever falls, or Prometheus takes it for a restart.
func TestScrapesWhileCallsGoOnSeeNoCounterFall(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	w := newWorld(t, 1, blocks.Config{Registerer: reg, Leased: func(_ string, c quota.Counter) bool { return c.Key == "global" }})
	e, apart := w.hold(3, -1), w.hold(1, -1)
	apart.Key = "apart" // which passes
	var calls, scrapes sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		scrapes.Go(func() {
			last := map[string]float64{}
			for {
				for at, v := range series(t, reg) {
					if strings.Contains(at, "_total") && v < last[at] {
						t.Errorf("%s falls from %v to %v", at, last[at], v)
					}
					last[at] = v
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for range 4 {
		calls.Go(func() {
			for range 300 {
				id := budget.NewID()
				if res := w.try(w.replicas[0], id, e, apart); res.Denied >= 0 {
					t.Errorf("denied: %+v", res)
				}
				w.settle(w.replicas[0], id, 2)
			}
		})
	}
	calls.Wait()
	close(done)
	scrapes.Wait()
	s := series(t, reg)
	if n := s["reservations_total{way=local}"] + s["reservations_total{way=waited}"]; n != 1200 {
		t.Errorf("%v reservations were counted, want 1200", n)
	}
	if s["round_trips_total{purpose=passed}"] != 2*1200 || s["round_trips_total{purpose=passed}"]+s["round_trips_total{purpose=blocks}"] < float64(w.links[0].all()) {
		t.Errorf("%d round trips are counted as %v", w.links[0].all(), s)
	}
}
