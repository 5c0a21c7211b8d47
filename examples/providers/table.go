package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/headgate-go/headgate/usage"
)

// printer prints a table for each provider as soon as its runs are over, or one
// JSON object in the end.
type printer struct {
	options options
	asOf    time.Time // of the prices
	started time.Time
	json    jsonReport
}

func newPrinter(o options, catalog *usage.Catalog) *printer {
	asOf := catalog.Snapshot().AsOf
	return &printer{options: o, asOf: asOf, started: time.Now(), json: jsonReport{PricesAsOf: asOf.Format(time.DateOnly)}}
}

// jsonReport is what -json prints.
type jsonReport struct {
	PricesAsOf string         `json:"prices_as_of"`
	Providers  []jsonProvider `json:"providers"`
}

type jsonProvider struct {
	Provider string    `json:"provider"`
	Model    string    `json:"model"`
	Runs     []jsonRun `json:"runs"`
}

// jsonRun is a run. Its seconds are those of the real API.
type jsonRun struct {
	Name             string  `json:"name"`
	Calls            int     `json:"calls"`
	Refused          int64   `json:"refused"`
	Reports          int     `json:"reports"`
	ReportsOK        int     `json:"reports_ok"`
	InputTokens      int64   `json:"input_tokens"`
	CachedTokens     int64   `json:"cached_tokens"`
	CacheWriteTokens int64   `json:"cache_write_tokens"`
	OutputTokens     int64   `json:"output_tokens"`
	EstimatedCalls   int     `json:"estimated_calls"`
	MicroDollars     int64   `json:"micro_dollars"`
	FirstTextP50     float64 `json:"first_text_p50_s"` // 0 if there was none
	Makespan         float64 `json:"makespan_s"`
}

// add takes in what the runs of a provider came to.
func (r *printer) add(w io.Writer, p provider, runs []*result) error {
	if !r.options.json {
		_, err := io.WriteString(w, r.table(p, runs))
		return err
	}
	out := jsonProvider{Provider: p.name, Model: r.options.modelOf(p)}
	for _, run := range runs {
		first, _ := run.firstText()
		out.Runs = append(out.Runs, jsonRun{
			Name: run.name, Calls: run.calls, Refused: run.refused, Reports: run.reports, ReportsOK: run.complete,
			InputTokens: run.total.input, CachedTokens: run.total.cached, CacheWriteTokens: run.total.written,
			OutputTokens: run.total.output, EstimatedCalls: run.total.estimated, MicroDollars: int64(run.total.cost),
			FirstTextP50: seconds(first), Makespan: seconds(run.makespan),
		})
	}
	r.json.Providers = append(r.json.Providers, out)
	return nil
}

// end prints what comes after the last provider.
func (r *printer) end(w io.Writer) error {
	if r.options.json {
		return json.NewEncoder(w).Encode(r.json)
	}
	_, err := io.WriteString(w, r.remark())
	return err
}

// seconds has three decimals.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1e3) / 1e3 }

// table is that of one provider.
func (r *printer) table(p provider, runs []*result) string {
	o := r.options
	var b strings.Builder
	fmt.Fprintf(&b, "%s, model %s.\nQuota a minute: %s;\n%s.\n\n", upper(p.api), o.modelOf(p), o.quota(p), p.counts)
	row := func(name string, value func(*result) string) {
		fmt.Fprintf(&b, "  %-48s", name)
		for _, run := range runs {
			fmt.Fprintf(&b, "%13s", value(run))
		}
		b.WriteString("\n")
	}
	row("", func(run *result) string { return run.name })
	row("calls made", func(run *result) string { return fmt.Sprint(run.calls) })
	row("answers that refuse a call (429)", func(run *result) string { return fmt.Sprint(run.refused) })
	row("reports complete", func(run *result) string { return fmt.Sprintf("%d of %d", run.complete, run.reports) })
	row("tokens in, as settled", func(run *result) string { return grouped(run.total.input) })
	row("  of these read from a cache", func(run *result) string { return grouped(run.total.cached) })
	row("  of these written to a cache", func(run *result) string { return grouped(run.total.written) })
	row("tokens out", func(run *result) string { return grouped(run.total.output) })
	row("calls without a report of usage, by estimate", func(run *result) string { return fmt.Sprint(run.total.estimated) })
	row("money", func(run *result) string { return run.total.cost.String() })
	row("  per complete report", func(run *result) string {
		if run.complete == 0 {
			return "-"
		}
		return (run.total.cost / usage.Micros(run.complete)).String()
	})
	row("from click to the report's first text: p50", func(run *result) string {
		if d, ok := run.firstText(); ok {
			return tenths(d)
		}
		return "-"
	})
	row("time until all had ended (makespan)", func(run *result) string { return tenths(run.makespan) })
	b.WriteString("\n")
	return b.String()
}

// quota says how much a provider's quota is.
func (o *options) quota(p provider) string {
	if p.name == anthropic.name {
		return fmt.Sprintf("%s requests, %s input and %s output tokens", limitText(o.rpm), limitText(o.tpm), limitText(o.otpm))
	}
	return fmt.Sprintf("%s requests, %s tokens", limitText(o.rpm), limitText(o.tpm))
}

// remark says how the numbers come about.
func (r *printer) remark() string {
	o := r.options
	text := fmt.Sprintf("Prices as of %s, from %s.\n", r.asOf.Format(time.DateOnly), o.pricesText())
	if o.url != "" {
		return text
	}
	ask := fmt.Sprintf("%d users ask at once for a report", o.users)
	if o.users == 1 {
		ask = "A user asks for a report"
	}
	return ask + fmt.Sprintf(", which takes %d researchers and a writer.\n"+
		"Unlimited, a call that is refused takes its report with it. Through Headgate the\n"+
		"calls wait in a fair line, each until the provider's quota has room for it.\n", len(questions)) + text +
		fmt.Sprintf("Doubles of the APIs answered, %v times as fast: all took %.1f s.\n", o.speed, time.Since(r.started).Seconds())
}

func (o *options) pricesText() string {
	if o.prices != "" {
		return o.prices
	}
	return "a file of examples"
}

// announce says what is about to be sent to a real endpoint.
func announce(w io.Writer, o options) {
	p := o.chosen()[0]
	fmt.Fprintf(w, "This sends %d requests to %s, model %s, at the cost of your key: about\n"+
		"%s input tokens and up to %s output tokens in all. They go through Headgate;\n"+
		"quota a minute: %s.\n",
		o.calls(), o.url, o.modelOf(p), grouped(int64(o.calls())*dossierRunes/4), grouped(int64(o.calls())*maxOutputTokens),
		o.quota(p))
}

// upper is a text that begins with a capital letter.
func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

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
