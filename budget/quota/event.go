package quota

import (
	"time"

	"github.com/headgate-go/headgate/usage"
)

// Event is something that happened, for alerts, audits and pages that show what
// goes on: a [ThresholdReached], [TurnBegan], [CallSettled], [Denied], [Overage],
// [OutageBegan] or [OutageEnded]. There are no others outside this package; a listener switches
// over the types and passes over what it does not know, as there may be more some
// day.
//
// Events name subjects by their ids, so they belong in logs and audits and never in
// the labels of metrics. None holds text of a call.
//
// An Event is shared by all listeners and must not be changed.
type Event interface {
	// Kind is what happened, from a fixed set.
	Kind() EventKind
	// About is when it happened, and to whom.
	About() Occasion

	event()
}

// EventKind says what happened: a fixed set, fit for the label of a metric.
type EventKind string

const (
	// KindThreshold is the kind of a [ThresholdReached].
	KindThreshold EventKind = "threshold"
	// KindTurn is the kind of a [TurnBegan].
	KindTurn EventKind = "turn"
	// KindCall is the kind of a [CallSettled].
	KindCall EventKind = "call"
	// KindDenial is the kind of a [Denied].
	KindDenial EventKind = "denial"
	// KindOverage is the kind of an [Overage].
	KindOverage EventKind = "overage"
	// KindOutageBegan is the kind of an [OutageBegan].
	KindOutageBegan EventKind = "outage_began"
	// KindOutageEnded is the kind of an [OutageEnded].
	KindOutageEnded EventKind = "outage_ended"
)

// Occasion is when something happened, and to whom.
type Occasion struct {
	// At is when, by the clock of this process.
	At time.Time
	// Subject is for whom something was done; nobody where a ledger is meant.
	Subject Subject
	// Turn is the turn's id; "" without one.
	Turn string
	// Call is the id of the model call, or of the use of a paid tool; "" at the
	// beginning of a turn.
	Call string
}

// About is the occasion itself.
func (o Occasion) About() Occasion { return o }

func (o Occasion) event() {}

// ThresholdReached says that what is spent has reached a part of a limit. It is told
// once for each counter, window and part; who goes past several at once is told of
// the highest. Nothing was denied by that.
type ThresholdReached struct {
	// Occasion tells whose call it was that reached it. The counter may be that of
	// their team, or of everybody.
	Occasion
	// Limit is the name of the limit, and Scope whose it is; "" if there is none for
	// that counter any more.
	Limit string
	Scope Scope
	// Counter is what reached it, and Span the window.
	Counter Counter
	Span    Span
	// Percent is the part of the limit.
	Percent int
	// Spent and Max are in units.
	Spent, Max int64
}

// Kind is [KindThreshold].
func (ThresholdReached) Kind() EventKind { return KindThreshold }

// TurnBegan says that a turn was let begin where a limit counts turns, so that it can
// be told what has used that limit up. A turn that no limit counts is not told, and a
// denied one is a [Denied].
type TurnBegan struct {
	Occasion
	// Counted are the counters of turns that it counts in, as in a [CallSettled].
	Counted []Counted
}

// Kind is [KindTurn].
func (TurnBegan) Kind() EventKind { return KindTurn }

// CallOutcome is what became of what a call reserved: a fixed set.
type CallOutcome string

const (
	// CallCharged was charged what its provider reported, or what a tool's caller
	// said.
	CallCharged CallOutcome = "charged"
	// CallEstimated was charged an estimate, as nobody reported what it used.
	CallEstimated CallOutcome = "estimate_charged"
	// CallReleased was charged nothing.
	CallReleased CallOutcome = "released"
)

// CallSettled says what became of a model call, or of the use of a paid tool, that
// was let through.
type CallSettled struct {
	Occasion
	// Model is the model's name and Agent the label of the part of the program, as
	// the caller gave them. Agent is the tool's name for a paid tool.
	Model, Agent string
	// Tool is true for a paid tool.
	Tool bool
	// Outcome says what Charged rests on.
	Outcome CallOutcome
	// Estimate came with the call. Usage is what it was settled to; zero for tools,
	// and for what was released.
	Estimate, Usage usage.Usage
	// Held is the most that was reserved of each unit under any limit, and Charged
	// what was charged. Credits and Money are 0 where no limit counts them.
	Held, Charged Amounts
	// Weights is the Version of the weights by which credits were charged, "" where
	// nothing counts credits. Price is the price by which money was, zero where nothing
	// counts money. Neither is set for tools, nor for what was released. Price must not be changed.
	Weights string
	Price   usage.Price
	// Counted are the counters that it was charged to, or will be as soon as the ledger
	// can be reached; an amount of 0 is left out. Nothing is charged to a rolling counter
	// that only observes and had no room, or that the ledger could not be asked about.
	Counted []Counted
	// Corrects is true if the call was settled before and its provider has reported
	// more since. Usage, Charged and Counted are those of the whole call then, and
	// BeforeUsage and Before are what Usage and Charged were until now.
	Corrects    bool
	BeforeUsage usage.Usage
	Before      Amounts
}

// Kind is [KindCall].
func (CallSettled) Kind() EventKind { return KindCall }

// Counted is a counter that something was charged to, or that a turn counts in.
type Counted struct {
	// Limit is the name of the limit, and Scope whose it is.
	Limit string
	Scope Scope
	// Counter is the counter, and Span its window by the clock of this process; zero
	// if it is rolling.
	Counter Counter
	Span    Span
	// Amount is how much, in units.
	Amount int64
	// Observed is true if the limit denies nothing.
	Observed bool
}

// Denied says that something was denied, or, if Denial.Observed is true, that it
// passed but would have been denied if its limit were enforced.
type Denied struct {
	Occasion
	// Denial says by what, and why. It must not be changed.
	Denial *Denial
}

// Kind is [KindDenial].
func (Denied) Kind() EventKind { return KindDenial }

// Overage says that something passed above a soft limit, or that an ended call has
// used more than it had reserved and passed a limit, which nothing can deny any more.
// A turn that begins when a soft limit of calls, tokens, credits or money is used up
// takes nothing of it: the calls that do are told.
type Overage struct {
	Occasion
	// Limit is the name of the limit, and Scope whose it is.
	Limit string
	Scope Scope
	// Unit is what Max, Used and Requested count.
	Unit Unit
	// Max is the limit, Used what was spent and reserved of it before, and Requested
	// what was taken on top.
	Max, Used, Requested int64
	// ResetsAt is when the limit starts afresh.
	ResetsAt time.Time
	// Overrun is true for a call that has used more than it had reserved. Requested
	// is how much more.
	Overrun bool
}

// Kind is [KindOverage].
func (Overage) Kind() EventKind { return KindOverage }

// OutageBegan says that the ledger cannot be reached any more. From now on the
// failure policies of limits decide.
type OutageBegan struct{ Occasion }

// Kind is [KindOutageBegan].
func (OutageBegan) Kind() EventKind { return KindOutageBegan }

// OutageEnded says that the ledger can be reached again.
type OutageEnded struct {
	Occasion
	// Lasted is how long it could not be reached.
	Lasted time.Duration
	// Failed is how many of its operations failed in that time.
	Failed int64
}

// Kind is [KindOutageEnded].
func (OutageEnded) Kind() EventKind { return KindOutageEnded }
