package openai

import (
	"fmt"
	"strings"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// Kinds of faults that the code asks for by name.
const (
	fault429       = "429"
	fault429Tokens = "429-tokens"
	fault429Day    = "429-day"
	fault429Slow   = "429-slow-down"
	fault429Quota  = "429-quota"
	fault429Credit = "429-credits"
	fault429Spend  = "429-spend"
	fault429Never  = "429-never"
	fault402       = "402"
	fault500       = "500"
	fault500Again  = "500-again"
	fault502       = "502"
	fault503       = "503"
	fault503Never  = "503-never"
	faultError     = "stream-error"
	faultCutJSON   = "cut-json"
	faultCut       = "cut"
	faultDrop      = "drop"
	faultHang      = "hang"
	faultSlow      = "slow"
	faultNoUsage   = "no-usage"
	faultFailed    = "failed"
)

var faultKinds = engine.Catalog{
	{Name: fault429, Refuses: true, Options: []string{"retry"}, Doc: "refused as by RPM, in the form of other refusals"},
	{Name: fault429Tokens, Refuses: true, Options: []string{"retry"}, Doc: "refused as by TPM, in the form of other refusals"},
	{Name: fault429Day, Refuses: true, Options: []string{"retry"}, Doc: "refused as by RPD"},
	{Name: fault429Slow, Refuses: true, Options: []string{"retry"}, Doc: "slow_down: a sudden rise of the rate"},
	{Name: fault429Quota, Refuses: true, Doc: "insufficient_quota"},
	{Name: fault429Credit, Refuses: true, Doc: "credit_balance_exhausted, of the type insufficient_quota"},
	{Name: fault429Spend, Refuses: true, Doc: "organization_spend_limit_exceeded, of the type insufficient_quota"},
	{Name: fault429Never, Refuses: true, Options: []string{"retry"}, Doc: "refused as by RPM, with x-should-retry: false"},
	{Name: fault402, Refuses: true, Doc: "payment required"},
	{Name: fault500, Doc: "server_error, at once"},
	{Name: fault500Again, Doc: "the same with x-should-retry: true"},
	{Name: fault502, Doc: "an HTML page, as from a proxy, at once"},
	{Name: fault503, Options: []string{"retry"}, Doc: "overloaded, at once"},
	{Name: fault503Never, Doc: "the same with x-should-retry: false"},
	{Name: faultError, Options: []string{"after", "code"}, Doc: "an error event inside the stream: server_error, rate_limit_exceeded (429) or overloaded (503)"},
	{Name: faultFailed, Options: []string{"after", "code"}, Doc: "response.failed with the same errors; an error event in chat completions"},
	{Name: faultCutJSON, Options: []string{"after"}, Doc: "the answer ends within a chunk's JSON"},
	{Name: faultCut, Options: []string{"after"}, Doc: "the answer ends cleanly, before it is complete"},
	{Name: faultDrop, Options: []string{"after"}, Doc: "the connection breaks within a chunk"},
	{Name: faultHang, Options: []string{"after", "for"}, Doc: "silence, until the client goes or the time is up; then the connection breaks"},
	{Name: faultSlow, Options: []string{"x"}, Doc: "everything takes x times as long (10)"},
	{Name: faultNoUsage, Doc: "the usage is left out"},
}

// FaultHelp describes the text form of faults and lists their kinds, one on a
// line.
func FaultHelp() string {
	var b strings.Builder
	b.WriteString(`A fault is written as kind, or kind@condition,...,option,...

Conditions, all of which a call must meet:
  p=0.01    by chance, one call in a hundred
  n=7       the seventh call that passes the quotas
  every=5   every fifth one
  10s-20s   calls from the tenth to the twentieth second (10s- for ever),
            counted from the start or the last reset, before the speed

Options:
  after=2   send two pieces first (half of them); the last one is never sent
  code=429  the status that an error inside the stream stands for (500)
  for=30s   how long to hang (for ever)
  retry=20s the delay to advise (the rest of the interval, else 30 s)
  x=3       how much slower

Kinds:
`)
	for _, k := range faultKinds {
		options := ""
		if len(k.Options) > 0 {
			options = " [" + strings.Join(k.Options, ", ") + "]"
		}
		fmt.Fprintf(&b, "  %-14s %s%s\n", k.Name, k.Doc, options)
	}
	return b.String()
}

// slowness is the factor by which a fault makes a call slower.
func slowness(f engine.Fault) float64 {
	switch {
	case f.Kind.Name != faultSlow:
		return 1
	case f.X > 0:
		return f.X
	}
	return 10
}

// brokenBy tells whether a fault breaks an answer of so many pieces, and before
// which one. The last piece is never sent then.
func brokenBy(f engine.Fault, pieces int) (kind string, before int) {
	switch f.Kind.Name {
	case faultError, faultFailed, faultCutJSON, faultCut, faultDrop:
		before = pieces / 2
	case faultHang:
		before = 0
	default:
		return "", pieces
	}
	if f.After >= 0 {
		before = f.After
	}
	return f.Kind.Name, max(min(before, pieces-1), 0)
}

// eventError is the error that comes inside an answer.
func eventError(f engine.Fault) apiError {
	switch f.Code {
	case 429:
		return apiError{Message: "Rate limit reached. Please try again later.", Type: "tokens", Code: orNull("rate_limit_exceeded")}
	case 503:
		return apiError{Message: overloaded, Type: "server_error", Code: orNull("server_error")}
	}
	return apiError{Message: "The server had an error while processing your request. Sorry about that!", Type: "server_error", Code: orNull("server_error")}
}

const overloaded = "The server is currently overloaded with other requests. Sorry about that! You can retry your request."
