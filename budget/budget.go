// Package budget says how much may be spent. It has two contracts, on purpose.
//
// A [Limiter] is arithmetic. It takes the current time as an argument, never
// waits, never does I/O and is not safe for concurrent use: it lives inside a
// gate, under the gate's lock. [TokenBudget] and [WindowBudget] are the two
// limiters that mirror what model providers enforce.
//
// A [Budget] may wait and may do I/O. It stands before the gate and meters what
// a customer may spend: reserve an estimate, settle it to the actual, release
// it unused.
//
// One word for one thing: a reservation is *settled* to what was really used,
// or *released* when nothing was.
package budget

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/usage"
)

// Limiter is the arithmetic of one provider limit: so many units (requests or
// tokens) per window. It never waits; the gate that owns it asks, takes and
// settles under its own lock.
//
// A unit of cost goes through these states: taken (held, and it may still be
// refunded), counted (the provider has surely seen it by then) and settled. An
// implementation must accept every non-negative cost up to math.MaxInt64 and
// must treat a negative one as 0. Times may step backwards by any amount: that
// never creates room, and time goes on from there.
type Limiter interface {
	// Fits reports whether cost could be taken at now. If not, at is the
	// earliest instant at which it will fit when nothing else is taken or
	// settled until then; it is worth asking again at that instant, because a
	// clock that was stepped back may lose time once. A zero at means that time
	// alone does not help: either a settlement must come first, or the cost
	// exceeds Max.
	Fits(now time.Time, cost int64) (ok bool, at time.Time)

	// Earliest is the instant before which cost cannot fit even if every open
	// hold were refunded in full right now; now itself if it could fit at once.
	// ok is false if it can never fit (cost above Max, or a limit of 0).
	Earliest(now time.Time, cost int64) (at time.Time, ok bool)

	// Take takes cost whether it fits or not and returns the hold for it. Every
	// hold must be settled exactly once, and not be used after that.
	Take(now time.Time, cost int64) Hold

	// Counted tells that the provider has counted the hold by now at the
	// latest, for example because the first item of the answer has arrived. It
	// returns the hold in its new state. Calling it again changes nothing.
	Counted(now time.Time, h Hold) Hold

	// Settle replaces the hold by what was really used: 0 refunds it, more
	// than was held is accepted, because it is spent already.
	Settle(now time.Time, h Hold, actual int64)

	// Level is what could be taken now, in units. It is negative while an
	// overrun is being repaid.
	Level(now time.Time) int64

	// Limit is the number of units per window in force, before scaling.
	Limit() int64

	// Max is the largest cost that can ever fit.
	Max() int64

	// SetLimit changes the number of units per window; negative counts as 0.
	// What is used already stays used. A scale that was in force ends.
	SetLimit(now time.Time, limit int64)

	// Scale makes share × Limit, with share in (0, 1], the limit in force, for
	// a provider that throttles below its published number. Max is unchanged:
	// a cost between the scaled and the full limit fits once nothing else is
	// held or counted.
	Scale(now time.Time, share float64)
}

// Hold is a cost that was taken from a [Limiter] and not settled yet. The zero
// Hold holds nothing. A Hold belongs to the limiter that made it.
type Hold struct {
	cost int64
	mark int64 // TokenBudget: of its charge. WindowBudget: 1 + the cell that it was counted in; 0 while outside the ring
}

// Cost is the number of units held.
func (h Hold) Cost() int64 { return h.cost }

// Budget meters what a customer may spend. Reserve may wait and may do I/O;
// it runs before the gate's slot is taken. Implementations are safe for
// concurrent use.
type Budget interface {
	// Reserve sets the estimated usage of the call aside. It returns an error
	// that matches [ErrDenied] if the budget does not allow the call, and the
	// context's error if ctx ends first; nothing is held then.
	Reserve(ctx context.Context, call Call) (Reservation, error)
}

// Reservation is an estimate set aside by a [Budget]. Exactly one of Settle
// and Release takes effect, the first one; later calls change nothing and
// return nil.
type Reservation interface {
	// Settle replaces the estimate by what was used. Usage above the estimate
	// is accepted: it is spent already.
	Settle(ctx context.Context, actual usage.Usage) error
	// Release gives the estimate back: the call cost nothing.
	Release(ctx context.Context) error
}

// Adjuster is a [Reservation] that can book a correction after it was
// settled: some providers report the usage of a call after its last item. The
// argument is the usage of the whole call, not the difference.
type Adjuster interface {
	Adjust(ctx context.Context, actual usage.Usage) error
}

// Final is a [Reservation] that may be for a shorter answer than was asked for: when
// less is left than the estimate, but something, whoever spends it may want its
// last call to be answered briefly rather than not at all.
type Final interface {
	Reservation
	// MaxOutput is the most output, in tokens, that the reservation is for. If ok is
	// true the call must be limited to it before it is sent, or not be sent.
	MaxOutput() (tokens int64, ok bool)
}

// Local is implemented by reservations whose Settle, Release and Adjust only
// touch memory and return at once. They are called in place; all others are
// queued, so that the end of a call never waits for a store.
type Local interface {
	Local() bool
}

// Call is one model call as a [Budget] sees it.
type Call struct {
	// ID identifies this call and nothing else; see [NewID]. A store uses it to
	// recognise a repeated request.
	ID string
	// Model is the model's name as the caller gave it.
	Model string
	// Agent is a label for the part of the program that makes the call; it may
	// be empty.
	Agent string
	// MaxOutput is the limit that the request sets on its output, in tokens; 0 if it
	// sets none, or if that is not known.
	MaxOutput int64
	// Usage is the estimate to be reserved.
	Usage usage.Usage
}

// NewID returns a random identifier for a [Call]: 26 characters with at least
// 128 random bits.
func NewID() string { return rand.Text() }

// ErrDenied is matched by every refusal of a [Budget].
var ErrDenied = errors.New("denied by budget")

// DeniedError is the refusal of a [Budget]. It matches [ErrDenied].
type DeniedError struct {
	// Budget names the limit that refused.
	Budget string
	// Unit is what the limit counts: "tokens", "calls", "micro-dollars", …
	Unit string
	// Limit, Used and Requested are in units; Used includes what is reserved.
	Limit, Used, Requested int64
	// RetryAfter is how long to wait before the same call may pass; 0 if that
	// is not known.
	RetryAfter time.Duration
	// ResetsAt is when the limit starts afresh; zero if it never does at once.
	ResetsAt time.Time
	// Never is true if the request is larger than the whole limit.
	Never bool
	// Err is the cause, if there is one besides the numbers.
	Err error
}

// Error says which limit refused, how much was used and when to try again.
func (e *DeniedError) Error() string {
	s := fmt.Sprintf("budget %q denied %d %s: %d of %d used", e.Budget, e.Requested, e.Unit, e.Used, e.Limit)
	switch {
	case e.Never:
		s += ", it can never fit"
	case e.RetryAfter > 0:
		s += fmt.Sprintf(", retry after %v", e.RetryAfter)
	case !e.ResetsAt.IsZero():
		s += ", resets at " + e.ResetsAt.Format(time.RFC3339)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is matches [ErrDenied].
func (e *DeniedError) Is(target error) bool { return target == ErrDenied }

// Unwrap returns the cause.
func (e *DeniedError) Unwrap() error { return e.Err }

// Denied tells retry layers that this is an own refusal, not the provider's.
func (e *DeniedError) Denied() bool { return true }

// NeverFits tells retry layers that waiting does not help.
func (e *DeniedError) NeverFits() bool { return e.Never }
