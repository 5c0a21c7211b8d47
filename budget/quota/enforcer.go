package quota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota/internal/unasked"
	"github.com/headgate-go/headgate/usage"
)

// Enforcer sees to it that nobody uses more than their limits allow. It looks
// twice:
//
//   - At the beginning of a turn ([Enforcer.Admit], or [Run]) it looks at the limits
//     of turns and of turns under way at a time, and whether anything is left of the
//     others. Who is denied is told at once.
//   - Before each model call ([Enforcer.Budget]) and paid tool ([Enforcer.Meter]) it
//     reserves what that will probably use, under all limits that are on the
//     subject, or under none. It may wait a moment for rolling limits, because work
//     that is half done is better late than lost; what is used up in a calendar
//     window is denied. What was really used is settled afterwards.
//
// For whom something is done stands in the context ([WithSubject]), and so does the
// turn. So all model calls of a turn count, whoever makes them: sub-agents,
// parallel branches, agents that are used as tools.
//
// Limits of several places of the ledger (see [Ledger]) are reserved one place after
// the other, that of [Global] last; if one denies, what the others have reserved is
// given back.
//
// While the ledger cannot be reached, the [FailurePolicy] of each limit decides. A
// call whose limits are all Open passes if a local bucket lets it, one per counter,
// that refills as the limit does; of a calendar limit it holds a tenth, and turns
// under way at a time are not limited. Such turns, and what such calls used, are
// booked when the ledger is back, in the window of that time. An operation waits for
// the ledger no longer than [Config].LedgerTimeout, and after five in a row have failed
// others do not wait at all: one at a time tries, with pauses of 1 to 8 seconds.
//
// The times of turns and holds, and what still has to be told to the ledger, are
// looked after by one timer, which [Enforcer.Close] ends. An Enforcer is safe for
// concurrent use.
type Enforcer struct {
	cfg    Config
	local  bool // the ledger waits for nothing
	alone  bool // the ledger does some things without the store
	booker booker
	limits atomic.Pointer[LimitResolver]
	// credits are the weights of calls that begin now; nil if there are none.
	credits atomic.Pointer[usage.Credits]
	closed  atomic.Bool
	clocks  clocks

	spans   sync.Map     // Window → *spanCache
	kinds   atomic.Int64 // how many spans has
	scratch sync.Pool    // of *scratch
	reuse   bool         // the ledger keeps no entries
	keeper  keeper
	outage  outage
	breaker breaker
	later   later
}

// New makes an Enforcer. The error names every field that is wrong.
func New(cfg Config) (*Enforcer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Enforcer{cfg: cfg}
	local, ok := cfg.Ledger.(budget.Local)
	e.local = ok && local.Local()
	if l, ok := cfg.Ledger.(unasked.Ledger); ok {
		e.alone = l.AnswersAlone()
	}
	e.booker = bookerOf(cfg.Ledger)
	_, e.reuse = cfg.Ledger.(*Memory)
	e.limits.Store(&cfg.Limits)
	if cfg.Credits != (usage.Credits{}) {
		e.credits.Store(&cfg.Credits)
	}
	e.keeper.init(e)
	e.outage.init(e)
	e.later.init(e)
	return e, nil
}

// Reload puts other limits in the place of those that there are, for all that is
// done from now on. What was spent, and what is reserved, stays. The error says why
// they cannot be enforced, and then nothing changes.
func (e *Enforcer) Reload(l *Limits) error {
	if l == nil {
		return errors.New("quota: Reload: there are no limits")
	}
	if err := e.cfg.check(l, e.credits.Load() != nil); err != nil {
		return err
	}
	resolver := LimitResolver(l)
	e.limits.Store(&resolver)
	return nil
}

// ReloadCredits puts other weights of credits in the place of those that there are,
// for calls that are reserved from now on. Calls under way are settled by the weights
// by which they were reserved, and what was spent is not weighed anew. Where limits of
// credits are new, too, call it before [Enforcer.Reload]. The error names the weight
// that is wrong, and then nothing changes; there is no way back to no weights at all.
func (e *Enforcer) ReloadCredits(c usage.Credits) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("quota: ReloadCredits: %w", err)
	}
	e.credits.Store(&c)
	return nil
}

// Hierarchy are the scopes.
func (e *Enforcer) Hierarchy() *Hierarchy { return e.cfg.Hierarchy }

// Healthy returns nil if the ledger can do its work now. It waits no longer than
// an operation may take, and asks even where other operations do not any more.
//
// It is no answer to whether the program should get requests: where limits are open
// it serves without the ledger, too; see [Enforcer.Ready].
func (e *Enforcer) Healthy(ctx context.Context) error {
	err := e.within(ctx, e.cfg.Ledger.Healthy)
	if err == nil {
		e.outage.note(ctx, nil) // where nobody asks, nothing else ends an outage
	}
	return err
}

// Ready returns nil if somebody may be served: the enforcer is not closed, and the
// ledger can do its work or no limit that is for everybody needs it, because its
// [FailurePolicy] lets calls pass without it. It is for the readiness probe of a
// server, which must not take all replicas out of service when their store fails
// and the limits say that they go on. Limits of plans and of subjects are not
// looked at, nor what a [LimitResolver] of another kind would say: with one, it is
// [Enforcer.Healthy].
func (e *Enforcer) Ready(ctx context.Context) error {
	if e.closed.Load() {
		return errors.New("quota: the enforcer is closed")
	}
	err := e.Healthy(ctx)
	if err == nil {
		return nil
	}
	if fixed, ok := (*e.limits.Load()).(*Limits); !ok || e.needsLedger(fixed.For(Subject{})) {
		return err
	}
	return nil
}

