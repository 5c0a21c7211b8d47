package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/headgate-go/headgate/bench/gemini"
)

// report is what is printed in the end.
type report struct {
	options options
	plans   []reviewPlan // of the double; nil with the real API
	runs    []*result
}

// add takes in a run.
func (r *report) add(run *result, err error) error {
	if err != nil {
		return err
	}
	plans, tokens := r.plans, int64(promptTokens)
	if plans == nil { // nobody has planned the real API's calls
		plans, tokens = run.plans, run.tokensPerCall
	}
	slots := r.options.slots
	if run.name == "unlimited" { // it has none
		slots = math.MaxInt32
	}
	run.bound = bound(plans, tokens, quota{
		requests: r.options.rpm, tokens: r.options.tpm, slots: slots,
		window: r.options.window, length: time.Minute,
	})
	r.runs = append(r.runs, run)
	return nil
}

// failure is an error if the gated run, which is the last, lost a review.
func (r *report) failure() error {
	run := r.runs[len(r.runs)-1]
	if run.reviewsOK == run.reviews {
		return nil
	}
	return fmt.Errorf("%d of %d reviews failed behind the gate, the first with: %w", run.reviews-run.reviewsOK, run.reviews, run.err)
}

func (r *report) write(w io.Writer) error {
	if r.options.json {
		return r.writeJSON(w)
	}
	_, err := io.WriteString(w, r.text())
	return err
}

// jsonRun is a run as -json prints it. Its seconds are virtual.
type jsonRun struct {
	Name         string  `json:"name"`
	Calls        int     `json:"calls"`
	Reviews      int     `json:"reviews"`
	ReviewsOK    int     `json:"reviews_ok"`
	Throttled    int     `json:"throttled"`
	Failed       int     `json:"failed"`
	Makespan     float64 `json:"makespan_s"`
	Bound        float64 `json:"bound_s"`
	P50          float64 `json:"p50_s"`
	P99          float64 `json:"p99_s"`
	MaxWindowUse float64 `json:"max_window_use"`
}

func (r *report) writeJSON(w io.Writer) error {
	var out struct {
		Runs []jsonRun `json:"runs"`
	}
	for _, run := range r.runs {
		out.Runs = append(out.Runs, jsonRun{
			Name: run.name, Calls: run.calls, Reviews: run.reviews, ReviewsOK: run.reviewsOK,
			Throttled: run.throttled, Failed: run.failed,
			Makespan: seconds(run.makespan), Bound: seconds(run.bound),
			P50: seconds(run.quantile(0.5)), P99: seconds(run.quantile(0.99)),
			MaxWindowUse: run.maxWindowUse,
		})
	}
	return json.NewEncoder(w).Encode(out)
}

// seconds has three decimals.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1e3) / 1e3 }

// quantile is the latency that a share q of the answered calls did not exceed
// (nearest rank); 0 if none was answered.
func (r *result) quantile(q float64) time.Duration {
	if len(r.latencies) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(r.latencies))))
	return r.latencies[max(rank, 1)-1]
}

// latency is a quantile as the table shows it.
func (r *result) latency(q float64) string {
	if len(r.latencies) == 0 {
		return "-"
	}
	return tenths(r.quantile(q))
}

// text is the table and what it needs to be understood.
func (r *report) text() string {
	o := r.options
	var b strings.Builder
	click := fmt.Sprintf("%d users click at once", o.users)
	if o.users == 1 {
		click = "A user clicks"
	}
	fmt.Fprintf(&b, "%s. Each click asks %d reviewers side by side and then a\n"+
		"synthesiser: %d calls, %s input and %d output tokens each. The quota is\n"+
		"%s requests and %s input tokens a minute (%v window)%s.\n\n",
		click, len(reviewers), o.calls(), grouped(promptTokens), outputTokens, limitText(o.rpm), limitText(o.tpm), o.window, r.where())

	row := func(name string, value func(*result) string) {
		fmt.Fprintf(&b, "  %-44s", name)
		for _, run := range r.runs {
			fmt.Fprintf(&b, "%12s", value(run))
		}
		b.WriteString("\n")
	}
	row("", func(run *result) string { return run.name })
	row("calls made", func(run *result) string { return fmt.Sprint(run.calls) })
	row("reviews complete", func(run *result) string { return fmt.Sprintf("%d of %d", run.reviewsOK, run.reviews) })
	row("refused with 429 (throttled)", func(run *result) string { return fmt.Sprint(run.throttled) })
	row("calls without an answer (failed)", func(run *result) string { return fmt.Sprint(run.failed) })
	row("time until all had ended (makespan)", func(run *result) string { return tenths(run.makespan) })
	row("  divided by the least possible, "+tenths(r.runs[0].bound), func(run *result) string {
		if run.reviewsOK < run.reviews {
			return "-" // it has not done the work
		}
		return fmt.Sprintf("%.2f", run.makespan.Seconds()/run.bound.Seconds())
	})
	row("time of an answered call, wait included: p50", func(run *result) string { return run.latency(0.5) })
	row("                                         p99", func(run *result) string { return run.latency(0.99) })
	row("largest use of the quota in any minute", func(run *result) string { return fmt.Sprintf("%.0f %%", 100*run.maxWindowUse) })
	b.WriteString("\n" + r.remark())
	return b.String()
}

// where tells who answers.
func (r *report) where() string {
	if r.options.real {
		return ""
	}
	return fmt.Sprintf(";\na call takes about %v", r.options.latency)
}

// remark says how the numbers come about.
func (r *report) remark() string {
	o := r.options
	if o.real {
		return "The least possible time is reckoned from the latencies that were measured.\n"
	}
	real := time.Duration(0)
	for _, run := range r.runs {
		real += run.took
	}
	text := "Unlimited, a throttled reviewer takes its whole click with it. Through Headgate\n" +
		"the calls wait in a fair line, and each is sent once, when the quota has room.\n"
	if r.runs[0].throttled == 0 {
		text = "The quota had room for the whole burst: nothing is throttled, gate or no gate.\n"
	}
	if o.window == gemini.Bucket {
		text += "A bucket that is full at first lets up to two quotas through in a minute.\n"
	}
	return text + fmt.Sprintf("A double of the Gemini API answered, %v times as fast: both bursts took %.1f s.\n", o.speed, real.Seconds())
}

func tenths(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func limitText(limit int64) string {
	if limit == 0 {
		return "unlimited"
	}
	return grouped(limit)
}

// grouped writes a number with commas between the thousands.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
