package usage_test

import (
	"math"
	"testing"

	"github.com/headgate-go/headgate/usage"
	"pgregory.net/rapid"
)

func TestTotalSaturates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		input, output, want int64
	}{
		{0, 0, 0},
		{3, 4, 7},
		{math.MaxInt64, 0, math.MaxInt64},
		{math.MaxInt64, 1, math.MaxInt64},
		{1, math.MaxInt64, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{math.MinInt64, -1, math.MinInt64},
		{-1, math.MinInt64, math.MinInt64},
		{math.MinInt64, math.MaxInt64, -1},
	} {
		if got := (usage.Usage{Input: c.input, Output: c.output}).Total(); got != c.want {
			t.Errorf("%d + %d = %d, want %d", c.input, c.output, got, c.want)
		}
	}
}

func TestNothingAboveZeroIsNotAReport(t *testing.T) {
	t.Parallel()
	for _, u := range []usage.Usage{
		{},
		{Flags: usage.Mismatch},
		{Input: -1, Output: -5, Flags: usage.Estimated},
	} {
		if !u.IsZero() {
			t.Errorf("%+v is not zero", u)
		}
	}
	for _, u := range []usage.Usage{{Input: 1}, {CachedInput: 1}, {CacheWrite: 1}, {Output: 1}, {Thoughts: 1}} {
		if u.IsZero() {
			t.Errorf("%+v is zero", u)
		}
	}
}

func TestHasNeedsAllFlags(t *testing.T) {
	t.Parallel()
	u := usage.Usage{Flags: usage.Estimated | usage.Mismatch}
	if !u.Has(usage.Estimated) || !u.Has(usage.Estimated|usage.Mismatch) {
		t.Error("set flags are not reported")
	}
	if u.Has(usage.TotalOnly) || u.Has(usage.TotalOnly|usage.Estimated) {
		t.Error("a flag that is not set is reported")
	}
}

func TestMaxUnitesReports(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		a, b, want usage.Usage
	}{
		{
			"each field on its own",
			usage.Usage{Input: 10, CachedInput: 4, CacheWrite: 1, Output: 7, Thoughts: 2},
			usage.Usage{Input: 12, CachedInput: 3, CacheWrite: 2, Output: 5, Thoughts: 3},
			usage.Usage{Input: 12, CachedInput: 4, CacheWrite: 2, Output: 7, Thoughts: 3},
		},
		{
			"a later, lower report takes nothing back",
			usage.Usage{Input: 30, Output: 20},
			usage.Usage{Input: 30, Output: 12},
			usage.Usage{Input: 30, Output: 20},
		},
		{
			"a real report ends an estimate",
			usage.Usage{Input: 90, Output: 1024, Flags: usage.Estimated},
			usage.Usage{Input: 80, Output: 2000, Flags: usage.Mismatch},
			usage.Usage{Input: 90, Output: 2000, Flags: usage.Mismatch},
		},
		{
			"no report ends no estimate",
			usage.Usage{Input: 90, Output: 1024, Flags: usage.Estimated},
			usage.Usage{},
			usage.Usage{Input: 90, Output: 1024, Flags: usage.Estimated},
		},
		{
			"a report of nothing ends no estimate, but is remembered",
			usage.Usage{Input: 90, Output: 1024, Flags: usage.Estimated},
			usage.Usage{Flags: usage.Mismatch},
			usage.Usage{Input: 90, Output: 1024, Flags: usage.Estimated | usage.Mismatch},
		},
		{
			"two estimates are an estimate",
			usage.Usage{Input: 5, Flags: usage.Estimated},
			usage.Usage{Output: 6, Flags: usage.Estimated},
			usage.Usage{Input: 5, Output: 6, Flags: usage.Estimated},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := c.a.Max(c.b); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// usages draws usages of small numbers, so that fields are often equal.
func usages() *rapid.Generator[usage.Usage] {
	return rapid.Custom(func(t *rapid.T) usage.Usage {
		n := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(-2, math.MaxInt64))
		return usage.Usage{
			Input:       n.Draw(t, "input"),
			CachedInput: n.Draw(t, "cached"),
			CacheWrite:  n.Draw(t, "written"),
			Output:      n.Draw(t, "output"),
			Thoughts:    n.Draw(t, "thoughts"),
			Flags:       usage.Flags(rapid.Uint8Range(0, 7).Draw(t, "flags")),
		}
	})
}

func TestMaxIsCommutativeAssociativeIdempotentAndMonotone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := usages().Draw(t, "a"), usages().Draw(t, "b"), usages().Draw(t, "c")
		ab := a.Max(b)
		if ba := b.Max(a); ab != ba {
			t.Fatalf("commutes to %+v, not %+v", ba, ab)
		}
		if left, right := ab.Max(c), a.Max(b.Max(c)); left != right {
			t.Fatalf("(ab)c = %+v, a(bc) = %+v", left, right)
		}
		if aa := a.Max(a); aa != a {
			t.Fatalf("aa = %+v", aa)
		}
		if again := ab.Max(b); again != ab {
			t.Fatalf("a chunk that is repeated changes %+v to %+v", ab, again)
		}
		for _, u := range []usage.Usage{a, b} {
			if ab.Input < u.Input || ab.CachedInput < u.CachedInput || ab.CacheWrite < u.CacheWrite ||
				ab.Output < u.Output || ab.Thoughts < u.Thoughts {
				t.Fatalf("%+v is less than %+v", ab, u)
			}
		}
	})
}

func TestZeroIsNeutralForMax(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		u := usages().Draw(t, "u").Clamp()
		if got := u.Max(usage.Usage{}); got != u {
			t.Fatalf("got %+v", got)
		}
	})
}