// needsLedger reports whether one of the limits denies while the ledger cannot be
// reached.
func (e *Enforcer) needsLedger(limits []Limit) bool {
	for i := range limits {
		if l := &limits[i]; l.closed(e.mode(l) == Observe) {
			return true
		}
	}
	return false
}

// Close ends the enforcer: nothing more is admitted and no more calls are let
// through, and what still has to be told to the ledger is told until ctx ends, which
// is then an error. Turns and calls that are under way can still end. It does not
// close the ledger, and may be called more than once.
func (e *Enforcer) Close(ctx context.Context) error {
	e.closed.Store(true)
	e.keeper.close()
	if left := e.later.close(ctx); left > 0 {
		return fmt.Errorf("quota: %d operations could not be told to the ledger: %w", left, context.Cause(ctx))
	}
	return nil
}

// ask does an operation of somebody in the ledger within its time, or not at all where
// many have failed.
func (e *Enforcer) ask(ctx context.Context, who asker, do func(context.Context) error) error {
	if e.local {
		return do(ctx)
	}
	a := e.breaker.ask(who)
	if !a.ok {
		err := e.unasked(ctx, do)
		if err == errNotAsked {
			e.outage.note(ctx, err)
		}
		return err
	}
	err := e.asked(ctx, a, do)
	if err != errUnasked {
		e.outage.note(ctx, err)
		return err
	}
	return nil
}

// unasked does an operation that the breaker did not let through, if the ledger can do it
// without the store.
func (e *Enforcer) unasked(ctx context.Context, do func(context.Context) error) error {
	if !e.alone {
		return errNotAsked
	}
	err := e.within(unasked.Only(ctx), do)
	if errors.Is(err, unasked.ErrBarred) {
		return errNotAsked
	}
	return err
}

// errUnasked says that an operation was done, and that the store was not asked for it.
var errUnasked = errors.New("quota: the store was not asked")

// asked does an operation that the breaker let through, and tells it how it ended.
func (e *Enforcer) asked(ctx context.Context, a asked, do func(context.Context) error) error {
	err := fmt.Errorf("%w: it panicked", ErrUnavailable)
	defer func() {
		if e.breaker.ended(ctx, a, err) {
			e.breaker.tell(e.cfg.Hooks.Paused)
		}
	}()
	told := unasked.In(ctx)
	if err = e.within(told, do); err == nil && told.Said() {
		err = errUnasked
	}
	return err
}

// within does an operation of the ledger within its time.
func (e *Enforcer) within(ctx context.Context, do func(context.Context) error) error {
	return e.withinTime(ctx, e.cfg.LedgerTimeout, do)
}

func (e *Enforcer) withinTime(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	if e.local {
		return do(ctx)
	}
	limited, cancel := context.WithTimeoutCause(ctx, limit, errLedgerSlow)
	defer cancel()
	err := do(limited)
	slow := context.Cause(limited) == errLedgerSlow || errors.Is(err, context.DeadlineExceeded) && ended(ctx) == nil
	if err != nil && slow && !errors.Is(err, ErrUnavailable) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, errLedgerSlow)
	}
	return err
}

// ended is the error of a context that has ended, or is about to: whoever looks at the
// clock finds that its deadline has passed a moment before the context does.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		return context.DeadlineExceeded
	}
	return nil
}

var errLedgerSlow = errors.New("it did not answer in time")

// who says for whom something is done, and what is limited for them.
type who struct {
	subject Subject
	limits  []Limit
	plan    string // for metrics: one that is known, if the limits can tell
}

// who looks up the limits of a subject.
func (e *Enforcer) who(ctx context.Context, s Subject) (who, error) {
	w := who{subject: s}
	if e.cfg.Mode == Off {
		return w, nil
	}
	if fixed, ok := (*e.limits.Load()).(*Limits); ok {
		w.limits, w.plan = fixed.For(s), fixed.PlanOf(s)
		return w, nil
	}
	w.plan = s.Plan
	limits, err := (*e.limits.Load()).Limits(ctx, s)
	w.limits = limits
	return w, err
}

// mode is how a limit is enforced.
func (e *Enforcer) mode(l *Limit) Mode {
	if e.cfg.Mode == Observe {
		return Observe
	}
	return l.Mode
}

// spanCache keeps the windows around now, which are the same for a while.
type spanCache struct{ now atomic.Pointer[[3]Span] }

// maxKinds bounds how many kinds of windows are kept: each zone of the time zone
// database is less than a thousand, and Config.Zone may make others as it likes.
const maxKinds = 1 << 12

// spansOf are the windows around now. There are few kinds of windows, and finding
// out where they begin takes longer than everything else about an entry.
func (e *Enforcer) spansOf(w Window, now time.Time) [3]Span {
	c, ok := e.spans.Load(w)
	if !ok {
		if e.kinds.Load() >= maxKinds {
			return w.Spans(now)
		}
		var known bool
		if c, known = e.spans.LoadOrStore(w, &spanCache{}); !known {
			e.kinds.Add(1)
		}
	}
	cache := c.(*spanCache)
	if known := cache.now.Load(); known != nil && known[1].Contains(now) {
		return *known
	}
	spans := w.Spans(now)
	cache.now.Store(&spans)
	return spans
}
