package fleet

import (
	"slices"
	"time"
)

// Sample is one instant of a run, a second after the one before.
type Sample struct {
	// At is the instant, in seconds after the start.
	At float64
	// Waiting is the number of calls that wait, and Flying of those that were sent.
	Waiting, Flying int
	// Let is what the provider let in since the last sample, over a second's part of the
	// quota of tokens.
	Let float64
	// Refused is the number of 429s since the last sample.
	Refused int
	// Trips is the number of requests that reached the store since then.
	Trips int
	// WaitP50 and WaitP99 are the waits, in seconds, of the calls that were sent for good
	// since then; 0 if none was.
	WaitP50, WaitP99 float64
	// Jain is the index over homes by which a fleet has converged, of what they got since
	// then and in the nine seconds to come.
	Jain float64
}

// Series samples a run every second.
func Series(l *Log) []Sample {
	n := l.Config.seconds()
	list := make([]Sample, n)
	at := func(d time.Duration) int { return int(d / time.Second) }
	step := func(of func(*Sample) *int, from, to time.Duration) {
		if from < 0 {
			return
		}
		*of(&list[at(from)])++
		if i := at(to); to >= 0 && i < n {
			*of(&list[i])--
		}
	}
	waiting := func(s *Sample) *int { return &s.Waiting }
	flying := func(s *Sample) *int { return &s.Flying }
	waits := make([][]time.Duration, n)
	second := float64(l.Config.TokensPerMinute()) / minute.Seconds()
	for i := range l.Calls {
		r := &l.Calls[i]
		switch { // of the time between two attempts nothing is kept: it counts as waiting
		case r.Outcome == Waiting:
			step(waiting, r.Asked, -1)
		case r.Started < 0:
			step(waiting, r.Asked, r.Ended)
		default:
			step(waiting, r.Asked, r.Started)
			step(flying, r.Started, r.Ended)
			if r.Outcome != Failed && r.Outcome != Expired {
				waits[at(r.Started)] = append(waits[at(r.Started)], r.Started-r.Asked)
			}
		}
		if r.Counted >= 0 {
			list[at(r.Counted)].Let += float64(r.Tokens) / second
		}
	}
	b, backlog := newBins(l), make([]float64, l.Config.Replicas)
	for i := range list {
		s := &list[i]
		if w := waits[i]; len(w) > 0 {
			slices.Sort(w)
			s.WaitP50, s.WaitP99 = quantile(w, 0.5), quantile(w, 0.99)
		}
		s.Jain, _, _ = b.fairness(i, backlog)
		b.pass(i, backlog)
		s.At = float64(i + 1)
		s.Refused, s.Trips = int(l.Refusals[i]), int(l.Trips[i])
		if i > 0 {
			s.Waiting += list[i-1].Waiting
			s.Flying += list[i-1].Flying
		}
	}
	return list
}
