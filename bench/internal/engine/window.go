package engine

import (
	"math"
	"math/bits"
	"sort"
	"time"
)

// never is the answer to "when does it fit?" for what is larger than the whole
// limit.
const never = time.Duration(math.MaxInt64)

// window enforces a limit. Instants are durations since its start; they must
// not go back. It is not safe for concurrent use.
type window interface {
	// fits returns the earliest instant, not before now, at which amount could
	// be counted within the limit if nothing else were counted before: now
	// itself where it fits at once, never where it is above the limit.
	fits(now time.Duration, amount int64) time.Duration
	// count counts amount at now, whether it fits or not.
	count(now time.Duration, amount int64)
	// left returns what could be counted at now; negative where more was counted
	// than the limit.
	left(now time.Duration) int64
}

// sliding is an exact log of the last length of time.
type sliding struct {
	limit  int64
	length time.Duration

	log  []counted // from head on: what still counts, oldest first
	head int
	// total is the sum of everything that was ever counted.
	total int64
}

type counted struct {
	at time.Duration
	// before is the sum of everything that was counted earlier. Differences of
	// such sums give the use of any stretch of the log without adding it up.
	before int64
}

func (w *sliding) fits(now time.Duration, amount int64) time.Duration {
	if amount > w.limit {
		return never
	}
	w.expire(now)
	over := w.used() + amount - w.limit
	if over <= 0 {
		return now
	}
	// The call fits when the shortest prefix of the log that sums up to the
	// excess has left the window.
	live := w.log[w.head:]
	i := sort.Search(len(live), func(i int) bool {
		through := w.total
		if i+1 < len(live) {
			through = live[i+1].before
		}
		return through-live[0].before >= over
	})
	return live[i].at + w.length
}

func (w *sliding) count(now time.Duration, amount int64) {
	w.expire(now)
	w.log = append(w.log, counted{at: now, before: w.total})
	w.total += amount
}

func (w *sliding) used() int64 {
	if w.head == len(w.log) {
		return 0
	}
	return w.total - w.log[w.head].before
}

func (w *sliding) expire(now time.Duration) {
	for w.head < len(w.log) && w.log[w.head].at <= now-w.length {
		w.head++
	}
	if w.head > 64 && w.head > len(w.log)/2 { // each entry is moved at most once on average
		w.log = w.log[:copy(w.log, w.log[w.head:])]
		w.head = 0
	}
}

// bounds returns the window that holds an instant, as a half-open interval.
type bounds func(now time.Duration) (start, end time.Duration)

// fixedBounds cuts time into windows of one length with a border at offset.
func fixedBounds(length, offset time.Duration) bounds {
	offset %= length
	return func(now time.Duration) (start, end time.Duration) {
		since := now - offset
		if since < 0 { // before the first border
			return offset - length, offset
		}
		start = offset + since/length*length
		return start, start + length
	}
}

// dailyBounds cuts time at every midnight of the zone. Days pass speed times as
// quickly as on the wall, beginning with the true date and time at epoch.
func dailyBounds(epoch time.Time, speed float64, zone *time.Location) bounds {
	lengthen := func(d time.Duration) time.Duration { return saturate(math.Floor(float64(d) * speed)) }
	// instant is the first one at which so much has passed at speed.
	instant := func(passed time.Duration) time.Duration {
		at := saturate(math.Ceil(float64(passed) / speed))
		for lengthen(at) < passed { // floating-point numbers may miss by one
			at++
		}
		for lengthen(at-1) >= passed {
			at--
		}
		return at
	}
	epoch = epoch.Round(0) // dates are read off the wall clock, never off the monotonic one
	return func(now time.Duration) (start, end time.Duration) {
		year, month, day := epoch.Add(lengthen(now)).In(zone).Date()
		from := time.Date(year, month, day, 0, 0, 0, 0, zone)
		to := time.Date(year, month, day+1, 0, 0, 0, 0, zone) // 23 to 25 hours later
		return instant(from.Sub(epoch)), instant(to.Sub(epoch))
	}
}

// fixed counts from zero in every window of its bounds.
type fixed struct {
	limit  int64
	bounds bounds

	end  time.Duration // of the window that used belongs to
	used int64
}

func (w *fixed) fits(now time.Duration, amount int64) time.Duration {
	if amount > w.limit {
		return never
	}
	w.turn(now)
	if w.used+amount <= w.limit {
		return now
	}
	return w.end
}

func (w *fixed) count(now time.Duration, amount int64) {
	w.turn(now)
	w.used += amount
}

func (w *fixed) turn(now time.Duration) {
	if now >= w.end {
		_, w.end = w.bounds(now)
		w.used = 0
	}
}

// bucket refills limit in length, continuously, up to limit. It is exact: its
// level is kept in whole units and the fraction of a unit as a numerator over
// length.
type bucket struct {
	limit  int64
	length time.Duration

	level    int64 // may be negative where calls are counted at completion
	fraction uint64
	at       time.Duration // of level and fraction
}

func (w *bucket) fits(now time.Duration, amount int64) time.Duration {
	if amount > w.limit {
		return never
	}
	w.refill(now)
	missing := amount - w.level
	if missing <= 0 {
		return now
	}
	// Wait for the smallest d with fraction + d·limit ≥ missing·length.
	hi, lo := bits.Mul64(uint64(missing), uint64(w.length))
	lo, borrow := bits.Sub64(lo, w.fraction, 0)
	hi -= borrow
	if hi >= uint64(w.limit) {
		return never - 1 // some day: the debt is beyond the range of durations
	}
	d, rest := bits.Div64(hi, lo, uint64(w.limit))
	if rest > 0 {
		d++
	}
	if d > uint64(never-1-now) {
		return never - 1
	}
	return now + time.Duration(d)
}

func (w *bucket) count(now time.Duration, amount int64) {
	w.refill(now)
	w.level -= amount
}

func (w *bucket) refill(now time.Duration) {
	passed := now - w.at
	if passed <= 0 {
		return
	}
	w.at = now
	hi, lo := bits.Mul64(uint64(passed), uint64(w.limit))
	lo, carry := bits.Add64(lo, w.fraction, 0)
	hi += carry
	if hi < uint64(w.length) {
		units, fraction := bits.Div64(hi, lo, uint64(w.length))
		if units < uint64(w.limit-w.level) {
			w.level += int64(units)
			w.fraction = fraction
			return
		}
	}
	w.level, w.fraction = w.limit, 0
}
