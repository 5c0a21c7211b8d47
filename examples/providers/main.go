// Providers runs one agent over three providers:
//
//	go run ./examples/providers
//	go run ./examples/providers -provider anthropic -users 10
//
// Five users ask for a report at the same moment. For each, four researchers
// read a dossier side by side, and then a writer makes a report of what they
// found, which is streamed: 25 calls. The agent is written once, for any pair of
// request and response types; all that it needs of a provider are two small
// functions, one that makes a request of a text and one that reads the text of a
// response (see Agent). Each provider's SDK is made a model by a package of
// Headgate, and wrapped once by ratelimited.New with the profile of that
// provider:
//
//   - "gemini": google.golang.org/genai. Prompt tokens count, output does not.
//   - "openai": chat completions of github.com/openai/openai-go/v3. A call takes
//     the larger of its prompt and its max_tokens.
//   - "openai-responses": the Responses API of the same SDK.
//   - "anthropic": github.com/anthropics/anthropic-sdk-go/v2. Input and output
//     count apart, and what is read from the prompt cache does not count.
//
// Each is served by a double of its API in this process, with a quota that is too
// small for all at once. The program makes the burst twice with each:
//
//   - "unlimited": through a gate that has no limits and retries nothing, so that
//     every call is sent at once. It is there to keep the same books.
//   - "headgate": through a gate with the provider's profile.
//
// It prints what became of the calls, what they used and what that costs. Tokens
// and money are what the calls were settled at: the program's books are a
// budget.Budget, like one that would meter a customer, and prices come from a
// dated file (prices.yaml, or that of -prices). The prices of the one that comes
// with the program are examples. Of the doubles, Anthropic's caches prompts by
// the rules of its API, OpenAI's reports half of every prompt as cached, and
// Gemini's caches nothing.
//
// A double is -speed times as fast as the real API; all seconds that are printed
// are those of the real one.
//
// With -url the burst goes through Headgate to a real endpoint of one provider,
// with the key in GEMINI_API_KEY, OPENAI_API_KEY or ANTHROPIC_API_KEY; it says
// first what it will send. That costs money.
//
// -json prints one object on one line. In it, "refused" are the answers with 429,
// "estimated_calls" the calls whose usage was not reported, such as those that
// were cut off, and "first_text_p50_s" the median time from a user's click to the
// first text of the report.
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
	"time"
)

func main() {
	log.SetOutput(io.Discard) // SDKs log errors that they also return
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal finds the default behaviour
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, loopback))
}

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // something went wrong, or a report failed behind the gate
	exitUsage  = 2
)

// run is the program. Doubles are served by host.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, host host) int {
	o, err := parseFlags(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "providers: %s (run with -h for help)\n", oneLine(err))
		return exitUsage
	}
	err = compare(ctx, o, stdout, stderr, host)
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintf(stderr, "providers: %s\n", oneLine(err))
		return exitFailed
	}
	return exitOK
}

// oneLine is the text of an error without its line breaks, which those of APIs
// may have.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// compare makes the bursts of all chosen providers, one after the other, and
// prints what they came to. A report that failed behind the gate is an error,
// after everything was printed.
func compare(ctx context.Context, o options, stdout, stderr io.Writer, host host) error {
	catalog, err := o.catalog()
	if err != nil {
		return err
	}
	out := newPrinter(o, catalog)
	for _, p := range o.chosen() {
		// A model without a price is found out before anything is sent.
		if _, err := catalog.Price(o.modelOf(p), time.Now(), variant); err != nil {
			return err
		}
	}
	if o.url != "" {
		announce(stderr, o)
	}
	var lost error
	for _, p := range o.chosen() {
		runs, err := measure(ctx, o, p, catalog, host)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if err := out.add(stdout, p, runs); err != nil {
			return err
		}
		lost = errors.Join(lost, failure(p, runs))
	}
	return errors.Join(out.end(stdout), lost)
}
