package burst

import (
	"math"
	"slices"
	"time"
)

// supply is what a quota can let in.
type supply struct {
	window Window
	length time.Duration
	amount float64 // in a window; 0 is no limit
}

// supplies are what the shape's quota can let in of tokens and of requests, each
// per minute and, where it is quantised, per quantum. Scale scales them all.
func (s *Shape) supplies(w Window, scale float64) (tokens, requests []supply) {
	of := func(published int64) []supply {
		amount := s.granted(published)
		list := []supply{{w, minute, scale * float64(amount)}}
		if s.Quantum > 0 {
			list = append(list, supply{w, s.Quantum, scale * float64(perQuantum(amount, s.Quantum))})
		}
		return list
	}
	return of(s.TokensPerMinute), of(s.RequestsPerMinute)
}

// between is the most that can be let in within [from, to], whatever was let in
// before: a bucket can be full at the beginning, a sliding window empty; a fixed
// one begins anew at every multiple of its length.
func (s supply) between(from, to time.Duration) float64 {
	if s.amount == 0 {
		return math.Inf(1)
	}
	if to < from {
		return 0
	}
	switch s.window {
	case bucketWindow:
		return s.amount * (1 + float64(to-from)/float64(s.length))
	case slidingWindow:
		return s.amount * (math.Floor(float64(to-from)/float64(s.length)) + 1)
	default:
		return s.amount * (math.Floor(float64(to)/float64(s.length)) - math.Floor(float64(from)/float64(s.length)) + 1)
	}
}

// letIn is the earliest instant at which units that are asked for at from can
// all have been let in.
func (s supply) letIn(from time.Duration, units float64) time.Duration {
	if s.amount == 0 || units <= s.amount {
		return from
	}
	switch s.window {
	case bucketWindow:
		return from + time.Duration((units/s.amount-1)*float64(s.length))
	case slidingWindow:
		return from + time.Duration(math.Ceil(units/s.amount)-1)*s.length
	default:
		return from.Truncate(s.length) + time.Duration(math.Ceil(units/s.amount)-1)*s.length
	}
}

// fluid is G*: the most tokens that anybody can get let in before the end of a
// stream, which is the least, over all instants s, of what was asked for before
// s and what the quota can let in after it (a min-plus convolution of demand and
// service curve). Calls are taken as early as they can be asked for. Where
// requests or places at the provider bind, they are given to the calls with most
// tokens for each. Of places, every call of a group takes the group's mean: to
// know which call will be quick is not a matter of admission.
//
// Guard scales the quotas.
func (s *Shape) fluid(w Window, calls []release, guard float64) float64 {
	end := s.Stream
	if end == 0 { // everything can be let in some day
		var all float64
		for _, c := range calls {
			all += float64(c.tokens)
		}
		return all
	}
	calls = slices.Clone(calls)
	slices.SortStableFunc(calls, func(a, b release) int { return int(a.at - b.at) })
	tokens, requests := s.supplies(w, guard)
	var demand, n float64
	least, leastRequests := math.Inf(1), math.Inf(1)
	for _, c := range calls { // demand before c.at, supply from then on
		least = min(least, demand+s.served(tokens, c.at, end))
		leastRequests = min(leastRequests, n+s.served(requests, c.at, end))
		demand += float64(c.tokens)
		n++
	}
	least = min(least, demand)
	leastRequests = min(leastRequests, n)
	least = min(least, most(calls, leastRequests, func(c release) float64 { return 1 }))
	if s.Concurrency > 0 {
		holds := meanHolds(calls)
		place := float64(s.Concurrency) * end.Seconds()
		least = min(least, most(calls, place, func(c release) float64 { return holds[c.group] }))
	}
	return least
}

// served is what all of some supplies let in between two instants, but for the
// outage.
func (s *Shape) served(list []supply, from, to time.Duration) float64 {
	least := math.Inf(1)
	for _, u := range list {
		least = min(least, s.servedBy(u, from, to-1)) // at its end the stream has ended
	}
	return least
}

func (s *Shape) servedBy(u supply, from, to time.Duration) float64 {
	if s.OutageTo == 0 || from >= s.OutageTo || to < s.OutageFrom {
		return u.between(from, to)
	}
	sum := u.between(s.OutageTo, to)
	if from < s.OutageFrom {
		sum += u.between(from, s.OutageFrom-1)
	}
	return min(sum, u.between(from, to))
}

