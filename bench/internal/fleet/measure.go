package fleet

import (
	"math"
	"slices"
	"time"

	"github.com/headgate-go/headgate/bench/internal/burst"
)

// Metrics are the figures of a run. All are finite.
type Metrics struct {
	// Calls is how many were made. Each is one of the following.
	Calls   int `json:"calls"`
	Served  int `json:"served"`
	Expired int `json:"expired"`
	Failed  int `json:"failed"`
	Lost    int `json:"lost"`
	Waiting int `json:"waiting"` // at the end
	Flying  int `json:"flying"`  // at the end
	// Goodput is the tokens that the provider let in, of calls that were not lost, over
	// G*: what anybody could have got let in; see package burst.
	Goodput float64 `json:"goodput"`
	// Throttled is how many attempts were answered 429, over all attempts.
	Throttled float64 `json:"throttled"`
	// The waits of all calls, in seconds, until they were sent for the last time. Those
	// that were not sent count with the time that they have waited.
	WaitMean float64 `json:"wait_mean"`
	WaitP50  float64 `json:"wait_p50"`
	WaitP99  float64 `json:"wait_p99"`
	// JainUsers is Jain's index over users of what they got, over their max-min fair
	// share of all that was served, and JainReplicas the same over replicas, whose fair
	// share is that of the calls that came to them; 1 is fair.
	JainUsers    float64 `json:"jain_users"`
	JainReplicas float64 `json:"jain_replicas"`
	// JainWaiting is Jain's index over users of what they got in a minute in all of which
	// a call of theirs waited; the mean over all minutes. 1 if nobody waits so long.
	JainWaiting float64 `json:"jain_waiting"`
	// TripsPerCall is round trips to the store, over all calls.
	TripsPerCall float64 `json:"trips_per_call"`
	// MaxUse is the largest part of the quota that was asked of the provider in one of
	// its windows, refused or not; Overshoot is by how much it is above 1.
	MaxUse    float64 `json:"max_use"`
	Overshoot float64 `json:"overshoot"`
	// Settled is, for each change of the fleet, after how many seconds the fleet has
	// converged again; below 0 if it did not before the next change or the end.
	Settled []float64 `json:"settled,omitempty"`
}

// Measure turns a log into figures.
func Measure(l *Log) Metrics {
	m := Metrics{Calls: len(l.Calls), MaxUse: l.Use, Overshoot: max(l.Use-1, 0)}
	var ends [outcomes]int
	var let float64
	demand := make([]burst.Demand, len(l.Calls))
	for i := range l.Calls {
		r := &l.Calls[i]
		ends[r.Outcome]++
		demand[i] = burst.Demand{At: r.Asked, Tokens: r.Tokens}
		if r.got() {
			let += float64(r.Tokens)
		}
	}
	m.Served, m.Expired, m.Failed = ends[Served], ends[Expired], ends[Failed]
	m.Lost, m.Waiting, m.Flying = ends[Lost], ends[Waiting], ends[Flying]
	c := &l.Config
	m.Goodput = ratio(let, burst.Bound(c.Window, c.TokensPerMinute(), c.RequestsPerMinute(), demand, c.Length))
	m.Throttled = ratio(sum(l.Refusals), float64(l.Attempts))
	m.TripsPerCall = ratio(sum(l.Trips), float64(len(l.Calls)))
	m.waits(l)
	m.JainUsers, m.JainReplicas = jains(l.Calls, 0, math.MaxInt64)
	m.JainWaiting = jainWaiting(l)
	m.Settled = settled(l)
	return m
}

// got reports whether the provider has let the call in, and somebody had something of
// it.
func (r *Record) got() bool { return r.Counted >= 0 && r.Outcome != Lost }

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func sum(list []int32) (n float64) {
	for _, x := range list {
		n += float64(x)
	}
	return n
}

// waited is how long a call has waited.
func (r *Record) waited(end time.Duration) time.Duration {
	switch {
	case r.Outcome == Waiting:
		return end - r.Asked
	case r.Outcome == Expired, r.Outcome == Failed, r.Started < 0:
		return r.Ended - r.Asked
	}
	return r.Started - r.Asked
}

func (m *Metrics) waits(l *Log) {
	if len(l.Calls) == 0 {
		return
	}
	waits := make([]time.Duration, len(l.Calls))
	total := 0.0
	for i := range l.Calls {
		waits[i] = l.Calls[i].waited(l.Config.Length)
		total += waits[i].Seconds()
	}
	slices.Sort(waits)
	m.WaitMean = total / float64(len(waits))
	m.WaitP50, m.WaitP99 = quantile(waits, 0.5), quantile(waits, 0.99)
}

// quantile is the smallest of the sorted values that a part q of them does not exceed,
// in seconds (nearest rank).
func quantile(sorted []time.Duration, q float64) float64 {
	return sorted[max(int(math.Ceil(q*float64(len(sorted)))), 1)-1].Seconds()
}

// jains are Jain's index over users and over replicas, of the calls that were made
// within a time.
func jains(calls []Record, from, to time.Duration) (users, replicas float64) {
	var asked, got, fairAt, gotAt []float64
	for i := range calls {
		r := &calls[i]
		if r.Asked < from || r.Asked >= to {
			continue
		}
		tokens := float64(r.Tokens)
		asked, got = grow(asked, r.User), grow(got, r.User)
		fairAt, gotAt = grow(fairAt, r.Replica), grow(gotAt, r.Replica)
		asked[r.User] += tokens
		if r.got() {
			got[r.User] += tokens
			gotAt[r.Replica] += tokens
		}
	}
	fair := maxMin(asked, got)
	for i := range calls {
		if r := &calls[i]; r.Asked >= from && r.Asked < to {
			fairAt[r.Replica] += fair[r.User] * float64(r.Tokens) / asked[r.User]
		}
	}
	return jain(got, fair), jain(gotAt, fairAt)
}

// grow makes a list long enough for an index.
func grow(list []float64, i int32) []float64 {
	for int(i) >= len(list) {
		list = append(list, 0)
	}
	return list
}

// maxMin divides all that was got max-min fairly over those that have asked: nobody gets
// more than was asked for, and those that get less all get the same.
func maxMin(asked, got []float64) []float64 {
	rest := 0.0
	for _, g := range got {
		rest += g
	}
	order := slices.Clone(asked)
	slices.Sort(order)
	level := math.Inf(1)
	for i, a := range order {
		if each := rest / float64(len(order)-i); a >= each {
			level = each
			break
		}
		rest -= a
	}
	fair := make([]float64, len(asked))
	for i, a := range asked {
		fair[i] = min(a, level)
	}
	return fair
}

// jain is Jain's index of what was got over what is fair (R. Jain, D. Chiu, W. Hawe, "A
// Quantitative Measure of Fairness", DEC-TR-301, 1984), of those that have a fair share;
// 1 if nobody has.
func jain(got, fair []float64) float64 {
	n, sum, squares := 0.0, 0.0, 0.0
	for i, f := range fair {
		if f > 0 {
			x := got[i] / f
			n++
			sum += x
			squares += x * x
		}
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (n * squares)
}
