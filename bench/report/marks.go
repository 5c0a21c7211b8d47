package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate-go/headgate/bench/internal/burst"
)

// The figures that Headgate is to reach. Every policy is measured by them.
const (
	leastGoodput   = 0.97
	leastQuantised = 0.95 // goodput where the provider checks its quota by the second, too
	mostMakespan   = 1.10
	leastJain      = 0.99
	mostIdle       = 0.01
	mostBelowPeers = 0.02
	mostOfFIFO     = 0.2 // of the wait of interactive calls that are served first come first served
)

// mark is a figure that falls short.
type mark struct {
	figure string // the name of the column
	text   string // what is wrong with it
}

// marks are the figures of a result that fall short of what Headgate is to
// reach, whoever's result it is.
func (r *report) marks(s burst.Shape, p burst.Policy, w burst.Window) []mark {
	res := r.at(s, p, w)
	if res.Err != "" {
		return nil
	}
	m := res.Metrics
	var all []mark
	add := func(figure, format string, args ...any) {
		all = append(all, mark{figure, fmt.Sprintf(format, args...)})
	}
	if keeps(s) && m.Throttled > 0 {
		add("429", "%s throttled", plural(m.Throttled, "attempt"))
	}
	if keeps(s) && m.Failed > 0 {
		add("failed", "%s sent and not served", plural(m.Failed, "call"))
	}
	least := leastGoodput
	if s.Quantum > 0 {
		least = leastQuantised
	}
	if m.Goodput < least {
		add("goodput", "goodput %.3f, below %.2f", m.Goodput, least)
	}
	if m.QuotaBinds && m.MakespanRatio > mostMakespan {
		add("makespan", "%.3f times the shortest possible time, above %.2f", m.MakespanRatio, mostMakespan)
	}
	if m.Jain > 0 && m.Jain < leastJain {
		add("jain", "unfair: Jain index %.3f, below %.2f", m.Jain, leastJain)
	}
	if m.GapBound > 0 && m.Gap > m.GapBound {
		add("gap", "a flow %.1f quota-seconds behind another, above %.1f", m.Gap, m.GapBound)
	}
	if m.Idle > mostIdle {
		add("idle", "%s of the slot time idle while calls could run", percent(m.Idle))
	}
	if m.MaxUse > 1.0005 {
		add("use", "%.3f times the quota used", m.MaxUse)
	}
	if peer, best, ok := r.bestPeer(s, w); ok && isHeadgate(p) && m.Share < best.Metrics.Share-mostBelowPeers {
		add("share", "share %.3f, more than %.2f below the %.3f of %s", m.Share, mostBelowPeers, best.Metrics.Share, peer.Title)
	}
	if fifo, now, ok := r.interactive(s, p, w); ok && now > mostOfFIFO*fifo {
		add("wait", "1 of 100 interactive calls waits %.1f s or more, above a fifth of the %.1f s in order of arrival", now, fifo)
	}
	return all
}

// interactive returns what 99 of 100 interactive calls wait at most in
// Headgate's order of arrival and in this policy, one with fair order; false
// where there are no such calls, or hardly any wait to compare.
func (r *report) interactive(s burst.Shape, p burst.Policy, w burst.Window) (fifo, now float64, ok bool) {
	if !isHeadgate(p) || p.Name == arrivalOrder {
		return 0, 0, false
	}
	fifo = r.at(s, burst.Policy{Name: arrivalOrder}, w).Metrics.WaitP99[interactiveClass]
	now, ok = r.at(s, p, w).Metrics.WaitP99[interactiveClass]
	return fifo, now, ok && fifo >= 1
}

// Names that the bursts give.
const (
	arrivalOrder     = "headgate-fifo"
	interactiveClass = "interactive"
)

// keeps tells whether the provider of a shape serves all the time and keeps the
// quota that it publishes. Where it does not, nobody can be without 429s and
// failed calls.
func keeps(s burst.Shape) bool { return s.Granted == 0 && s.OutageTo == 0 }

// markText joins what falls short.
func markText(marks []mark) string {
	text := ""
	for i, m := range marks {
		if i > 0 {
			text += "; "
		}
		text += m.text
	}
	return text
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// percent writes a part of one with as many digits as it needs to differ from
// none and all.
func percent(x float64) string {
	digits := 0
	if x > 0 && x < 0.1 || x > 0.99 && x < 1 {
		digits = 1
	}
	return strings.TrimSuffix(strconv.FormatFloat(100*x, 'f', digits, 64), ".0") + " %"
}