// most is the tokens of the calls that make most of a resource, each using its
// cost of it; the last one counts in part.
func most(calls []release, resource float64, cost func(release) float64) (tokens float64) {
	calls = slices.Clone(calls)
	slices.SortFunc(calls, func(a, b release) int {
		x, y := float64(a.tokens)/cost(a), float64(b.tokens)/cost(b)
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	for _, c := range calls {
		used := cost(c)
		if used >= resource {
			return tokens + float64(c.tokens)*resource/used
		}
		resource -= used
		tokens += float64(c.tokens)
	}
	return tokens
}

// meanHolds is the mean time of the calls of every group, in seconds.
func meanHolds(calls []release) map[string]float64 {
	sum, n := make(map[string]float64), make(map[string]float64)
	for _, c := range calls {
		sum[c.group] += c.holds().Seconds()
		n[c.group]++
	}
	for g := range sum {
		sum[g] /= n[g]
	}
	return sum
}

func longest(calls []release) (d time.Duration) {
	for _, c := range calls {
		d = max(d, c.holds())
	}
	return d
}

// lowerBound is a time in which nobody can have all calls served, counted from
// the first release, and whether it is the quota that makes it up. It is the
// largest of
//
//   - path: when the last call would end if nothing waited
//   - slots: the times of all calls, over the slots (none where slots is 0)
//   - quota: for each instant t, calls that cannot have been let in before t are
//     m at least; the longest of them takes no less than the m-th shortest of all
//     calls, and all of them take no less than the m shortest, over the slots.
func (s *Shape) lowerBound(w Window, calls []release, path time.Duration, slots int) (bound time.Duration, quota bool) {
	if len(calls) == 0 {
		return 0, false
	}
	starts := make([]time.Duration, len(calls))
	var sum time.Duration
	for i, c := range calls {
		starts[i] = c.at
		sum += c.holds()
	}
	slices.Sort(starts)
	first := starts[0]
	other := path - first
	if slots > 0 {
		other = max(other, sum/time.Duration(slots))
	}
	starts = slices.Compact(starts)
	for i := 0; i < len(starts); i += 1 + len(starts)/maxStarts {
		bound = max(bound, s.quotaBound(w, calls, starts[i], slots)-first)
	}
	return max(bound, other), bound > other
}

// maxStarts bounds the work of lowerBound: it stays one if fewer instants are
// looked at.
const maxStarts = 50

// grain is the distance of the instants that quotaBound looks at.
const grain = 100 * time.Millisecond

// quotaBound is when the calls that are released from start on can all have
// ended at the earliest.
func (s *Shape) quotaBound(w Window, calls []release, start time.Duration, slots int) (bound time.Duration) {
	var sizes []float64
	var shortest []time.Duration
	var sum float64
	for _, c := range calls {
		if c.at < start {
			continue
		}
		sizes = append(sizes, float64(c.tokens))
		shortest = append(shortest, s.Delay+c.holds())
		sum += float64(c.tokens)
	}
	slices.Sort(sizes)
	slices.Reverse(sizes)
	slices.Sort(shortest)
	n := float64(len(sizes))
	tokens, requests := s.supplies(w, 1)
	last := start
	for i := range tokens {
		last = max(last, tokens[i].letIn(start, sum), requests[i].letIn(start, n))
	}
	step := max(grain, (last-start)/10_000)
	for t := start; t <= last; t += step {
		left := 0 // calls that are let in at t or later
		if t == start {
			left = len(sizes)
		} else {
			rest := sum - s.served(tokens, start, t)
			for rest > 1e-6 && left < len(sizes) {
				rest -= sizes[left]
				left++
			}
			left = max(left, int(math.Ceil(n-s.served(requests, start, t)-1e-9)))
		}
		if left <= 0 {
			break
		}
		bound = max(bound, t+shortest[left-1])
		if slots > 0 {
			var work time.Duration
			for _, d := range shortest[:left] {
				work += d
			}
			bound = max(bound, t+work/time.Duration(slots))
		}
	}
	return max(bound, last+shortest[0])
}
