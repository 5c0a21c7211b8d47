package engine

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

// Stats are the counters of a double since its start or its last reset.
// Durations and instants are as they were, with the speed applied.
//
// Requests is the sum of Admitted and Refused; Admitted is the sum of
// Completed, Failed, Cancelled and, if nothing was reset, InFlight.
type Stats struct {
	// Elapsed is the time since the start or the last reset.
	Elapsed time.Duration `json:"elapsed_ns"`
	// Speed is what all durations were divided by.
	Speed float64 `json:"speed"`

	// Requests counts the calls that were decided over.
	Requests int64 `json:"requests"`
	// Admitted counts those that passed the limits and faults.
	Admitted int64 `json:"admitted"`
	// Completed counts those that were answered in full.
	Completed int64 `json:"completed"`
	// Failed counts the admitted ones that a fault broke.
	Failed int64 `json:"failed"`
	// Cancelled counts the admitted ones whose clients went away.
	Cancelled int64 `json:"cancelled"`
	// Refused counts the calls that were turned away.
	Refused int64 `json:"refused"`
	// RefusedBy counts them by limit, and by "fault". A call that several
	// limits refuse counts under each of them.
	RefusedBy map[string]int64 `json:"refused_by"`
	// Faults counts by kind the faults that befell calls.
	Faults map[string]int64 `json:"faults"`
	// Other counts what is not a call in this sense: requests for a token
	// count, malformed requests.
	Other map[string]int64 `json:"other"`

	// InFlight is the number of admitted calls that have not ended.
	InFlight int `json:"in_flight"`
	// PeakInFlight is the largest number so far.
	PeakInFlight int `json:"peak_in_flight"`

	// InputTokens is the sum over admitted calls.
	InputTokens int64 `json:"input_tokens"`
	// OutputTokens is the sum over ended calls, thoughts inside. A call that
	// was cancelled or failed has what was generated until then.
	OutputTokens int64 `json:"output_tokens"`
	// ThoughtTokens is the part of OutputTokens that was thought.
	ThoughtTokens int64 `json:"thought_tokens"`

	// Windows is the largest use of every limit, limited or not.
	Windows []WindowUse `json:"windows"`
}

// WindowUse is the largest use of a limit in any of its windows. Admitted calls
// make it up, each at the instant at which it was counted.
type WindowUse struct {
	// Name is the limit's name.
	Name string `json:"name"`
	// Model is how the limit renews itself. Whatever it is, the largest use is
	// that of any stretch of time of the window's length, wherever it starts;
	// only for a daily limit is it that of a day from midnight to midnight.
	Model WindowModel `json:"model"`
	// Length is the window's length; 0 for a daily limit.
	Length time.Duration `json:"length_ns"`
	// Limit is the limit's amount; 0 where there is no limit.
	Limit int64 `json:"limit"`
	// Largest is the largest use.
	Largest int64 `json:"largest"`
	// Share is Largest as a share of Limit; 0 where there is no limit.
	Share float64 `json:"share"`
}

// counters are the parts of Stats that are counted as calls go by.
type counters struct {
	requests, admitted, refused  int64
	completed, failed, cancelled int64
	input, output, thoughts      int64
	peakInFlight                 int
	refusedBy, faults, other     map[string]int64
}

func newCounters() counters {
	return counters{refusedBy: map[string]int64{}, faults: map[string]int64{}, other: map[string]int64{}}
}

func (s *counters) end(o Outcome) {
	switch o {
	case Completed:
		s.completed++
	case Failed:
		s.failed++
	default:
		s.cancelled++
	}
}

// Count adds one to Other[name].
func (e *Engine) Count(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.run.stats.other[name]++
}

