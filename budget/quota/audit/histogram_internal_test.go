package audit

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestBucketsAreInOrderAndNoMoreThanASixteenthWide(t *testing.T) {
	t.Parallel()
	last := int64(-1)
	for bucket := range 960 {
		u := upper(bucket)
		if u <= last || bucketOf(u) != bucket || bucketOf(last+1) != bucket {
			t.Fatalf("bucket %d reaches from %d to %d, which are in %d and %d", bucket, last+1, u, bucketOf(last+1), bucketOf(u))
		}
		last = u
	}
	if last != math.MaxInt64 {
		t.Errorf("the last bucket ends at %d", last)
	}
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.Int64Range(0, math.MaxInt64).Draw(rt, "n")
		if u := upper(bucketOf(n)); u < n || float64(u-n) > float64(n)/16 {
			rt.Fatalf("%d is read as %d", n, u)
		}
	})
}
