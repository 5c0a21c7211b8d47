package retry_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/retry"
)

var (
	throttled  = retry.Verdict{Class: retry.Throttled}
	overloaded = retry.Verdict{Class: retry.Overloaded}
)

func after(hint time.Duration) retry.Verdict {
	return retry.Verdict{Class: retry.Throttled, Hint: hint, HasHint: true}
}

// delays is a sample of 10,000 waits in ascending order.
func delays(t *testing.T, p *retry.Policy, v retry.Verdict, attempt int) []time.Duration {
	t.Helper()
	sample := make([]time.Duration, 10000)
	for i := range sample {
		d, ok := p.Delay(v, attempt)
		if !ok {
			t.Fatalf("no further attempt after %d", attempt)
		}
		sample[i] = d
	}
	slices.Sort(sample)
	return sample
}

// uniform checks that an ordered sample is spread evenly over [low, high). The
// largest distance between its distribution and the even one stays below the
// bound in all but 2·exp(−2·10000·0.042²) = 10⁻¹⁵ of samples (Dvoretzky, Kiefer
// and Wolfowitz; constant by Massart); half the range, or jitter of half the
// wait, is off by 0.5.
func uniform(t *testing.T, sample []time.Duration, low, high time.Duration) {
	t.Helper()
	if first, last := sample[0], sample[len(sample)-1]; first < low || last >= high {
		t.Errorf("waits from %v to %v, want all in [%v, %v)", first, last, low, high)
	}
	worst := 0.0
	for i, d := range sample {
		want := float64(d-low) / float64(high-low)
		worst = max(worst, math.Abs(want-float64(i)/float64(len(sample))))
	}
	if worst > 0.042 {
		t.Errorf("the waits' distribution is %.3f off the even one over [%v, %v)", worst, low, high)
	}
}

func TestBackoffIsFullJitterUnderADoublingCeiling(t *testing.T) {
	t.Parallel()
	many := &retry.Policy{MaxAttempts: math.MaxInt}
	odd := &retry.Policy{MaxAttempts: math.MaxInt, Base: 3 * time.Second, Cap: 7 * time.Second}
	for _, c := range []struct {
		name    string
		policy  *retry.Policy
		attempt int
		ceiling time.Duration
	}{
		{"default, first failure", &retry.Policy{}, 1, 500 * time.Millisecond},
		{"default, second failure", &retry.Policy{}, 2, time.Second},
		{"nil policy", nil, 2, time.Second},
		{"attempt 0 is the first", many, 0, 500 * time.Millisecond},
		{"attempt -1 is the first", many, -1, 500 * time.Millisecond},
		{"third failure", many, 3, 2 * time.Second},
		{"sixth failure", many, 6, 16 * time.Second},
		{"seventh failure meets the cap", many, 7, 30 * time.Second},
		{"far beyond the cap", many, math.MaxInt - 1, 30 * time.Second},
		{"own base", odd, 1, 3 * time.Second},
		{"own base doubled", odd, 2, 6 * time.Second},
		{"own cap", odd, 3, 7 * time.Second},
		{"cap below the default base", &retry.Policy{Cap: 100 * time.Millisecond}, 1, 100 * time.Millisecond},
		{"cap as large as can be", &retry.Policy{MaxAttempts: 100, Cap: math.MaxInt64}, 99, math.MaxInt64},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			uniform(t, delays(t, c.policy, throttled, c.attempt), 0, c.ceiling)
		})
	}
}

func TestHintIsTheLowerBoundAndAFleetComesBackSpread(t *testing.T) {
	t.Parallel()
	// The random part ends at 500 ms, so that beyond it only the spread over a
	// tenth of the hint is left.
	for _, hint := range []time.Duration{500 * time.Millisecond, 7 * time.Second, 45837906927, time.Minute} {
		uniform(t, delays(t, &retry.Policy{}, after(hint), 1), hint, hint+hint/10)
	}
	// A short hint does not shorten the backoff: the larger of both counts.
	sample := delays(t, &retry.Policy{MaxAttempts: 9}, after(time.Second), 6)
	if first, last := sample[0], sample[len(sample)-1]; first < time.Second || last >= 16*time.Second || last < 15*time.Second {
		t.Errorf("waits from %v to %v, want from 1s to just under 16s", first, last)
	}
	half := sample[len(sample)/2]
	if half < 7*time.Second || half > 9*time.Second {
		t.Errorf("half of the waits are below %v, want 8s as without the hint", half)
	}
}

func TestHintOfZeroIsASpreadWaitAndNoHotLoop(t *testing.T) {
	t.Parallel()
	for _, hint := range []time.Duration{0, 1, time.Millisecond, 99 * time.Millisecond} {
		sample := delays(t, &retry.Policy{}, after(hint), 1)
		if first := sample[0]; first < 100*time.Millisecond {
			t.Errorf("hint %v: wait of %v, want at least 100ms", hint, first)
		}
		if spread := sample[len(sample)-1] - sample[0]; spread < 300*time.Millisecond {
			t.Errorf("hint %v: all waits within %v, want them spread up to 500ms", hint, spread)
		}
	}
	// A policy for something much faster is not slowed down.
	quick := &retry.Policy{Base: 2 * time.Millisecond, Cap: 2 * time.Millisecond}
	sample := delays(t, quick, after(0), 1)
	if sample[0] < 2*time.Millisecond || sample[len(sample)-1] > 3*time.Millisecond {
		t.Errorf("base 2ms: waits from %v to %v, want 2ms and a little", sample[0], sample[len(sample)-1])
	}
}

