package engine

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTheBordersBetweenPartsCount(t *testing.T) {
	t.Parallel()
	if DigestOf([]byte("ab"), []byte("c")) == DigestOf([]byte("a"), []byte("bc")) {
		t.Error("(ab, c) and (a, bc) have one digest")
	}
	if again := []byte("ab"); DigestOf([]byte("ab")) != DigestOf(again) {
		t.Error("one text has two digests")
	}
}

func TestDrawsDependOnSeedContentPurposeOrdinalAndNameOnly(t *testing.T) {
	t.Parallel()
	a, b := DigestOf([]byte("a")), DigestOf([]byte("b"))
	base := newDraw(1, a, "serve", 0).Uniform("x")
	if again := newDraw(1, a, "serve", 0); again.Uniform("y") == base || again.Uniform("x") != base {
		t.Error("the number x changed after the number y was drawn, or equals it")
	}
	others := map[string]float64{
		"seed":    newDraw(2, a, "serve", 0).Uniform("x"),
		"content": newDraw(1, b, "serve", 0).Uniform("x"),
		"purpose": newDraw(1, a, "fault", 0).Uniform("x"),
		"ordinal": newDraw(1, a, "serve", 1).Uniform("x"),
	}
	for what, u := range others {
		if u == base {
			t.Errorf("another %s draws the same number", what)
		}
	}
}

// The figures were computed with SHA-256 and a normal quantile of another
// language's library. They keep runs of different versions comparable.
func TestDrawsNeverChangeFromVersionToVersion(t *testing.T) {
	t.Parallel()
	d := newDraw(1, DigestOf([]byte("call")), "serve", 0)
	if got, want := fmt.Sprintf("%.12f %d", d.Uniform("x"), d.IntN("y", 1000)), "0.362601149703 938"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := fmt.Sprintf("%.9f", d.LogNormal("z", 8, 0.5)), "5.314853403"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestLogNormalNumbersHaveTheirMedianAndSpread(t *testing.T) {
	t.Parallel()
	const n, median, sigma = 4000, 8.0, 0.5
	d := newDraw(3, Digest{}, "serve", 0)
	var logs []float64
	for i := range n {
		logs = append(logs, math.Log(d.LogNormal(fmt.Sprint(i), median, sigma)))
	}
	slices.Sort(logs)
	// The standard error of a median is 1.25·σ/√n, of a standard deviation σ/√(2n): 4 of them.
	if got := math.Exp(logs[n/2]); math.Abs(math.Log(got/median)) > 4*1.25*sigma/math.Sqrt(n) {
		t.Errorf("median %v, want about %v", got, median)
	}
	var mean, square float64
	for _, x := range logs {
		mean += x / n
	}
	for _, x := range logs {
		square += (x - mean) * (x - mean) / n
	}
	if got := math.Sqrt(square); math.Abs(got-sigma) > 4*sigma/math.Sqrt(2*n) {
		t.Errorf("sigma %v, want about %v", got, sigma)
	}
	if got := d.LogNormal("x", median, 0); got != median {
		t.Errorf("without spread got %v, want the median %v", got, median)
	}
}

func TestNumbersStayInTheirRanges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := newDraw(rapid.Uint64().Draw(t, "seed"), DigestOf(), "serve", 0)
		name := rapid.String().Draw(t, "name")
		if u := d.Uniform(name); u <= 0 || u >= 1 {
			t.Fatalf("uniform number %v", u)
		}
		n := rapid.IntRange(-1, 10).Draw(t, "n")
		if i := d.IntN(name, n); i < 0 || n > 0 && i >= n || n <= 0 && i != 0 {
			t.Fatalf("IntN(%d) = %d", n, i)
		}
		median := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "median"))
		if got := d.duration(name, median, maxSigma); got < 0 {
			t.Fatalf("duration %v", got)
		}
	})
}

func TestACallIsRememberedUntilManyOthersCame(t *testing.T) {
	t.Parallel()
	digest := func(i int) Digest { return DigestOf(fmt.Append(nil, i)) }
	const remembered = 100
	h := history{size: remembered}
	h.next(digest(0))
	h.served(digest(0))
	for i := 1; i < remembered; i++ {
		h.next(digest(i))
	}
	if got, want := h.next(digest(0)), (occurrence{tried: 1, served: 1}); got != want {
		t.Errorf("after %d other calls: %+v, want %+v", remembered-1, got, want)
	}
	for i := 1; i <= 3*remembered; i++ {
		h.next(digest(-i))
	}
	if got := h.next(digest(0)); got != (occurrence{}) {
		t.Errorf("after %d other calls: %+v, want nothing: memory is bounded", 3*remembered, got)
	}
	if n := len(h.young) + len(h.old); n > 2*remembered {
		t.Errorf("history keeps %d calls, at most %d expected", n, 2*remembered)
	}
}
