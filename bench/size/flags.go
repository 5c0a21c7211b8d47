package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
	"github.com/headgate-go/headgate/internal/commandline"
)

// options is what the command line says.
type options struct {
	question question
	traffic  traffic
	json     bool
}

const usageHead = `Usage: size [flags]

Sizes a fleet of agents against one model quota: the limit that binds, calls and
user requests a minute per replica, slots, and how long calls wait. Checks its
own answer by simulation in virtual time and prints both.

Examples:

  size -users-per-min 40 -calls 5 -tokens 5800 -count total -headroom 0.9 \
    -latency 8s -rpm 1000 -tpm 1000000 -replicas 3
  size -tenant acme=25 -tenant globex=15 -calls 5 -tokens 5800 -output 800 \
    -count input -latency 8s -rpm 1000 -tpm 1000000

Flags:
`

// The bounds of what can be asked keep every product below far from overflow.
const (
	maxPerMinute = 1e9
	maxCalls     = 10_000
	maxTokens    = 1_000_000_000
	maxQuota     = 1_000_000_000_000
	maxReplicas  = 10_000
	maxTenants   = 1000
	maxDuration  = 24 * time.Hour
)

// parseFlags reads the command line. With -h it prints help to out and returns
// flag.ErrHelp. Any other error is one line that names the flag and the value.
func parseFlags(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("size", flag.ContinueOnError)

	q, t := &o.question, &o.traffic
	users := f.Float64("users-per-min", 0, "user `requests` a minute at the peak, over all replicas")
	f.Func("tenant", "`name=requests` a minute of one tenant at its peak, instead of -users-per-min; repeat it for each tenant: the peaks are summed, as they may coincide", func(s string) error {
		return q.addTenant(s)
	})
	f.IntVar(&q.Calls, "calls", 1, "model `calls` that one user request makes")
	f.Int64Var(&q.Tokens, "tokens", 0, "`tokens` of an average call, input and output together")
	f.Int64Var(&q.Output, "output", 0, "the part of -tokens that is generated; needed for -count input")
	f.StringVar(&q.Count, "count", countTotal, "what the token quota counts: total, or input only")
	f.Float64Var(&q.Headroom, "headroom", 0.9, "the `part` of the quota that is to be used, above 0 and up to 1")
	f.DurationVar(&q.Latency, "latency", 0, "how long an average call takes")
	f.Int64Var(&q.RPM, "rpm", 0, "quota on `requests` a minute, 0 for none")
	f.Int64Var(&q.TPM, "tpm", 0, "quota on `tokens` a minute, 0 for none")
	f.IntVar(&q.Replicas, "replicas", 1, "`processes` that share the quota, each with an equal part")
	f.IntVar(&q.Burst, "burst", 2, "user `requests` that come at the same instant and should all find slots")
	f.DurationVar(&q.MaxWait, "max-wait", 20*time.Second, "how long a call may wait: what a user tolerates")
	f.DurationVar(&q.Peak, "peak", 30*time.Minute, "how long the peak lasts; also the length of the simulation")

	f.TextVar(&t.Window, "window", engine.Sliding, "how the provider's windows move: sliding, fixed or bucket")
	f.Float64Var(&t.Spread, "spread", 0.3, "`sigma` of the log-normal sizes and latencies of calls, 0 for all alike")
	f.Uint64Var(&t.Seed, "seed", 1, "`seed` of the traffic")
	f.BoolVar(&o.json, "json", false, "print one JSON object on one line")

	if err := commandline.Parse(f, args, out, usageHead, ""); err != nil {
		return o, err
	}
	given := make(map[string]bool)
	f.Visit(func(fl *flag.Flag) { given[fl.Name] = true })
	switch {
	case given["users-per-min"] && given["tenant"]:
		return o, fmt.Errorf("-users-per-min %v beside -tenant: give the sum or its parts", *users)
	case q.Count == countInput && !given["output"]:
		return o, fmt.Errorf("-count input without -output: say how many of the %d -tokens are generated and do not count (0 if -tokens is input only)", q.Tokens)
	}
	if !given["tenant"] {
		if err := perMinute(*users); err != nil {
			return o, fmt.Errorf("-users-per-min %v: %w", *users, err)
		}
		q.Tenants = []tenant{{Name: "users", PerMinute: *users}}
	}
	if err := q.validate(); err != nil {
		return o, err
	}
	return o, t.validate()
}

