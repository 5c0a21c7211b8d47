package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate-go/headgate/bench/internal/burst"
)

// column is one figure of the table.
type column struct {
	title string
	mark  string // the figure of a mark that this column shows
	of    func(burst.Metrics) string
}

// columns are all figures, as they stand in the table after the policy and the
// window. A dash is a figure that does not apply.
var columns = []column{
	{"calls", "", func(m burst.Metrics) string { return fmt.Sprint(m.Calls) }},
	{"served", "", func(m burst.Metrics) string { return fmt.Sprint(m.Completed) }},
	{"given up", "", func(m burst.Metrics) string { return fmt.Sprint(m.Refused) }},
	{"failed", "failed", func(m burst.Metrics) string { return fmt.Sprint(m.Failed) }},
	{"attempts", "", func(m burst.Metrics) string { return fmt.Sprint(m.Attempts) }},
	{"429s", "429", func(m burst.Metrics) string { return fmt.Sprint(m.Throttled) }},
	{"429 per attempt", "", func(m burst.Metrics) string { return fmt.Sprintf("%.3f", m.ThrottledPerAttempt) }},
	{"goodput", "goodput", func(m burst.Metrics) string { return fmt.Sprintf("%.3f", m.Goodput) }},
	{"share", "share", func(m burst.Metrics) string { return fmt.Sprintf("%.3f", m.Share) }},
	{"after guard", "", func(m burst.Metrics) string { return fmt.Sprintf("%.3f", m.Guard) }},
	{"makespan s", "", func(m burst.Metrics) string { return known(m.Makespan, "%.1f") }},
	{"bound s", "", func(m burst.Metrics) string { return known(m.LowerBound, "%.1f") }},
	{"ratio", "makespan", func(m burst.Metrics) string { return known(m.MakespanRatio, "%.3f") }},
	{"wasted", "", func(m burst.Metrics) string { return fmt.Sprintf("%.3f", m.Wasted) }},
	{"wait p50 s", "", func(m burst.Metrics) string { return byClass(m.WaitP50) }},
	{"wait p99 s", "wait", func(m burst.Metrics) string { return byClass(m.WaitP99) }},
	{"Jain", "jain", func(m burst.Metrics) string { return known(m.Jain, "%.3f") }},
	{"gap", "gap", func(m burst.Metrics) string { return known(m.GapBound, "%.1f", m.Gap) }},
	{"gap bound", "", func(m burst.Metrics) string { return known(m.GapBound, "%.1f") }},
	{"idle", "idle", func(m burst.Metrics) string { return fmt.Sprintf("%.3f", m.Idle) }},
	{"max use", "use", func(m burst.Metrics) string { return fmt.Sprintf("%.3f", m.MaxUse) }},
}

// legend explains the columns that do not explain themselves.
var legend = []string{
	"Figures that fall short are bold and underlined, and said in words in the last column.",
	"Given up: never sent, because the longest allowed wait was over or the line full. Failed: sent, and not served in the end.",
	"Share: tokens of served calls over the most that the quota made possible. Goodput: the same, where the guard that a policy states (after guard) is taken off what was possible.",
	"Ratio: the time until the last call was over, over a bound below which nobody can be. A dash: an endless stream, or not all calls were served.",
	"Wasted: tokens of attempts that came to nothing, over all tokens sent.",
	"Wait: seconds from asking until the attempt that was served was sent, or until the call was given up, for each class of calls.",
	"Jain: the least index of fairness among flows in any minute with enough calls; 1 is fair. Gap: the largest difference in service between two flows that wait, in seconds of quota, beside what a fair queue promises.",
	"Idle: part of the slot time in which no call had the slot although one could have run. Max use: the largest use of any limit in any window, over its quota.",
}

type (
	columnData struct {
		Title string
		Words bool
	}
	tableData struct {
		Title string
		Width int
		Rows  []rowData
	}
	rowData struct {
		Title string
		Ours  bool
		Cells []cellData
	}
	cellData struct{ Text, Class string }
)

func columnTitles() []columnData {
	all := []columnData{{"policy", true}, {"window", true}}
	for _, c := range columns {
		all = append(all, columnData{c.title, false})
	}
	return append(all, columnData{"falls short", true})
}

// table has a row for each window and policy of a shape.
func (r *report) table(s burst.Shape) tableData {
	t := tableData{Title: s.Title, Width: len(columns) + 3}
	for _, w := range r.windows {
		for _, p := range r.policies {
			res := r.at(s, p, w)
			row := rowData{Title: p.Title, Ours: isHeadgate(p), Cells: []cellData{{w.String(), "window"}}}
			marks := r.marks(s, p, w)
			for _, c := range columns {
				var cell cellData
				if res.Err == "" {
					cell.Text = c.of(res.Metrics)
				}
				if slices.ContainsFunc(marks, func(m mark) bool { return m.figure == c.mark }) {
					cell.Class = "marked"
				}
				row.Cells = append(row.Cells, cell)
			}
			words := markText(marks)
			if res.Err != "" {
				words = "no result: " + res.Err
			}
			row.Cells = append(row.Cells, cellData{words, "words"})
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// known writes a figure, or another one in its place, or a dash where the
// figure is 0 and so does not apply.
func known(x float64, format string, instead ...float64) string {
	if x == 0 {
		return "–"
	}
	if len(instead) > 0 {
		x = instead[0]
	}
	return fmt.Sprintf(format, x)
}

// byClass writes one number for each class; its name only where there are
// several.
func byClass(waits map[string]float64) string {
	if len(waits) == 0 {
		return "–"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(waits)) {
		text := fmt.Sprintf("%.1f", waits[name])
		if len(waits) > 1 {
			text = name + " " + text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}
