// Adaptive shows what programs find of a quota that nobody has told them, and how
// many refused calls that costs:
//
//	go run ./bench/adaptive
//
// plays Headgate's gate with a limit that is Unknown beside failsafe-go's adaptive
// limiter and a rate controller like that of the AWS SDKs: one program, and ten that
// do not know of each other, before ten calls a second out of a bucket that is a
// minute deep, for two hours after half an hour, in virtual time; refused calls
// counted by the provider and not; then one that bounds calls at a time. Other
// settings:
//
//	go run ./bench/adaptive -policy headgate -clients 100 -rate 50 -window sliding -hints
//
// It takes about half a minute, and a seed decides everything.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/headgate-go/headgate/bench/internal/adaptive"
	"github.com/headgate-go/headgate/bench/internal/engine"
	"github.com/headgate-go/headgate/internal/commandline"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run plays what args ask for and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	settings, err := parse(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "adaptive: %v (run with -h for help)\n", err)
		return exitUsage
	}
	start := time.Now()
	var rows []adaptive.Row
	for i, s := range settings {
		fmt.Fprintf(stderr, "%d of %d: %s, %d clients (%.0f s)\n", i+1, len(settings), s.Policy, s.Clients, time.Since(start).Seconds())
		result, err := adaptive.Run(s)
		if err != nil {
			fmt.Fprintln(stderr, err)
			return exitFailed
		}
		rows = append(rows, adaptive.Row{Setting: s, Result: result})
	}
	if err := adaptive.Print(stdout, rows); err != nil {
		fmt.Fprintf(stderr, "adaptive: %v\n", err)
		return exitFailed
	}
	return exitOK
}

const usage = `Usage: adaptive [flags]

Without any flag but -seed it prints the whole table.

Flags:
`

// parse returns the settings of the table, or the one that args describe.
func parse(args []string, help io.Writer) ([]adaptive.Setting, error) {
	f := flag.NewFlagSet("adaptive", flag.ContinueOnError)
	s := adaptive.Setting{}
	f.StringVar(&s.Policy, "policy", adaptive.Headgate, fmt.Sprintf("one of %v", adaptive.Policies()))
	f.IntVar(&s.Clients, "clients", 1, "`programs` that share the quota, none of which knows of the others")
	f.IntVar(&s.Callers, "callers", 200, "`callers` of all programs together, each of which always has a next call")
	f.Float64Var(&s.Rate, "rate", 10, "the quota in `calls` per second; 0 is none")
	f.DurationVar(&s.Depth, "depth", time.Minute, "what a bucket holds, as the `time` in which the rate fills it")
	f.IntVar(&s.Places, "places", 0, "`calls` that the provider takes at a time; 0 is no bound")
	f.TextVar(&s.Window, "window", engine.Bucket, "bucket, sliding or fixed")
	f.BoolVar(&s.Hints, "hints", false, "refusals say how long to wait")
	f.BoolVar(&s.FailuresCount, "failures-count", false, "refused calls count, too")
	f.DurationVar(&s.Latency, "latency", 3*time.Second, "median `time` of a call")
	f.DurationVar(&s.WarmUp, "warm-up", 30*time.Minute, "`time` that is not measured")
	f.DurationVar(&s.Span, "span", 2*time.Hour, "`time` that is")
	seed := f.Uint64("seed", 1, "decides everything")
	if err := commandline.Parse(f, args, help, usage, ""); err != nil {
		return nil, err
	}
	for _, n := range []struct { // 0 would be their defaults
		name  string
		value time.Duration
	}{{"depth", s.Depth}, {"latency", s.Latency}} {
		if n.value <= 0 {
			return nil, fmt.Errorf("-%s is %v, must be above 0", n.name, n.value)
		}
	}
	if s.Callers <= 0 {
		return nil, fmt.Errorf("-callers is %d, must be above 0", s.Callers)
	}
	s.Seed = *seed
	one := false
	f.Visit(func(f *flag.Flag) { one = one || f.Name != "seed" })
	if !one {
		return adaptive.Settings(*seed), nil
	}
	return []adaptive.Setting{s}, s.Validate()
}
