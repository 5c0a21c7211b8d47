package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/headgate-go/headgate/bench/gemini"
	"github.com/headgate-go/headgate/internal/commandline"
)

// options is what the command line says.
type options struct {
	json    bool
	latency time.Duration
	model   string
	real    bool
	rpm     int64
	seed    uint64
	slots   int64
	speed   float64
	tpm     int64
	users   int
	window  gemini.Window
}

const usageHead = `Usage: review [flags]

Ten users click at once, each click makes five model calls of 5,000 tokens, and
all share one quota. The program makes this burst twice against a double of the
Gemini API, without and with Headgate, and prints what became of it.

Flags:
`

// Bounds of the quotas: leastTPM has room for one call, whatever its estimate,
// and maxQuota is what the double takes and more than any provider gives.
const (
	leastTPM = 2 * promptTokens
	maxQuota = 1_000_000_000_000
)

// parseFlags reads the command line. With -h it prints help to out and returns
// flag.ErrHelp. Any other error is one line that names the flag and the value.
func parseFlags(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("review", flag.ContinueOnError)
	f.BoolVar(&o.json, "json", false, "print one JSON object on one line instead of a table")
	f.DurationVar(&o.latency, "latency", 8*time.Second, "median `time` that a call takes at the double")
	f.StringVar(&o.model, "model", "gemini-2.5-flash", "`name` of the model")
	f.BoolVar(&o.real, "real", false, "send the burst to the Gemini API, with the key in GEMINI_API_KEY, through Headgate only; costs money")
	f.Int64Var(&o.rpm, "rpm", 1000, "quota of `requests` a minute, 0 for no limit")
	f.Uint64Var(&o.seed, "seed", 1, "`number` from which proposals and latencies are drawn")
	f.Int64Var(&o.slots, "slots", 30, "`calls` that the gate lets be under way at a time")
	f.Float64Var(&o.speed, "speed", 20, "`factor` by which the double's time is faster than real time")
	f.Int64Var(&o.tpm, "tpm", 120_000, "quota of input `tokens` a minute, 0 for no limit")
	f.IntVar(&o.users, "users", 10, "`number` of users who click")
	f.TextVar(&o.window, "window", gemini.Sliding, "`model` of the quota's minute: sliding, fixed or bucket")
	if err := commandline.Parse(f, args, out, usageHead, ""); err != nil {
		return o, err
	}
	if o.real {
		if err := forReal(f, &o); err != nil {
			return o, err
		}
	}
	return o, o.validate()
}

// forReal checks what only the double knows, and what only the real API needs.
func forReal(f *flag.FlagSet, o *options) (err error) {
	f.Visit(func(given *flag.Flag) {
		if given.Name == "speed" || given.Name == "latency" {
			err = fmt.Errorf("-%s %v beside -real: it is a property of the double", given.Name, given.Value)
		}
	})
	o.speed = 1
	if err == nil && os.Getenv("GEMINI_API_KEY") == "" {
		err = errors.New("-real: the environment variable GEMINI_API_KEY is not set")
	}
	return err
}

func (o *options) validate() error {
	switch {
	case o.latency <= 0 || o.latency > 10*time.Minute:
		return fmt.Errorf("-latency %v: must be above 0 and at most 10m", o.latency)
	case o.model == "" || strings.ContainsAny(o.model, " /?#:%"):
		return fmt.Errorf("-model %q: must be the name of a model", o.model)
	case o.rpm < 0 || o.rpm > maxQuota:
		return fmt.Errorf("-rpm %d: must be from 0 to %d", o.rpm, int64(maxQuota))
	case o.slots < 1 || o.slots > 10_000:
		return fmt.Errorf("-slots %d: must be from 1 to 10000", o.slots)
	case !(o.speed >= 0.1 && o.speed <= 1000):
		return fmt.Errorf("-speed %v: must be from 0.1 to 1000", o.speed)
	case o.tpm != 0 && o.tpm < leastTPM || o.tpm > maxQuota:
		return fmt.Errorf("-tpm %d: must be 0, or from %d (room for a call) to %d", o.tpm, leastTPM, int64(maxQuota))
	case o.users < 1 || o.users > 1000:
		return fmt.Errorf("-users %d: must be from 1 to 1000", o.users)
	}
	return nil
}

// calls is the number of calls of the whole burst.
func (o *options) calls() int { return o.users * (len(reviewers) + 1) }

// scaled returns how long a time of the API is at the double.
func (o *options) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) / o.speed)
}

// virtual returns how long a measured time is at the API.
func (o *options) virtual(d time.Duration) time.Duration {
	return time.Duration(float64(d) * o.speed)
}
