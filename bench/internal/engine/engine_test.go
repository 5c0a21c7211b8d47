package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// perMinute is a limit with a sliding window of a minute.
func perMinute(name string, d Dimension, amount int64) Limit {
	return Limit{Name: name, Dimension: d, Amount: amount, Length: time.Minute}
}

func mustNew(t *testing.T, cfg Config) *Engine {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// arrival is one request of so many input tokens.
func arrival(content string, tokens int64) Arrival {
	return Arrival{Name: content, Digest: DigestOf([]byte(content)), Amounts: Amounts{Requests: 1, InputTokens: tokens}}
}

func mustAdmit(t *testing.T, e *Engine, a Arrival) *Call {
	t.Helper()
	c, err := e.Admit(t.Context(), a)
	if err != nil {
		t.Fatalf("call %s: %v", a.Name, err)
	}
	return c
}

func mustRefuse(t *testing.T, e *Engine, a Arrival) *Refusal {
	t.Helper()
	c, err := e.Admit(t.Context(), a)
	var r *Refusal
	if !errors.As(err, &r) {
		t.Fatalf("call %s: got %v, %v; want a refusal", a.Name, c, err)
	}
	return r
}

func faults(t *testing.T, texts ...string) (list []Fault) {
	t.Helper()
	for _, text := range texts {
		f, err := testCatalog.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, f)
	}
	return list
}

func TestNumberedFaultsCountTheCallsThatPassTheLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := mustNew(t, Config{
			Faults: faults(t, "503@n=2", "429@n=3", "cut@every=4"),
			Limits: []Limit{perMinute("rpm", Requests, 4)},
		})
		var got []string
		for i := range 7 {
			c, err := e.Admit(t.Context(), arrival(fmt.Sprint(i), 0))
			var r *Refusal
			switch {
			case errors.As(err, &r):
				got = append(got, r.Error())
			default:
				got = append(got, c.Fault().Kind.Name)
			}
		}
		// The 429 of the third call uses no request, so a fifth one passes.
		want := []string{"", "503", "refused by fault 429", "cut", "", "refused by rpm", "refused by rpm"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		s := e.Stats()
		if s.Faults["503"] != 1 || s.Faults["429"] != 1 || s.Faults["cut"] != 1 || s.RefusedBy["fault"] != 1 || s.RefusedBy["rpm"] != 2 {
			t.Errorf("books: %+v", s)
		}
	})
}

func TestARefusingIntervalAdvisesItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := mustNew(t, Config{Speed: 10, Faults: faults(t, "429@10s-20s")})
		mustAdmit(t, e, arrival("a", 0))
		time.Sleep(1200 * time.Millisecond)
		r := mustRefuse(t, e, arrival("a", 0))
		if r.Retry != 800*time.Millisecond {
			t.Errorf("retry after %v, want 800ms: the interval ends 20 s/10 after the start", r.Retry)
		}
		time.Sleep(r.Retry)
		mustAdmit(t, e, arrival("a", 0))
	})
}

func TestADemandedFaultComesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := mustNew(t, Config{Speed: 2, Faults: faults(t, "503")})
		a := arrival("a", 0)
		a.Fault = &faults(t, "hang@for=4s")[0]
		c := mustAdmit(t, e, a)
		if f := c.Fault(); f.Kind.Name != "hang" || f.For != 2*time.Second {
			t.Errorf("fault %v, want hang for 2s", f)
		}
		start := time.Now()
		if err := c.Hang(t.Context()); err != nil || time.Since(start) != 2*time.Second {
			t.Errorf("hung for %v, %v; want 2s", time.Since(start), err)
		}
	})
}

