package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-go/headgate/bench/gemini"
)

// plansOf makes plans of latencies in seconds, the synthesiser's last.
func plansOf(reviews ...[]int) (plans []reviewPlan) {
	for _, r := range reviews {
		var p reviewPlan
		for _, s := range r[:len(r)-1] {
			p.reviewers = append(p.reviewers, time.Duration(s)*time.Second)
		}
		p.synthesiser = time.Duration(r[len(r)-1]) * time.Second
		plans = append(plans, p)
	}
	return plans
}

func TestTheBoundIsTheLargestOfQuotaSlotsAndCriticalPath(t *testing.T) {
	t.Parallel()
	const tokens = 10 // of every call
	two := plansOf([]int{5, 7, 3}, []int{6, 4, 2})
	for _, c := range []struct {
		name string
		q    quota
		want time.Duration
	}{
		{"critical path: 7 + 3", quota{slots: 100}, 10 * time.Second},
		{"the same with quotas that do not bind", quota{slots: 100, requests: 6, tokens: 60}, 10 * time.Second},
		{"slots: 27 over 2", quota{slots: 2}, 13500 * time.Millisecond},
		{"one slot: all 27", quota{slots: 1}, 27 * time.Second},
		{"tokens: the second window and the synthesiser of 2", quota{slots: 100, tokens: 59}, 62 * time.Second},
		{"tokens: 2 calls a window, the third window", quota{slots: 100, tokens: 20}, 122 * time.Second},
		{"requests: 2 a window, the third window", quota{slots: 100, requests: 2}, 122 * time.Second},
		{"requests bind more than tokens", quota{slots: 100, requests: 1, tokens: 59}, 302 * time.Second},
		{"fixed windows let in as much", quota{slots: 100, tokens: 20, window: gemini.Fixed}, 122 * time.Second},
		{"a bucket of 20 refills the other 40 in two windows", quota{slots: 100, tokens: 20, window: gemini.Bucket}, 122 * time.Second},
		{"a bucket of 40 refills the other 20 in half a window", quota{slots: 100, tokens: 40, window: gemini.Bucket}, 32 * time.Second},
	} {
		c.q.length = time.Minute
		if got := bound(two, tokens, c.q); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// Every schedule of a few calls is tried, so that the best one is known.
func TestNoScheduleBeatsTheBound(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	reached := 0
	const tries = 300
	for range tries {
		plans := plansOf([]int{1 + r.IntN(4), 1 + r.IntN(4), 1 + r.IntN(4)})
		if r.IntN(2) == 0 {
			plans = plansOf([]int{1 + r.IntN(4), 1 + r.IntN(4)}, []int{1 + r.IntN(4), 1 + r.IntN(4)})
		}
		q := quota{
			slots: int64(1 + r.IntN(3)), length: 2 * time.Second, tokens: int64(2 * (1 + r.IntN(3))),
			window: []gemini.Window{gemini.Sliding, gemini.Fixed, gemini.Bucket}[r.IntN(3)],
		}
		if r.IntN(3) == 0 {
			q.requests = int64(2 * (1 + r.IntN(2)))
		}
		if q.window == gemini.Bucket { // in whole seconds it gains what whole calls take
			q.tokens, q.requests = min(q.tokens, 4), min(q.requests, 2)
		}
		const tokens = 2
		best, low := bestSchedule(plans, tokens, q), bound(plans, tokens, q)
		if best < low {
			t.Errorf("%+v with %+v: a schedule takes %v, below the bound %v", plans, q, best, low)
		}
		if best == low {
			reached++
		}
	}
	// A bound that is too low would be reached by none.
	if reached < tries/3 {
		t.Errorf("the best schedule reaches the bound in %d of %d cases only", reached, tries)
	}
}

// job is a call of a schedule, in whole seconds.
type job struct {
	review, latency, start int
	last                   bool // a synthesiser
}

// bestSchedule is the shortest schedule of all, found by trying every start in
// whole seconds. With whole latencies and windows there is a best one of these:
// any schedule can be moved to the left until each call starts at the beginning,
// at the end of another one, or when a window lets it in.
func bestSchedule(plans []reviewPlan, tokens int64, q quota) time.Duration {
	var jobs []job
	worst := 0
	for i, p := range plans {
		for _, l := range p.reviewers {
			jobs = append(jobs, job{review: i, latency: int(l / time.Second)})
		}
		jobs = append(jobs, job{review: i, latency: int(p.synthesiser / time.Second), last: true})
	}
	window := int(q.length / time.Second)
	for _, j := range jobs {
		worst += j.latency + window
	}
	best := worst
	var try func(n int)
	try = func(n int) {
		if n == len(jobs) {
			end := 0
			for _, j := range jobs {
				end = max(end, j.start+j.latency)
			}
			best = min(best, end)
			return
		}
		j := &jobs[n]
		earliest := 0
		for _, other := range jobs[:n] {
			if j.last && other.review == j.review {
				earliest = max(earliest, other.start+other.latency)
			}
		}
		for j.start = earliest; j.start+j.latency < best; j.start++ {
			if allowed(jobs[:n+1], tokens, q, window) {
				try(n + 1)
			}
		}
	}
	try(0)
	return time.Duration(best) * time.Second
}

// allowed reports whether the calls keep within slots and quotas. Fewer calls
// never break what more keep.
func allowed(jobs []job, tokens int64, q quota, window int) bool {
	end := 0
	for _, j := range jobs {
		end = max(end, j.start+j.latency)
	}
	starts := make([]int64, end+1)
	for _, j := range jobs {
		starts[j.start]++
	}
	for at := range end {
		running := int64(0)
		for _, j := range jobs {
			if j.start <= at && at < j.start+j.latency {
				running++
			}
		}
		if running > q.slots {
			return false
		}
	}
	return keeps(starts, q.requests, 1, q, window) && keeps(starts, q.tokens, tokens, q, window)
}

// keeps replays the starts of each second against one limit.
func keeps(starts []int64, limit, each int64, q quota, window int) bool {
	if limit == 0 {
		return true
	}
	level := limit
	for at, n := range starts {
		switch q.window {
		case gemini.Bucket:
			if at > 0 {
				level = min(limit, level+limit/int64(window))
			}
			if level -= n * each; level < 0 {
				return false
			}
			continue
		case gemini.Fixed:
			at -= at % window
		default:
			at = max(at-window+1, 0)
		}
		sum := int64(0)
		for i := at; i < len(starts) && i < at+window; i++ {
			sum += starts[i]
		}
		if sum*each > limit {
			return false
		}
	}
	return true
}
