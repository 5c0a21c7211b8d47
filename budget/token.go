package budget

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// DefaultWindow is the window of a limit that does not name one: providers
// publish their limits per minute.
const DefaultWindow = time.Minute

// TokenBudgetConfig describes a [TokenBudget].
type TokenBudgetConfig struct {
	// Burst is the capacity: how many units may be taken at once after a long
	// silence. Defaults to Limit, one window's worth.
	Burst int64
	// Limit is the number of units per Window. 0 lets nothing pass.
	Limit int64
	// Window is the time in which Limit units are refilled. Defaults to
	// [DefaultWindow].
	Window time.Duration
}

func (c TokenBudgetConfig) withDefaults() (TokenBudgetConfig, error) {
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	if c.Burst == 0 {
		c.Burst = c.Limit
	}
	switch {
	case c.Limit < 0:
		return c, fmt.Errorf("TokenBudgetConfig.Limit is %d, must not be negative", c.Limit)
	case c.Burst < 0:
		return c, fmt.Errorf("TokenBudgetConfig.Burst is %d, must not be negative", c.Burst)
	case c.Window < 0:
		return c, fmt.Errorf("TokenBudgetConfig.Window is %v, must not be negative", c.Window)
	}
	return c, nil
}

// TokenBudget is a token bucket in integers. It refills continuously, bursts up
// to its capacity, and goes negative when a call used more than its estimate;
// the debt is repaid by refill before anything else is admitted. A cost above
// the capacity waits for a full bucket and then goes into debt, so that a call
// larger than the bucket still runs.
//
// A refund is exact: afterwards the level is what it would be had the smaller
// cost been taken in the first place. The refill that would have flowed over a
// full bucket in the meantime does not come back with it, however late it
// arrives. An overrun is taken when it becomes known.
//
// A bucket of capacity C and rate r lets at most C + r·t units pass in any time
// t (plus one cost above the capacity, and what calls use above their
// estimates). With the default burst that is up to twice the limit in one
// window: right for a provider that enforces a bucket itself, such as Anthropic.
// For a provider that counts fixed or sliding windows use [WindowBudget], or set
// Limit and Burst so that Burst + Limit·(Window + delay)/Window stays within its
// quota, where delay is the longest time from the taking of a cost until the
// provider counts it.
//
// The arithmetic is exact: the fraction of a unit that has been refilled is
// kept as a numerator over the window in nanoseconds, so 30,000 units a minute
// are exactly 0.5 a millisecond and a year of refills does not drift. Values up
// to math.MaxInt64 do not overflow: what would take the level or the open holds
// beyond 64 bits is not booked.
//
// TokenBudget is a [Limiter] and is not safe for concurrent use.
type TokenBudget struct {
	clock
	made   TokenBudgetConfig // as built: the proportion of Burst to Limit
	limit  int64             // units per window
	burst  int64             // capacity at the full limit
	window int64             // nanoseconds

	rate     int64 // limit in force
	capacity int64 // burst in force
	level    int64 // whole units available; negative in debt
	part     int64 // numerator of the refilled fraction, over window; in [0, window)
	open     int64 // sum of the holds that are not settled

	// missing says what the bucket lacks to be full: in sum,
	// (capacity − level)·window − part.
	missing charges
	raised  map[int64]raise // by mark: the holds that were charged in parts
	lowered int64           // the mark from which on refunds count; see Lower
	told    int64           // the mark at which all holds were known to be counted; see Emptied
}

var _ Limiter = (*TokenBudget)(nil)

// NewTokenBudget returns a full bucket. The error names the field that is
// wrong and its value.
func NewTokenBudget(cfg TokenBudgetConfig) (*TokenBudget, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &TokenBudget{made: cfg, window: int64(cfg.Window)}
	b.limit, b.burst = cfg.Limit, cfg.burstAt(cfg.Limit)
	b.rate, b.capacity, b.level = b.limit, b.burst, b.burst
	return b, nil
}

// burstAt is the capacity at a limit, in the proportion of the configuration. A
// limit above 0 has at least 1.
func (c TokenBudgetConfig) burstAt(limit int64) int64 {
	switch {
	case limit == 0:
		return 0
	case c.Limit > 0:
		return max(1, mulDiv(c.Burst, limit, c.Limit))
	case c.Burst > 0:
		return c.Burst
	default:
		return limit
	}
}