// Stats returns the counters as they are now. The result is the caller's own.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, c := e.run, &e.run.stats
	s := Stats{
		Elapsed: r.now(), Speed: e.cfg.Speed,
		Requests: c.requests, Admitted: c.admitted, Refused: c.refused,
		Completed: c.completed, Failed: c.failed, Cancelled: c.cancelled,
		RefusedBy: maps.Clone(c.refusedBy), Faults: maps.Clone(c.faults), Other: maps.Clone(c.other),
		InFlight: len(e.inFlight), PeakInFlight: c.peakInFlight,
		InputTokens: c.input, OutputTokens: c.output, ThoughtTokens: c.thoughts,
	}
	for _, m := range r.meters {
		u := WindowUse{Name: m.Name, Model: m.Model, Length: m.Length, Limit: m.Amount, Largest: m.peak.largest()}
		if m.Model == Daily {
			u.Length = 0
		}
		if u.Limit > 0 {
			u.Share = float64(u.Largest) / float64(u.Limit)
		}
		s.Windows = append(s.Windows, u)
	}
	return s
}

// WriteTable writes the counters for people to read.
func (s Stats) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { fmt.Fprintf(t, "%s\t%v\n", name, value) }
	rows := func(name string, counts map[string]int64) {
		for _, key := range slices.Sorted(maps.Keys(counts)) {
			row("  "+name+" "+key, counts[key])
		}
	}
	row("time", fmt.Sprintf("%v at speed %g", s.Elapsed.Round(time.Millisecond), s.Speed))
	row("requests", s.Requests)
	row("admitted", s.Admitted)
	row("  completed", s.Completed)
	row("  failed by a fault", s.Failed)
	row("  cancelled", s.Cancelled)
	row("  in flight", fmt.Sprintf("%d, at most %d", s.InFlight, s.PeakInFlight))
	row("refused", s.Refused)
	rows("by", s.RefusedBy)
	if len(s.Faults) > 0 {
		row("faults", "")
		rows("", s.Faults)
	}
	for _, key := range slices.Sorted(maps.Keys(s.Other)) {
		row(key, s.Other[key])
	}
	row("input tokens", s.InputTokens)
	row("output tokens", fmt.Sprintf("%d, %d of them thoughts", s.OutputTokens, s.ThoughtTokens))
	for _, u := range s.Windows {
		span := "any day"
		if u.Model != Daily {
			span = fmt.Sprintf("any %v", u.Length)
		}
		limit := "no limit"
		if u.Limit > 0 {
			limit = fmt.Sprintf("%.1f %% of %d, %v window", 100*u.Share, u.Limit, u.Model)
		}
		row(fmt.Sprintf("largest %s in %s", u.Name, span), fmt.Sprintf("%d (%s)", u.Largest, limit))
	}
	return t.Flush()
}

// Record is one call that has ended, or was refused. Instants and durations
// are as they were, with the speed applied.
type Record struct {
	// Name is what the double calls it: its model.
	Name string `json:"name"`
	// Arrived is when the call came, Decided when it was admitted or refused:
	// later by the arrival jitter.
	Arrived time.Time `json:"arrived"`
	Decided time.Time `json:"decided"`
	// FirstByte is when its answer began; zero where it never did.
	FirstByte time.Time `json:"first_byte,omitzero"`
	// Ended is when it ended.
	Ended time.Time `json:"ended"`
	// PlannedFirst and PlannedTotal are the planned times from Decided to the
	// first token and to the end; 0 where the call was never planned.
	PlannedFirst time.Duration `json:"planned_first_ns"`
	PlannedTotal time.Duration `json:"planned_total_ns"`
	// Input, Output and Thoughts are tokens; thoughts are inside Output.
	Input    int64 `json:"input"`
	Output   int64 `json:"output"`
	Thoughts int64 `json:"thoughts"`
	// Outcome is how it ended.
	Outcome Outcome `json:"outcome"`
	// Refused names the limits that refused it, or "fault".
	Refused []string `json:"refused,omitempty"`
	// Fault is the kind of the fault that befell it.
	Fault string `json:"fault,omitempty"`
}

// callLog keeps the latest size records.
type callLog struct {
	size    int
	records []Record
	next    int // where the next one goes, when it is full
}

func (l *callLog) add(r Record) {
	switch {
	case l.size == 0:
	case len(l.records) < l.size:
		l.records = append(l.records, r)
	default:
		l.records[l.next] = r
		l.next = (l.next + 1) % l.size
	}
}

// Records returns the remembered calls in the order in which they ended. The
// result is the caller's own.
func (e *Engine) Records() []Record {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := &e.run.log
	return slices.Concat(l.records[l.next:], l.records[:l.next])
}
