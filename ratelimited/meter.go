package ratelimited

import (
	"github.com/headgate-go/headgate/usage"
)

// Progress tells what an item of an answer means for the call that it belongs
// to.
type Progress uint8

const (
	// More is an item that others follow.
	More Progress = iota
	// Done is an item that completes the answer. Items may still follow it, such
	// as a usage report, but the model has nothing more to do for the call.
	Done
	// Failed is an item that reports the end of the call by an error, in place of
	// an error of the sequence.
	Failed
)

// Meter reads what a [Gate] must know from the requests and items of a model.
// Implementations are safe for concurrent use, never block, and never change
// what they are given. [New] has one built in for types that carry genai's
// fields; others are given to [NewMetered].
type Meter[Req, Resp any] interface {
	// Estimate is the usage of a request before it is sent, flagged
	// usage.Estimated. It is called for every call and should be cheap.
	Estimate(req Req) usage.Usage
	// Observe reads one item. If the item reports usage, the report is the
	// running total of the call, and the per-field maximum of all reports is
	// what the call used. If it does not, the result is an estimate of what
	// this item alone holds, flagged usage.Estimated, or the zero Usage.
	//
	// Progress tells whether the item completes the answer. A call that is not
	// streamed is complete with its first item, whatever is returned.
	Observe(resp Resp) (usage.Usage, Progress)
	// Clamp returns a copy of req whose output is limited to maxOutput tokens,
	// and true; or req itself and false if that is not possible or if it is
	// limited to less already.
	//
	// A Meter may have a method OutputLimit(Req) int64, too: the limit that the
	// request sets on its output in tokens, or 0. What was learned about the output
	// of earlier calls is then never held beyond it.
	Clamp(req Req, maxOutput int64) (Req, bool)
}

// outputLimiter is a Meter that knows the limit of a request's output.
type outputLimiter[Req any] interface{ OutputLimit(req Req) int64 }
