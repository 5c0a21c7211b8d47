package quota

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// MaxAmount is the largest amount that a limit can have, of any unit: 2⁵³ − 1, up
// to which the numbers of every store are exact (a script in Redis reckons in
// 64-bit floating point). It is about 9 × 10¹⁵ tokens, or 9 thousand million
// dollars.
const MaxAmount = 1<<53 - 1

// MaxPercent is the largest threshold of a limit, in percent.
const MaxPercent = 1000

// Max is how much of each unit may be used. A unit that is not in it is not
// limited; 0 lets nothing pass. Money is in micro-dollars.
type Max map[Unit]int64

// units are the units of m, in their own order.
func (m Max) units() []Unit { return slices.Sorted(maps.Keys(m)) }

// Limit is how much may be used by whom, in which time. There are three kinds,
// and the window says which:
//
//   - A limit per calendar window ([Day], [Month], …) lets so much pass until the
//     window ends, and starts afresh then. A Soft one lets more pass, up to its
//     Ceiling, and reports it.
//   - A limit per rolling window ([Rolling]) is a rate: it refills all the time, up
//     to its Burst. A call that does not fit may wait, up to MaxWait.
//   - A limit of [ConcurrentTurns] has no window, and no other unit: what is under
//     way does not become less at midnight.
//
// In one list of limits there is at most one for each scope and window, with all
// its amounts. Counters belong to a scope, a window and a unit, and not to a limit:
// when limits change, what was spent stays spent.
//
// A Limit is plain data. What [Limits.For] and a [LimitCache] return is complete:
// Name, Mode, Burst and Thresholds are filled in. It must not be changed.
type Limit struct {
	// Name names the limit in errors, events and metrics, so it must not contain
	// anybody's id. It has at most 64 letters, digits and characters out of
	// "-_./:@+". Defaults to the scope and the window, such as "user/day". In all
	// lists of a configuration a name stands for one scope and window.
	Name string
	// Scope says whose use is counted together. It must be in the hierarchy.
	Scope Scope
	// Window says in which time. A limit of ConcurrentTurns must have the zero
	// Window, any other must have one.
	Window Window
	// Max is how much of what. There must be at least one unit in it. Amounts are
	// from 0 to [MaxAmount]. What is denied because nothing may pass is denied without
	// asking the ledger, so also while that cannot be reached.
	Max Max
	// Burst is how much of a unit may be used at once after a pause, in a rolling
	// window. Its units must be in Max. Defaults to Max: the use of one window. It
	// is at least 1, unless the unit's Max is 0.
	Burst Max

	// Soft lets more than Max pass, up to Ceiling, and reports it. It cannot be
	// set with a rolling window, which has no end at which to bill an overage.
	Soft bool
	// Ceiling is the hard end of a soft limit. Its units must be in Max, its
	// amounts not below theirs. A unit that is not in it has no hard end.
	Ceiling Max

	// Mode says whether the limit denies. Defaults to the mode of the plan, and
	// then to that of all limits; see [LimitsConfig.Mode].
	Mode Mode
	// Missing says what becomes of a call whose subject has no id of the scope.
	// Defaults to [Deny].
	Missing Missing
	// Failure says what becomes of a call while the ledger cannot be reached.
	// Defaults to [Auto].
	Failure FailurePolicy
	// Hold says how much is reserved for a call whose use is not known before.
	// Defaults to [P95].
	Hold HoldPolicy
	// MaxWait is how long a call may wait for a rolling window, 0 for not at all.
	// nil is the [Enforcer]'s default. Only rolling windows have one.
	MaxWait *time.Duration
	// Thresholds are the percents of Max at which an event is published, once for
	// each window: rising, from 1 to [MaxPercent]. nil is 80 and 100; an empty one
	// is none. Only calendar windows have them.
	Thresholds []int
}

// defaultThresholds are those of calendar limits without any.
var defaultThresholds = []int{80, 100}

// concurrent reports whether l limits what is under way at a time.
func (l *Limit) concurrent() bool { return l.Window == Window{} }

// rolling reports whether l is a rate.
func (l *Limit) rolling() bool { return !l.concurrent() && l.Window.IsRolling() }

// limitSlot is what a limit is replaced by: there is one of it in a list.
type limitSlot struct {
	scope  Scope
	window string
}

// slot is the place of l in a list. Windows are compared by their IDs, as counters
// are.
func (l *Limit) slot() limitSlot {
	if l.concurrent() {
		return limitSlot{scope: l.Scope}
	}
	return limitSlot{l.Scope, l.Window.ID()}
}

// String is "user/day", or "user/concurrent" for what is under way.
func (s limitSlot) String() string {
	if s.window == "" {
		return string(s.scope) + "/concurrent"
	}
	return string(s.scope) + "/" + s.window
}

// complete is a copy of l, valid as it is, with what is not set filled in.
func (l Limit) complete(mode Mode) Limit {
	if l.Name == "" {
		l.Name = l.slot().String()
	}
	l.Max = maps.Clone(l.Max)
	l.Ceiling = maps.Clone(l.Ceiling)
	l.Mode = mode
	switch {
	case l.rolling():
		burst := maps.Clone(l.Max)
		maps.Copy(burst, l.Burst)
		l.Burst = burst
		l.Thresholds = nil
	case l.concurrent():
		l.Burst, l.Thresholds = nil, nil
	case l.Thresholds == nil:
		l.Burst, l.Thresholds = nil, slices.Clone(defaultThresholds)
	default:
		l.Burst, l.Thresholds = nil, slices.Clone(l.Thresholds)
	}
	if l.MaxWait != nil {
		wait := *l.MaxWait
		l.MaxWait = &wait
	}
	return l
}

// String is the limit in one line, such as `user-daily: 400000 credits per user
// and day`; it shows nobody's id.
func (l Limit) String() string {
	name := l.Name
	if name == "" {
		name = l.slot().String()
	}
	s := name + ":"
	for i, u := range l.Max.units() {
		if i > 0 {
			s += ","
		}
		s += fmt.Sprintf(" %d %v", l.Max[u], u)
	}
	if l.concurrent() {
		return s + fmt.Sprintf(" per %s", l.Scope)
	}
	return s + fmt.Sprintf(" per %s and %s", l.Scope, l.Window.ID())
}
