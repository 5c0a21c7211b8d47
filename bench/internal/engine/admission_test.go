package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestARefusedCallTakesNothingFromAnyLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := mustNew(t, Config{Limits: []Limit{perMinute("rpm", Requests, 3), perMinute("tpm", InputTokens, 100)}})
		mustAdmit(t, e, arrival("a", 90))
		for range 10 {
			mustRefuse(t, e, arrival("b", 20))
		}
		mustAdmit(t, e, arrival("c", 10))
		mustAdmit(t, e, arrival("d", 0))
		s := e.Stats()
		if s.Requests != 13 || s.Admitted != 3 || s.Refused != 10 || s.RefusedBy["tpm"] != 10 || s.RefusedBy["rpm"] != 0 {
			t.Errorf("books: %+v", s)
		}
		if s.Windows[0].Largest != 3 || s.Windows[1].Largest != 100 || s.Windows[1].Share != 1 {
			t.Errorf("largest use: %+v; want 3 requests and 100 tokens", s.Windows)
		}
	})
}

func TestARefusalNamesEveryFullLimitAndWhenAllHaveRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := mustNew(t, Config{Limits: []Limit{perMinute("rpm", Requests, 2), perMinute("tpm", InputTokens, 100)}})
		mustAdmit(t, e, arrival("a", 10))
		time.Sleep(10 * time.Second)
		mustAdmit(t, e, arrival("b", 90))
		time.Sleep(5 * time.Second)
		r := mustRefuse(t, e, arrival("c", 50))
		if want := []Violation{{"rpm", 2}, {"tpm", 100}}; !reflect.DeepEqual(r.Violations, want) {
			t.Errorf("violations %v, want %v", r.Violations, want)
		}
		// A place is free at 60 s, but tokens only when b leaves at 70 s.
		if r.Retry != 55*time.Second {
			t.Errorf("retry after %v, want 55s", r.Retry)
		}
		if r.Error() != "refused by rpm, tpm" {
			t.Errorf("error %q", r)
		}
		time.Sleep(r.Retry - 1)
		if again := mustRefuse(t, e, arrival("c", 50)); again.Retry != 1 {
			t.Errorf("a nanosecond early: retry after %v, want 1ns", again.Retry)
		}
		time.Sleep(time.Nanosecond)
		mustAdmit(t, e, arrival("c", 50))
	})
}

func TestTheHintIsThatOfTheLimitThatIsFullForLongest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hourly := perMinute("rph", Requests, 1)
		hourly.Length = time.Hour
		for _, limits := range [][]Limit{{perMinute("rpm", Requests, 1), hourly}, {hourly, perMinute("rpm", Requests, 1)}} {
			e := mustNew(t, Config{Limits: limits})
			mustAdmit(t, e, arrival("a", 0))
			if r := mustRefuse(t, e, arrival("b", 0)); r.Retry != time.Hour {
				t.Errorf("retry after %v, want 1h", r.Retry)
			}
		}
	})
}

func TestACallAboveTheWholeLimitGetsNoHint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, model := range []WindowModel{Sliding, Fixed, Bucket} {
			l := perMinute("tpm", InputTokens, 100)
			l.Model = model
			e := mustNew(t, Config{Limits: []Limit{l}})
			if r := mustRefuse(t, e, arrival("a", 101)); r.Retry != 0 {
				t.Errorf("%v: retry after %v, want no hint", model, r.Retry)
			}
			mustAdmit(t, e, arrival("b", 100))
		}
	})
}

func TestAFixedWindowLetsTwiceTheLimitThroughAroundItsBorder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := perMinute("rpm", Requests, 5)
		l.Model, l.Offset = Fixed, 30*time.Second
		e := mustNew(t, Config{Limits: []Limit{l}})
		time.Sleep(29 * time.Second)
		for i := range 5 {
			mustAdmit(t, e, arrival(fmt.Sprint(i), 0))
		}
		if r := mustRefuse(t, e, arrival("x", 0)); r.Retry != time.Second {
			t.Errorf("retry after %v, want 1s: the border is at 30s", r.Retry)
		}
		time.Sleep(time.Second)
		for i := range 5 {
			mustAdmit(t, e, arrival(fmt.Sprint(i), 0))
		}
		mustRefuse(t, e, arrival("x", 0))
		if got := e.Stats().Windows[0]; got.Largest != 10 || got.Share != 2 {
			t.Errorf("largest use %+v, want 10, twice the limit: the measure is not the enforcement", got)
		}
	})
}

func TestCountingAtCompletionLetsABurstPastTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := perMinute("tpm", InputTokens, 100)
		l.CountAt = AtCompletion
		e := mustNew(t, Config{Limits: []Limit{l}})
		a, b := mustAdmit(t, e, arrival("a", 80)), mustAdmit(t, e, arrival("b", 80))
		if got := e.Stats().Windows[0].Largest; got != 0 {
			t.Errorf("%d tokens counted before any call ended", got)
		}
		time.Sleep(30 * time.Second)
		a.End(Completed, Amounts{InputTokens: 80}, 0)
		time.Sleep(30 * time.Second)
		b.End(Cancelled, Amounts{InputTokens: 80}, 0)
		if got := e.Stats().Windows[0].Largest; got != 160 {
			t.Errorf("largest use %d, want 160, the cancelled call counted too", got)
		}
		// 90 fit when the use is down to 10: when b leaves, at 120 s.
		if r := mustRefuse(t, e, arrival("c", 90)); r.Retry != time.Minute {
			t.Errorf("retry after %v, want 1m", r.Retry)
		}
		// 20 fit when a leaves.
		if r := mustRefuse(t, e, arrival("d", 20)); r.Retry != 30*time.Second {
			t.Errorf("retry after %v, want 30s", r.Retry)
		}
	})
}

func TestJitterDelaysTheInstantAtWhichACallCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const jitter = 3 * time.Second
		e := mustNew(t, Config{Jitter: jitter, Log: 100, Limits: []Limit{perMinute("rpm", Requests, 0)}})
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				// The same content many times: each arrival has a jitter of its own.
				mustAdmit(t, e, arrival([]string{"a", "b"}[i%2], 0)).End(Completed, Amounts{}, 0)
			})
		}
		wg.Wait()
		var delays []time.Duration
		for _, r := range e.Records() {
			delays = append(delays, r.Decided.Sub(r.Arrived))
		}
		slices.Sort(delays)
		if first, last := delays[0], delays[len(delays)-1]; first < 0 || last >= jitter || last-first < jitter/2 {
			t.Errorf("delays from %v to %v, want them spread over [0, %v)", first, last, jitter)
		}
		if n := len(slices.Compact(delays)); n != 50 {
			t.Errorf("50 arrivals have %d different delays", n)
		}
	})
}

func TestACallThatGoesAwayBeforeItIsSeenLeavesNoTrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := mustNew(t, Config{Jitter: time.Hour, Limits: []Limit{perMinute("rpm", Requests, 1)}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		if _, err := e.Admit(ctx, arrival("a", 0)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want deadline exceeded", err)
		}
		if s := e.Stats(); s.Requests != 0 || s.Windows[0].Largest != 0 {
			t.Errorf("books: %+v, want nothing", s)
		}
	})
}

func TestRefusedCallsCountAgainstTheRequestLimitWhereThatIsSet(t *testing.T) {
	t.Parallel()
	for _, count := range []bool{false, true} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := mustNew(t, Config{
					CountRefused: count,
					Limits:       []Limit{perMinute("rpm", Requests, 2), perMinute("tpm", InputTokens, 100)},
				})
				mustAdmit(t, e, arrival("a", 60))
				time.Sleep(10 * time.Second)
				mustRefuse(t, e, arrival("b", 60)) // by its tokens
				time.Sleep(10 * time.Second)
				if !count {
					mustAdmit(t, e, arrival("c", 40))
					return
				}
				r := mustRefuse(t, e, arrival("c", 40)) // the refused one took the second place
				if r.Violations[0].Name != "rpm" || r.Violations[0].Limit != 2 {
					t.Errorf("violations %v, want rpm", r.Violations)
				}
				// Counted are a at 0, b at 10 and c itself at 20. The next try has
				// a place when b has left, at 70 s.
				if r.Retry != 50*time.Second {
					t.Errorf("retry after %v, want 50s", r.Retry)
				}
				time.Sleep(r.Retry)
				mustAdmit(t, e, arrival("c", 40))
				if w := e.Stats().Windows; w[0].Largest != 1 || w[1].Largest != 60 {
					t.Errorf("largest use %+v; want 1 request and 60 tokens, of admitted calls only", w)
				}
			})
		})
	}
}

func TestConcurrencyIsLimitedUntilACallEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := mustNew(t, Config{Concurrency: 2, Latency: Latency{PerSecond: 1}})
		a, b := mustAdmit(t, e, arrival("a", 0)), mustAdmit(t, e, arrival("b", 0))
		if r := mustRefuse(t, e, arrival("c", 0)); r.Retry != 0 || r.Violations[0] != (Violation{Concurrency, 2}) {
			t.Errorf("refusal %+v, want concurrency and no hint: nothing is planned", r)
		}
		a.Plan(30, nil, 1)
		b.Plan(20, nil, 1)
		time.Sleep(5 * time.Second)
		if r := mustRefuse(t, e, arrival("c", 0)); r.Retry != 15*time.Second {
			t.Errorf("retry after %v, want 15s, when b is planned to end", r.Retry)
		}
		b.End(Completed, Amounts{}, 0)
		b.End(Completed, Amounts{}, 0)
		mustAdmit(t, e, arrival("c", 0))
		mustRefuse(t, e, arrival("d", 0)) // the second End freed nothing
		if s := e.Stats(); s.InFlight != 2 || s.PeakInFlight != 2 || s.Completed != 1 || s.RefusedBy[Concurrency] != 3 {
			t.Errorf("books: %+v", s)
		}
	})
}
