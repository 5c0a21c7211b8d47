package quota

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// Reason says why something was denied, for programs: a fixed set, fit for the
// label of a metric and the type of a problem report.
type Reason string

const (
	// ReasonExhausted: the limit of a calendar window is used up, or less is left
	// than is needed. It passes after ResetsAt.
	ReasonExhausted Reason = "exhausted"
	// ReasonRate: too much in too short a time; it passes after RetryAfter.
	ReasonRate Reason = "rate"
	// ReasonConcurrency: too many turns are under way. It passes when one ends.
	ReasonConcurrency Reason = "concurrency"
	// ReasonBusy: what is left is reserved by calls that are under way. Some of it
	// may come back when they end.
	ReasonBusy Reason = "busy"
	// ReasonNeverFits: more was asked for than the limit ever lets pass at once.
	ReasonNeverFits Reason = "never_fits"
	// ReasonTurnCalls: the turn has made as many model calls as it may.
	ReasonTurnCalls Reason = "turn_calls"
	// ReasonTurnCost: the turn has spent as much money as it may.
	ReasonTurnCost Reason = "turn_cost"
	// ReasonNoSubject: the subject has no id of the limit's scope, or one that
	// cannot be; or nobody was asked for whom it is (see [Middleware]).
	ReasonNoSubject Reason = "no_subject"
	// ReasonUnpriced: money, or credits, are limited, and what the call costs
	// cannot be told.
	ReasonUnpriced Reason = "unpriced"
	// ReasonUnavailable: the ledger, or where limits are looked up, cannot be
	// reached. It says nothing about what the subject may use.
	ReasonUnavailable Reason = "unavailable"
	// ReasonClosed: the enforcer is closed.
	ReasonClosed Reason = "closed"
)

// Stage says at which of its two checks something was denied.
type Stage uint8

const (
	// Admission is the check at the beginning of a turn: nothing was done yet.
	Admission Stage = iota
	// MidTurn is the check of one model call, or paid tool: what the turn did before
	// is done, and its answer stops early.
	MidTurn
)

// String is "admission" or "mid_turn".
func (s Stage) String() string {
	switch s {
	case Admission:
		return "admission"
	case MidTurn:
		return "mid_turn"
	}
	return fmt.Sprintf("stage(%d)", uint8(s))
}

// Denial says that something was denied, by which limit, and when it may pass. As
// an error it matches [budget.ErrDenied], and [ErrUnavailable] too where the ledger
// is at fault. It is a refusal of this program's own, never the provider's: layers
// that retry leave it alone.
//
// It holds nobody's id and no text of a call, so all of it but Err, and so Error, may
// be shown to the subject. A Denial must not be changed.
type Denial struct {
	// Reason is why.
	Reason Reason
	// Stage is at which check.
	Stage Stage
	// Limit is the name of the limit; "" if it was none.
	Limit string
	// Scope is whose limit it is; "" if it was none.
	Scope Scope
	// Unit is what Max, Used and Requested count.
	Unit Unit
	// Max is the limit (of a soft one its ceiling, of a rolling one its burst), Used
	// what is spent and reserved of it, and Requested what was asked for on top; 0 asks
	// whether anything is left. Where Max is 0, Used is not known, and 0. Where a local
	// bucket has stood in for the ledger ([Enforcer]; it matches [ErrUnavailable] and is
	// no ReasonUnavailable), they are the bucket's: nobody knows then what is used of the
	// limit itself.
	Max, Used, Requested int64
	// ResetsAt is when the limit starts afresh; zero if it never does at once, as a
	// rolling limit or a local bucket.
	ResetsAt time.Time
	// RetryAfter is how long to wait before it may pass; 0 if that is not known or
	// never.
	RetryAfter time.Duration
	// Never is true if it can never pass, however long one waits.
	Never bool
	// Observed is true if the limit only observes: nothing was denied.
	Observed bool
	// Err is the cause, if there is one besides the numbers: the error of a ledger, for
	// example, which may name a host.
	Err error
}

