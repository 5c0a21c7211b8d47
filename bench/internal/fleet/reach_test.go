package fleet

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// bursty is 8 bursty replicas at half load. Calls come to each at 8 a second in the
// mean, which is 32 while it is on.
func bursty(m Mode, w engine.WindowModel, seed uint64) Config {
	return Config{Replicas: 8, Mode: m, Shape: Bursty, Window: w, Rate: 8, Load: 0.5, Length: 5 * time.Minute, Seed: seed}
}

func TestLeasedReplicasAtHalfLoadWaitNoLongerThanCentralOnesAndAskFarLess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		window engine.WindowModel
		seed   uint64
	}{{engine.Sliding, 1}, {engine.Sliding, 2}, {engine.Bucket, 1}} {
		t.Run(fmt.Sprintf("%v/%d", c.window, c.seed), func(t *testing.T) {
			t.Parallel()
			central := Measure(play(t, bursty(Central, c.window, c.seed)))
			leased := Measure(play(t, bursty(Leased, c.window, c.seed)))
			static := Measure(play(t, bursty(Static, c.window, c.seed)))
			if most := max(1.3*central.WaitMean, central.WaitMean+0.1); leased.WaitMean > most {
				t.Errorf("a leased call waits %.4f s in the mean, a central one %.4f s", leased.WaitMean, central.WaitMean)
			}
			if leased.TripsPerCall > 0.25 || central.TripsPerCall < 1 {
				t.Errorf("%.3f round trips for each leased call, %.3f for each central one", leased.TripsPerCall, central.TripsPerCall)
			}
			if leased.MaxUse > 1 || leased.Throttled > 0 {
				t.Errorf("the largest use is %v, and %v of the attempts were refused", leased.MaxUse, leased.Throttled)
			}
			if static.WaitMean < 0.5 { // a burst is twice a replica's part of the quota
				t.Errorf("a static call waits only %.4f s in the mean", static.WaitMean)
			}
		})
	}
}

// overload is 100 replicas at half again the quota, at a size that runs in seconds.
func overload(shape Shape, w engine.WindowModel) Config {
	return Config{Replicas: 100, Mode: Leased, Shape: shape, Window: w, Rate: 1, Load: 1.5, Length: 5 * time.Minute, Seed: 1, Users: 200}
}

func TestAHundredLeasedReplicasAtOverloadUseTheQuotaFairlyAndAreNeverRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shape  Shape
		window engine.WindowModel
		// The round trips for each call are no target here. There are many because replicas
		// that wait ask for one call at a time.
		fewest, most float64
	}{{Steady, engine.Sliding, 1.5, 2.5}, {Steady, engine.Bucket, 1.7, 2.8}, {Skewed, engine.Sliding, 1.5, 2.5}} {
		t.Run(fmt.Sprintf("%v/%v", c.shape, c.window), func(t *testing.T) {
			t.Parallel()
			m := Measure(play(t, overload(c.shape, c.window)))
			if m.Goodput < 0.93 {
				t.Errorf("goodput is %.4f of G*", m.Goodput)
			}
			if m.Throttled > 0 || m.MaxUse > 1 {
				t.Errorf("%v of the attempts were refused, and the largest use is %v", m.Throttled, m.MaxUse)
			}
			if m.JainUsers < 0.98 || m.JainWaiting < 0.95 { // a minute has 20 calls for each user
				t.Errorf("Jain over users is %.4f, over those that wait %.4f", m.JainUsers, m.JainWaiting)
			}
			if m.TripsPerCall < c.fewest || m.TripsPerCall > c.most {
				t.Errorf("%.3f round trips for each call", m.TripsPerCall)
			}
		})
	}
}

func TestWithoutTheGuardForSpendAfterDebitTheProviderIsAskedForMoreThanItHas(t *testing.T) {
	t.Parallel()
	for _, w := range []engine.WindowModel{engine.Sliding, engine.Bucket} {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			cfg := bursty(Leased, w, 1)
			cfg.Load = 1.5
			with := Measure(play(t, cfg))
			cfg.NoGuard = true
			without := Measure(play(t, cfg))
			if with.Throttled > 0 || with.MaxUse > 1 {
				t.Errorf("with the guard %v of the attempts were refused, and the largest use is %v", with.Throttled, with.MaxUse)
			}
			if without.Throttled == 0 || without.MaxUse <= 1 {
				t.Errorf("without it %v of the attempts were refused, and the largest use is %v", without.Throttled, without.MaxUse)
			}
			// A 429 closes the gates for a while and cuts the rates.
			if without.Goodput > with.Goodput-0.03 {
				t.Errorf("goodput is %.4f with the guard and %.4f without it", with.Goodput, without.Goodput)
			}
		})
	}
}

func TestReplicasThatShareNothingAreRefusedMostOfTheTimeAtOverload(t *testing.T) {
	t.Parallel()
	cfg := overload(Steady, engine.Sliding)
	cfg.Mode, cfg.Length = Alone, 2*time.Minute
	if m := Measure(play(t, cfg)); m.Throttled < 0.3 || m.MaxUse < 2 {
		t.Errorf("%.3f of the attempts were refused, and the largest use is %.3f", m.Throttled, m.MaxUse)
	}
}

func TestAFleetConvergesSoonAfterReplicasDieOrJoin(t *testing.T) {
	t.Parallel()
	run := func(m Mode) []float64 {
		return Measure(play(t, Config{
			Replicas: 8, Mode: m, Shape: Steady, Window: engine.Bucket, Rate: 4, Load: 1.5, Length: 6 * time.Minute, Seed: 1,
			MaxWait: 20 * time.Second, Changes: []Change{{At: 2 * time.Minute, Kill: 2}, {At: 4 * time.Minute, Join: 2}},
		})).Settled
	}
	leased, static := run(Leased), run(Static)
	for i := range leased {
		if leased[i] < 0 || leased[i] > 10 {
			t.Errorf("leased replicas have converged %v s after change %d", leased[i], i)
		}
	}
	// Static parts are those of replicas, whoever they serve: as long as two serve twice
	// as many users, these get less.
	if static[0] != -1 || static[1] < leased[1] || static[1] > 30 {
		t.Errorf("static replicas have converged after %v s", static)
	}
}

// What falls short, with what it reaches: these tests fail when it gets better, too.

func TestShortOfTheTargetLeasedReplicasWithFewCallsAskMoreThanOnceInFourCalls(t *testing.T) {
	t.Parallel()
	cfg := bursty(Leased, engine.Sliding, 1)
	cfg.Rate = 2 // 8 a second while a replica is on
	if m := Measure(play(t, cfg)); m.TripsPerCall < 0.3 || m.TripsPerCall > 0.55 {
		t.Errorf("%.3f round trips for each call", m.TripsPerCall)
	}
}

func TestShortOfTheTargetCentralReplicasDoNotGetMoreForServingMoreUsers(t *testing.T) {
	t.Parallel()
	run := func(m Mode) float64 {
		l := play(t, Config{
			Replicas: 8, Mode: m, Shape: Steady, Rate: 4, Load: 1.5, Length: 4 * time.Minute, Seed: 1,
			MaxWait: 20 * time.Second, Changes: []Change{{At: 30 * time.Second, Kill: 2}},
		})
		users, _ := jains(l.Calls, time.Minute, 3*time.Minute)
		return users
	}
	if central, leased := run(Central), run(Leased); central < 0.8 || central > 0.97 || leased < 0.98 {
		t.Errorf("Jain over users is %.3f in central and %.3f in leased mode where two replicas serve twice as many", central, leased)
	}
}
