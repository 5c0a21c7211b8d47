package gemini

import (
	"fmt"
	"strings"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// Kinds of faults that the code asks for by name.
const (
	fault429       = "429"
	fault429Day    = "429-day"
	fault429Both   = "429-both"
	fault429Zero   = "429-zero"
	fault429Help   = "429-help"
	fault429Header = "429-header"
	fault429Bare   = "429-bare"
	fault402       = "402"
	fault500       = "500"
	fault502       = "502"
	fault503       = "503"
	fault504       = "504"
	faultError     = "stream-error"
	faultErrorRaw  = "stream-error-raw"
	faultCutJSON   = "cut-json"
	faultCut       = "cut"
	faultDrop      = "drop"
	faultHang      = "hang"
	faultSlow      = "slow"
)

var faultKinds = engine.Catalog{
	{Name: fault429, Refuses: true, Options: []string{"retry"}, Doc: "refused as by RPM, in the form of other refusals"},
	{Name: fault429Day, Refuses: true, Options: []string{"retry"}, Doc: "the quota of the day is used up, yet RetryInfo is short"},
	{Name: fault429Both, Refuses: true, Options: []string{"retry"}, Doc: "the quotas of the minute and of the day at once"},
	{Name: fault429Zero, Refuses: true, Options: []string{"retry"}, Doc: "limit: 0, the model is not in the plan"},
	{Name: fault429Help, Refuses: true, Doc: "details with Help only"},
	{Name: fault429Header, Refuses: true, Options: []string{"retry"}, Doc: "no details, a Retry-After header"},
	{Name: fault429Bare, Refuses: true, Doc: "no details, no header"},
	{Name: fault402, Refuses: true, Doc: "credits used up; the status is RESOURCE_EXHAUSTED, too"},
	{Name: fault500, Doc: "INTERNAL, at once"},
	{Name: fault502, Doc: "an HTML page, as from a proxy, at once"},
	{Name: fault503, Doc: "UNAVAILABLE, at once"},
	{Name: fault504, Doc: "DEADLINE_EXCEEDED, after the time of the whole answer"},
	{Name: faultError, Options: []string{"after", "code"}, Doc: "an error event inside the stream (503)"},
	{Name: faultErrorRaw, Options: []string{"after", "code"}, Doc: "the same without the data: before it"},
	{Name: faultCutJSON, Options: []string{"after"}, Doc: "the answer ends within a chunk's JSON"},
	{Name: faultCut, Options: []string{"after"}, Doc: "the answer ends cleanly, without a finishReason"},
	{Name: faultDrop, Options: []string{"after"}, Doc: "the connection breaks within a chunk"},
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
  after=2   send two chunks first (half of them); the last one is never sent
  code=429  the code of an error inside the stream
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
		fmt.Fprintf(&b, "  %-17s %s%s\n", k.Name, k.Doc, options)
	}
	return b.String()
}
