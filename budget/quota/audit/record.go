package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/usage"
)

// Version is that of the form of records that this package writes. It reads no other.
const Version = 1

// MaxLine is the longest line that is read, in bytes. What is written is far shorter:
// ids are bounded, and so is the number of counters.
const MaxLine = 1 << 20

// Record is one line of an audit: an event as it is kept. Which fields are set depends
// on Kind; those that are not are left out of the line.
type Record struct {
	// V is [Version].
	V int `json:"v"`
	// Kind is what happened; see [quota.Event].
	Kind quota.EventKind `json:"kind"`
	// At is when, in UTC.
	At time.Time `json:"at"`
	// Subject is for whom something was done, Turn and Call in which turn and call.
	Subject quota.Subject `json:"subject,omitzero"`
	Turn    string        `json:"turn,omitempty"`
	Call    string        `json:"call,omitempty"`
	// Erased is true if ids were taken out; see [Sink.Erase].
	Erased bool `json:"erased,omitempty"`

	// Of calls; see [quota.CallSettled]. Of turns there is Counted.

	Model    string            `json:"model,omitempty"`
	Agent    string            `json:"agent,omitempty"`
	Tool     bool              `json:"tool,omitempty"`
	Outcome  quota.CallOutcome `json:"outcome,omitempty"`
	Estimate Tokens            `json:"estimate,omitzero"`
	Usage    Tokens            `json:"usage,omitzero"`
	Held     Amounts           `json:"held,omitzero"`
	Charged  Amounts           `json:"charged,omitzero"`
	Counted  []Counted         `json:"counted,omitempty"`
	// Weights are the version of the weights of credits by which it was charged, and
	// Price says by which price.
	Weights string `json:"weights,omitempty"`
	Price   Price  `json:"price,omitzero"`
	// Corrects is true if the call was settled before: Before and BeforeUsage are what
	// Charged and Usage were until then.
	Corrects    bool    `json:"corrects,omitempty"`
	BeforeUsage Tokens  `json:"before_usage,omitzero"`
	Before      Amounts `json:"before,omitzero"`

	// Of thresholds, denials and overages: the limit, and how it stood.

	Limit     string      `json:"limit,omitempty"`
	Scope     quota.Scope `json:"scope,omitempty"`
	Unit      string      `json:"unit,omitempty"`
	Max       int64       `json:"max,omitempty"`
	Used      int64       `json:"used,omitempty"`
	Requested int64       `json:"requested,omitempty"`
	ResetsAt  time.Time   `json:"resets_at,omitzero"`
	Overrun   bool        `json:"overrun,omitempty"` // of a call that has ended

	// Of thresholds: Key, Window and Unit are the counter, Start and End the window.

	Key     string    `json:"key,omitempty"`
	Window  string    `json:"window,omitempty"`
	Start   time.Time `json:"start,omitzero"`
	End     time.Time `json:"end,omitzero"`
	Percent int       `json:"percent,omitempty"`

	// Of denials.

	Stage    string       `json:"stage,omitempty"`
	Reason   quota.Reason `json:"reason,omitempty"`
	RetryMS  int64        `json:"retry_ms,omitempty"`
	Never    bool         `json:"never,omitempty"`
	Observed bool         `json:"observed,omitempty"`

	// Of outages that ended.

	LastedMS int64 `json:"lasted_ms,omitempty"`
	Failed   int64 `json:"failed,omitempty"`
}

