package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The books of a random load are held against its log: a second way to add up.
func TestTheBooksOfARandomLoadAddUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const calls = 600
		e := mustNew(t, Config{
			Concurrency: 10, Jitter: time.Second, Log: calls, Seed: 7,
			Faults:  faults(t, "503@p=0.05", "429@p=0.05"),
			Latency: Latency{First: time.Second, PerSecond: 50, Sigma: 0.5},
			Limits:  []Limit{perMinute("rpm", Requests, 80), perMinute("tpm", InputTokens, 6000)},
		})
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(7, uint64(i)))
				time.Sleep(time.Duration(rnd.Int64N(int64(5 * time.Minute))))
				c, err := e.Admit(t.Context(), arrival(fmt.Sprint(i), rnd.Int64N(150)))
				if err != nil {
					return
				}
				if c.Fault().Kind.Name != "" {
					c.End(Failed, c.amounts, 0)
					return
				}
				c.Plan(rnd.IntN(400), nil, 1)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.Int64N(int64(20*time.Second))))
				defer cancel()
				outcome := Completed
				if c.Wait(ctx, 400) != nil {
					outcome = Cancelled
				}
				used := c.amounts
				used[OutputTokens] = int64(c.Generated())
				c.End(outcome, used, used[OutputTokens]/2)
			})
		}
		wg.Wait()
		s := e.Stats()
		byOutcome, by := map[Outcome]int64{}, map[string]int64{}
		var input, output int64
		var requests, tokens trace
		for _, r := range e.Records() {
			byOutcome[r.Outcome]++
			for _, name := range r.Refused {
				by[name]++
			}
			if r.Outcome == Refused {
				continue
			}
			input, output = input+r.Input, output+r.Output
			requests = append(requests, use{time.Duration(r.Decided.UnixNano()), 1})
			tokens = append(tokens, use{time.Duration(r.Decided.UnixNano()), r.Input})
		}
		want := map[Outcome]int64{Completed: s.Completed, Failed: s.Failed, Cancelled: s.Cancelled, Refused: s.Refused}
		if !reflect.DeepEqual(byOutcome, want) || !reflect.DeepEqual(by, s.RefusedBy) {
			t.Errorf("the log has %v and %v, the books %v and %v", byOutcome, by, want, s.RefusedBy)
		}
		for _, reason := range []string{"rpm", "tpm", Concurrency, "fault"} {
			if by[reason] == 0 {
				t.Errorf("nothing was refused by %s; the load tests too little", reason)
			}
		}
		if s.Requests != calls || s.Admitted+s.Refused != calls || s.Completed+s.Failed+s.Cancelled != s.Admitted || s.InFlight != 0 {
			t.Errorf("counts do not add up: %+v", s)
		}
		if s.InputTokens != input || s.OutputTokens != output || s.ThoughtTokens == 0 {
			t.Errorf("tokens: books %d/%d, log %d/%d", s.InputTokens, s.OutputTokens, input, output)
		}
		if s.PeakInFlight > 10 {
			t.Errorf("%d calls in flight, limit 10", s.PeakInFlight)
		}
		for i, tr := range []trace{requests, tokens} {
			var most int64
			for _, u := range tr {
				most = max(most, tr.within(u.at, u.at+time.Minute))
			}
			if w := s.Windows[i]; w.Largest != most || most > w.Limit {
				t.Errorf("%s: largest use %d, by the log %d, limit %d", w.Name, w.Largest, most, w.Limit)
			}
		}
	})
}

func TestTheLogKeepsTheLatestCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, size := range []int{0, 3} {
			e := mustNew(t, Config{Log: size})
			for i := range 8 {
				mustAdmit(t, e, arrival(fmt.Sprint(i), 0)).End(Completed, Amounts{}, 0)
			}
			var names []string
			for _, r := range e.Records() {
				names = append(names, r.Name)
			}
			if want := []string{"5", "6", "7"}[:size]; !slices.Equal(names, want) {
				t.Errorf("a log of %d has %v, want %v", size, names, want)
			}
		}
	})
}

func TestTheTableShowsEveryCounter(t *testing.T) {
	t.Parallel()
	s := Stats{
		Elapsed: 90 * time.Second, Speed: 20,
		Requests: 101, Admitted: 102, Completed: 103, Failed: 104, Cancelled: 105, Refused: 106,
		RefusedBy: map[string]int64{"rpm": 107}, Faults: map[string]int64{"503": 108}, Other: map[string]int64{"invalid": 109},
		InFlight: 110, PeakInFlight: 111, InputTokens: 112, OutputTokens: 113, ThoughtTokens: 114,
		Windows: []WindowUse{
			{Name: "tpm", Model: Sliding, Length: time.Minute, Limit: 200, Largest: 115, Share: 0.575},
			{Name: "rpd", Model: Daily, Largest: 116},
		},
	}
	var b strings.Builder
	if err := s.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for n := 101; n <= 116; n++ {
		if !strings.Contains(b.String(), fmt.Sprint(n)) {
			t.Errorf("%d is missing in\n%s", n, b.String())
		}
	}
	for _, want := range []string{"57.5 % of 200", "any 1m0s", "any day", "no limit", "1m30s at speed 20"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
}
