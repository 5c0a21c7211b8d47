// Quotareport answers questions about an audit of Headgate's quotas, as a sink of
// package audit writes it:
//
//	quotareport usage     -dir audit -subject tenant=acme,user=alice -window day -at 2026-11-23
//	quotareport reconcile -dir audit -export bill.csv -from 2026-11-01 -to 2026-12-01
//	quotareport suggest   -dir audit -from 2026-11-16
//
// "usage" says which calls, or turns, used up a counter, and when. "reconcile" compares what was
// counted with a provider's export in CSV, by day and model: what only the provider
// knows went past the enforcer. "suggest" derives limits from what was used, two to
// three times the 95th percentile, and says what they would have denied.
//
// Lines of the audit that cannot be read are told on the standard error and passed
// over. The exit code is 0 if all is well, 1 if something is wrong or, for
// reconcile, apart, and 2 for a command line that makes no sense.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"text/tabwriter"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/audit"
	"github.com/headgate-go/headgate/usage"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr, time.Now())) }

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

const synopsis = "usage: quotareport usage|reconcile|suggest -dir DIR [flags]; -h after one of them shows its flags"

// errApart is that counts differ, which the report has said already.
var errApart = errors.New("apart")

// senseless is what is wrong with a command line.
type senseless struct{ error }

// command is one of the three. It sets its flags, and returns what to do when they
// are parsed.
type command func(*flag.FlagSet) func(*query) error

var commands = map[string]command{"usage": usageOf, "reconcile": reconcile, "suggest": suggest}

// query is what all commands share.
type query struct {
	dir      string
	from, to time.Time
	given    bool // from or to are of the command line
	out, err io.Writer
	bad      int
}

func run(args []string, stdout, stderr io.Writer, now time.Time) int {
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprintln(stderr, synopsis)
		return exitUsage
	}
	flags := flag.NewFlagSet("quotareport "+args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	q := &query{out: stdout, err: stderr}
	flags.StringVar(&q.dir, "dir", "", "`directory` of the audit")
	flags.Func("from", "first `day` that counts, such as 2026-11-23 (default: the day a week ago)", dayVar(&q.from))
	flags.Func("to", "`day` before which it ends (default: now)", dayVar(&q.to))
	do := commands[args[0]](flags)
	if err := flags.Parse(args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage
	}
	var wrong error
	switch {
	case flags.NArg() > 0:
		wrong = fmt.Errorf("there is no argument %q", flags.Arg(0))
	case q.dir == "":
		wrong = errors.New("-dir is not set")
	case !q.from.IsZero() && !q.to.IsZero() && !q.from.Before(q.to):
		wrong = errors.New("-to is not after -from")
	}
	if wrong != nil {
		fmt.Fprintf(stderr, "quotareport: %v\n", wrong)
		return exitUsage
	}
	q.given = !q.from.IsZero() || !q.to.IsZero()
	if q.to.IsZero() {
		q.to = now
	}
	if q.from.IsZero() {
		q.from = q.to.AddDate(0, 0, -7).UTC().Truncate(24 * time.Hour) // bills have whole days
	}
	err := do(q)
	if q.bad > 0 {
		fmt.Fprintf(stderr, "quotareport: lines that could not be read and do not count: %d\n", q.bad)
	}
	switch {
	case err == nil:
		return exitOK
	case !errors.Is(err, errApart):
		fmt.Fprintf(stderr, "quotareport: %v\n", err)
	}
	if errors.As(err, new(senseless)) {
		return exitUsage
	}
	return exitFailed
}

// records are those of the time that was asked for.
func (q *query) records() iter.Seq2[audit.Record, error] {
	return audit.Whole(audit.Read(q.dir, q.from, q.to), func(e *audit.LineError) {
		if q.bad++; q.bad <= 10 {
			fmt.Fprintf(q.err, "quotareport: %v\n", e)
		}
	})
}

