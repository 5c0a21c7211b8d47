// Review is the program to run first:
//
//	go run ./examples/review
//
// Ten users click at the same moment. Each click has a proposal read by four
// reviewers side by side, and then has a synthesiser sum up what they say: 50
// model calls of 5,000 input and 800 output tokens. They share a quota of
// 120,000 input tokens a minute, so that they cannot all be sent at once.
//
// The program makes this burst twice, through the real SDK
// google.golang.org/genai, against a double of the Gemini API in its own
// process:
//
//   - "unlimited": every call is sent at once. A call that is throttled (429)
//     fails and, as with ADK Go's parallel agent, takes the other reviewers of
//     its click with it: they are cut off, and the synthesiser is not asked.
//     Nothing is retried.
//   - "headgate": the same agents with the same model, wrapped once by
//     ratelimited.New. The flow is the user, the request key is the click, the
//     agent label is "reviewer" or "synthesiser".
//
// It prints what became of the calls and of the reviews, and how long the burst
// took beside the least time in which the quota, the slots and the order of the
// agents let anybody do it. The double is -speed times as fast as the real API;
// all seconds that are printed are those of the real one.
//
// With -real the burst goes through Headgate to the Gemini API itself, with the
// key in GEMINI_API_KEY; it says first what it will send. That costs money.
//
// -json prints one object on one line. In it, "calls" are the calls that agents
// made, "failed" those that got no answer, "throttled" the refusals with 429,
// "p50_s" and "p99_s" the time of an answered call with its wait in line, and
// "max_window_use" the largest part of a quota that was used in any minute,
// wherever it begins: never above 1 behind the gate, unless the provider's own
// rule is a bucket, which lets up to two quotas through in a minute.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	log.SetOutput(io.Discard) // the SDK logs errors that it also returns
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal finds the default behaviour
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, loopback))
}

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // something went wrong, or a review failed behind the gate
	exitUsage  = 2
)

// run is the program. The double is served by host.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, host host) int {
	o, err := parseFlags(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "review: %s (run with -h for help)\n", oneLine(err))
		return exitUsage
	}
	report, err := measure(ctx, o, stderr, host)
	if err == nil {
		err = report.write(stdout)
	}
	if err == nil {
		err = report.failure()
	}
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintf(stderr, "review: %s\n", oneLine(err))
		return exitFailed
	}
	return exitOK
}

// oneLine is the text of an error without its line breaks, which those of the
// API have.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// measure makes the runs.
func measure(ctx context.Context, o options, stderr io.Writer, host host) (*report, error) {
	r := &report{options: o}
	progress := newProgress(stderr)
	if o.real {
		announce(stderr, o)
		return r, r.add(gatedRun(ctx, o, progress, host))
	}
	plans, err := plan(ctx, o, host)
	if err != nil {
		return nil, err
	}
	r.plans = plans
	if err := r.add(unlimitedRun(ctx, o, progress, host)); err != nil {
		return nil, err
	}
	return r, r.add(gatedRun(ctx, o, progress, host))
}
