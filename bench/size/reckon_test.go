package main

import (
	"math"
	"testing"
	"time"
)

// The numbers of the example as a person works them out: 40 requests of 5 calls
// are 200 calls and 1.16 million tokens a minute; 200/min for 8 s are 27 calls in
// flight; 900,000 tokens for three replicas are 300,000 each, or 51 calls of
// 5,800, or 10 user requests; 51/min for 8 s are 7 calls in flight.
func TestTheReviewAgentIsSizedAsByHand(t *testing.T) {
	t.Parallel()
	a := reckon(mustParse(t, review).question)
	if a.Binds != "tokens" {
		t.Errorf("%s bind, want tokens", a.Binds)
	}
	for what, n := range map[string]struct{ got, want float64 }{
		"calls a minute asked for":                  {a.Demand.CallsPerMinute, 200},
		"tokens a minute asked for":                 {a.Demand.TokensPerMinute, 1_160_000},
		"calls in flight, asked for":                {math.Round(a.Demand.InFlight), 27},
		"whole calls a minute per replica":          {math.Floor(a.CallsPerReplica), 51},
		"whole user requests a minute per replica":  {math.Floor(a.RequestsPerReplica), 10},
		"calls in flight per replica":               {math.Round(a.InFlight), 7},
		"slots per replica":                         {float64(a.Slots), 10},
		"calls turned away, percent":                {math.Round(100 * a.Refused), 22},
		"seconds that 99 of 100 calls wait at most": {a.WaitP99.Seconds(), 20},
		"seconds to wait so that all are served":    {math.Round(a.WaitAll.Seconds()), 520}, // 30 min × (1.16 / 0.9 - 1)
	} {
		if n.got != n.want {
			t.Errorf("%s: %v, want %v", what, n.got, n.want)
		}
	}
}

func TestOtherFleetsAreSizedAsByHand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, line           string
		binds                string
		calls, users, flight float64
		slots                int64
		load                 float64
		refused              float64
	}{{
		// 100 × 6 s = 10 in flight; two single calls at once: 10 + 2√20 = 18.9.
		name:  "requests bind where calls are small",
		line:  "-users-per-min 100 -tokens 100 -latency 6s -headroom 0.5 -rpm 400 -tpm 1000000",
		binds: "requests", calls: 200, users: 200, flight: 10, slots: 19, load: 0.5,
	}, {
		// 5,000 of 5,800 count: 1,000,000/5,000 = 200 calls; just what is asked for.
		// 200 × 8 s = 26.7 in flight, + √26.7 = 31.8.
		name:  "input only",
		line:  "-users-per-min 40 -calls 5 -tokens 5800 -output 800 -count input -headroom 1 -latency 8s -rpm 1000 -tpm 1000000",
		binds: "tokens", calls: 200, users: 40, flight: 80 / 3.0, slots: 32, load: 1,
	}, {
		// 30 + 50 peaks of 2 calls are 160 calls; 120 fit, 3/4 of them; in four
		// parts of 30. 30/min × 2 s = 1 in flight; the burst of 3 × 2 calls decides.
		name:  "the peaks of tenants are summed",
		line:  "-tenant a=30 -tenant b=50 -calls 2 -tokens 1000 -latency 2s -headroom 0.8 -tpm 150000 -replicas 4 -burst 3",
		binds: "tokens", calls: 30, users: 15, flight: 1, slots: 6, load: 160.0 / 120, refused: 0.25,
	}, {
		// 60 calls a minute for half a minute are 30 in flight, in groups of 6:
		// 30 + 2√180 = 56.8.
		name:  "below the quota slots leave room for groups of calls",
		line:  "-users-per-min 20 -calls 3 -tokens 1 -latency 30s -headroom 1 -rpm 600",
		binds: "requests", calls: 600, users: 200, flight: 30, slots: 57, load: 0.1,
	}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := reckon(mustParse(t, c.line).question)
			if a.Binds != c.binds || a.Slots != c.slots {
				t.Errorf("%s bind, %d slots; want %s and %d", a.Binds, a.Slots, c.binds, c.slots)
			}
			for what, n := range map[string]struct{ got, want float64 }{
				"calls": {a.CallsPerReplica, c.calls}, "user requests": {a.RequestsPerReplica, c.users},
				"in flight": {a.InFlight, c.flight}, "load": {a.Load, c.load}, "refused": {a.Refused, c.refused},
			} {
				if math.Abs(n.got-n.want) > 1e-9*n.want {
					t.Errorf("%s: %v, want %v", what, n.got, n.want)
				}
			}
		})
	}
}

// 90 of 100 single calls a minute: θ = 2·0.1/0.9 = 0.222, ln(100)/θ = 20.7 calls,
// which the 100 that are saved up cover. At 99: θ = 0.0202, 227.97 calls, 127.97
// more than what is saved, which take 1.28 minutes. In half an hour 2,970 calls
// come, and stray by 2.58·√2970 = 140.6, or 40.6 more than what is saved.
func TestBelowTheQuotaOnlyWhatIsNotSavedUpWaits(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]time.Duration{
		"-users-per-min 90 -tokens 1 -latency 1s -headroom 1 -rpm 100 -burst 1 -max-wait 10m -peak 24h": 0,
		"-users-per-min 99 -tokens 1 -latency 1s -headroom 1 -rpm 100 -burst 1 -max-wait 10m -peak 24h": 76774 * time.Millisecond,
		"-users-per-min 99 -tokens 1 -latency 1s -headroom 1 -rpm 100 -burst 1 -max-wait 10s -peak 24h": 10 * time.Second,
		"-users-per-min 99 -tokens 1 -latency 1s -headroom 1 -rpm 100 -burst 1 -max-wait 10m -peak 30m": 24363 * time.Millisecond,
	} {
		a := reckon(mustParse(t, line).question)
		if d := a.WaitP99 - want; d.Abs() > 5*time.Millisecond || a.Refused != 0 {
			t.Errorf("%s: 99 of 100 wait %v, want %v; refused %v", line, a.WaitP99, want, a.Refused)
		}
	}
}