// addTenant reads "name=requests".
func (q *question) addTenant(s string) error {
	name, value, ok := strings.Cut(s, "=")
	rate, err := strconv.ParseFloat(value, 64)
	switch {
	case !ok || name == "":
		return errors.New("must be name=requests a minute")
	case err != nil:
		return errors.New("the requests a minute must be a number")
	case slices.ContainsFunc(q.Tenants, func(t tenant) bool { return t.Name == name }):
		return fmt.Errorf("tenant %q is given twice", name)
	case len(q.Tenants) == maxTenants:
		return fmt.Errorf("at most %d tenants", maxTenants)
	}
	if err := perMinute(rate); err != nil {
		return err
	}
	q.Tenants = append(q.Tenants, tenant{Name: name, PerMinute: rate})
	return nil
}

func perMinute(rate float64) error {
	if !(rate > 0 && rate <= maxPerMinute) {
		return fmt.Errorf("must be above 0 and at most %g a minute", float64(maxPerMinute))
	}
	return nil
}

// validate names the flag that is wrong, and its value.
func (q question) validate() error {
	if err := inRange("-calls", int64(q.Calls), 1, maxCalls); err != nil {
		return err
	}
	if err := inRange("-tokens", q.Tokens, 1, maxTokens); err != nil {
		return err
	}
	if err := inRange("-rpm", q.RPM, 0, maxQuota); err != nil {
		return err
	}
	if err := inRange("-tpm", q.TPM, 0, maxQuota); err != nil {
		return err
	}
	if err := inRange("-replicas", int64(q.Replicas), 1, maxReplicas); err != nil {
		return err
	}
	if err := inRange("-burst", int64(q.Burst), 1, maxCalls); err != nil {
		return err
	}
	switch {
	case q.Count != countTotal && q.Count != countInput:
		return fmt.Errorf("-count %q: must be total or input", q.Count)
	case q.Output < 0 || q.Output > q.Tokens:
		return fmt.Errorf("-output %d: must be from 0 to the %d of -tokens", q.Output, q.Tokens)
	case q.Count == countInput && q.Output == q.Tokens:
		return fmt.Errorf("-output %d: all of -tokens; a call has no input then", q.Output)
	case !(q.Headroom > 0 && q.Headroom <= 1):
		return fmt.Errorf("-headroom %v: must be above 0 and at most 1", q.Headroom)
	case q.Latency <= 0 || q.Latency > maxDuration:
		return fmt.Errorf("-latency %v: must be above 0 and at most %v", q.Latency, maxDuration)
	case q.MaxWait < 0 || q.MaxWait > maxDuration:
		return fmt.Errorf("-max-wait %v: must be from 0 to %v", q.MaxWait, maxDuration)
	case q.Peak < time.Minute || q.Peak > maxDuration:
		return fmt.Errorf("-peak %v: must be from %v to %v", q.Peak, time.Minute, maxDuration)
	case q.RPM == 0 && q.TPM == 0:
		return errors.New("no quota: give -rpm, -tpm or both")
	}
	for _, l := range q.limits() {
		if share := l.quota / int64(q.Replicas); share < l.perCall {
			return fmt.Errorf("-%s %d over %d -replicas leaves %d for each, less than the %d of one call: use fewer replicas, or share the quota through a store",
				l.flag, l.quota, q.Replicas, share, l.perCall)
		}
	}
	return nil
}

func (t traffic) validate() error {
	switch {
	case !(t.Spread >= 0 && t.Spread <= 1):
		return fmt.Errorf("-spread %v: must be from 0 to 1", t.Spread)
	case t.Window == engine.Daily:
		return fmt.Errorf("-window %v: must be sliding, fixed or bucket", t.Window)
	}
	return nil
}

func inRange(flag string, n, least, most int64) error {
	if n < least || n > most {
		return fmt.Errorf("%s %d: must be from %d to %d", flag, n, least, most)
	}
	return nil
}
