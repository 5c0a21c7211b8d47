package journal

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
)

// Stats is how a journal does. Numbers are since it was opened, unless they say how
// something stands.
type Stats struct {
	// Records is how many settlements and counts were written, and Bytes how much in
	// all. Syncs is how often something was made durable.
	Records, Bytes, Syncs int64
	// Size is that of all files, and Segments how many there are.
	Size     int64
	Segments int
	// Unanswered is how many settlements are written that the ledger has not answered.
	Unanswered int
	// Unrecorded is how many settlements and counts could not be written, each time that
	// it was tried, WriteErrors how often writing has failed, and Stalled how often it took
	// too long. Failing is true while it does.
	Unrecorded, WriteErrors, Stalled int64
	Failing                          bool
	// Shortened is how many files were removed before their time to make room.
	Shortened int64
	// Damaged is how many places in files could not be read when the journal was opened.
	Damaged int64
	// Told is what came of what was told again, or booked anew.
	Told Report
	// Open is how many open reservations are remembered, and Forgotten how many were not
	// for want of room. Only [Ledger.Stats] has both.
	Open      int
	Forgotten int64
}

// Stats is how the journal does.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	st := j.stats
	st.Size, st.Segments, st.Unanswered, st.Failing = j.size, len(j.segments), len(j.unanswered), j.failure != nil
	return st
}

// LogValue is the report as attributes.
func (r Report) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Int("known", r.Known), slog.Int("settled", r.Settled), slog.Int("booked", r.Booked), slog.Int("held", r.Held),
		slog.Int("unknown", r.Unknown), slog.Int("doubtful", r.Doubtful), slog.Int("failed", r.Failed), slog.Int64("missing", r.Missing))
}

// metric is one that a journal is asked for.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*Stats) float64
	label string
}

var metrics = func() (all []metric) {
	add := func(kind prometheus.ValueType, name, help string, value func(*Stats) float64) {
		all = append(all, metric{prometheus.NewDesc("headgate_journal_"+name, help, nil, nil), kind, value, ""})
	}
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	add(counter, "records_total", "Settlements and counts that were written.", func(s *Stats) float64 { return float64(s.Records) })
	add(counter, "written_bytes_total", "Bytes that were written.", func(s *Stats) float64 { return float64(s.Bytes) })
	add(counter, "syncs_total", "How often something was made durable.", func(s *Stats) float64 { return float64(s.Syncs) })
	add(gauge, "size_bytes", "Size of all files.", func(s *Stats) float64 { return float64(s.Size) })
	add(gauge, "unanswered", "Settlements that the ledger has not answered.", func(s *Stats) float64 { return float64(s.Unanswered) })
	add(counter, "unrecorded_total", "Settlements and counts that could not be written.", func(s *Stats) float64 { return float64(s.Unrecorded) })
	add(counter, "write_errors_total", "How often writing has failed.", func(s *Stats) float64 { return float64(s.WriteErrors) })
	add(counter, "stalled_total", "How often writing took too long.", func(s *Stats) float64 { return float64(s.Stalled) })
	add(gauge, "failing", "1 while settlements are not being recorded.", func(s *Stats) float64 {
		if s.Failing {
			return 1
		}
		return 0
	})
	add(counter, "shortened_total", "Files that were removed before their time to make room.", func(s *Stats) float64 { return float64(s.Shortened) })
	add(counter, "damaged_total", "Places in files that could not be read.", func(s *Stats) float64 { return float64(s.Damaged) })
	told := prometheus.NewDesc("headgate_journal_told_total", "What was told to the ledger again, by what came of it.", []string{"outcome"}, nil)
	for _, x := range []struct {
		label string
		value func(*Report) int
	}{
		{"known", func(r *Report) int { return r.Known }},
		{"settled", func(r *Report) int { return r.Settled }},
		{"booked", func(r *Report) int { return r.Booked }},
		{"held", func(r *Report) int { return r.Held }},
		{"unknown", func(r *Report) int { return r.Unknown }},
		{"doubtful", func(r *Report) int { return r.Doubtful }},
		{"failed", func(r *Report) int { return r.Failed }},
	} {
		all = append(all, metric{told, counter, func(s *Stats) float64 { return float64(x.value(&s.Told)) }, x.label})
	}
	return all
}()

// Describe implements [prometheus.Collector]. The metrics are:
//
//	headgate_journal_records_total          settlements and counts that were written
//	headgate_journal_written_bytes_total
//	headgate_journal_syncs_total
//	headgate_journal_size_bytes             of all files
//	headgate_journal_unanswered             settlements that the ledger has not answered
//	headgate_journal_unrecorded_total       what could not be written
//	headgate_journal_write_errors_total
//	headgate_journal_stalled_total          how often writing took too long
//	headgate_journal_failing                1 while nothing is recorded
//	headgate_journal_shortened_total        files that were removed before their time
//	headgate_journal_damaged_total
//	headgate_journal_told_total{outcome}    what was told again: see [Report]
func (j *Journal) Describe(ch chan<- *prometheus.Desc) {
	seen := map[*prometheus.Desc]bool{}
	for _, m := range metrics {
		if !seen[m.desc] {
			seen[m.desc] = true
			ch <- m.desc
		}
	}
}

// Collect implements [prometheus.Collector].
func (j *Journal) Collect(ch chan<- prometheus.Metric) {
	st := j.Stats()
	for _, m := range metrics {
		var labels []string
		if m.label != "" {
			labels = append(labels, m.label)
		}
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&st), labels...)
	}
}
