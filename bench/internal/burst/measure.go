package burst

import (
	"math"
	"slices"
	"time"
)

// measure turns the log of a run into figures.
type measure struct {
	shape  *Shape
	window Window
	log    *log
	calls  []release     // as early as they can be asked for
	path   time.Duration // when the last would end if nothing waited
	slots  int           // of the policy; 0 where it has none
	gate   bool          // the policy mirrors the provider's quota
	guard  float64       // see Policy.guard
	mirror Window        // the window by which the policy goes
	delay  time.Duration // until a call is known to be counted there, at most
	end    time.Duration
}

func newMeasure(r *run, p Policy) *measure {
	m := &measure{shape: r.shape, window: r.window, log: &r.log, end: r.log.end(), guard: 1, mirror: r.window}
	m.calls, m.path = r.shape.releases(r.jobs)
	if !p.unbounded {
		m.slots = r.shape.Slots
	}
	if p.mirror != nil {
		m.gate, m.mirror = true, p.mirror(r.window)
		m.guard = p.guard(r.shape, r.window, m.calls)
		if m.mirror == slidingWindow {
			m.delay = r.shape.Delay + r.shape.Jitter + time.Duration(firstShare*float64(longest(m.calls)))
		}
	}
	return m
}

// metrics are all figures but the series.
func (m *measure) metrics() Metrics {
	var x Metrics
	var served float64
	var wasted, sent float64
	for _, r := range m.log.records {
		x.Calls++
		switch {
		case r.done:
			x.Completed++
		case len(r.attempts) == 0:
			x.Refused++
		default:
			x.Failed++
		}
	}
	m.log.attempts(func(r *record, a *attempt) {
		x.Attempts++
		sent += float64(r.call.tokens)
		if a.throttled {
			x.Throttled++
		}
		if !a.served {
			wasted += float64(r.call.tokens)
		} else if !m.shape.ended(a.decided) {
			served += float64(r.call.tokens)
		}
	})
	x.ThrottledPerAttempt = ratio(float64(x.Throttled), float64(x.Attempts))
	x.Wasted = ratio(wasted, sent)
	x.Guard = m.guard
	x.Share = ratio(served, m.shape.fluid(m.window, m.calls, 1))
	x.Goodput = ratio(served, m.shape.fluid(m.window, m.calls, m.guard))
	if m.shape.Stream == 0 && x.Completed == x.Calls && x.Calls > 0 {
		m.makespan(&x)
	}
	x.WaitP50, x.WaitP99 = m.waits()
	f := m.fairness()
	x.Jain, x.Gap, x.GapBound = f.jain(), f.gap(), m.gapBound()
	x.Idle = m.idle()
	x.MaxUse = m.maxUse()
	return x
}

// makespan fills in the time of the whole burst and its bound.
func (m *measure) makespan(x *Metrics) {
	first := time.Duration(math.MaxInt64)
	for _, c := range m.calls {
		first = min(first, c.at)
	}
	bound, quota := m.shape.lowerBound(m.window, m.calls, m.path, m.slots)
	x.Makespan, x.LowerBound, x.QuotaBinds = (m.end - first).Seconds(), bound.Seconds(), quota
	x.MakespanRatio = ratio(x.Makespan, x.LowerBound)
}

// ratio is a/b, or 0 where b is.
func ratio(a, b float64) float64 {
	if b == 0 || math.IsInf(b, 0) {
		return 0
	}
	return a / b
}

// wait is how long the call took to be sent for good, or to be given up.
func (r *record) wait() time.Duration {
	if r.done {
		return r.attempts[len(r.attempts)-1].sent - r.asked
	}
	return r.ended - r.asked
}

// waits are the quantiles of the waits of every group.
func (m *measure) waits() (p50, p99 map[string]float64) {
	groups := make(map[string][]time.Duration)
	for _, r := range m.log.records {
		groups[r.call.group] = append(groups[r.call.group], r.wait())
	}
	p50, p99 = make(map[string]float64), make(map[string]float64)
	for g, list := range groups {
		slices.Sort(list)
		p50[g], p99[g] = quantile(list, 0.5), quantile(list, 0.99)
	}
	return p50, p99
}

// quantile is the smallest of the sorted values that a part q of them does not
// exceed, in seconds (nearest rank).
func quantile(sorted []time.Duration, q float64) float64 {
	return sorted[max(int(math.Ceil(q*float64(len(sorted)))), 1)-1].Seconds()
}