// refill brings the level up to now. elapsed·rate is computed in 128 bits.
func (b *TokenBudget) refill(now time.Time) {
	elapsed := b.elapsed(now)
	if elapsed == 0 || b.level >= b.capacity {
		return
	}
	hi, lo := bits.Mul64(uint64(elapsed), uint64(b.rate))
	sum, carry := bits.Add64(lo, uint64(b.part), 0)
	hiSum := hi + carry
	if needHi, needLo := bits.Mul64(b.room(), uint64(b.window)); hiSum > needHi || hiSum == needHi && sum >= needLo {
		b.fill() // the common case of a bucket that seldom binds, without a division
		return
	}
	units, part := bits.Div64(hiSum, sum, uint64(b.window))
	b.level += int64(units)
	b.part = int64(part)
	b.missing.refill(hi, lo)
}

// room is what the bucket lacks to be full, in units; exact even when the level
// is very negative.
func (b *TokenBudget) room() uint64 { return uint64(b.capacity) - uint64(b.level) }

// fill makes the bucket full. A full bucket keeps no fraction.
func (b *TokenBudget) fill() {
	b.level, b.part = b.capacity, 0
	b.missing.clear()
}

// Fits implements [Limiter].
func (b *TokenBudget) Fits(now time.Time, cost int64) (bool, time.Time) {
	b.refill(now)
	if cost <= 0 {
		return true, time.Time{}
	}
	need := min(cost, b.capacity)
	if b.level >= need && b.capacity > 0 {
		return true, time.Time{}
	}
	wait, ok := b.timeTo(need, b.level)
	if !ok {
		return false, time.Time{}
	}
	return false, b.after(wait)
}

// timeTo is how long refilling from level to need takes, rounded up to the
// nanosecond; false if the bucket never refills.
func (b *TokenBudget) timeTo(need, level int64) (int64, bool) {
	if b.rate <= 0 || b.capacity <= 0 {
		return 0, false
	}
	hi, lo := bits.Mul64(uint64(need)-uint64(level), uint64(b.window))
	lo, borrow := bits.Sub64(lo, uint64(b.part), 0)
	hi -= borrow
	lo, carry := bits.Add64(lo, uint64(b.rate)-1, 0)
	hi += carry
	if hi >= uint64(b.rate) {
		return math.MaxInt64, true
	}
	q, _ := bits.Div64(hi, lo, uint64(b.rate))
	return int64(min(q, math.MaxInt64)), true
}

// Earliest implements [Limiter].
func (b *TokenBudget) Earliest(now time.Time, cost int64) (time.Time, bool) {
	b.refill(now)
	if cost <= 0 {
		return now, true
	}
	need := min(cost, b.capacity)
	level := min(satAdd(b.level, b.open), b.capacity)
	if level >= need && b.capacity > 0 {
		return now, true
	}
	wait, ok := b.timeTo(need, level)
	if !ok {
		return time.Time{}, false
	}
	return b.after(wait), true
}

// Take implements [Limiter].
func (b *TokenBudget) Take(now time.Time, cost int64) Hold {
	b.refill(now)
	return b.take(cost)
}

func (b *TokenBudget) take(cost int64) Hold {
	cost = b.bookable(min(cost, math.MaxInt64-b.open))
	if cost == 0 {
		return Hold{}
	}
	b.open += cost
	return Hold{cost: cost, mark: b.charge(cost, 1)}
}

// TryTake is Fits and Take in one step: it takes cost if it fits now. It does
// what a gate does for most calls, at about the price of one of the two.
func (b *TokenBudget) TryTake(now time.Time, cost int64) (Hold, bool) {
	b.refill(now)
	if cost > 0 && (b.level < min(cost, b.capacity) || b.capacity <= 0) {
		return Hold{}, false
	}
	return b.take(cost), true
}

// bookable is the part of cost that the level can still take without overflow.
func (b *TokenBudget) bookable(cost int64) int64 {
	if b.level >= 0 {
		return max(cost, 0)
	}
	return max(min(cost, b.level-math.MinInt64), 0)
}

// charge lowers the level by a positive amount, for so many holds (0 or 1).
func (b *TokenBudget) charge(units int64, holds int) int64 {
	b.level -= units
	hi, lo := bits.Mul64(uint64(units), uint64(b.window))
	return b.missing.add(hi, lo, holds)
}

// Counted implements [Limiter]; a bucket does not care.
func (b *TokenBudget) Counted(_ time.Time, h Hold) Hold { return h }

