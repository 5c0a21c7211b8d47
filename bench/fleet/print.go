package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/headgate-go/headgate/bench/internal/fleet"
)

// column is one figure of the table.
type column struct {
	title string
	of    func(r *result) string
}

// columns are the figures, as they stand in the table.
var columns = []column{
	{"mode", func(r *result) string { return r.Config.Mode.String() }},
	{"calls", func(r *result) string { return fmt.Sprint(r.Metrics.Calls) }},
	{"goodput/G*", func(r *result) string { return fmt.Sprintf("%.3f", r.Metrics.Goodput) }},
	{"429", func(r *result) string { return percent(r.Metrics.Throttled) }},
	{"failed", func(r *result) string { return fmt.Sprint(r.Metrics.Failed + r.Metrics.Lost + r.Metrics.Expired) }},
	{"wait mean", func(r *result) string { return seconds(r.Metrics.WaitMean) }},
	{"p50", func(r *result) string { return seconds(r.Metrics.WaitP50) }},
	{"p99", func(r *result) string { return seconds(r.Metrics.WaitP99) }},
	{"Jain users", func(r *result) string { return fmt.Sprintf("%.3f", r.Metrics.JainUsers) }},
	{"replicas", func(r *result) string { return fmt.Sprintf("%.3f", r.Metrics.JainReplicas) }},
	{"waiting", func(r *result) string { return fmt.Sprintf("%.3f", r.Metrics.JainWaiting) }},
	{"trips/call", func(r *result) string { return fmt.Sprintf("%.3f", r.Metrics.TripsPerCall) }},
	{"max use", func(r *result) string { return fmt.Sprintf("%.3f", r.Metrics.MaxUse) }},
	{"overshoot", func(r *result) string { return fmt.Sprintf("%.3f", r.Metrics.Overshoot) }},
}

const legend = `
goodput/G*  tokens that the provider let in, over the most that anybody could have got let in
429         part of all attempts that the provider refused
failed      calls that were refused three times, died with their replica, or gave up
wait        until a call was sent for good; calls that still wait count with the time so far
Jain        fairness, over users and over replicas, of what was got over the max-min fair share, in the whole run; and
            over users that wait, minute by minute; 1 is fair
trips/call  round trips to the store for each call
max use     largest part of the quota that was asked of the provider in one of its windows; above 1: overshoot
`

// writeTable prints what was simulated, a line for each mode, and what the figures are.
func writeTable(w io.Writer, results []result) error {
	c := results[0].Config
	var b strings.Builder
	fmt.Fprintf(&b, "%d replicas, %d users, %v calls at %v of the quota for %v: %d tokens and %d requests a minute (%v), %d slots, seed %d\n",
		c.Replicas, c.Users, c.Shape, c.Load, c.Length, c.TokensPerMinute(), c.RequestsPerMinute(), c.Window, c.Slots, c.Seed)
	if c.NoGuard {
		b.WriteString("without the guard for spend after debit\n")
	}
	b.WriteByte('\n')
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	list := columns
	for i, ch := range c.Changes {
		list = append(list[:len(list):len(list)], column{changeTitle(ch), func(r *result) string { return settledIn(r.Metrics.Settled[i]) }})
	}
	for _, c := range list {
		fmt.Fprintf(t, "%s\t", c.title)
	}
	fmt.Fprintln(t)
	for i := range results {
		for _, c := range list {
			fmt.Fprintf(t, "%s\t", c.of(&results[i]))
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	b.WriteString(legend)
	_, err := io.WriteString(w, b.String())
	return err
}

// changeTitle is what a fleet has settled after.
func changeTitle(ch fleet.Change) string {
	if ch.Join > 0 {
		return fmt.Sprintf("settled after +%d@%v", ch.Join, ch.At)
	}
	return fmt.Sprintf("settled after -%d@%v", ch.Kill, ch.At)
}

// settledIn is after how long it has.
func settledIn(s float64) string {
	if s < 0 {
		return "not"
	}
	return seconds(s)
}

// seconds writes a time: short ones in ms.
func seconds(s float64) string {
	switch {
	case s == 0:
		return "0"
	case s < 0.1:
		return fmt.Sprintf("%.1f ms", 1000*s)
	case s < 10:
		return fmt.Sprintf("%.2f s", s)
	}
	return fmt.Sprintf("%.1f s", s)
}

// percent writes a part of one; a part that is not 0 is not written as 0.
func percent(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 0.0001:
		return "<0.01 %"
	}
	return fmt.Sprintf("%.2f %%", 100*x)
}

// writeJSON prints the results as one array.
func writeJSON(w io.Writer, results []result) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(results)
}
