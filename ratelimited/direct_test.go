package ratelimited_test

import (
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genai"
)

// A program may use the gate without wrapping a model.
func TestAHintToldByPermitClosesTheBudgetAndAnAnswerOpensIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, err := ratelimited.NewGate(ratelimited.Config{
			Slots: 10, Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 100}),
		})
		if err != nil {
			t.Fatal(err)
		}
		acquire := func() ratelimited.Permit {
			p, err := g.Acquire(t.Context(), ratelimited.Call{Usage: usage.Usage{Input: 1}})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		refused, start := acquire(), time.Now()
		v := refused.Refused(genai.APIError{Code: 429, Status: "RESOURCE_EXHAUSTED", Details: []map[string]any{{
			"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "5s",
		}}})
		if v.Class != retry.Throttled || v.Hint != 5*time.Second {
			t.Errorf("verdict %+v, want throttled for 5s", v)
		}
		refused.Refused(nil) // it is over
		probe := acquire()
		if waited := time.Since(start); waited < 5*time.Second || waited > 6*time.Second {
			t.Errorf("the next call waited %v, want the hint and up to a tenth", waited)
		}
		if _, err := g.Acquire(ratelimited.WithMaxWait(t.Context(), time.Minute), ratelimited.Call{}); err == nil {
			t.Error("a second call was let through while the first one probes")
		}
		probe.End(usage.Usage{Input: 1, Output: 1})
		for range 5 {
			acquire()
		}
		if s := g.Stats(); s.Running != 5 {
			t.Errorf("%d calls run, want 5: an answer opens the budget for all", s.Running)
		}
	})
}

func TestRefusedChargesWhatTheErrorMeans(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name             string
			err              error
			requests, tokens int64
		}{
			{"refused", genai.APIError{Code: 429}, 1, 0},
			{"bad request", genai.APIError{Code: 400}, 1, 0},
			{"not sent", &net.DNSError{Err: "no such host"}, 0, 0},
			{"denied further in", &ratelimited.WaitError{}, 0, 0},
			{"broken after it was sent", io.ErrUnexpectedEOF, 1, 40},
		} {
			g, err := ratelimited.NewGate(ratelimited.Config{
				Slots: 1, Headroom: 1,
				Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 100, InputTokensPerMinute: 100}),
			})
			if err != nil {
				t.Fatal(err)
			}
			p, err := g.Acquire(t.Context(), ratelimited.Call{Usage: usage.Usage{Input: 40}})
			if err != nil {
				t.Fatal(err)
			}
			p.Refused(c.err)
			s := g.Stats()
			for i, want := range []int64{c.requests, c.tokens} {
				d := s.Dimensions[i]
				if used := int64(math.Round(float64(d.Limit)*d.Share)) - d.Level; used != want {
					t.Errorf("%s: %d of %s on the books, want %d", c.name, used, d.Name, want)
				}
			}
			if s.SlotsInUse != 0 || s.Running != 0 {
				t.Errorf("%s: %+v is still held", c.name, s)
			}
		}
	})
}

func TestHugeLimitsKeepTheirBurstAndTheirShare(t *testing.T) {
	t.Parallel()
	g, err := ratelimited.NewGate(ratelimited.Config{
		Slots: 10, Headroom: 1, PerFlow: ratelimited.Ceiling{Share: 1},
		Profile: ratelimited.Profile{Dimensions: []ratelimited.Dimension{{
			Name: "tokens", Limit: math.MaxInt64, Burst: time.Minute, Shape: ratelimited.Bucket, Count: ratelimited.InputTokens,
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := g.Acquire(ratelimited.WithMaxWait(t.Context(), 0), ratelimited.Call{Flow: "a", Usage: usage.Usage{Input: 1 << 40}}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestANilRegistryIsNone(t *testing.T) {
	t.Parallel()
	if _, err := ratelimited.NewGate(ratelimited.Config{Slots: 1, Registerer: (*prometheus.Registry)(nil)}); err != nil {
		t.Error(err)
	}
}

// A program that holds permits by itself is counted like a wrapped model: once a
// call, whatever is called after its end.
func TestMetricsOfPermitsThatAProgramHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		g := newGate(t, ratelimited.Config{
			Slots: 2, Headroom: 1, Registerer: r,
			Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 1000, InputTokensPerMinute: 10_000}),
			Classes: []ratelimited.Class{{Name: "normal"}, {Name: "batch"}},
		})
		acquire := func(class string) ratelimited.Permit {
			p, err := g.Acquire(t.Context(), ratelimited.Call{Agent: "a", Class: class, Usage: usage.Usage{Input: 100, Output: 100}})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			return p
		}
		p := acquire("")
		p.End(usage.Usage{Input: 100, Output: 200})
		p.End(usage.Usage{Input: 100, Output: 200})
		p.Release()
		p.Refused(io.ErrUnexpectedEOF)
		acquire("batch").End(usage.Usage{}) // nothing is known
		acquire("").Release()               // not sent
		acquire("batch").Refused(genai.APIError{Code: 429, Status: "RESOURCE_EXHAUSTED"})
		acquire("").Refused(io.ErrUnexpectedEOF)

		all := gather(t, r)
		for name, want := range map[string]float64{
			"attempts_total{class=normal,model=,outcome=ok}":       1,
			"attempts_total{class=batch,model=,outcome=ok}":        1,
			"attempts_total{class=batch,model=,outcome=throttled}": 1,
			"attempts_total{class=normal,model=,outcome=failed}":   1,
			"throttles_total{agent=a,class=batch}":                 1,
			"acquire_seconds{agent=a,class=normal} count":          3,
			"acquire_seconds{agent=a,class=batch} count":           2,
			"slot_hold_seconds{} count":                            5,
			"slot_hold_seconds{} sum":                              5,
			"reserved_tokens_total{model=}":                        600,
			"settled_tokens_total{basis=reported,model=}":          300,
			"settled_tokens_total{basis=estimated,model=}":         400,
			"estimate_ratio{model=} count":                         1,
			"estimate_ratio{model=} sum":                           1.5,
		} {
			if got := all[name]; got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		attempts := 0.0
		for name, n := range all {
			if strings.HasPrefix(name, "attempts_total") {
				attempts += n
			}
		}
		if attempts != 4 {
			t.Errorf("%v attempts, want 4", attempts)
		}
	})
}

func TestHoldTimeOfAPermitEndsWhereItsSlotIsFreed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		g := newGate(t, ratelimited.Config{Slots: 1, Registerer: r})
		p, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(1)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		p.FreeSlot()
		time.Sleep(time.Minute)
		p.FreeSlot()
		p.End(input(1))
		if held := gather(t, r)["slot_hold_seconds{} sum"]; held != 1 {
			t.Errorf("it held its slot for 1 s, the metric says %v", held)
		}
	})
}
