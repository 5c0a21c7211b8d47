package quota

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Bounds of what stands in for the ledger while it cannot be reached.
const (
	// fallbackShare is the part of a calendar limit that is let through at once.
	fallbackShare = 10
	// maxFallbacks is for how many counters there are buckets. One more takes the
	// place of any other.
	maxFallbacks = 1 << 14
	// quiet is how long no operation may have failed before an outage is over: of a
	// store that fails now and then, only one beginning and one end are told.
	quiet = 5 * time.Second
)

// outage knows whether the ledger can be reached, and what to do if it cannot.
type outage struct {
	e *Enforcer

	mu sync.Mutex
	// mu guards all that follows.
	down    bool
	began   time.Time
	failed  time.Time // last
	count   int64     // of operations that failed
	buckets map[Counter]*rate.Limiter
}

func (o *outage) init(e *Enforcer) { o.e = e }

// unreachable reports whether an error says that the ledger could not do its work,
// which is all that it can say but that it does not know a reservation.
func unreachable(err error) bool { return !errors.Is(err, ErrUnknownReservation) }

// note is told how an operation of the ledger ended. ctx is the caller's, whose end
// is no fault of the ledger.
func (o *outage) note(ctx context.Context, err error) {
	failed := err != nil && unreachable(err) && ended(ctx) == nil
	if err != nil && !failed {
		return
	}
	now := time.Now()
	o.mu.Lock()
	changed, lasted, count := false, time.Duration(0), o.count
	switch {
	case failed:
		changed = !o.down
		if changed {
			o.down, o.began, o.count = true, now, 0
		}
		if !errors.Is(err, errNotAsked) {
			o.failed = now
		}
		o.count++
	case o.down && now.Sub(o.failed) >= quiet:
		changed, o.down, o.buckets = true, false, nil
		lasted = now.Sub(o.began)
	}
	o.mu.Unlock()
	if !changed {
		return
	}
	if failed {
		o.e.cfg.Logger.Warn("quota: the ledger cannot be reached; the failure policies of limits decide",
			slog.Any("error", err))
	} else {
		o.e.cfg.Logger.Info("quota: the ledger can be reached again",
			slog.Duration("after", lasted), slog.Int64("failed", count))
		o.e.later.hurry()
	}
	o.e.outageChanged(failed, lasted, count)
}

// shortage is what a local bucket lacks of what was asked for.
type shortage struct {
	entry     int // which
	max, used int64
	retry     time.Duration // 0 is never
}

// fallBack takes entries out of local buckets, or none of them; it returns how the
// first one stands that has no room, if there is one. What is observed passes. An
// amount above a whole bucket takes the whole.
func (o *outage) fallBack(entries []Entry, now time.Time) (lack shortage, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.buckets == nil {
		o.buckets = map[Counter]*rate.Limiter{}
	}
	type taking struct {
		b *rate.Limiter
		n int
	}
	var all []taking
	for i := range entries {
		e := &entries[i]
		if e.Observe || e.Limit < 0 || e.Unit == ConcurrentTurns || e.Amount == 0 && e.Kind != Check {
			continue
		}
		b := o.bucket(e, now)
		n := max(int(min(e.Amount, int64(b.Burst()))), 1)
		left := b.TokensAt(now)
		if lacks := float64(n) - left; lacks > 0 {
			lack = shortage{entry: i, max: int64(b.Burst())}
			lack.used = lack.max - int64(max(left, 0))
			if b.Limit() > 0 {
				lack.retry = max(time.Duration(min(lacks/float64(b.Limit()), 3600)*float64(time.Second)), time.Millisecond)
			}
			return lack, false
		}
		if e.Kind != Check {
			all = append(all, taking{b, n})
		}
	}
	for _, t := range all {
		t.b.AllowN(now, t.n)
	}
	return shortage{}, true
}

// bucket is the local bucket of an entry's counter. mu is held.
func (o *outage) bucket(e *Entry, now time.Time) *rate.Limiter {
	per, burst := e.Per, e.Burst
	limit := e.Limit
	if e.Soft {
		if limit = e.Ceiling; limit < 0 {
			limit = MaxAmount
		}
	}
	if !e.Rolling {
		per, burst = e.Spans[1].End.Sub(e.Spans[1].Start), limit/fallbackShare
		if limit > 0 {
			burst = max(burst, 1)
		}
	}
	perSecond := rate.Limit(0)
	if per > 0 {
		perSecond = rate.Limit(float64(limit) / per.Seconds())
	}
	whole := int(min(burst, math.MaxInt))
	if b := o.buckets[e.Counter]; b != nil {
		if b.Limit() != perSecond || b.Burst() != whole { // the limit was changed meanwhile
			b.SetLimitAt(now, perSecond)
			b.SetBurstAt(now, whole)
		}
		return b
	}
	b := rate.NewLimiter(perSecond, whole)
	if len(o.buckets) >= maxFallbacks {
		for c := range o.buckets {
			delete(o.buckets, c)
			break
		}
	}
	o.buckets[e.Counter] = b
	return b
}
