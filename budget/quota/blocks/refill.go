package blocks

import (
	"math"
	"math/bits"

	"github.com/headgate-go/headgate/budget/quota"
)

// refillTime is how long a rolling counter takes to refill so many units, in
// nanoseconds, rounded up; math.MaxInt64 if that is for ever. Below 0 it is how long
// ago they began to flow over.
func refillTime(units int64, e *quota.Entry) int64 {
	if units <= 0 {
		floor, _ := mulDiv(-units, int64(e.Per), e.Limit)
		return -floor
	}
	floor, rest := mulDiv(units, int64(e.Per), e.Limit)
	if rest && floor < math.MaxInt64 {
		floor++
	}
	return floor
}

// refilled is how many units refill in so many nanoseconds, rounded down.
func refilled(nanos int64, e *quota.Entry) int64 {
	floor, _ := mulDiv(nanos, e.Limit, int64(e.Per))
	return floor
}

// mulDiv is a·b/c of numbers that are not negative, and whether there is a rest; at
// most math.MaxInt64, and that where c is 0.
func mulDiv(a, b, c int64) (floor int64, rest bool) {
	if a == 0 || b == 0 {
		return 0, false
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if c <= 0 || hi >= uint64(c) {
		return math.MaxInt64, false
	}
	q, r := bits.Div64(hi, lo, uint64(c))
	if q > math.MaxInt64 {
		return math.MaxInt64, false
	}
	return int64(q), r > 0
}

// sum is a + b of numbers that are not negative, at most math.MaxInt64.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
