package main

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
	"github.com/headgate-go/headgate/bench/internal/virtual"
)

func mustSimulate(t *testing.T, line string) (reckoned, simulated) {
	t.Helper()
	o := mustParse(t, line)
	a := reckon(o.question)
	s, err := simulate(o.question, a, o.traffic)
	if err != nil {
		t.Fatal(err)
	}
	return a, s
}

func TestTheProviderCarriesWhatWasReckonedAndThrottlesNobody(t *testing.T) {
	t.Parallel()
	for _, window := range []string{"sliding", "fixed", "bucket"} {
		t.Run(window, func(t *testing.T) {
			t.Parallel()
			a, s := mustSimulate(t, review+" -window "+window)
			if s.Served.Throttled+s.Most.Throttled != 0 {
				t.Errorf("%d and %d calls were throttled", s.Served.Throttled, s.Most.Throttled)
			}
			// A window's guard takes 3 %, and a call that does not fit whole
			// leaves up to one call of 51 unused.
			if share := s.Most.CallsPerReplica / a.CallsPerReplica; share < 0.94 || share > 1.01 {
				t.Errorf("%.1f calls a minute per replica, reckoned %.1f", s.Most.CallsPerReplica, a.CallsPerReplica)
			}
			if share := s.Most.RequestsPerReplica / a.RequestsPerReplica; share < 0.94 || share > 1.01 {
				t.Errorf("%.1f user requests a minute per replica, reckoned %.1f", s.Most.RequestsPerReplica, a.RequestsPerReplica)
			}
			if s.Most.Binds != "tokens" {
				t.Errorf("%s were used most", s.Most.Binds)
			}
			if off := math.Abs(s.Demand.InFlight - a.Demand.InFlight); off > 3 {
				t.Errorf("%.1f calls would be in flight, reckoned %.1f", s.Demand.InFlight, a.Demand.InFlight)
			}
			if off := math.Abs(s.Served.InFlight - a.InFlight); off > 1 {
				t.Errorf("%.1f calls in flight per replica, reckoned %.1f", s.Served.InFlight, a.InFlight)
			}
			if off := math.Abs(s.Served.Refused - a.Refused); off > 0.08 {
				t.Errorf("%.2f of the calls were turned away, reckoned %.2f", s.Served.Refused, a.Refused)
			}
			if share := s.Patient.Seconds() / a.WaitAll.Seconds(); share < 0.75 || share > 1.25 {
				t.Errorf("99 of 100 calls would wait up to %v, reckoned %v", s.Patient, a.WaitAll)
			}
			if s.Served.WaitP99 > a.WaitP99 || s.Served.PeakInFlight > a.Slots {
				t.Errorf("a wait of %v and %d calls in flight, above MaxWait or slots", s.Served.WaitP99, s.Served.PeakInFlight)
			}
		})
	}
}

func TestAFleetBelowItsQuotaServesEverybodyAtOnce(t *testing.T) {
	t.Parallel()
	_, s := mustSimulate(t, "-tenant a=10 -tenant b=5 -calls 4 -tokens 3000 -output 500 -count input -latency 5s -rpm 600 -tpm 400000 -replicas 2")
	if s.Served.Refused != 0 || s.Served.Throttled != 0 || s.Served.WaitP50 != 0 || s.Served.SlotsFull > 0.05 {
		t.Errorf("%+v", s.Served)
	}
	a, b := s.Served.Tenants[0], s.Served.Tenants[1]
	if a.Name != "a" || b.Name != "b" || a.Served != a.Requests || b.Served != b.Requests || b.Served == 0 ||
		math.Abs(float64(a.Requests)/float64(b.Requests)-2) > 0.6 {
		t.Errorf("tenants %+v, want all served, of a twice as many as of b", s.Served.Tenants)
	}
}

func TestTheProviderThrottlesGatesThatBelieveInTooLargeAQuota(t *testing.T) {
	t.Parallel()
	o := mustParse(t, review+" -peak 6m")
	requests := o.traffic.draw(o.question, 1, 6*time.Minute)
	believed, real := o.question, o.question
	real.TPM /= 2
	var got outcome
	var failed error
	err := virtual.Run(func() {
		var e *engine.Engine
		if e, failed = newEngine(real, engine.Sliding); failed == nil {
			got, failed = fleetBefore(e, believed, 10, time.Minute, o.traffic, requests, 6*time.Minute)
		}
	})
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	if got.Throttled == 0 || got.MaxUse > 1 || got.MaxUse < 0.9 {
		t.Errorf("%d calls were throttled at %v of the quota, want some at nearly all of it", got.Throttled, got.MaxUse)
	}
}

func TestCallsThatNeverFitAreCounted(t *testing.T) {
	t.Parallel()
	const line = "-users-per-min 3 -tokens 6000 -latency 1s -tpm 20000 -replicas 3 -peak 2h"
	if _, s := mustSimulate(t, line); s.Served.Unfit < 0.1 || s.Served.Unfit > 0.6 {
		t.Errorf("%.2f of the calls are larger than 6,666 tokens, want about a third", s.Served.Unfit)
	}
	if _, s := mustSimulate(t, line+" -spread 0"); s.Served.Unfit != 0 {
		t.Errorf("%.2f of calls that all have 6,000 tokens are larger than 6,666", s.Served.Unfit)
	}
}