func TestHintBeyondTheBoundEndsTheCallAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy *retry.Policy
		hint   time.Duration
		ok     bool
	}{
		{nil, time.Minute, true},
		{nil, time.Minute + 1, false},
		{&retry.Policy{}, 1800 * time.Second, false},
		{&retry.Policy{}, math.MaxInt64, false},
		{&retry.Policy{MaxHint: 2 * time.Second}, 2 * time.Second, true},
		{&retry.Policy{MaxHint: 2 * time.Second}, 2*time.Second + 1, false},
		{&retry.Policy{MaxHint: time.Hour}, 1800 * time.Second, true},
		{&retry.Policy{MaxHint: math.MaxInt64}, math.MaxInt64, true},
	} {
		d, ok := c.policy.Delay(after(c.hint), 1)
		if ok != c.ok || ok && d < c.hint || !ok && d != 0 {
			t.Errorf("policy %+v, hint %v: %v, %v; want %v", c.policy, c.hint, d, ok, c.ok)
		}
	}
}

func TestAttemptsEndAtTheirNumber(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		max, made int
		ok        bool
	}{
		{0, 1, true}, {0, 2, true}, {0, 3, false}, {0, 4, false},
		{1, 1, false}, {1, 0, true}, {5, 4, true}, {5, 5, false},
		{-1, 2, true}, {-1, 3, false},
		{2, math.MaxInt, false}, {2, math.MinInt, true},
	} {
		p := &retry.Policy{MaxAttempts: c.max}
		for _, v := range []retry.Verdict{throttled, overloaded, after(time.Second), {Class: retry.NotSent}} {
			if _, ok := p.Delay(v, c.made); ok != c.ok {
				t.Errorf("MaxAttempts %d, %d made, %v: another attempt %v, want %v", c.max, c.made, v.Class, ok, c.ok)
			}
		}
	}
}

func TestWhatWaitingDoesNotMendIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	p := &retry.Policy{MaxAttempts: 10}
	for _, class := range []retry.Class{retry.NotRetryable, retry.QuotaExhausted, retry.Denied, retry.NeverFits, retry.Class(99)} {
		for _, v := range []retry.Verdict{{Class: class}, {Class: class, Hint: time.Second, HasHint: true}} {
			if d, ok := p.Delay(v, 1); ok || d != 0 {
				t.Errorf("%+v: wait %v, want no further attempt", v, d)
			}
		}
	}
}

func TestAnyPolicyAndVerdictGiveAWaitWithinBounds(t *testing.T) {
	t.Parallel()
	duration := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, int64(time.Hour)), rapid.Int64())
	rapid.Check(t, func(t *rapid.T) {
		p := &retry.Policy{
			MaxAttempts: rapid.Int().Draw(t, "attempts"),
			Base:        time.Duration(duration.Draw(t, "base")),
			Cap:         time.Duration(duration.Draw(t, "cap")),
			MaxHint:     time.Duration(duration.Draw(t, "maxHint")),
		}
		v := retry.Verdict{
			Class:   retry.Class(rapid.IntRange(0, 9).Draw(t, "class")),
			Hint:    time.Duration(duration.Draw(t, "hint")),
			HasHint: rapid.Bool().Draw(t, "hasHint"),
		}
		d, ok := p.Delay(v, rapid.Int().Draw(t, "attempt"))
		if d < 0 || !ok && d != 0 {
			t.Fatalf("wait %v, %v", d, ok)
		}
		if ok && v.HasHint && d < v.Hint {
			t.Fatalf("wait %v is shorter than the hint %v", d, v.Hint)
		}
		limit := retry.DefaultCap
		if p.Cap > 0 {
			limit = p.Cap
		}
		if ok && d >= limit && !(v.HasHint && v.Hint >= 0) {
			t.Fatalf("wait %v without a hint, cap %v", d, limit)
		}
	})
}

func TestValidateNamesTheFieldAndTheValue(t *testing.T) {
	t.Parallel()
	fine := func(error) (retry.Verdict, bool) { return retry.Verdict{}, false }
	for _, c := range []struct {
		policy *retry.Policy
		want   []string // in the message; none for no error
	}{
		{nil, nil},
		{&retry.Policy{}, nil},
		{&retry.Policy{MaxAttempts: 1, Base: 1, Cap: 1, MaxHint: 1, Classifiers: []retry.Classifier{fine}}, nil},
		{&retry.Policy{Base: time.Minute}, nil},
		{&retry.Policy{MaxAttempts: -2}, []string{"MaxAttempts", "-2"}},
		{&retry.Policy{Base: -time.Second}, []string{"Base", "-1s"}},
		{&retry.Policy{Cap: -time.Second}, []string{"Cap", "-1s"}},
		{&retry.Policy{MaxHint: -time.Second}, []string{"MaxHint", "-1s"}},
		{&retry.Policy{Base: 3 * time.Second, Cap: 2 * time.Second}, []string{"Base", "3s", "Cap", "2s"}},
		{&retry.Policy{Classifiers: []retry.Classifier{fine, nil}}, []string{"Classifiers[1]", "nil"}},
	} {
		names(t, c.policy.Validate(), c.want)
	}
}

// names checks that err is nil if want is empty, and holds all of it otherwise.
func names(t *testing.T, err error, want []string) {
	t.Helper()
	if len(want) == 0 {
		if err != nil {
			t.Errorf("unexpected error: %v", err)
		}
		return
	}
	if err == nil {
		t.Errorf("no error, want one that names %q", want)
		return
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not name %q", err, part)
		}
	}
}
