package ratelimited

import (
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

// direct is what the metrics need to know of a call whose permit a program holds
// by itself, without a RateLimitedModel. A nil *direct counts nothing.
type direct struct {
	gate    *Gate
	party   *party
	usage   usage.Usage   // the estimate that is held
	granted time.Duration // when, after the gate's epoch
	class   uint8
	freed   atomic.Int64 // when FreeSlot was called, after the gate's epoch; 0: not yet
	ended   atomic.Bool
}

// free notes when the slots were given back, once.
func (d *direct) free(now time.Duration) {
	if d != nil {
		d.freed.CompareAndSwap(0, int64(max(now, 1)))
	}
}

// end counts the end of the call, once.
func (d *direct) end(b bill) {
	if d == nil || d.ended.Swap(true) {
		return
	}
	until := time.Duration(d.freed.Load())
	if until == 0 {
		until = d.gate.time()
	}
	b.held = until - d.granted
	d.gate.tell(d.party, d.class, &d.usage, nil, &b)
}

// used counts a call that has ended with this usage; zero means that nothing is
// known of it.
func (d *direct) used(actual usage.Usage) {
	if d == nil {
		return
	}
	b := bill{outcome: outcomeOK, provider: actual.Clamp(), reported: actual.Flags}
	if actual.IsZero() {
		b = d.estimated(outcomeOK)
	}
	d.end(b)
}

// estimated is the bill of a call that is settled at its estimate.
func (d *direct) estimated(o outcome) bill {
	b := bill{kind: asHeld, outcome: o, provider: d.usage}
	b.provider.Flags |= usage.Estimated
	return b
}

// refused counts a call that has ended with an error; counted tells whether the
// provider has counted it as sent and as not refused.
func (d *direct) refused(v retry.Verdict, counted bool) {
	if d == nil {
		return
	}
	if !d.ended.Load() {
		d.gate.metrics.throttled(d.party, d.class, v)
	}
	o := outcomeOfClass(v.Class)
	if o == outcomeNone {
		o = outcomeFailed
	}
	b := bill{kind: nothing, outcome: o}
	if counted {
		b = d.estimated(o)
	}
	d.end(b)
}

// released counts a call that was not sent.
func (d *direct) released() { d.end(bill{kind: nothing}) }
