package redisledger

import (
	"strconv"
	"time"
)

// time is what a script adds to the server's clock, in microseconds, or takes in its
// place if still is 1. Both are for tests.
func (l *Ledger) time() (offset int64, still byte) {
	if l.clock != nil {
		return l.clock().UnixMicro(), 1
	}
	return l.offset.Load(), 0
}

// saw notes the server's time, which was it when it answered or before.
func (l *Ledger) saw(now time.Time) {
	l.ahead.Store(now.UnixMicro() - time.Since(l.begun).Microseconds())
}

// hint is when a reservation of now expires, or a little before: the time at which the
// server has last answered is known, and how much has passed since. A script puts it into
// its index as it is, which is faster than to write a number, if it is neither late nor
// much too early; so it may be wrong. 0 is none.
func (l *Ledger) hint(ttl int64) int64 {
	ahead := l.ahead.Load()
	if ahead == 0 {
		return 0
	}
	score := ahead + time.Since(l.begun).Microseconds() + ttl
	if score < hintFrom || score >= 10*hintFrom {
		return 0
	}
	return score
}

// hintFrom is the first time with 16 digits; those up to 2286 have as many.
const hintFrom = 1_000_000_000_000_000

// appendDigits writes a hint in 16 digits.
func appendDigits(b []byte, score int64) []byte {
	if score == 0 {
		return append(b, "0000000000000000"...)
	}
	return strconv.AppendInt(b, score, 10)
}