// Tokens is a [usage.Usage] as it is kept.
type Tokens struct {
	Input      int64 `json:"input,omitempty"`
	Cached     int64 `json:"cached,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
	Output     int64 `json:"output,omitempty"`
	Thoughts   int64 `json:"thoughts,omitempty"`
	// Flags are those of the usage, by name.
	Flags string `json:"flags,omitempty"`
}

// Price names a [usage.Price]: which one it is of which list, and not what it says.
type Price struct {
	// Model is the name in the list, which may differ from that of the call.
	Model   string        `json:"model,omitempty"`
	Variant usage.Variant `json:"variant,omitempty"`
	// From is since when the price holds, zero for ever since, and AsOf the date of the
	// list, in UTC.
	From time.Time `json:"from,omitzero"`
	AsOf time.Time `json:"as_of,omitzero"`
	// Basis says where the price comes from if it is from no list.
	Basis string `json:"basis,omitempty"`
}

// Amounts are amounts by unit; those that are 0 are left out. Money is in
// micro-dollars.
type Amounts struct {
	Calls   int64 `json:"calls,omitempty"`
	Tokens  int64 `json:"tokens,omitempty"`
	Credits int64 `json:"credits,omitempty"`
	Money   int64 `json:"money,omitempty"`
}

// Counted is a counter that a call was charged to, or that a turn counts in.
type Counted struct {
	Limit  string      `json:"limit"`
	Scope  quota.Scope `json:"scope"`
	Key    string      `json:"key"`
	Window string      `json:"window,omitempty"`
	Unit   string      `json:"unit"`
	Start  time.Time   `json:"start,omitzero"`
	End    time.Time   `json:"end,omitzero"`
	Amount int64       `json:"amount"`
	// Observed is true if the limit denies nothing.
	Observed bool `json:"observed,omitempty"`
}

// RecordOf is the record of an event. ok is false if it is of a kind that is not
// known here.
func RecordOf(e quota.Event) (r Record, ok bool) {
	about := e.About()
	r = Record{
		V: Version, Kind: e.Kind(), At: utc(about.At), Subject: about.Subject,
		Turn: bounded(about.Turn), Call: bounded(about.Call),
	}
	switch e := e.(type) {
	case quota.CallSettled:
		r.settled(&e)
	case quota.TurnBegan:
		r.count(e.Counted)
	case quota.ThresholdReached:
		r.Limit, r.Scope, r.Unit = e.Limit, e.Scope, e.Counter.Unit.String()
		r.Key, r.Window, r.Start, r.End = e.Counter.Key, e.Counter.Window, utc(e.Span.Start), utc(e.Span.End)
		r.Percent, r.Used, r.Max = e.Percent, e.Spent, e.Max
	case quota.Denied:
		r.denied(e.Denial)
	case quota.Overage:
		r.Limit, r.Scope, r.Unit = e.Limit, e.Scope, e.Unit.String()
		r.Max, r.Used, r.Requested, r.ResetsAt = e.Max, e.Used, e.Requested, utc(e.ResetsAt)
		r.Overrun = e.Overrun
	case quota.OutageBegan:
	case quota.OutageEnded:
		r.LastedMS, r.Failed = e.Lasted.Milliseconds(), e.Failed
	default:
		return Record{}, false
	}
	return r, true
}

func (r *Record) settled(e *quota.CallSettled) {
	r.Model, r.Agent, r.Tool, r.Outcome = bounded(e.Model), bounded(e.Agent), e.Tool, e.Outcome
	r.Estimate, r.Usage = tokensOf(e.Estimate), tokensOf(e.Usage)
	r.Held, r.Charged = amountsOf(&e.Held), amountsOf(&e.Charged)
	r.Weights, r.Price = bounded(e.Weights), priceOf(&e.Price)
	r.Corrects, r.BeforeUsage, r.Before = e.Corrects, tokensOf(e.BeforeUsage), amountsOf(&e.Before)
	r.count(e.Counted)
}

func (r *Record) count(all []quota.Counted) {
	for i := range all {
		c := &all[i]
		r.Counted = append(r.Counted, Counted{
			Limit: c.Limit, Scope: c.Scope, Key: c.Counter.Key, Window: c.Counter.Window, Unit: c.Counter.Unit.String(),
			Start: utc(c.Span.Start), End: utc(c.Span.End), Amount: c.Amount, Observed: c.Observed,
		})
	}
}

// denied takes over a denial, but for the text of its cause.
func (r *Record) denied(d *quota.Denial) {
	if d == nil {
		return
	}
	r.Stage, r.Reason, r.Limit, r.Scope = d.Stage.String(), d.Reason, d.Limit, d.Scope
	r.Never, r.Observed, r.ResetsAt = d.Never, d.Observed, utc(d.ResetsAt)
	r.RetryMS = d.RetryAfter.Milliseconds()
	r.Max, r.Used, r.Requested = d.Max, d.Used, d.Requested
	if d.Limit != "" || d.Max != 0 || d.Requested != 0 {
		r.Unit = d.Unit.String()
	}
}

// maxText is the longest text that a caller chose freely, in bytes.
const maxText = 256

// bounded is the beginning of a text.
func bounded(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "")
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.Round(0).UTC()
}

func tokensOf(u usage.Usage) Tokens {
	return Tokens{
		Input: u.Input, Cached: u.CachedInput, CacheWrite: u.CacheWrite,
		Output: u.Output, Thoughts: u.Thoughts, Flags: u.Flags.String(),
	}
}

func priceOf(p *usage.Price) Price {
	out := Price{Model: bounded(p.Model), Variant: p.Variant, From: utc(p.ValidFrom), AsOf: utc(p.AsOf)}
	if p.Basis != usage.Listed {
		out.Basis = p.Basis.String()
	}
	return out
}

// usage is the usage, without its flags.
func (t Tokens) usage() usage.Usage {
	return usage.Usage{
		Input: t.Input, CachedInput: t.Cached, CacheWrite: t.CacheWrite, Output: t.Output, Thoughts: t.Thoughts,
	}
}

func amountsOf(a *quota.Amounts) Amounts {
	return Amounts{Calls: a[quota.Calls], Tokens: a[quota.Tokens], Credits: a[quota.Credits], Money: a[quota.Money]}
}

// of is the amount of a unit, by the unit's name.
func (a *Amounts) of(unit string) int64 {
	switch unit {
	case quota.Calls.String():
		return a.Calls
	case quota.Tokens.String():
		return a.Tokens
	case quota.Credits.String():
		return a.Credits
	case quota.Money.String():
		return a.Money
	}
	return 0
}

// appendTo appends the record as a line.
func (r *Record) appendTo(to []byte) ([]byte, error) {
	line, err := json.Marshal(r)
	if err != nil {
		return to, err
	}
	return append(append(to, line...), '\n'), nil
}

var errLine = errors.New("it is no record")

// parse reads a line. It accepts fields that it does not know. The error shows nothing
// of what is in the line.
func parse(line []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(line, &r); err != nil {
		var field *json.UnmarshalTypeError
		if errors.As(err, &field) {
			return Record{}, fmt.Errorf("%w: field %q cannot be a %s", errLine, field.Field, field.Value)
		}
		return Record{}, errLine
	}
	switch {
	case r.V != Version:
		return Record{}, fmt.Errorf("%w: v is %d, must be %d", errLine, r.V, Version)
	case r.Kind == "":
		return Record{}, fmt.Errorf("%w: kind is not set", errLine)
	case r.At.IsZero():
		return Record{}, fmt.Errorf("%w: at is not set", errLine)
	}
	for i := range r.Counted {
		if r.Counted[i].Amount < 0 {
			return Record{}, fmt.Errorf("%w: counted[%d].amount is %d, must not be negative", errLine, i, r.Counted[i].Amount)
		}
	}
	for _, n := range [...]int64{
		r.Charged.Calls, r.Charged.Tokens, r.Charged.Credits, r.Charged.Money,
		r.Before.Calls, r.Before.Tokens, r.Before.Credits, r.Before.Money,
		r.Usage.Input, r.Usage.Output, r.BeforeUsage.Input, r.BeforeUsage.Output,
	} {
		if n < 0 {
			return Record{}, fmt.Errorf("%w: an amount is %d, must not be negative", errLine, n)
		}
	}
	return r, nil
}
