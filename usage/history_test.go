package usage_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/usage"
	"pgregory.net/rapid"
)

// noon is when the tests begin.
var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func history(t testing.TB, c usage.HistoryConfig) *usage.History {
	t.Helper()
	h, err := usage.NewHistory(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// estimate is 100 input and 1000 output tokens.
var estimate = usage.Usage{Input: 100, Output: 1000, Flags: usage.Estimated}

// learn makes n calls of one usage, a second apart, and returns the time after
// the last one.
func learn(h *usage.History, n int, actual usage.Usage, at time.Time) time.Time {
	for range n {
		h.Observe("m", "a", estimate, actual, at)
		at = at.Add(time.Second)
	}
	return at
}

// near reports whether got is within a share of want.
func near(got, want, share float64) bool { return math.Abs(got-want) <= share*math.Abs(want) }

func TestNothingIsCorrectedBeforeEnoughCalls(t *testing.T) {
	t.Parallel()
	h := history(t, usage.HistoryConfig{})
	none := usage.Factor{Input: 1, Output: 1}
	if f := h.Factor("m", "a", usage.P95, noon); f != none {
		t.Errorf("an unknown pair is corrected by %+v", f)
	}
	at := learn(h, usage.DefaultMinSamples, usage.Usage{Input: 400, Output: 10}, noon)
	f := h.Factor("m", "a", usage.P95, at)
	if f.Input != 1 || f.Output != 1 || f.Apply(estimate, 0) != estimate {
		t.Errorf("after %d calls the factor is %+v", usage.DefaultMinSamples, f)
	}
	// From then on by and by, and in the end altogether.
	last := 1.0
	for range 40 {
		at = learn(h, 5, usage.Usage{Input: 400, Output: 10}, at)
		f := h.Factor("m", "a", usage.P95, at)
		if f.Input < last || f.Input > 4.3 {
			t.Fatalf("the input's factor goes from %v to %v", last, f.Input)
		}
		last = f.Input
	}
	u := h.Factor("m", "a", usage.P95, at).Apply(estimate, 0)
	if !near(float64(u.Input), 400, 0.15) || u.Output < 10 || u.Output > 20 || !u.Has(usage.Estimated) {
		t.Errorf("after 220 calls of 400 and 10 tokens the estimate is %v", u)
	}
	if f := h.Factor("m", "other", usage.P95, at); f != none {
		t.Errorf("another agent's calls are corrected by %+v", f)
	}
	if f := h.Factor("other", "a", usage.P95, at); f != none {
		t.Errorf("another model's calls are corrected by %+v", f)
	}
}

func TestStatisticsAreThoseOfWhatWasSeen(t *testing.T) {
	t.Parallel()
	for _, relative := range []bool{false, true} {
		h := history(t, usage.HistoryConfig{MinSamples: 1, RelativeOutput: relative})
		rng := rand.New(rand.NewPCG(1, 2))
		at := noon
		// Uniform from 0 to 1000: mean 500, median 500, 95th percentile 950.
		for range 4000 {
			n := 1 + rng.Int64N(1000)
			h.Observe("m", "a", estimate, usage.Usage{Input: n, Output: n}, at)
			at = at.Add(time.Second)
		}
		for s, want := range map[usage.Statistic]float64{usage.Mean: 500, usage.P50: 500, usage.P95: 950} {
			f := h.Factor("m", "a", s, at)
			if !near(f.Input, want/100, 0.08) || !near(f.Output, want/1000, 0.08) {
				t.Errorf("%v: factors of %v and %v, want %v and %v", s, f.Input, f.Output, want/100, want/1000)
			}
			if u := f.Apply(estimate, 0); !near(float64(u.Output), want, 0.08) || !near(float64(u.Input), want, 0.08) {
				t.Errorf("%v, relative output %t: the estimate becomes %v", s, relative, u)
			}
			if relative != (f.Tokens == 0) {
				t.Errorf("%v, relative output %t: %v tokens", s, relative, f.Tokens)
			}
		}
	}
}

func TestAppliedEstimatesStayWithinTheirBounds(t *testing.T) {
	t.Parallel()
	h := history(t, usage.HistoryConfig{})
	at := learn(h, 200, usage.Usage{Input: 50, Output: 5000}, noon)
	f := h.Factor("m", "a", usage.P95, at)
	for _, c := range []struct {
		name      string
		est       usage.Usage
		maxOutput int64
		check     func(usage.Usage) bool
	}{
		{"never above the output's limit", estimate, 300, func(u usage.Usage) bool { return u.Output == 300 }},
		{"but for the thoughts", usage.Usage{Output: 1000, Thoughts: 400}, 300, func(u usage.Usage) bool { return u.Output == 400 && u.Thoughts == 400 }},
		{"never below a part", usage.Usage{Input: 100, CachedInput: 60, CacheWrite: 30}, 0, func(u usage.Usage) bool { return u.Input == 90 && u == u.Clamp() }},
		{"learned output where none was estimated", usage.Usage{Input: 100}, 0, func(u usage.Usage) bool { return near(float64(u.Output), 5000, 0.1) }},
		{"negative estimates are none", usage.Usage{Input: -5, Output: -7}, 10, func(u usage.Usage) bool { return u.Input == 0 && u.Output == 10 }},
		{"the largest estimate", usage.Usage{Input: math.MaxInt64, Output: math.MaxInt64}, 0, func(u usage.Usage) bool { return u.Input > 1<<61 && u.Output > 0 }},
	} {
		if u := f.Apply(c.est, c.maxOutput); !c.check(u) || !u.Has(usage.Estimated) {
			t.Errorf("%s: %v becomes %v", c.name, c.est, u)
		}
	}
	if u := (usage.Factor{}).Apply(estimate, 0); u != estimate {
		t.Errorf("the zero factor makes %v", u)
	}
}

func TestWhatWasNotReportedIsNotLearned(t *testing.T) {
	t.Parallel()
	h := history(t, usage.HistoryConfig{MinSamples: 1})
	at := noon
	for range 100 {
		for _, u := range []usage.Usage{
			{}, {Input: -5, Output: -5}, {Input: 900, Output: 9, Flags: usage.Estimated}, {Output: 900, Flags: usage.TotalOnly},
		} {
			h.Observe("m", "a", estimate, u, at)
		}
	}
	if h.Len() != 0 {
		t.Error("usages that say nothing were learned from")
	}
	// A constant zero of one part says nothing about that part, and the other part
	// is learned from.
	at = learn(h, 300, usage.Usage{Input: 200}, at)
	u := h.Factor("m", "a", usage.P95, at).Apply(estimate, 0)
	if u.Output != estimate.Output || !near(float64(u.Input), 200, 0.1) {
		t.Errorf("after 300 calls without output the estimate is %v", u)
	}
	// An estimate of 0 has no ratio.
	h.Observe("m", "b", usage.Usage{}, usage.Usage{Input: 5, Output: 5}, at)
	if f := h.Factor("m", "b", usage.Mean, at); f.Input != 1 || f.Output != 1 {
		t.Errorf("from an estimate of 0 follow factors of %+v", f)
	}
}

func TestPoisonedReportsAreBounded(t *testing.T) {
	t.Parallel()
	huge := usage.Usage{Input: math.MaxInt64, Output: math.MaxInt64}
	t.Run("one of them changes no quantile", func(t *testing.T) {
		t.Parallel()
		h := history(t, usage.HistoryConfig{})
		at := learn(h, 200, usage.Usage{Input: 100, Output: 100}, noon)
		at = learn(h, 1, huge, at)
		for _, s := range []usage.Statistic{usage.P50, usage.P95} {
			if u := h.Factor("m", "a", s, at).Apply(estimate, 0); u.Input > 110 || u.Output > 150 {
				t.Errorf("%v: the estimate becomes %v", s, u)
			}
		}
		if u := h.Factor("m", "a", usage.Mean, at).Apply(estimate, 0); u.Input > 150 {
			t.Errorf("mean: the estimate becomes %v", u)
		}
	})
	for _, relative := range []bool{false, true} {
		t.Run(fmt.Sprintf("a history of nothing else stays within a factor of sixteen, relative output %t", relative), func(t *testing.T) {
			t.Parallel()
			h := history(t, usage.HistoryConfig{RelativeOutput: relative})
			at := learn(h, 2000, huge, noon)
			if u := h.Factor("m", "a", usage.P95, at).Apply(estimate, 0); u.Input != 1600 || u.Output != 16_000 {
				t.Errorf("the estimate becomes %v", u)
			}
			h = history(t, usage.HistoryConfig{RelativeOutput: relative})
			large := usage.Usage{Input: 1 << 40, Output: 1 << 40}
			for range 2000 {
				h.Observe("m", "a", large, usage.Usage{Input: 1, Output: 1}, at)
			}
			for _, s := range []usage.Statistic{usage.P50, usage.P95, usage.Mean} {
				u := h.Factor("m", "a", s, at).Apply(large, 0)
				if low := u.Output == large.Output/16; u.Input != large.Input/16 || low != relative || u.Output < 1 {
					t.Errorf("%v: the estimate becomes %v", s, u)
				}
			}
		})
	}
	t.Run("where nothing was estimated they make a million tokens at most", func(t *testing.T) {
		t.Parallel()
		h := history(t, usage.HistoryConfig{})
		at := learn(h, 2000, huge, noon)
		if u := h.Factor("m", "a", usage.P95, at).Apply(usage.Usage{Input: 100}, 0); u.Output > 1<<20 {
			t.Errorf("the estimate becomes %v", u)
		}
	})
	t.Run("they are forgotten", func(t *testing.T) {
		t.Parallel()
		h := history(t, usage.HistoryConfig{})
		at := learn(h, 500, huge, noon)
		at = learn(h, 6000, usage.Usage{Input: 100, Output: 100}, at)
		if u := h.Factor("m", "a", usage.P95, at).Apply(estimate, 0); u.Input > 110 || u.Output > 150 {
			t.Errorf("6000 calls later the estimate becomes %v", u)
		}
	})
}

func TestDriftIsLearnedByCallsAndByTime(t *testing.T) {
	t.Parallel()
	short, long := usage.Usage{Input: 100, Output: 200}, usage.Usage{Input: 100, Output: 3000}
	hold := func(h *usage.History, at time.Time) int64 {
		return h.Factor("m", "a", usage.P95, at).Apply(estimate, 0).Output
	}
	t.Run("longer answers, within 120 calls", func(t *testing.T) {
		t.Parallel()
		h := history(t, usage.HistoryConfig{})
		at := learn(h, 3000, short, noon)
		at = learn(h, 120, long, at)
		if n := hold(h, at); !near(float64(n), 3000, 0.1) {
			t.Errorf("the hold is %d", n)
		}
	})
	t.Run("shorter answers, within three thousand calls", func(t *testing.T) {
		t.Parallel()
		h := history(t, usage.HistoryConfig{})
		at := learn(h, 3000, long, noon)
		at = learn(h, 3000, short, at)
		if n := hold(h, at); !near(float64(n), 200, 0.15) {
			t.Errorf("the hold is %d", n)
		}
	})
	t.Run("a few calls after a week count more than many before", func(t *testing.T) {
		t.Parallel()
		h := history(t, usage.HistoryConfig{})
		at := learn(h, 1000, long, noon)
		at = learn(h, 200, short, at.Add(7*24*time.Hour))
		if n := hold(h, at); n > 250 {
			t.Errorf("the hold is %d", n)
		}
	})
	t.Run("what is long ago is forgotten, and nothing is corrected", func(t *testing.T) {
		t.Parallel()
		h := history(t, usage.HistoryConfig{})
		at := learn(h, 1000, long, noon)
		if n := hold(h, at.Add(24*time.Hour)); !near(float64(n), 3000, 0.2) {
			t.Errorf("after a half-life the hold is %d", n)
		}
		if n := hold(h, at.Add(30*24*time.Hour)); n != estimate.Output {
			t.Errorf("after a month the hold is %d", n)
		}
	})
	t.Run("a clock that goes back stands still", func(t *testing.T) {
		t.Parallel()
		h := history(t, usage.HistoryConfig{})
		at := learn(h, 500, long, noon)
		before := hold(h, at)
		learn(h, 1, long, at.Add(-365*24*time.Hour))
		if n := hold(h, at.Add(-24*time.Hour)); !near(float64(n), float64(before), 0.02) {
			t.Errorf("the hold goes from %d to %d", before, n)
		}
	})
}

func TestPairsAreBounded(t *testing.T) {
	t.Parallel()
	h := history(t, usage.HistoryConfig{MaxKeys: 10, MinSamples: 1})
	u := usage.Usage{Input: 400, Output: 10}
	at := noon
	for i := range 1000 {
		at = at.Add(time.Second)
		h.Observe("m", fmt.Sprint("agent-", i), estimate, u, at)
	}
	if h.Len() != 10 || h.Refused() != 990 {
		t.Errorf("%d pairs are told apart, and %d calls were refused", h.Len(), h.Refused())
	}
	if f := h.Factor("m", "agent-500", usage.P95, at); f != (usage.Factor{Input: 1, Output: 1}) {
		t.Errorf("a pair beyond is corrected by %+v", f)
	}
	// Pairs of which nothing is left make room.
	at = at.Add(60 * 24 * time.Hour)
	h.Observe("m", "new", estimate, u, at)
	if h.Len() != 1 {
		t.Errorf("two months later there are %d pairs", h.Len())
	}
	h.Observe(strings.Repeat("m", 300), "a", estimate, u, at)
	if h.Len() != 1 {
		t.Error("a name of 300 bytes was taken")
	}
}

func TestHistoryConfigNamesTheField(t *testing.T) {
	t.Parallel()
	for field, c := range map[string]usage.HistoryConfig{
		"HalfLife is -1s":  {HalfLife: -time.Second},
		"HalfLife is 1ms":  {HalfLife: time.Millisecond},
		"MaxKeys is -1":    {MaxKeys: -1},
		"MaxKeys is 2":     {MaxKeys: 2 << 20},
		"MinSamples is -1": {MinSamples: -1},
		"MinSamples is 30": {MinSamples: 300},
	} {
		if h, err := usage.NewHistory(c); err == nil || h != nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestSnapshotsRestoreWhatWasLearned(t *testing.T) {
	t.Parallel()
	h := history(t, usage.HistoryConfig{})
	rng := rand.New(rand.NewPCG(3, 4))
	at := noon
	for i := range 3000 {
		at = at.Add(time.Second)
		h.Observe("m", fmt.Sprint(i%3), estimate, usage.Usage{Input: 1 + rng.Int64N(500), Output: 1 + rng.Int64N(5000)}, at)
	}
	data, err := json.Marshal(h.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	var s usage.HistorySnapshot
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	restored := history(t, usage.HistoryConfig{})
	if err := restored.Merge(s, at); err != nil {
		t.Fatal(err)
	}
	for _, st := range []usage.Statistic{usage.Mean, usage.P50, usage.P95} {
		for _, agent := range []string{"0", "1", "2", "3"} {
			a, b := h.Factor("m", agent, st, at), restored.Factor("m", agent, st, at)
			// What was read before may lack the latest sixteenth of the calls.
			if !near(b.Input, a.Input, 0.02) || !near(b.Output, a.Output, 0.02) || !near(b.Tokens, a.Tokens, 0.02) {
				t.Errorf("%v of agent %s is %+v, restored %+v", st, agent, a, b)
			}
		}
	}
	again, err := json.Marshal(restored.Snapshot())
	if err != nil || len(again) != len(data) {
		t.Errorf("the snapshot has %d bytes, and that of what was restored %d, %v", len(data), len(again), err)
	}
	// It decays like what it was taken of.
	if f := restored.Factor("m", "0", usage.P95, at.Add(60*24*time.Hour)); f.Input != 1 || f.Output != 1 {
		t.Errorf("two months later it corrects by %+v", f)
	}
	late := history(t, usage.HistoryConfig{})
	if err := late.Merge(s, at.Add(60*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if f := late.Factor("m", "0", usage.P95, at.Add(60*24*time.Hour)); f.Input != 1 || f.Output != 1 {
		t.Errorf("restored two months later it corrects by %+v", f)
	}
}

func TestMergedHistoriesAreOneHistory(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		config := usage.HistoryConfig{MinSamples: 1}
		one, err := usage.NewHistory(config)
		if err != nil {
			t.Fatal(err)
		}
		var halves [2]*usage.History
		for i := range halves {
			halves[i], _ = usage.NewHistory(config)
		}
		n := rapid.IntRange(1, 200).Draw(t, "calls")
		for i := range n {
			u := usage.Usage{Input: rapid.Int64Range(1, 5000).Draw(t, "input"), Output: rapid.Int64Range(1, 50_000).Draw(t, "output")}
			one.Observe("m", "a", estimate, u, noon)
			halves[i%2].Observe("m", "a", estimate, u, noon)
		}
		merged, _ := usage.NewHistory(config)
		for _, h := range halves {
			if err := merged.Merge(h.Snapshot(), noon); err != nil {
				t.Fatal(err)
			}
		}
		a, b := one.Snapshot(), merged.Snapshot()
		for i := range a.Keys { // sums of floats depend on their order
			for _, sums := range [][2]*float64{
				{&a.Keys[i].Input.Sum, &b.Keys[i].Input.Sum}, {&a.Keys[i].Output.Sum, &b.Keys[i].Output.Sum}, {&a.Keys[i].Tokens.Sum, &b.Keys[i].Tokens.Sum},
			} {
				if !near(*sums[0], *sums[1], 1e-9) {
					t.Fatalf("sums of %v and %v", *sums[0], *sums[1])
				}
				*sums[1] = *sums[0]
			}
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("%+v\n%+v", a, b)
		}
	})
}

func TestBrokenSnapshotsAreRefusedWhole(t *testing.T) {
	t.Parallel()
	h := history(t, usage.HistoryConfig{MaxKeys: 3})
	learn(h, 50, usage.Usage{Input: 200, Output: 200}, noon)
	for name, breaks := range map[string]func(*usage.HistorySnapshot){
		"version: 2":                 func(s *usage.HistorySnapshot) { s.Version = 2 },
		"keys[1].model: \"m\"":       func(s *usage.HistorySnapshot) { s.Keys = append(s.Keys, s.Keys[0]) },
		"keys[0].model: \"\\xff\"":   func(s *usage.HistorySnapshot) { s.Keys[0].Model = "\xff" },
		"keys[0].agent: \"aaa":       func(s *usage.HistorySnapshot) { s.Keys[0].Agent = strings.Repeat("a", 300) },
		"keys[0].at":                 func(s *usage.HistorySnapshot) { s.Keys[0].At = time.Time{} },
		"input.buckets[0].i: 999":    func(s *usage.HistorySnapshot) { s.Keys[0].Input.Buckets[0].Index = 999 },
		"input.buckets[0].i: -1":     func(s *usage.HistorySnapshot) { s.Keys[0].Input.Buckets[0].Index = -1 },
		"output.buckets[0].w: -1":    func(s *usage.HistorySnapshot) { s.Keys[0].Output.Buckets[0].Weight = -1 },
		"output.buckets[0].w: NaN":   func(s *usage.HistorySnapshot) { s.Keys[0].Output.Buckets[0].Weight = math.NaN() },
		"tokens.buckets[0].w: 1e+09": func(s *usage.HistorySnapshot) { s.Keys[0].Tokens.Buckets[0].Weight = 1e9 },
		"tokens.sum: 0":              func(s *usage.HistorySnapshot) { s.Keys[0].Tokens.Sum = 0 },
		"tokens.sum: NaN":            func(s *usage.HistorySnapshot) { s.Keys[0].Tokens.Sum = math.NaN() },
		"tokens.sum: +Inf":           func(s *usage.HistorySnapshot) { s.Keys[0].Tokens.Sum = math.Inf(1) },
		"keys: 4": func(s *usage.HistorySnapshot) {
			for i := range 3 {
				k := s.Keys[0]
				k.Agent = fmt.Sprint("more-", i)
				s.Keys = append(s.Keys, k)
			}
		},
	} {
		s := h.Snapshot()
		breaks(&s)
		fresh := history(t, usage.HistoryConfig{MaxKeys: 3})
		if err := fresh.Merge(s, noon); err == nil || !strings.Contains(err.Error(), name) || fresh.Len() != 0 {
			t.Errorf("%s: %d pairs, %v", name, fresh.Len(), err)
		}
	}
}

// Snapshots from a clock that is ahead neither stay for ever nor break anything.
func TestSnapshotsFromTheFutureCountAsFromNow(t *testing.T) {
	t.Parallel()
	h := history(t, usage.HistoryConfig{})
	learn(h, 500, usage.Usage{Input: 200, Output: 200}, time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC))
	fresh := history(t, usage.HistoryConfig{})
	if err := fresh.Merge(h.Snapshot(), noon); err != nil {
		t.Fatal(err)
	}
	if f := fresh.Factor("m", "a", usage.P95, noon); f.Input < 1.8 {
		t.Errorf("it corrects by %+v", f)
	}
	if f := fresh.Factor("m", "a", usage.P95, noon.Add(60*24*time.Hour)); f.Input != 1 {
		t.Errorf("two months later it corrects by %+v", f)
	}
}

func TestHistoryIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	h := history(t, usage.HistoryConfig{MaxKeys: 8})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			at := noon
			for i := range 500 {
				at = at.Add(time.Minute)
				agent := fmt.Sprint((g + i) % 12)
				f := h.Factor("m", agent, usage.Statistic(i%3), at)
				h.Observe("m", agent, f.Apply(estimate, 500), usage.Usage{Input: 90, Output: 70}, at)
				if i%100 == 0 {
					if err := h.Merge(h.Snapshot(), at); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if h.Len() > 8 {
		t.Errorf("%d pairs", h.Len())
	}
	if err := h.Snapshot().Validate(); err != nil {
		t.Error(err)
	}
}

func FuzzHistorySnapshot(f *testing.F) {
	h := history(f, usage.HistoryConfig{})
	learn(h, 30, usage.Usage{Input: 200, Output: 2000}, noon)
	good, err := json.Marshal(h.Snapshot())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"version":1,"keys":[{"model":"m","at":"2026-11-30T12:00:00Z","input":{"sum":1,"buckets":[{"i":96,"w":1}]},"output":{"sum":0},"tokens":{"sum":0}}]}`))
	f.Add([]byte(`{"version":1,"keys":[{"model":"m","at":"9999-11-30T12:00:00Z","input":{"sum":-1}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s usage.HistorySnapshot
		if json.Unmarshal(data, &s) != nil {
			return
		}
		h := history(t, usage.HistoryConfig{MinSamples: 1})
		if err := h.Merge(s, noon); err != nil {
			if h.Len() != 0 {
				t.Fatalf("%d pairs were taken from a snapshot with %v", h.Len(), err)
			}
			return
		}
		for i := range s.Keys {
			k := &s.Keys[i]
			h.Observe(k.Model, k.Agent, estimate, usage.Usage{Input: 5, Output: 5}, noon)
			for _, st := range []usage.Statistic{usage.Mean, usage.P50, usage.P95} {
				factor := h.Factor(k.Model, k.Agent, st, noon)
				if !(factor.Input >= 1.0/16 && factor.Input <= 16 && factor.Output >= 1.0/16 && factor.Output <= 16 && factor.Tokens >= 0 && factor.Tokens <= 1<<21) {
					t.Fatalf("%v: %+v", st, factor)
				}
				if u := factor.Apply(estimate, 4096); u.Input < 1 || u.Output < 1 || u.Output > 4096 {
					t.Fatalf("%v: %v", st, u)
				}
			}
		}
		if err := h.Snapshot().Validate(); err != nil {
			t.Fatal(err)
		}
	})
}
