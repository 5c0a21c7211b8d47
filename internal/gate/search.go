package gate

import (
	"math"
	"time"
)

// Search says that nobody has told how many units of a Dim there are per window.
// They are found: the limit grows as long as nothing is refused, the faster the
// less is known, and is cut where something is. A provider never says that it has
// room, so the search probes, and what it costs is refusals; see search.
//
// The Dim's Limiter should be a bucket, because calls that come at an even rate
// suit every kind of window. Its Limit is the most that is ever looked for. It may
// count them in a longer window than the provider does, so that a limit of less
// than one call per window can be found, too.
type Search struct {
	// Window is the time in which the provider counts.
	Window time.Duration
	// Start is the number of units per Window to begin with; 0 is ten calls of the
	// size of the first one.
	Start int64
	// Least is the number of units per Window that the provider is known to give to
	// all replicas together. No cut takes more than the rest, and of a replica more
	// than the rest of its part. 0 if nothing is known.
	Least int64
	// Sliding: the provider counts what happened in the last window. Where the limit
	// is told after all, calls are then paced: a bucket that holds a whole window's
	// units would let twice as many pass in one window.
	Sliding bool
}

// Constants of the search. Those without another source were chosen by
// bench/internal/adaptive, where each can be varied: one client and up to a
// hundred that do not know of each other, before buckets of three depths, sliding
// and fixed windows, with hints and without, refusals counted and not.
const (
	// startCalls is the limit to begin with.
	startCalls = 10

	// While the limit is on its way up (slow start, RFC 5681, section 3.1), every unit
	// that is served adds rampGain units to it, so that it doubles in Window·ln 2 ÷ 4,
	// ten seconds of a minute. It does so only while a part of it is used, or a
	// program that is quiet would find limits that it has never tried.
	rampGain = 4
	rampUse  = 1.0 / 4

	// probeTime is how long a limit of probeCalls calls per window would take to
	// grow by itself, where hardly anything is refused: T_probe = 600 s for a minute,
	// as in D. Chiu and R. Jain's additive increase (1989) of a = Q/T_probe. Q is not
	// known, and a whole limit of one's own would be no additive increase: then a
	// refusal that all see at the same time, as at the end of a fixed minute, never
	// evens out who has more. An increase by its square root does.
	probeTime    = 600 * time.Second
	probeWindows = 10
	probeCalls   = 60
	probeUse     = 1.0 / 2 // the part of a limit that must be in use, or it does not grow

	// N clients that share a quota meet N² times the refusals of one (the drift of
	// each, Q/T_probe, is paid for by p·x²·(1−β), where x is Q/N). Nobody knows N, but
	// everybody sees the refusals: the probe time grows with their share beyond
	// fewRefusals, up to mostProbe times.
	fewRefusals = 0.005
	mostProbe   = 16

	// A cut takes cutPerRefusal times the share of refusals, within these bounds. One
	// client alone sees one in a thousand, and must not leave a third of the quota for
	// that; of many each must make room for the others.
	cutPerRefusal = 10
	leastCut      = 0.03
	mostCut       = 1 - cutFactor

	// rampCut is the part of what is being served down to which the cuts go that end
	// a ramp: much of it comes from what a bucket had in store.
	rampCut = 0.5

	// shareCalls is how many calls the share of refusals remembers, about, and
	// leastCalls how many it takes to speak of one.
	shareCalls = 400
	leastCalls = 100

	// A limit that was not refused for so long, in probe times, and so many calls has
	// been raised since, most likely: it grows faster, with the square of both.
	hasteAfter = 1.0 / 2
	hasteCalls = 500

	// rowBefore is how often calls may be refused, one after the other with none
	// served in between, before the gate pauses: the limit of this window is used up,
	// and whatever is sent is refused.
	rowBefore = 3
)