func TestOneSeedIsOneTraffic(t *testing.T) {
	t.Parallel()
	_, a := mustSimulate(t, review+" -peak 6m")
	_, b := mustSimulate(t, review+" -peak 6m")
	_, c := mustSimulate(t, review+" -peak 6m -seed 2")
	if !reflect.DeepEqual(a.Demand, b.Demand) || a.Calls != b.Calls {
		t.Errorf("one seed, two demands: %+v and %+v", a.Demand, b.Demand)
	}
	if reflect.DeepEqual(a.Demand, c.Demand) {
		t.Errorf("two seeds, one demand: %+v", a.Demand)
	}
}

func TestTrafficHasTheAveragesThatWereAskedFor(t *testing.T) {
	t.Parallel()
	o := mustParse(t, "-tenant a=30 -tenant b=10 -calls 5 -tokens 5800 -output 800 -count input -latency 8s -tpm 1000000 -replicas 3 -spread 0.5")
	const minutes = 200
	var input, output, tenants, replicas [4]float64
	calls, latency := 0.0, 0.0
	at := map[time.Duration]int{}
	for _, r := range o.traffic.draw(o.question, 1, minutes*time.Minute) {
		tenants[r.tenant]++
		replicas[r.replica]++
		at[r.at]++
		for _, c := range r.calls {
			calls++
			input[0] += float64(c.input)
			output[0] += float64(c.output)
			latency += c.latency.Seconds()
		}
	}
	for what, n := range map[string]struct{ got, want float64 }{
		"calls a minute": {calls / minutes, 200}, "input tokens": {input[0] / calls, 5000}, "output tokens": {output[0] / calls, 800},
		"latency": {latency / calls, 8}, "requests of a": {tenants[0] / minutes, 30}, "requests of b": {tenants[1] / minutes, 10},
		"requests at replica 0": {replicas[0] / minutes, 40 / 3.0}, "requests at replica 2": {replicas[2] / minutes, 40 / 3.0},
	} {
		if math.Abs(n.got/n.want-1) > 0.07 {
			t.Errorf("%s: %v, want %v", what, n.got, n.want)
		}
	}
	for when, n := range at {
		if n != 2 {
			t.Errorf("%d user requests at %v, want groups of 2", n, when)
			break
		}
	}
}

func TestTrafficThatIsTooLargeToSimulateSaysSo(t *testing.T) {
	t.Parallel()
	_, s := mustSimulate(t, "-users-per-min 1e6 -calls 5 -tokens 10 -latency 1s -rpm 10000000")
	if !strings.Contains(s.Skipped, "30000 calls") {
		t.Errorf("%+v", s)
	}
	// A small demand before a large quota: the demand is simulated, the quota's fill is not.
	a, s := mustSimulate(t, "-users-per-min 10 -calls 5 -tokens 10 -latency 1s -rpm 20000")
	if s.Skipped != "" || s.Calls == 0 || s.Most != nil {
		t.Errorf("%+v", s)
	}
	var text strings.Builder
	o := mustParse(t, "-users-per-min 10 -calls 5 -tokens 10 -latency 1s -rpm 20000")
	if err := writeText(&text, sizing{o.question, o.traffic, a, s}); err != nil || !strings.Contains(text.String(), "too many calls to simulate") {
		t.Errorf("%v in\n%s", err, text.String())
	}
	if got := timeOf(24*time.Hour, 3000); got != 10*time.Minute {
		t.Errorf("3,000 calls a minute are simulated for %v", got)
	}
	if got := timeOf(45*time.Minute, 50); got != 45*time.Minute {
		t.Errorf("a peak of 45m is simulated for %v", got)
	}
}

func TestAGaugeAveragesOverTheTimeThatCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		g := &gauge{full: 3, from: now.Add(10 * time.Second), to: now.Add(20 * time.Second), since: now}
		g.add(5) // before the time that counts
		time.Sleep(8 * time.Second)
		g.add(-3) // 2 from 8 s on
		time.Sleep(6 * time.Second)
		g.add(2) // 4 from 14 s on
		time.Sleep(time.Second)
		g.add(-4) // 0 from 15 s on
		time.Sleep(time.Minute)
		g.add(9) // after it
		if g.area != 4*2+1*4 || g.sated != 1 || g.peak != 4 {
			t.Errorf("area %v, full for %v s, peak %d; want 12, 1, 4", g.area, g.sated, g.peak)
		}
	})
}

func TestQuantilesAreOfTheSortedValues(t *testing.T) {
	t.Parallel()
	var sorted []time.Duration
	if got := quantile(sorted, 0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	for i := range 200 {
		sorted = append(sorted, time.Duration(i+1))
	}
	for p, want := range map[float64]time.Duration{0: 1, 0.5: 100, 0.99: 198, 1: 200} {
		if got := quantile(sorted, p); got != want {
			t.Errorf("%v: %d, want %d", p, got, want)
		}
	}
}

func TestNumbersReadWell(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		grouped(0): "0", grouped(999): "999", grouped(1000): "1,000", grouped(-123456): "-123,456", grouped(1234567): "1,234,567",
		short(6.88): "6.9", short(200): "200", whole(51.7): "51 (51.7)", whole(30): "30",
		percent(0): "0 %", percent(0.031): "3.1 %", percent(0.224): "22 %",
		wait(19949 * time.Millisecond): "19.9s", wait(90 * time.Second): "1m30s", wait(time.Minute): "1m", wait(2 * time.Hour): "2h", wait(0): "0s",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
