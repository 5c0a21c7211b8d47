package anthropic

import (
	"fmt"
	"strings"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// Kinds of faults that the code asks for by name.
const (
	fault429      = "429"
	fault429Bare  = "429-bare"
	faultSpend    = "429-spend"
	faultContract = "429-contract"
	faultRamp     = "429-ramp"
	fault402      = "402"
	faultOwnLimit = "400-spend"
	fault500      = "500"
	fault500Safe  = "500-safe"
	fault502      = "502"
	fault504      = "504"
	fault529      = "529"
	faultError    = "stream-error"
	faultCutJSON  = "cut-json"
	faultCut      = "cut"
	faultDrop     = "drop"
	faultHang     = "hang"
	faultSlow     = "slow"
)

var faultKinds = engine.Catalog{
	{Name: fault429, Refuses: true, Options: []string{"retry"}, Doc: "rate_limit_error with retry-after"},
	{Name: fault429Bare, Refuses: true, Doc: "rate_limit_error without retry-after"},
	{Name: faultSpend, Refuses: true, Doc: "the month's spend limit: enforced_spend_limit_reached, no retry-after"},
	{Name: faultContract, Refuses: true, Doc: "the contract's spend limit: contract_spend_limit_reached"},
	{Name: faultRamp, Refuses: true, Options: []string{"retry"}, Doc: "traffic grew too fast: ramp_limit_exceeded with retry-after"},
	{Name: fault402, Refuses: true, Doc: "billing_error of a linked organization"},
	{Name: faultOwnLimit, Refuses: true, Doc: "a spend limit of one's own: invalid_request_error"},
	{Name: fault500, Doc: "api_error, at once"},
	{Name: fault500Safe, Doc: "the same, with x-should-retry: true"},
	{Name: fault502, Doc: "an HTML page, as from a proxy, at once"},
	{Name: fault504, Doc: "timeout_error, after the time of the whole answer"},
	{Name: fault529, Refuses: true, Options: []string{"retry"}, Doc: "overloaded_error, for everybody; retry-after only if given"},
	{Name: faultError, Options: []string{"after", "code"}, Doc: "an error event inside the stream (529: overloaded_error)"},
	{Name: faultCutJSON, Options: []string{"after"}, Doc: "the answer ends within an event's JSON"},
	{Name: faultCut, Options: []string{"after"}, Doc: "the answer ends cleanly, without a stop reason"},
	{Name: faultDrop, Options: []string{"after"}, Doc: "the connection breaks within an event"},
	{Name: faultHang, Options: []string{"after", "for"}, Doc: "silence, until the client goes or the time is up; then the connection breaks"},
	{Name: faultSlow, Options: []string{"x"}, Doc: "everything takes x times as long (10)"},
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
  after=2   send two events first (half of them); the stop reason is never sent
  code=500  the status that the error inside the stream would have
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
		fmt.Fprintf(&b, "  %-13s %s%s\n", k.Name, k.Doc, options)
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