// search is what is known of a Dim's limit that nobody has told.
//
// Let n be the limit in calls of the usual size per window W, p the share of runs
// of refusals in all calls, and T the probe time (600 s for a minute). Then
//
//	each served unit adds   (W/T) · √(60/n) / max(1, min(p/0.005, 16))   units per window,
//	a refusal takes         max(3 %, min(10·p, 30 %))
//
// once per epoch: calls that were sent before the last cut do not count. Further
// refusals in the same window take the limit no lower than that below what was
// served in the last window, for where a window of the provider is used up all
// calls are refused, and that says nothing of the rate. What was served in the last
// window is the quota, or one's share of it, whenever calls are refused; except
// where it comes from a bucket's store.
//
// Nothing here looks at how long calls take.
type search struct {
	Search
	most  float64 // units per Window, the limiter's
	quota float64 // the limit as the order and the ceilings know it

	ramp    float64 // the limit grows quickly up to this one
	ramping bool    // the cuts that end such a growth are not over
	cost    float64 // mean of a served call's

	calls, runs float64 // that the provider has decided about, and runs of refusals among them
	since       float64 // calls served since the last cut
	row         int     // cuts since a call was served

	from          int64   // when the current window began
	served, older float64 // units in it and in the one before

	taken taken // for a limit that is told
}

func (d *dim) initSearch(s *Search) {
	d.span = s.Window
	d.search = &search{
		Search: *s, ramp: math.Inf(1), taken: newTaken(s.Window),
		most: float64(d.Limit()) * (float64(s.Window) / float64(d.window)),
	}
	if s.Start > 0 {
		d.share = min(1, float64(s.Start)/d.search.most)
		d.Scale(time.Time{}, d.share)
		d.search.quota = d.found()
	}
}

// found is the limit in force, in units per Search.Window.
func (d *dim) found() float64 { return d.share * d.search.most }

// quotaOf is the number of units that a Dim has per window.
func (d *dim) quotaOf() (units float64, window time.Duration) {
	switch s := d.search; {
	case s != nil:
		return s.quota, s.Window
	case d.span != d.window:
		return float64(d.Limit()) * (float64(d.span) / float64(d.window)), d.span
	}
	return float64(d.Limit()), d.window
}

// ofLimiter is a limit per window of the provider, per window of the limiter.
func (d *dim) ofLimiter(limit int64) int64 {
	if d.span == d.window {
		return limit
	}
	return int64(min(float64(limit)*(float64(d.window)/float64(d.span)), 1<<62))
}

// meet sets the limits that are to be found to a number of calls of the first size.
func (c *Core) meet(now time.Time, costs []int64) {
	for i, cost := range costs {
		if d := &c.dims[i]; cost > 0 && d.search != nil && d.search.quota == 0 {
			c.setFound(now, i, startCalls*float64(cost))
		}
	}
}

// setFound puts a limit in force. The order and the ceilings follow in steps.
func (c *Core) setFound(now time.Time, i int, limit float64) {
	d := &c.dims[i]
	s := d.search
	d.share = min(1, max(limit/s.most, 1/float64(d.Limit())))
	d.Scale(now, d.share)
	if limit = d.found(); limit <= s.quota*1.1 && limit >= s.quota/1.1 {
		return
	}
	s.quota = limit
	c.newRates()
	for r := range c.ceilings() {
		r.setLimit(now, i, int64(max(limit, 1)))
		c.unpark(r)
	}
}

// usage is what was served in the last window, as far as two windows tell.
func (s *search) usage(ns int64) float64 {
	if n := (ns - s.from) / int64(s.Window); n > 0 {
		if s.older = s.served; n > 1 {
			s.older = 0
		}
		s.served = 0
		s.from += n * int64(s.Window)
	}
	return s.served + s.older*(1-float64(ns-s.from)/float64(s.Window))
}

// decided counts a call that the provider has served or refused.
func (s *search) decided() {
	if s.calls >= shareCalls {
		s.calls /= 2
		s.runs /= 2
	}
	s.calls++
}

// refusals is the share of runs of refusals.
func (s *search) refusals() float64 { return s.runs / max(s.calls, leastCalls) }

// probe is the probe time where little is refused.
func (s *search) probe() float64 { return max(float64(probeTime), probeWindows*float64(s.Window)) }

// grow tells that the provider has served a call of i-th Dim's cost.
func (c *Core) grow(now time.Time, ns int64, i int, cost float64) {
	d := &c.dims[i]
	s := d.search
	s.decided()
	s.row = 0
	s.since++
	if s.cost == 0 {
		s.cost = cost
	}
	s.cost += (cost - s.cost) * holdAlpha
	s.usage(ns)
	s.served += cost
	limit, use := d.found(), s.usage(ns)
	switch {
	case limit < s.ramp:
		if use < rampUse*limit {
			return
		}
		limit += rampGain * cost
	case use < probeUse*limit:
		return
	default:
		slower := min(max(1, s.refusals()/fewRefusals), mostProbe)
		haste := min(float64(ns-d.lastCut)/(hasteAfter*s.probe()), s.since/hasteCalls)
		limit += cost * float64(s.Window) / (s.probe() * slower) * math.Sqrt(probeCalls*s.cost/limit) * max(1, haste*haste)
	}
	c.setFound(now, i, limit)
}