// usageOf answers which calls used up a counter.
func usageOf(flags *flag.FlagSet) func(*query) error {
	ask := audit.Question{Unit: quota.Tokens, Window: quota.Day}
	scope := flags.String("scope", "user", "`scope` of the counter")
	flags.Func("subject", "`ids`, such as tenant=acme,user=alice", subjectVar(&ask.Subject))
	flags.Func("unit", "`unit`: turns, calls, tokens, credits or money in micro-dollars (default tokens)", unitVar(&ask.Unit))
	flags.Func("window", "`window` of the limit, with its zone, such as day@Europe/Berlin (default day, which is in UTC)", windowVar(&ask.Window))
	var at moment
	flags.Func("at", "an `instant` in the window, such as 2026-11-23, a day in its zone, or 2026-11-23T15:04:05Z;\nin place of -from and -to, and not for rolling windows (default: all windows between -from and -to)", instantVar(&at))
	flags.BoolVar(&ask.Denials, "denials", true, "show denials, too")
	return func(q *query) error {
		ask.Scope = quota.Scope(*scope)
		switch {
		case at.at.IsZero():
		case ask.Window.IsRolling():
			return senseless{fmt.Errorf("-at has no meaning for the window %s, which has no beginning and no end; use -from and -to", ask.Window.ID())}
		case q.given:
			return senseless{errors.New("-at is given in place of -from and -to, not besides them")}
		default:
			ask.At = at.in(ask.Window)
			span := ask.Window.Resolve(nil).Span(ask.At)
			q.from, q.to = span.Start, span.End.Add(24*time.Hour) // calls may end later
		}
		t := tabwriter.NewWriter(q.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "when\tlimit\tcall or turn\tmodel\tagent\tamount\ttotal")
		n := 0
		for use, err := range audit.Uses(q.records(), ask) {
			if err != nil {
				return errors.Join(err, t.Flush())
			}
			n++
			r, amount := &use.Record, fmt.Sprint(use.Amount)
			if r.Kind == quota.KindDenial {
				amount = "denied"
				if r.Observed {
					amount = "would deny"
				}
			}
			id := cmp.Or(r.Call, r.Turn)
			fmt.Fprintf(t, "%s\t%s\t%q\t%q\t%q\t%s\t%d\n", r.At.Format(time.RFC3339), use.Limit, id, r.Model, r.Agent, amount, use.Total)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if n == 0 {
			fmt.Fprintln(q.out, "there is nothing")
		}
		return nil
	}
}

// reconcile compares the audit with a provider's export.
func reconcile(flags *flag.FlagSet) func(*query) error {
	var columns audit.Columns
	export := flags.String("export", "", "the provider's export, a CSV `file`")
	flags.StringVar(&columns.Date, "date", "date", "`column` of the day")
	flags.StringVar(&columns.Model, "model", "model", "`column` of the model")
	columns.Input, columns.Output, columns.Cost = []string{"input_tokens"}, []string{"output_tokens"}, []string{"cost"}
	flags.Func("input", "`columns` of input tokens, joined by commas (default input_tokens)", listVar(&columns.Input))
	flags.Func("output", "`columns` of output tokens (default output_tokens)", listVar(&columns.Output))
	flags.Func("cost", "`columns` of the cost in dollars (default cost)", listVar(&columns.Cost))
	flags.StringVar(&columns.Layout, "layout", "", "how dates are written, as Go has it")
	share := flags.Float64("tolerance", 0.01, "`part` by which counts may differ")
	rename := map[string]string{}
	flags.Func("rename", "`names` of models, such as gpt-5-2025-08-07=gpt-5, joined by commas", renameVar(rename))
	return func(q *query) error {
		if *export == "" {
			return senseless{errors.New("-export is not set")}
		}
		columns.Rename = renamer(rename)
		file, err := os.Open(*export)
		if err != nil {
			return err
		}
		defer file.Close()
		theirs, err := audit.ReadExport(file, columns)
		if err != nil {
			return err
		}
		within(theirs, q.from, q.to)
		ours, err := audit.Days(q.records(), audit.DaysConfig{Model: columns.Rename, Variant: usage.Standard})
		if err != nil {
			return err
		}
		report, err := audit.Reconcile(ours, theirs, audit.Tolerance{Share: *share})
		if err != nil {
			return err
		}
		if _, err := report.WriteTo(q.out); err != nil {
			return err
		}
		if report.Apart > 0 {
			return errApart
		}
		return nil
	}
}

// within leaves the days of a bill that were asked for.
func within(days map[audit.Day]audit.Sum, from, to time.Time) {
	for day := range days {
		at, err := time.Parse(time.DateOnly, day.Date)
		if err == nil && (!at.Add(24*time.Hour).After(from) || !at.Before(to)) {
			delete(days, day)
		}
	}
}

// suggest derives limits from what was used.
func suggest(flags *flag.FlagSet) func(*query) error {
	var cfg audit.SuggestConfig
	scope := flags.String("scope", "user", "`scope` of the limits")
	flags.Func("windows", "`windows`, joined by commas (default rolling:1m,day)", windowsVar(&cfg.Windows))
	flags.Func("units", "`units`, joined by commas (default turns,tokens)", unitsVar(&cfg.Units))
	flags.Float64Var(&cfg.Quantile, "quantile", audit.DefaultQuantile, "`part` of all windows to start from")
	flags.Float64Var(&cfg.Low, "low", audit.DefaultLow, "`factor` of the low limit")
	flags.Float64Var(&cfg.High, "high", audit.DefaultHigh, "`factor` of the high limit")
	return func(q *query) error {
		cfg.Scope = quota.Scope(*scope)
		all, err := audit.Suggest(q.records(), cfg)
		if err != nil {
			return err
		}
		q.bad /= 2 // it reads twice
		return audit.Write(q.out, all)
	}
}
