package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/headgate-go/headgate/bench/openai"
	"github.com/headgate-go/headgate/internal/commandline"
)

// options is what the command line says.
type options struct {
	addr   string
	grace  time.Duration
	config openai.Config
}

const usageHead = `Usage: serve [flags]

A double of OpenAI's API for load tests. It serves chat/completions, responses
and embeddings on the paths of OpenAI and of Azure OpenAI, enforces quotas, takes
time, and fails where it is told to. GET /stats returns the counters, GET /calls
the latest calls, POST /reset starts anew. The headers X-Double-Output,
-Reasoning, -Cached, -Latency, -Calls and -Fault overrule the flags for one call.

Example:

  serve -addr 127.0.0.1:8090 -rpm 500 -tpm 200000 -latency 8s -fault 503@p=0.01
  curl -s 127.0.0.1:8090/v1/chat/completions \
    -d '{"model":"gpt-5-mini","messages":[{"role":"user","content":"hello"}]}'

Flags:
`

// parseFlags reads the command line. With -h it prints help to out and returns
// flag.ErrHelp. Any other error is one line that names the flag and the value.
func parseFlags(args []string, out io.Writer) (options, error) {
	var o options
	f := o.flags()
	if err := commandline.Parse(f, args, out, usageHead, "\n"+openai.FaultHelp()); err != nil {
		return o, err
	}
	if o.grace < 0 {
		return o, fmt.Errorf("-grace %v: must not be negative", o.grace)
	}
	given := make(map[string]string)
	f.Visit(func(fl *flag.Flag) { given[fl.Name] = fl.Value.String() })
	for _, name := range []string{"ttft", "tps"} {
		if _, ok := given[name]; ok && o.config.Latency > 0 {
			return o, fmt.Errorf("-latency %v beside -%s: give the total or its parts", o.config.Latency, name)
		}
	}
	o.settle()
	return o, blame(check(o.config), given)
}

// settle makes a total latency stand instead of the defaults of its parts.
func (o *options) settle() {
	if o.config.Latency > 0 {
		o.config.TTFT, o.config.TokensPerSecond = 0, 0
	}
}

// check tells what is wrong with a configuration, if anything is.
func check(c openai.Config) error {
	_, err := openai.New(c)
	return err
}

// blame puts the flag's name to an error of the configuration: that of the
// flag which is wrong even on its own.
func blame(err error, given map[string]string) error {
	if err == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		var alone options
		if alone.flags().Set(name, given[name]) != nil {
			continue // a flag that cannot show its value; it was checked when it was read
		}
		alone.settle()
		if wrong := check(alone.config); wrong != nil {
			return fmt.Errorf("invalid value %q for flag -%s: %w", given[name], name, wrong)
		}
	}
	return err
}

// flags returns the flags that set the options.
func (o *options) flags() *flag.FlagSet {
	c := &o.config
	f := flag.NewFlagSet("serve", flag.ContinueOnError)

	f.StringVar(&o.addr, "addr", "127.0.0.1:8090", "`address` to listen on; port 0 picks a free one")
	f.DurationVar(&o.grace, "grace", 5*time.Second, "how long calls under way may go on after an interrupt")

	f.Int64Var(&c.RPM, "rpm", 0, "`requests` per window, 0 for no limit")
	f.Int64Var(&c.TPM, "tpm", 0, "`tokens` per window, 0 for no limit")
	f.Int64Var(&c.RPD, "rpd", 0, "`requests` per day (UTC), 0 for no limit")
	f.Int64Var(&c.TPD, "tpd", 0, "`tokens` per day (UTC), 0 for no limit")
	f.IntVar(&c.Concurrency, "concurrency", 0, "`calls` in flight, 0 for no limit")
	f.Func("window", "`model` of the window: fixed or sliding (default: a bucket that refills continuously)", func(s string) error {
		c.Window = openai.Window(s)
		return check(openai.Config{Window: c.Window})
	})
	f.DurationVar(&c.WindowLength, "window-length", openai.DefaultWindowLength, "length of the windows of -rpm and -tpm")
	f.DurationVar(&c.WindowOffset, "window-offset", 0, "first border of fixed windows after the start")
	f.TextVar(&c.CountAt, "count-at", openai.AtArrival, "`instant` at which calls count: arrival or completion")
	f.BoolVar(&c.CountRefused, "count-refused", false, "count refused calls against -rpm and -rpd, too")
	f.DurationVar(&c.ArrivalJitter, "jitter", 0, "largest delay before the quotas see a request")
	f.Func("count-tokens", "what a call takes of -tpm and -tpd: sum of prompt and limit, as at Azure (default: the larger)", func(s string) error {
		c.CountTokens = openai.TokenCount(s)
		return check(openai.Config{CountTokens: c.CountTokens})
	})
	f.Func("refusal", "`form` of the headers of refusals: seconds, reset or bare (default: all of them)", func(s string) error {
		c.RefusalForm = openai.Form(s)
		return check(openai.Config{RefusalForm: c.RefusalForm})
	})

	f.DurationVar(&c.TTFT, "ttft", 400*time.Millisecond, "median time to the first token")
	f.Float64Var(&c.TokensPerSecond, "tps", 150, "`tokens` per second after the first, 0 for all at once")
	f.DurationVar(&c.Latency, "latency", 0, "median total time of a call, instead of -ttft and -tps")
	f.Float64Var(&c.TTFTShare, "ttft-share", 0.2, "`part` of -latency before the first token, from 0 to 1")
	f.Float64Var(&c.LatencySigma, "latency-sigma", 0.3, "`sigma` of the log-normal -ttft or -latency, 0 for none")

	f.IntVar(&c.OutputTokens, "output", openai.DefaultOutputTokens, "median output `tokens`")
	f.IntVar(&c.Reasoning, "reasoning", 0, "median `tokens` of reasoning")
	f.Float64Var(&c.OutputSigma, "output-sigma", 0.5, "`sigma` of the log-normal -output and -reasoning, 0 for none")
	f.IntVar(&c.FunctionCalls, "function-calls", 0, "function `calls` in the answer to a request that declares functions")
	f.Float64Var(&c.CachedShare, "cached-share", 0, "`part` of prompts, from 0 to 1, that is reported as cached")
	f.IntVar(&c.ChunkTokens, "chunk", openai.DefaultChunkTokens, "`tokens` in a chunk of a stream")

	f.Func("fault", "`fault` to commit, may be repeated; see below", func(s string) error {
		c.Faults = append(c.Faults, s)
		return check(openai.Config{Faults: []string{s}})
	})
	f.Uint64Var(&c.Seed, "seed", 1, "`seed` of everything random")
	f.Float64Var(&c.Speed, "speed", 1, "`factor` that divides every duration that is enforced or reported")
	f.IntVar(&c.CallLog, "call-log", 10_000, "`calls` that GET /calls remembers")
	return f
}