// cutFound is Cut for a Dim that is searched for.
func (c *Core) cutFound(now time.Time, ns int64, k *call, i int) (row int) {
	d, cost := &c.dims[i], c.costs(k)[i]
	s := d.search
	if cost <= 0 || k.is(settled) {
		return 0
	}
	if k.flight.refused&dimBit(i) == 0 {
		k.flight.refused |= dimBit(i)
		s.decided()
	}
	d.dry(now, k, i, cost-1)
	if k.flight.started <= d.lastCut {
		return 0
	}
	first := d.lastCut < 0 || ns-d.cutFrom > int64(s.Window)
	limit, use := d.found(), s.usage(ns)
	if first {
		d.uncut, d.cutFrom = d.share, ns
		s.runs++
		s.ramping = false
	}
	s.ramping = s.ramping || limit < s.ramp
	if use > 0 {
		s.ramp = 0
	} else { // nothing is known of the rate: back to where it was, or half of it
		s.ramp = max(s.ramp, limit/2)
	}
	s.since = 0
	s.row++
	d.lastCut, d.looked = ns, ns
	keep := 1 - min(max(cutPerRefusal*s.refusals(), leastCut), mostCut)
	if s.ramping {
		use *= rampCut
	} else {
		if s.older > 0 { // bursts that repeat each window may be in the estimate twice
			use = min(use, s.older)
		}
		if first {
			use = min(use, limit)
		}
		use *= keep
	}
	least := float64(s.Least) / float64(c.replicas)
	c.setFound(now, i, max(min(limit, use), (1-mostCut)*limit, min(limit, least)))
	return max(0, s.row-rowBefore)
}

// dry takes from a limiter what it still thinks is left: the provider has said
// that there is nothing, or the limit was closed and nobody knows what has come
// together meanwhile.
func (d *dim) dry(now time.Time, k *call, i int, left int64) {
	if e, ok := d.Limiter.(emptier); ok {
		e.Emptied(now, k.flight.holds[i], left)
	}
}

// startSlots is the number of slots with which the search for them begins.
const startSlots = 10

// slotsCut is what a refusal for want of a place leaves of the slots that were
// found: AIMD with β = 0.9 and +1/L per success uses 97 % of 20 places at 2.3 % of
// refusals, and 95.5 % of 100 at 0.1 %; with β = 0.7 it uses 88 % and 85 %.
const slotsCut = 0.9

// slotsFound grows the slots that were found, when the provider has begun to answer
// a call while at least half of them are in use: by one per round of calls, or, until
// the first cut, twofold.
func (c *Core) slotsFound(k *call) {
	if c.share < 1 || 2*c.inUse < c.limit {
		return
	}
	more := float64(k.slots)
	if !c.ramp {
		more /= c.found
	}
	c.setFoundSlots(min(c.found+more, float64(c.most)))
}

// Crowded answers a refusal for want of a place at the provider: it cuts the slots
// that were found, once per epoch like Cut. Where the number of slots is known it is
// CutSlots.
func (c *Core) Crowded(now time.Time, id ID) {
	if !c.cfg.SearchSlots {
		c.CutSlots(now, id)
		return
	}
	k := id.running()
	if k == nil || k.flight.started <= c.foundCut {
		return
	}
	c.foundCut, c.ramp = c.at(now), false
	c.setFoundSlots(max(c.found*slotsCut, 1))
}

func (c *Core) setFoundSlots(n float64) {
	c.found = n
	limit := int64(n)
	if limit == c.limit {
		return
	}
	c.limit = limit
	c.setShare(c.share)
	if q := c.quotaSlots; 10*limit > 11*q || 11*limit < 10*q {
		c.quotaSlots = limit
		c.newRates()
	}
}

// SetReplicas tells how many replicas share the quota without telling each other
// what they use. All of them together must be able to cut to less than the provider
// gives, so what a cut leaves of a limit at least is divided by them.
func (c *Core) SetReplicas(n int) { c.replicas = max(n, 1) }