func TestACallMeetsTheSameFaultsAndLatencyInAnyOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		run := func(seed uint64, order []int) map[string][]string {
			e := mustNew(t, Config{
				Seed: seed, Faults: faults(t, "503@p=0.3"),
				Latency: Latency{First: time.Second, PerSecond: 50, Sigma: 0.5},
			})
			seen := map[string][]string{}
			for _, i := range order {
				content := fmt.Sprint(i % 20) // each content twice
				c := mustAdmit(t, e, arrival(content, 0))
				seen[content] = append(seen[content], fmt.Sprint(c.Fault(), c.Plan(100, nil, 1).Total))
			}
			return seen
		}
		order := rand.New(rand.NewPCG(1, 1)).Perm(40)
		forward, shuffled := run(1, slices.Sorted(slices.Values(order))), run(1, order)
		if !reflect.DeepEqual(forward, shuffled) {
			t.Errorf("two orders, two results:\n%v\n%v", forward, shuffled)
		}
		if reflect.DeepEqual(forward, run(2, order)) {
			t.Error("another seed changed nothing")
		}
		broken, passed, same := 0, 0, 0
		for _, two := range forward {
			switch first, second := strings.HasPrefix(two[0], "503"), strings.HasPrefix(two[1], "503"); {
			case first && !second:
				broken, passed = broken+1, passed+1
			case first:
				broken++
			case two[0] == two[1]:
				same++
			}
		}
		if broken == 0 || broken == 20 || passed == 0 {
			t.Errorf("%d of 20 calls met a fault of p=0.3, and %d of these passed when repeated", broken, passed)
		}
		if same > 0 {
			t.Errorf("%d of 20 contents took twice the same time", same)
		}
	})
}

func TestARepeatedCallTakesAsLongAsItWouldHaveTakenWithoutTheFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		latency := Latency{Total: 8 * time.Second, Sigma: 0.5}
		calm := mustNew(t, Config{Latency: latency})
		want := mustAdmit(t, calm, arrival("a", 0)).Plan(100, nil, 1)
		rough := mustNew(t, Config{Latency: latency, Faults: faults(t, "503@n=1", "429@n=2")})
		mustAdmit(t, rough, arrival("a", 0)).End(Failed, Amounts{}, 0)
		mustRefuse(t, rough, arrival("a", 0))
		if got := mustAdmit(t, rough, arrival("a", 0)).Plan(100, nil, 1); got != want {
			t.Errorf("third try takes %v, want %v", got, want)
		}
	})
}

func TestSpeedShortensEverythingAlike(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, speed float64) (trace []string) {
		synctest.Test(t, func(t *testing.T) {
			e := mustNew(t, Config{
				Speed: speed, Jitter: 2 * time.Second, Faults: faults(t, "slow@30s-60s,x=2", "429@60s-80s"),
				Latency: Latency{First: time.Second, PerSecond: 100},
				Limits:  []Limit{perMinute("rpm", Requests, 10)},
			})
			start := time.Now()
			at := func() string { // nominal milliseconds, so that rounding to nanoseconds does not show
				return fmt.Sprint(time.Duration(float64(time.Since(start)) * speed).Round(time.Millisecond))
			}
			for i := range 40 {
				c, err := e.Admit(t.Context(), arrival(fmt.Sprint(i), 0))
				var r *Refusal
				if errors.As(err, &r) {
					trace = append(trace, at()+" "+r.Error())
					time.Sleep(r.Retry)
					continue
				}
				c.Plan(300, nil, max(c.Fault().X, 1))
				if err := c.Wait(t.Context(), 300); err != nil {
					t.Fatal(err)
				}
				c.End(Completed, Amounts{}, 0)
				trace = append(trace, at())
			}
		})
		return trace
	}
	slow, quick := run(t, 1), run(t, 20)
	if !slices.Equal(slow, quick) {
		t.Errorf("speed 1:  %v\nspeed 20: %v", slow, quick)
	}
	if joined := strings.Join(slow, " "); !strings.Contains(joined, "rpm") || !strings.Contains(joined, "fault") {
		t.Errorf("the run met no limit or no fault: %v", slow)
	}
}

func TestResetForgetsEverythingButTheCallsInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := perMinute("rpm", Requests, 1)
		l.CountAt = AtCompletion
		e := mustNew(t, Config{
			Concurrency: 2, Log: 5, Faults: faults(t, "503@n=1"),
			Limits: []Limit{l, perMinute("tpm", InputTokens, 100)},
		})
		old := mustAdmit(t, e, arrival("old", 100))
		mustRefuse(t, e, arrival("x", 1))
		e.Count("invalid")
		time.Sleep(time.Second)
		e.Reset()
		if s := e.Stats(); s.Requests != 0 || s.Refused != 0 || s.InputTokens != 0 || len(s.Faults)+len(s.Other)+len(s.RefusedBy) != 0 ||
			s.Windows[1].Largest != 0 || s.Elapsed != 0 || s.InFlight != 1 || s.PeakInFlight != 1 {
			t.Errorf("after a reset: %+v", s)
		}
		c := mustAdmit(t, e, arrival("new", 100))
		if c.Fault().Kind.Name != "503" {
			t.Error("the numbering of calls did not begin anew")
		}
		mustRefuse(t, e, arrival("x", 0)) // old still holds its place
		old.End(Completed, Amounts{Requests: 1, InputTokens: 100}, 0)
		mustAdmit(t, e, arrival("next", 0)) // rpm is free: old did not count here
		if s := e.Stats(); s.Completed != 0 || s.Admitted != 2 || len(e.Records()) != 1 {
			t.Errorf("the old call was booked: %+v, log %+v", s, e.Records())
		}
	})
}

func TestCloseEndsWaitsAndRefusesCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := mustNew(t, Config{Latency: Latency{Total: time.Hour}, Faults: faults(t, "hang@n=2")})
		waiting, hanging := mustAdmit(t, e, arrival("a", 0)), mustAdmit(t, e, arrival("b", 0))
		waiting.Plan(1, nil, 1)
		errs := make(chan error)
		go func() { errs <- waiting.Wait(t.Context(), 1) }()
		go func() { errs <- hanging.Hang(t.Context()) }()
		synctest.Wait()
		e.Close()
		e.Close()
		for range 2 {
			if err := <-errs; !errors.Is(err, ErrClosed) {
				t.Errorf("wait: got %v, want ErrClosed", err)
			}
		}
		if _, err := e.Admit(t.Context(), arrival("c", 0)); !errors.Is(err, ErrClosed) {
			t.Errorf("call: got %v, want ErrClosed", err)
		}
	})
}

func TestACancelledWaitEndsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := mustNew(t, Config{Latency: Latency{PerSecond: 10}, Faults: faults(t, "hang@n=2")})
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		c := mustAdmit(t, e, arrival("a", 0))
		c.Plan(100, nil, 1)
		if err := c.Wait(ctx, 100); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 3*time.Second {
			t.Errorf("wait: %v after %v", err, time.Since(start))
		}
		if got := c.Generated(); got != 30 {
			t.Errorf("%d tokens generated in 3 s at 10 a second, want 30", got)
		}
		if err := mustAdmit(t, e, arrival("b", 0)).Hang(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("hang: %v", err)
		}
		if err := c.Wait(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait that is over: %v, want the context's error all the same", err)
		}
	})
}

func TestImpossibleConfigurationsAreRefusedByNameAndValue(t *testing.T) {
	t.Parallel()
	limit := func(change func(*Limit)) Config {
		l := perMinute("rpm", Requests, 10)
		change(&l)
		return Config{Limits: []Limit{l}}
	}
	tests := []struct {
		cfg  Config
		want string
	}{
		{Config{Concurrency: -1}, "concurrency -1"},
		{Config{Jitter: -time.Second}, "jitter -1s"},
		{Config{Log: -1}, "log -1"},
		{Config{Speed: -1}, "speed -1"},
		{Config{Speed: 1e7}, "speed 1e+07"},
		{limit(func(l *Limit) { l.Amount = -1 }), "limit rpm: amount -1"},
		{limit(func(l *Limit) { l.Amount = maxAmount + 1 }), "limit rpm: amount 1000000000000001"},
		{limit(func(l *Limit) { l.Length = 0 }), "limit rpm: window length 0s"},
		{limit(func(l *Limit) { l.Offset = -1 }), "limit rpm: window offset -1ns"},
		{limit(func(l *Limit) { l.Model = 9 }), "limit rpm: unknown window model 9"},
		{limit(func(l *Limit) { l.CountAt = 9 }), "limit rpm: unknown counting instant 9"},
		{limit(func(l *Limit) { l.Dimension = 9 }), "limit rpm: unknown dimension 9"},
		{limit(func(l *Limit) { l.Model = Daily }), "limit rpm: a daily limit needs a zone"},
	}
	for _, tt := range tests {
		if _, err := New(tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want one that says %q", err, tt.want)
		}
	}
}
