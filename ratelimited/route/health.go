package route

import (
	"math"
	"math/rand/v2"
	"time"
)

// When a route is left out, and for how long.
const (
	// mostStrikes is how many failures in a row take a route out. It is the default
	// of Envoy's outlier detection (consecutive_5xx), and what a gate takes for an
	// outage.
	mostStrikes = 5
	// The first pause, what it grows by with each probe that fails, the longest one,
	// and by how much each is spread: the numbers of gRPC's connection backoff
	// (grpc/doc/connection-backoff.md).
	firstPause  = time.Second
	pauseGrowth = 1.6
	longPause   = 2 * time.Minute
	pauseSpread = 0.2
	// probePatience is how long a probe that is not answered keeps the next one
	// back, as in a gate.
	probePatience = 30 * time.Second
)

// blow is what a failed call says of its route.
type blow uint8

const (
	// neutral says nothing of the route.
	neutral blow = iota
	// answered is an error with which the provider shows that it works.
	answered
	// refused is a refusal for the moment. Calls that were sent together are often
	// refused together, while others of them are served.
	refused
	// failed is what should not happen.
	failed
	// exhausted is a refusal that will last.
	exhausted
)

// health is what is known of whether a route works. Times are after the pool's
// epoch. The table's mu guards it.
type health struct {
	strikes int           // failures in a row
	struck  time.Duration // when the last one came
	out     bool          // it is left out
	since   time.Duration // since when, or since the last probe failed
	until   time.Duration // nobody tries before that
	pauses  int           // in a row
	probe   uint64        // the attempt that tries; 0 is none
	tried   time.Duration // when it began
}

// open reports whether a call may take the route: it works, or may be tried.
func (h *health) open(now time.Duration) bool {
	return !h.out || now >= h.until && (h.probe == 0 || now-h.tried >= probePatience)
}

// served notes that the provider has answered a call that began at that time. It
// reports whether that brings the route back: a call that was sent before it was
// left out does not.
func (h *health) served(began time.Duration) (back bool) {
	if h.out && began < h.since {
		return false
	}
	back = h.out
	*h = health{struck: h.struck}
	return back
}

// hit notes a failure of a call that began at that time; the provider asks to be
// left alone for at least hint. It reports whether the route is left out from
// now on.
func (h *health) hit(now, began time.Duration, b blow, hint time.Duration) (leftOut bool) {
	if h.out {
		if began >= h.since && now >= h.until {
			h.pause(now, hint)
		}
		return false
	}
	if b == refused && h.strikes > 0 && began <= h.struck {
		return false // it was sent before the last one was known, and says the same
	}
	h.strikes++
	h.struck = now
	if h.strikes < mostStrikes && b != exhausted {
		return false
	}
	h.out = true
	h.pause(now, hint)
	return true
}

func (h *health) pause(now, hint time.Duration) {
	h.since, h.probe = now, 0
	h.until = now + max(pauseAfter(h.pauses), spread(min(hint, longPause), 0, pauseSpread/2))
	h.pauses++
}

// pauseAfter is how long a route is left alone after so many pauses in a row.
func pauseAfter(n int) time.Duration {
	d := float64(firstPause) * math.Pow(pauseGrowth, float64(min(n, 64)))
	return spread(time.Duration(min(d, float64(longPause))), pauseSpread, pauseSpread)
}

// spread is a random time from d less a part of it to d and a part more.
func spread(d time.Duration, less, more float64) time.Duration {
	return time.Duration(float64(d) * (1 - less + rand.Float64()*(less+more)))
}

// try notes that an attempt takes a route that is left out: it is the probe.
func (h *health) try(now time.Duration, attempt uint64) {
	if h.out && h.open(now) {
		h.probe, h.tried = attempt, now
	}
}

// untried takes try back: nothing was found out.
func (h *health) untried(attempt uint64) {
	if h.probe == attempt {
		h.probe = 0
	}
}