// Settle implements [Limiter].
func (b *TokenBudget) Settle(now time.Time, h Hold, actual int64) {
	actual = max(actual, 0)
	if h.cost > 0 && (h.mark <= b.told || h.mark <= b.lowered && actual < h.cost) {
		actual = h.cost
	}
	if actual == h.cost { // takes no time into account
		if h.cost > 0 {
			b.open -= h.cost
			mark := h.mark
			if len(b.raised) > 0 {
				mark, _ = b.refundRaised(mark, 0)
			}
			b.missing.settle(mark, 0, 0)
		}
		return
	}
	b.refill(now)
	if h.cost > 0 {
		b.open -= h.cost
		mark, units := h.mark, max(h.cost-actual, 0)
		if len(b.raised) > 0 {
			mark, units = b.refundRaised(mark, units)
		}
		b.refund(mark, units)
	}
	if over := b.bookable(actual - h.cost); over > 0 {
		b.charge(over, 0)
	}
}

// refund ends the hold with the given mark and raises the level by units, as
// far as refill has not done so already.
func (b *TokenBudget) refund(mark, units int64) {
	hi, lo := bits.Mul64(uint64(units), uint64(b.window))
	leftHi, leftLo := b.missing.settle(mark, hi, lo)
	if leftHi|leftLo == 0 {
		b.level += units
		return
	}
	lo, borrow := bits.Sub64(lo, leftLo, 0)
	hi -= leftHi + borrow
	lo, carry := bits.Add64(lo, uint64(b.part), 0)
	raised, part := bits.Div64(hi+carry, lo, uint64(b.window))
	b.level += int64(raised)
	b.part = int64(part)
}

// Level implements [Limiter].
func (b *TokenBudget) Level(now time.Time) int64 {
	b.refill(now)
	return b.level
}

// Limit implements [Limiter].
func (b *TokenBudget) Limit() int64 { return b.limit }

// Max implements [Limiter]: a cost above the capacity waits for a full bucket,
// so any cost fits unless the limit is 0.
func (b *TokenBudget) Max() int64 {
	if b.limit == 0 || b.burst == 0 {
		return 0
	}
	return math.MaxInt64
}

// SetLimit implements [Limiter]. The capacity changes in proportion; the level
// is kept, but never above the new capacity. A scale that was in force ends.
func (b *TokenBudget) SetLimit(now time.Time, limit int64) {
	b.limit = max(limit, 0)
	b.burst = b.made.burstAt(b.limit)
	b.inForce(now, b.limit, b.burst)
}

// SetBurst changes the capacity at the full limit, and with it the proportion of
// both that SetLimit keeps. A limit above 0 has at least 1.
func (b *TokenBudget) SetBurst(now time.Time, burst int64) {
	b.made.Limit, b.made.Burst = b.limit, max(burst, 0)
	b.SetLimit(now, b.limit)
}

// Scale implements [Limiter]. Rate and capacity are scaled alike.
func (b *TokenBudget) Scale(now time.Time, share float64) {
	b.inForce(now, scaled(b.limit, share), scaled(b.burst, share))
}

func (b *TokenBudget) inForce(now time.Time, rate, capacity int64) {
	b.refill(now)
	old := b.capacity
	b.rate, b.capacity = rate, capacity
	switch {
	case b.level >= capacity:
		b.fill()
	case capacity < old:
		b.missing.refill(bits.Mul64(uint64(old-capacity), uint64(b.window)))
	case capacity > old:
		hi, lo := bits.Mul64(uint64(capacity-old), uint64(b.window))
		b.missing.add(hi, lo, 0)
	}
}

// scaled is share × limit to the nearest unit; a limit above 0 stays above 0.
func scaled(limit int64, share float64) int64 {
	if share >= 1 || limit == 0 {
		return limit
	}
	if !(share > 0) {
		return 1
	}
	return max(1, min(limit, int64(math.Round(float64(limit)*share))))
}

// mulDiv is a·b/c for non-negative values, saturating.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}

func satAdd(a, b int64) int64 {
	switch s := a + b; {
	case a > 0 && b > 0 && s < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && s >= 0:
		return math.MinInt64
	default:
		return s
	}
}

func satSub(a, b int64) int64 {
	switch s := a - b; {
	case a >= 0 && b < 0 && s < 0:
		return math.MaxInt64
	case a < 0 && b > 0 && s >= 0:
		return math.MinInt64
	default:
		return s
	}
}
