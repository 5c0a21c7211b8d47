package usage_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/usage"
	"pgregory.net/rapid"
)

// weight reads a weight in credits a token.
func weight(s string) usage.Weight {
	w, err := usage.ParseWeight(s)
	if err != nil {
		panic(err)
	}
	return w
}

func TestCreditsWeighEveryTokenOnce(t *testing.T) {
	t.Parallel()
	credits := usage.Credits{
		Version: "2026-11", Input: weight("1"), CachedInput: weight("0.1"), CacheWrite: weight("1.25"),
		Output: weight("5"), Thoughts: weight("4"),
	}
	plain := usage.Credits{Version: "1", Input: weight("1"), Output: weight("1")}
	for _, c := range []struct {
		name    string
		credits usage.Credits
		u       usage.Usage
		want    int64
	}{
		{"all parts", credits, usage.Usage{Input: 1050, CachedInput: 800, CacheWrite: 40, Output: 500, Thoughts: 400}, 210 + 80 + 50 + 500 + 1600},
		{"one token a credit", plain, usage.Usage{Input: 1050, CachedInput: 800, CacheWrite: 40, Output: 500, Thoughts: 400}, 1550},
		{"rounded up once, not once a part", credits, usage.Usage{Input: 4, CachedInput: 3, CacheWrite: 1}, 2}, // 0.3 + 1.25
		{"never down to nothing", credits, usage.Usage{Input: 1, CachedInput: 1}, 1},
		{"nothing", credits, usage.Usage{}, 0},
		{"negative counts", credits, usage.Usage{Input: -5, Output: 10}, 50},
		{"more cached than input", credits, usage.Usage{Input: 5, CachedInput: 50}, 5},
	} {
		if got, err := c.credits.Cost(c.u); err != nil || got != c.want {
			t.Errorf("%s: %v costs %d credits, %v, want %d", c.name, c.u, got, err, c.want)
		}
	}
}

func TestWeightsThatAreNotSetAreErrorsAndNotZero(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		credits usage.Credits
		want    string
	}{
		"no weights":       {usage.Credits{Version: "1"}, "input"},
		"no output":        {usage.Credits{Version: "1", Input: weight("1")}, "output"},
		"negative":         {usage.Credits{Version: "1", Input: weight("1"), Output: weight("1"), Thoughts: usage.Thousandths(-1500)}, "-1.5"},
		"a zero is a zero": {usage.Credits{Version: "1", Input: weight("0"), Output: weight("0")}, ""},
	} {
		for _, err := range []error{c.credits.Validate(), func() error { _, err := c.credits.Cost(usage.Usage{Input: 1}); return err }()} {
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if err := (usage.Credits{Input: weight("1"), Output: weight("1")}).Validate(); err == nil || !strings.Contains(err.Error(), "Version") {
		t.Errorf("without a version: %v", err)
	}
	for _, s := range []string{"0.0001", "-1", "NaN", "", "1e30"} {
		if w, err := usage.ParseWeight(s); err == nil || w != (usage.Weight{}) {
			t.Errorf("%q is a weight of %v, %v", s, w, err)
		}
	}
	if s := weight("0.25").String() + " " + (usage.Weight{}).String(); s != "0.25 unset" {
		t.Errorf("weights are written %s", s)
	}
}

func TestCreditsAreMonotoneAdditiveAndDoNotWrap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) usage.Weight {
			return usage.Thousandths(rapid.Int64Range(0, 100_000).Draw(t, name))
		}
		credits := usage.Credits{
			Input: draw("input"), CachedInput: draw("cached"), CacheWrite: draw("write"), Output: draw("output"), Thoughts: draw("thoughts"),
		}
		cost := func(d disjoint) int64 {
			n, err := credits.Cost(d.usage())
			if err != nil || n < 0 {
				t.Fatalf("%v costs %d, %v", d, n, err)
			}
			return n
		}
		a, b := drawParts(t, "tokens", 1_000_000), drawParts(t, "other", 1_000_000)
		var sum disjoint
		for i := range sum {
			sum[i] = a[i] + b[i]
			more := a
			more[i] += b[i]
			if cost(more) < cost(a) {
				t.Fatalf("%v costs less than %v", more, a)
			}
		}
		if apart, together := cost(a)+cost(b), cost(sum); apart < together || apart > together+1 {
			t.Fatalf("%v and %v cost %d apart and %d together", a, b, apart, together)
		}
	})
	one := usage.Credits{Input: weight("1"), Output: weight("1")}
	if got, err := one.Cost(usage.Usage{Input: math.MaxInt64}); err != nil || got != math.MaxInt64 {
		t.Errorf("the largest count costs %d, %v", got, err)
	}
	for _, u := range []usage.Usage{
		{Input: math.MaxInt64, Output: 1},
		{CachedInput: math.MaxInt64, CacheWrite: math.MaxInt64},
	} {
		if got, err := one.Cost(u); !errors.Is(err, usage.ErrOverflow) || got != 0 {
			t.Errorf("%v costs %d, %v", u, got, err)
		}
	}
	heavy := usage.Credits{Input: usage.Thousandths(math.MaxInt64), Output: usage.Thousandths(math.MaxInt64)}
	if got, err := heavy.Cost(usage.Usage{Input: math.MaxInt64, Output: math.MaxInt64}); !errors.Is(err, usage.ErrOverflow) {
		t.Errorf("the heaviest call costs %d, %v", got, err)
	}
}
