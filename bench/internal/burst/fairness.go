package burst

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// fairness looks at the service of the flows of each class.
type fairness struct {
	flows [][]*flow // by class
	end   time.Duration
}

// flow is what one flow of a class asked for and got.
type flow struct {
	name    string
	service []served
	// backlog are the stretches in which a call of it waited, in order of time,
	// none touching another.
	backlog []stretch
}

// served is a call that was let in, and its cost in quota-seconds.
type served struct {
	at   time.Duration
	cost float64
}

type stretch struct{ from, to time.Duration }

// cost is what a call of so many tokens, that takes so long, takes of the
// provider's dominant resource, in quota-seconds: the time for which it uses up
// a whole quota, or all slots.
func (m *measure) cost(tokens int64, holds time.Duration) float64 {
	cost := 60 * float64(tokens) / float64(m.shape.TokensPerMinute)
	if m.shape.RequestsPerMinute > 0 {
		cost = max(cost, 60/float64(m.shape.RequestsPerMinute))
	}
	return max(cost, holds.Seconds()/float64(m.shape.Slots))
}

// fairness reads the flows off the log.
func (m *measure) fairness() fairness {
	classes := make(map[string]map[string]*flow)
	for _, r := range m.log.records {
		c := r.call
		if classes[c.class] == nil {
			classes[c.class] = make(map[string]*flow)
		}
		f := classes[c.class][c.flow]
		if f == nil {
			f = &flow{name: c.flow}
			classes[c.class][c.flow] = f
		}
		for _, a := range r.attempts {
			if a.served {
				f.service = append(f.service, served{a.sent, m.cost(c.tokens, c.holds())})
			}
		}
		r.waits(func(from, to time.Duration) { f.backlog = append(f.backlog, stretch{from, to}) })
	}
	fair := fairness{end: m.end}
	for _, class := range classes {
		var list []*flow
		for _, f := range class {
			slices.SortFunc(f.service, func(a, b served) int { return cmp.Compare(a.at, b.at) })
			f.backlog = union(f.backlog)
			list = append(list, f)
		}
		slices.SortFunc(list, func(a, b *flow) int { return cmp.Compare(a.name, b.name) })
		fair.flows = append(fair.flows, list)
	}
	return fair
}

