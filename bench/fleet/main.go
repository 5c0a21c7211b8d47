// Fleet simulates replicas of a program that share the quota of one provider, in
// virtual time, and prints what each way of sharing makes of it:
//
//	go run ./bench/fleet -replicas 100 -mode leased
//	go run ./bench/fleet -replicas 8 -load 0.5 -mode all
//
// The replicas run the gate's own core and the product's own code for sharing; see
// package bench/internal/fleet. Run it with -h for everything that it can do; README.md
// explains the figures and shows measured runs.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/headgate-go/headgate/bench/internal/fleet"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// result is what became of one mode.
type result struct {
	Config  fleet.Config  `json:"config"`
	Metrics fleet.Metrics `json:"metrics"`
	// Events is how many were simulated, and Seconds how long that took.
	Events  int64   `json:"events"`
	Seconds float64 `json:"seconds"`

	series []fleet.Sample
}

// run simulates what args ask for and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "fleet: %v (run with -h for help)\n", err)
		return exitUsage
	}
	if err := o.simulate(stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "fleet: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// simulate plays all modes, and prints and draws what became of them.
func (o *options) simulate(stdout, stderr io.Writer) error {
	var results []result
	for _, m := range o.modes {
		cfg := o.fleet
		cfg.Mode = m
		cfg.Progress = progress(stderr, m, cfg.Length)
		began := time.Now()
		log, err := fleet.Run(cfg)
		if err != nil {
			return err
		}
		took := time.Since(began)
		fmt.Fprintf(stderr, "\r%-8v %d calls, %d events in %v%s\n", m, len(log.Calls), log.Events, took.Round(10*time.Millisecond), "          ")
		r := result{Config: log.Config, Metrics: fleet.Measure(log), Events: log.Events, Seconds: took.Seconds()}
		if o.plot != "" {
			r.series = fleet.Series(log)
		}
		results = append(results, r)
	}
	write := writeTable
	if o.json {
		write = writeJSON
	}
	if err := write(stdout, results); err != nil {
		return err
	}
	if o.plot == "" {
		return nil
	}
	return writePlots(o.plot, results)
}

// progress tells every virtual minute how far a run has come.
func progress(stderr io.Writer, m fleet.Mode, length time.Duration) func(time.Duration) {
	return func(passed time.Duration) {
		if passed%time.Minute == 0 {
			fmt.Fprintf(stderr, "\r%-8v %v of %v", m, passed, length)
		}
	}
}
