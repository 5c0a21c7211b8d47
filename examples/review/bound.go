package main

import (
	"time"

	"github.com/headgate-go/headgate/bench/gemini"
)

// reviewPlan is how long the calls of one review take, in virtual time.
type reviewPlan struct {
	reviewers   []time.Duration
	synthesiser time.Duration
}

// quota is what bounds a burst besides the order of its calls.
type quota struct {
	requests, tokens int64 // per window; 0 is no limit
	slots            int64
	window           gemini.Window
	length           time.Duration
}

// bound returns a time in which nobody can finish the reviews, whatever the
// order of the calls: the largest of
//
//   - quota: until the quotas have let in all calls, and then at least as long
//     as the quickest synthesiser takes, since the call that is let in last is
//     a synthesiser
//   - slots: all latencies one after the other, over the slots
//   - critical path: the slowest reviewer of a review and its synthesiser
func bound(plans []reviewPlan, tokensPerCall int64, q quota) time.Duration {
	var calls int64
	var sum, path, quickest time.Duration
	for i, p := range plans {
		var slowest time.Duration
		for _, l := range p.reviewers {
			slowest = max(slowest, l)
			sum += l
		}
		sum += p.synthesiser
		path = max(path, slowest+p.synthesiser)
		if i == 0 || p.synthesiser < quickest {
			quickest = p.synthesiser
		}
		calls += int64(len(p.reviewers)) + 1
	}
	letIn := max(q.allIn(calls, q.requests), q.allIn(calls*tokensPerCall, q.tokens))
	return max(letIn+quickest, sum/time.Duration(q.slots), path)
}

// allIn is the earliest instant after a fresh start at which a window can have
// let in so many units: a sliding or fixed one takes limit units in each of its
// lengths, the first at once; a bucket begins full and refills at limit per
// length.
func (q quota) allIn(units, limit int64) time.Duration {
	if limit <= 0 || units <= limit {
		return 0
	}
	if q.window == gemini.Bucket {
		return time.Duration(float64(units-limit) / float64(limit) * float64(q.length))
	}
	return time.Duration((units-1)/limit) * q.length
}