// union joins stretches that touch or overlap.
func union(list []stretch) (joined []stretch) {
	slices.SortFunc(list, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	for _, s := range list {
		if n := len(joined); n > 0 && s.from <= joined[n-1].to {
			joined[n-1].to = max(joined[n-1].to, s.to)
		} else {
			joined = append(joined, s)
		}
	}
	return joined
}

// during reports whether the flow was backlogged all the time.
func (f *flow) during(s stretch) bool {
	for _, b := range f.backlog {
		if b.from <= s.from && s.to <= b.to {
			return true
		}
	}
	return false
}

// in are the calls of the flow that were let in within a stretch. Those at its
// very beginning are not in it: where a stretch of backlog begins, they are what
// was let in before anybody had to wait.
func (f *flow) in(s stretch) []served {
	after := func(t time.Duration) int {
		i, _ := slices.BinarySearchFunc(f.service, t+1, func(x served, t time.Duration) int { return cmp.Compare(x.at, t) })
		return i
	}
	return f.service[after(s.from):after(s.to)]
}

const (
	jainCalls = 20 // the fewest calls of a flow in a minute that is looked at
	jainStep  = time.Second
)

// jain is the least of Jain's index, (Σx)²/(n·Σx²), over the minutes in which
// at least two flows of a class are backlogged all the time and each of them
// gets at least 20 calls (R. Jain, D. Chiu, W. Hawe, "A Quantitative Measure of
// Fairness", DEC TR-301, 1984); 0 where there are none.
func (f fairness) jain() float64 {
	least := math.Inf(1)
	for from := time.Duration(0); from+minute <= f.end; from += jainStep {
		at := stretch{from, from + minute}
		for _, class := range f.flows {
			if index, ok := jainOf(class, at); ok {
				least = min(least, index)
			}
		}
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

func jainOf(class []*flow, at stretch) (index float64, ok bool) {
	var n, sum, squares float64
	for _, f := range class {
		if !f.during(at) {
			continue
		}
		calls := f.in(at)
		if len(calls) < jainCalls {
			return 0, false
		}
		x := 0.0
		for _, c := range calls {
			x += c.cost
		}
		n++
		sum += x
		squares += x * x
	}
	if n < 2 || squares == 0 {
		return 0, false
	}
	return sum * sum / (n * squares), true
}

// gap is the largest difference of the service that two flows of a class get in
// any stretch in which both are backlogged.
func (f fairness) gap() (largest float64) {
	for _, class := range f.flows {
		for i, a := range class {
			for _, b := range class[:i] {
				for _, s := range both(a.backlog, b.backlog) {
					largest = max(largest, gapOf(a, b, s))
				}
			}
		}
	}
	return largest
}

// both is where two lists of stretches overlap.
func both(a, b []stretch) (overlap []stretch) {
	for i, j := 0, 0; i < len(a) && j < len(b); {
		s := stretch{max(a[i].from, b[j].from), min(a[i].to, b[j].to)}
		if s.from < s.to {
			overlap = append(overlap, s)
		}
		if a[i].to < b[j].to {
			i++
		} else {
			j++
		}
	}
	return overlap
}

// gapOf is the largest difference within a stretch: of the running difference,
// between its highest and its lowest point. Calls that are let in at one instant
// have no order. So at the end of the stretch, where one of the flows gets its
// last calls, what the other one gets at that instant may have come after them,
// and counts only as far as it makes the difference smaller.
func gapOf(a, b *flow, s stretch) float64 {
	all := slices.Clone(a.in(s))
	for _, x := range b.in(s) {
		all = append(all, served{x.at, -x.cost})
	}
	slices.SortStableFunc(all, func(x, y served) int { return cmp.Compare(x.at, y.at) })
	var d, low, high float64
	var gained, lost float64 // by a and by b, at the end
	for i, x := range all {
		switch {
		case x.at == s.to && x.cost > 0:
			gained += x.cost
			continue
		case x.at == s.to:
			lost -= x.cost
			continue
		}
		d += x.cost
		if i+1 == len(all) || all[i+1].at > x.at {
			low, high = min(low, d), max(high, d)
		}
	}
	var then float64
	switch last, other := a.endsAt(s.to), b.endsAt(s.to); {
	case last && !other:
		then = max(d+gained-lost, min(d+gained, high))
	case other && !last:
		then = min(d+gained-lost, max(d-lost, low))
	default:
		return high - low // both have got their last calls
	}
	return max(high, then) - min(low, then)
}

// endsAt reports whether the flow ceases to wait at that instant.
func (f *flow) endsAt(t time.Duration) bool {
	return slices.ContainsFunc(f.backlog, func(b stretch) bool { return b.to == t })
}

// gapBound is what start-time fair queueing keeps the gap within: the largest
// cost of a call of each of the two flows (P. Goyal, H. Vin, H. Cheng,
// "Start-time Fair Queuing", SIGCOMM 1996), once more that cost, which is the
// credit that a flow may bring along when it comes back, and for each slot the
// largest error of an estimate, until it is corrected at the end of the call. How
// long a call will hold its slot is estimated, too: by a moving average that
// begins at firstHold, and so lies between that and the longest hold.
func (m *measure) gapBound() float64 {
	shortest, longest := firstHold, firstHold
	for _, r := range m.log.records {
		shortest, longest = min(shortest, r.call.holds()), max(longest, r.call.holds())
	}
	var largest, wrong float64
	for _, r := range m.log.records {
		cost := m.cost(r.call.tokens, r.call.holds())
		largest = max(largest, cost)
		for _, hold := range []time.Duration{shortest, longest} {
			wrong = max(wrong, math.Abs(cost-m.cost(r.call.estimate, hold)))
		}
	}
	return 3*largest + float64(m.shape.Slots)*wrong
}

// firstHold is how long the gate takes a call to hold its slot before any has
// ended.
const firstHold = time.Second
