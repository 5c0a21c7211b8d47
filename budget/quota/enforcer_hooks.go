package quota

import (
	"time"

	"github.com/headgate-go/headgate/usage"
)

// Outcome is what came of a check: a fixed set, fit for a metric's label.
type Outcome string

const (
	// OutcomeAllowed passed at once.
	OutcomeAllowed Outcome = "allowed"
	// OutcomeWaited passed after a wait.
	OutcomeWaited Outcome = "waited"
	// OutcomeDenied was denied.
	OutcomeDenied Outcome = "denied"
	// OutcomeObserved would have been denied if its limit were enforced. It is told
	// besides what came of the check.
	OutcomeObserved Outcome = "observed"
	// OutcomeUnchecked passed without the ledger, which could not be reached.
	OutcomeUnchecked Outcome = "unchecked"
	// OutcomeUnidentified was turned away by [Middleware], with the status of
	// MiddlewareConfig.NoIdentity, because an id is missing or does not hold, before any
	// limit was asked. It is no turn: where a limit denies for want of an id, that is
	// OutcomeDenied.
	OutcomeUnidentified Outcome = "unidentified"
)

// Decision is what came of one check, for metrics. It holds nobody's id.
type Decision struct {
	Stage   Stage
	Outcome Outcome
	// Tool is true for a paid tool, and false for a turn or a model call.
	Tool bool
	// Reason, Limit, Scope and Unit say what denied, or would have, or made it wait.
	Reason Reason
	Limit  string
	Scope  Scope
	Unit   Unit
	// Plan is the subject's plan, "" if it has none or [Limits] do not know it. Of
	// another [LimitResolver] it is what the subject says: bound it before it becomes
	// a label.
	Plan string
	// Wait is how long was waited.
	Wait time.Duration
}

// Booking is what became of what a call reserved, for metrics. It holds nobody's
// id.
type Booking struct {
	// Model and Agent are those of the call, as its caller gave them: bound them
	// before they become labels. Agent is the tool's name for a paid tool.
	Model, Agent string
	Tool         bool
	// Plan is that of a [Decision].
	Plan string
	// Estimated is the estimate that came with the call, Actual what was settled:
	// zero if it was released.
	Estimated, Actual usage.Usage
	// Held and Charged are by unit. Units that nothing counts may be 0.
	Held, Charged Amounts
	// Corrected is true if it was settled before, and Before is what was charged
	// then.
	Corrected bool
	Before    Amounts
	// Released is true if nothing was charged.
	Released bool
	// Guessed is true if no provider reported what is charged.
	Guessed bool
}

// Reach says that what somebody has spent has reached a part of a limit, for the
// first time in its window, for metrics. It holds nobody's id.
type Reach struct {
	Limit string
	Scope Scope
	Unit  Unit
	// Percent is the part that was reached, one of the limit's Thresholds.
	Percent int
	// Plan is that of a [Decision].
	Plan string
}

// Hooks are called for metrics, where something happens and in the goroutine of
// whoever does it, many at a time: they must return at once. Each may be nil.
type Hooks struct {
	// Decided is called for every check, and before that for each limit that observes
	// and would have denied; also for each request that [Middleware] turns away because
	// it is not known for whom it is.
	Decided func(Decision)
	// Booked is called for each call that was settled or released, and again for
	// each correction of what was settled.
	Booked func(Booking)
	// Reached is called when somebody has reached a threshold of a limit.
	Reached func(Reach)
	// Outage is called when the ledger cannot be reached any more, with true, and
	// when it can again, with false.
	Outage func(began bool)
	// Paused is called with true when so many operations in a row have failed that the
	// ledger is not asked any more but by one at a time that tries, and with false when
	// it is asked again. Calls come one after the other, and must not wait for the
	// enforcer.
	Paused func(paused bool)
	// Lapsed is called for leases and holds that had expired in the ledger though
	// whom they belong to is still at work.
	Lapsed func(n int)
	// Queued is called with how many operations wait for the ledger to come back,
	// whenever that changes.
	Queued func(n int)
	// Told is called when an operation that has waited was made after all.
	Told func()
	// Lost is called when an operation could not be made at all.
	Lost func()
}