// Error says which limit denied, how much was used and when to try again.
func (d *Denial) Error() string {
	var b strings.Builder
	b.WriteString("quota: ")
	switch d.Reason {
	case ReasonUnavailable:
		b.WriteString("limits cannot be checked now")
		if d.Limit != "" {
			fmt.Fprintf(&b, ", which limit %q demands", d.Limit)
		}
	case ReasonClosed:
		b.WriteString("the enforcer is closed")
	case ReasonNoSubject:
		if d.Limit == "" {
			b.WriteString("it is not known for whom this is")
			break
		}
		fmt.Fprintf(&b, "limit %q needs to know the %s", d.Limit, d.Scope)
	case ReasonUnpriced:
		if d.Limit == "" {
			b.WriteString("the cost of the turn is limited, and what the call costs is not known")
			break
		}
		fmt.Fprintf(&b, "limit %q counts %v, and what the call costs is not known", d.Limit, d.Unit)
	case ReasonTurnCalls, ReasonTurnCost:
		fmt.Fprintf(&b, "the turn has used %d of %d %v and asks for %d more", d.Used, d.Max, d.Unit, d.Requested)
	default:
		if d.Err == ErrUnavailable { // of a local bucket, which has no other cause
			fmt.Fprintf(&b, "limit %q cannot be checked now: %d of the %d %v that pass at once meanwhile are used", d.Limit, d.Used, d.Max, d.Unit)
		} else {
			fmt.Fprintf(&b, "limit %q: %d of %d %v used", d.Limit, d.Used, d.Max, d.Unit)
		}
		if d.Requested > 0 {
			fmt.Fprintf(&b, ", %d more asked for", d.Requested)
		}
	}
	switch {
	case d.Never:
		b.WriteString(", which can never pass")
	case d.RetryAfter > 0:
		fmt.Fprintf(&b, ", retry after %v", d.RetryAfter)
	}
	if !d.ResetsAt.IsZero() {
		fmt.Fprintf(&b, ", resets at %s", d.ResetsAt.Format(time.RFC3339))
	}
	if d.Err != nil {
		b.WriteString(": ")
		b.WriteString(d.Err.Error())
	}
	return b.String()
}

// Is matches [budget.ErrDenied], and [ErrUnavailable] where the ledger is at fault.
func (d *Denial) Is(target error) bool {
	return target == budget.ErrDenied || target == ErrUnavailable && d.Reason == ReasonUnavailable
}

// Unwrap returns the cause.
func (d *Denial) Unwrap() error { return d.Err }

// Denied tells retry layers that this is an own refusal, not the provider's.
func (d *Denial) Denied() bool { return true }

// NeverFits tells retry layers that waiting does not help.
func (d *Denial) NeverFits() bool { return d.Never }

// RetryDelay is RetryAfter, or else the time from now to ResetsAt: how long to wait
// before it may pass. ok is false if that is not known, or never. It is not below
// 0.
func (d *Denial) RetryDelay(now time.Time) (delay time.Duration, ok bool) {
	switch {
	case d.Never:
		return 0, false
	case d.RetryAfter > 0:
		return d.RetryAfter, true
	case !d.ResetsAt.IsZero():
		return max(d.ResetsAt.Sub(now), 0), true
	}
	return 0, false
}

// Left is what was left of the limit, never below 0.
func (d *Denial) Left() int64 { return max(d.Max-max(d.Used, 0), 0) }

// LogValue is the denial without its text.
func (d *Denial) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("reason", string(d.Reason)), slog.String("stage", d.Stage.String()),
	}
	if d.Limit != "" {
		attrs = append(attrs, slog.String("limit", d.Limit), slog.String("scope", string(d.Scope)),
			slog.String("unit", d.Unit.String()),
			slog.Int64("max", d.Max), slog.Int64("used", d.Used), slog.Int64("requested", d.Requested))
	}
	if d.RetryAfter > 0 {
		attrs = append(attrs, slog.Duration("retry_after", d.RetryAfter))
	}
	if !d.ResetsAt.IsZero() {
		attrs = append(attrs, slog.Time("resets_at", d.ResetsAt))
	}
	if d.Observed {
		attrs = append(attrs, slog.Bool("observed", true))
	}
	if d.Err != nil {
		attrs = append(attrs, slog.Any("error", d.Err))
	}
	return slog.GroupValue(attrs...)
}
