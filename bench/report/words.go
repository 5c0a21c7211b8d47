package main

import (
	"fmt"
	"strings"

	"github.com/headgate-go/headgate/bench/internal/burst"
)

// windowNotes say what is special about each kind of window.
var windowNotes = map[string]string{
	"fixed":   "A fixed window starts from zero at each full minute, so that a burst on both sides of the border gets twice the quota through.",
	"sliding": "A sliding window holds what came in the last minute, wherever that minute begins.",
	"bucket":  "A bucket refills continuously and saves up to one minute's worth.",
}

// lead says in one sentence what was run.
func (r *report) lead() string {
	return fmt.Sprintf("Fan-outs are what breaks quotas: many calls at one instant, from agents that do not know of one another. "+
		"Here are %s of that kind, and %s to admit them.", plural(len(r.shapes), "burst"), plural(len(r.policies), "way"))
}

// command is what makes this report again.
func (r *report) command() string {
	c := fmt.Sprintf("go run ./bench/report -out report/ -seed %d", r.seed)
	if len(r.shapes) < len(r.all.shapes) {
		c += " -shape " + strings.ReplaceAll(names(r.shapes, shapeName), ", ", ",")
	}
	if len(r.policies) < len(r.all.policies) {
		c += " -policy " + strings.ReplaceAll(names(r.policies, policyName), ", ", ",")
	}
	if len(r.windows) < len(r.all.windows) {
		c += " -window " + strings.ReplaceAll(names(r.windows, burst.Window.String), ", ", ",")
	}
	return c
}

// happened tells in words what the pictures of a shape show.
func (r *report) happened(s burst.Shape, w burst.Window) string {
	var say []string
	if p, ok := r.ours(); ok {
		if res := r.at(s, p, w); res.Err == "" {
			say = append(say, fmt.Sprintf("%s: %s.", p.Title, sentence(res.Metrics)))
		}
	}
	if p, best, ok := r.bestPeer(s, w); ok {
		say = append(say, fmt.Sprintf("The best of the others by what was served is %s: %s.", strings.ToLower(p.Title[:1])+p.Title[1:], sentence(best.Metrics)))
	}
	if p, worst, ok := r.mostThrottled(s, w); ok {
		say = append(say, fmt.Sprintf("Most 429s: %s, %d.", p.Title, worst.Metrics.Throttled))
	} else {
		say = append(say, "Nobody was throttled.")
	}
	return strings.Join(say, " ")
}

// ours is the way to use Headgate that stands for it: the first of them that
// keeps fair order, or simply the first.
func (r *report) ours() (burst.Policy, bool) {
	var first burst.Policy
	found := false
	for _, p := range r.policies {
		if p.Name == "headgate-fair" {
			return p, true
		}
		if isHeadgate(p) && !found {
			first, found = p, true
		}
	}
	return first, found
}

func (r *report) mostThrottled(s burst.Shape, w burst.Window) (burst.Policy, burst.Result, bool) {
	var most burst.Policy
	var with burst.Result
	for _, p := range r.policies {
		if res := r.at(s, p, w); res.Err == "" && res.Metrics.Throttled > with.Metrics.Throttled {
			most, with = p, res
		}
	}
	return most, with, with.Metrics.Throttled > 0
}

// sentence says what a run came to.
func sentence(m burst.Metrics) string {
	say := fmt.Sprintf("%d of %d calls served", m.Completed, m.Calls)
	if m.Refused > 0 {
		say += fmt.Sprintf(", %d given up unsent", m.Refused)
	}
	if m.Failed > 0 {
		say += fmt.Sprintf(", %d sent in vain", m.Failed)
	}
	if m.Throttled == 0 {
		say += ", no 429"
	} else {
		say += fmt.Sprintf(", %d × 429", m.Throttled)
	}
	if m.Makespan > 0 && m.LowerBound > 0 {
		say += fmt.Sprintf(", done in %.0f s where %.0f s are the least", m.Makespan, m.LowerBound)
	}
	return say + fmt.Sprintf(", %s of what was possible", percent(m.Share))
}

// facts is what stands over a panel.
func facts(res burst.Result) string {
	if res.Err != "" {
		return "No result: " + res.Err
	}
	m := res.Metrics
	say := fmt.Sprintf("%d of %d served, %d × 429", m.Completed, m.Calls, m.Throttled)
	if m.Refused > 0 {
		say += fmt.Sprintf(", %d given up", m.Refused)
	}
	return say + fmt.Sprintf(", share %.2f", m.Share)
}
