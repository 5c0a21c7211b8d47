package audit

import (
	"math"
	"math/bits"
)

// histogram keeps whole numbers in buckets: those below 32 each in one of its own, and
// 16 buckets of equal width for each power of two above. Its quantiles are never too
// low, and too high by less than 1/16. The idea is that of DDSketch (Masson, Rim and
// Lee, VLDB 2019); its memory is bounded by 960 buckets.
type histogram struct {
	counts  map[int]int64
	n, most int64
}

const (
	// exact is up to where numbers have buckets of their own.
	exact = 32
	// octave is how many buckets there are between a power of two and the next.
	octave = 16
)

// bucketOf is the bucket of a number.
func bucketOf(n int64) int {
	if n < exact {
		return int(max(n, 0))
	}
	top := bits.Len64(uint64(n)) - 1 // at least 5
	return exact + (top-5)*octave + int(n>>(top-4))&(octave-1)
}

// upper is the largest number of a bucket.
func upper(bucket int) int64 {
	if bucket < exact {
		return int64(bucket)
	}
	top, part := (bucket-exact)/octave+5, (bucket-exact)%octave
	return int64(uint64(octave+part+1)<<(top-4) - 1)
}

// add adds a number.
func (h *histogram) add(n int64) {
	if h.counts == nil {
		h.counts = map[int]int64{}
	}
	h.counts[bucketOf(n)]++
	h.n++
	h.most = max(h.most, n)
}

// quantile is a number that at least a part q of all numbers does not exceed; 0 if
// there are none.
func (h *histogram) quantile(q float64) int64 {
	if h.n == 0 {
		return 0
	}
	rank := max(int64(math.Ceil(q*float64(h.n))), 1)
	for bucket := 0; ; bucket++ {
		if rank -= h.counts[bucket]; rank <= 0 {
			return min(upper(bucket), h.most)
		}
	}
}