func TestClampTakesTheLargerReading(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		u, want usage.Usage
	}{
		{
			"a consistent usage is left alone",
			usage.Usage{Input: 10, CachedInput: 6, CacheWrite: 4, Output: 5, Thoughts: 5, Flags: usage.Estimated},
			usage.Usage{Input: 10, CachedInput: 6, CacheWrite: 4, Output: 5, Thoughts: 5, Flags: usage.Estimated},
		},
		{
			"negative output",
			usage.Usage{Input: 5, Output: -100},
			usage.Usage{Input: 5, Flags: usage.Mismatch},
		},
		{
			"negative input",
			usage.Usage{Input: -5, Output: 10},
			usage.Usage{Output: 10, Flags: usage.Mismatch},
		},
		{
			"negative parts",
			usage.Usage{Input: 5, CachedInput: -1, CacheWrite: math.MinInt64, Output: 5, Thoughts: -1},
			usage.Usage{Input: 5, Output: 5, Flags: usage.Mismatch},
		},
		{
			"more cached than there is",
			usage.Usage{Input: 10, CachedInput: 11},
			usage.Usage{Input: 11, CachedInput: 11, Flags: usage.Mismatch},
		},
		{
			"cache reads and writes are disjoint",
			usage.Usage{Input: 10, CachedInput: 6, CacheWrite: 5},
			usage.Usage{Input: 11, CachedInput: 6, CacheWrite: 5, Flags: usage.Mismatch},
		},
		{
			"more thoughts than output",
			usage.Usage{Output: 10, Thoughts: 12},
			usage.Usage{Output: 12, Thoughts: 12, Flags: usage.Mismatch},
		},
		{
			"parts beyond int64",
			usage.Usage{CachedInput: math.MaxInt64, CacheWrite: math.MaxInt64},
			usage.Usage{Input: math.MaxInt64, CachedInput: math.MaxInt64, CacheWrite: math.MaxInt64, Flags: usage.Mismatch},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := c.u.Clamp(); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestClampNeverLowersAndIsIdempotent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		u := usages().Draw(t, "u")
		got := u.Clamp()
		if got.Total() < u.Total() || got.Total() < 0 {
			t.Fatalf("total %d became %d", u.Total(), got.Total())
		}
		if again := got.Clamp(); again != got {
			t.Fatalf("%+v became %+v", got, again)
		}
		if !u.Has(usage.Mismatch) && got.Has(usage.Mismatch) != (got != u) {
			t.Fatalf("%+v became %+v: a mend without a flag, or a flag without a mend", u, got)
		}
	})
}

func TestSplitDividesATotalByTheEstimate(t *testing.T) {
	t.Parallel()
	est := func(input int64) usage.Usage {
		return usage.Usage{Input: input, Output: 1024, Flags: usage.Estimated}
	}
	for _, c := range []struct {
		name         string
		u, est, want usage.Usage
	}{
		{
			"the estimated input, the rest is output",
			usage.Usage{Output: 500, Flags: usage.TotalOnly}, est(300),
			usage.Usage{Input: 300, Output: 200, Flags: usage.Estimated},
		},
		{
			"no more input than the total",
			usage.Usage{Output: 500, Flags: usage.TotalOnly}, est(700),
			usage.Usage{Input: 500, Flags: usage.Estimated},
		},
		{
			"nothing estimated leaves all in output",
			usage.Usage{Output: 500, Flags: usage.TotalOnly}, usage.Usage{},
			usage.Usage{Output: 500, Flags: usage.Estimated},
		},
		{
			"a negative estimate is none",
			usage.Usage{Output: 500, Flags: usage.TotalOnly}, est(-1),
			usage.Usage{Output: 500, Flags: usage.Estimated},
		},
		{
			"thoughts stay output",
			usage.Usage{Output: 500, Thoughts: 400, Flags: usage.TotalOnly}, est(300),
			usage.Usage{Input: 100, Output: 400, Thoughts: 400, Flags: usage.Estimated},
		},
		{
			"other flags stay",
			usage.Usage{Output: 500, Flags: usage.TotalOnly | usage.Mismatch}, est(300),
			usage.Usage{Input: 300, Output: 200, Flags: usage.Estimated | usage.Mismatch},
		},
		{
			"a report with parts is left alone",
			usage.Usage{Input: 20, Output: 30}, est(300),
			usage.Usage{Input: 20, Output: 30},
		},
		{
			"merged with a report that had parts, it is left alone",
			usage.Usage{Input: 20, Output: 50, Flags: usage.TotalOnly}, est(300),
			usage.Usage{Input: 20, Output: 50, Flags: usage.TotalOnly},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := c.u.Split(c.est); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestSplitKeepsTheTotal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		u, est := usages().Draw(t, "u").Clamp(), usages().Draw(t, "est")
		u.Input -= rapid.SampledFrom([]int64{0, u.Input}).Draw(t, "input that is not known")
		got := u.Split(est)
		if got.Total() != u.Total() || got.Input < 0 || got.Output < got.Thoughts {
			t.Fatalf("%+v became %+v", u, got)
		}
	})
}

func TestStringHasTheNumbersThatMatter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		u    usage.Usage
		want string
	}{
		{usage.Usage{}, "input=0 output=0 total=0"},
		{usage.Usage{Input: 25, Output: 15}, "input=25 output=15 total=40"},
		{
			usage.Usage{Input: 1050, CachedInput: 800, CacheWrite: 7, Output: 500, Thoughts: 400, Flags: usage.Mismatch},
			"input=1050 cached=800 cache_write=7 output=500 thoughts=400 total=1550 mismatch",
		},
		{
			usage.Usage{Output: -1, Flags: usage.Estimated | usage.TotalOnly},
			"input=0 output=-1 total=-1 estimated,total_only",
		},
	} {
		if got := c.u.String(); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}
