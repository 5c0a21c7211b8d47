package quota

import "time"

// Plan is what differs for the subjects of a plan.
//
// Each of its limits replaces the common limit of the same scope and window, with
// all its amounts, or is added if there is none. It has no say about the [Global]
// scope, which everybody shares: it has no such limits, and its Mode does not
// touch those of others.
type Plan struct {
	// Name is what [Subject].Plan must be: 1 to 64 letters, digits, "-", "_" and
	// ".". It must be set.
	Name string
	// Limits are the limits of the plan.
	Limits []Limit
	// Mode is that of all limits of the plan's subjects that have none of their
	// own: those of the plan and the common ones. So a rollout goes plan by plan.
	// Defaults to [LimitsConfig.Mode].
	Mode Mode
}

// Override changes the limits of one subject, for the time of an incident: less
// for who floods, more or [Observe] for who must not be blocked now.
type Override struct {
	// Scope and Subject say for whom it is: for all subjects that have, in this
	// scope, the same key as Subject ([Hierarchy.Key]). A user is somebody of a
	// tenant, so for a user there must be both. Ids that do not belong to the scope
	// are an error. It cannot be for [Global].
	Scope   Scope
	Subject Subject
	// Limits replace and add like those of a [Plan], after it.
	Limits []Limit
	// Mode is that of all limits in effect, but for global ones and for Limits that
	// have their own. It goes before the modes of limits and plans.
	Mode Mode
	// Until is when the override ends. The zero time is never.
	Until time.Time
	// Reason is kept for people; it is not interpreted.
	Reason string
}

// active reports whether the override holds at now.
func (o *Override) active(now time.Time) bool { return o.Until.IsZero() || now.Before(o.Until) }

// apply lays the override over the limits in effect, which it may change.
func (o *Override) apply(to []Limit) []Limit {
	if o.Mode != ModeUnset {
		for i := range to {
			if to[i].Scope != Global {
				to[i].Mode = o.Mode
			}
		}
	}
	for _, l := range o.Limits {
		if l.Mode == ModeUnset {
			l.Mode = o.Mode
		}
		to = place(to, l)
	}
	return to
}

// Overlay is base with limits laid over it, as a plan's are: one of over replaces
// the one of base with the same scope and window, or is added behind. Neither is
// changed. It helps a [LimitResolver] that knows only what differs.
func Overlay(base, over []Limit) []Limit {
	out := append(make([]Limit, 0, len(base)+len(over)), base...)
	for _, l := range over {
		out = place(out, l)
	}
	return out
}

// place puts a limit in its slot.
func place(in []Limit, l Limit) []Limit {
	s := l.slot()
	for i := range in {
		if in[i].slot() == s {
			in[i] = l
			return in
		}
	}
	return append(in, l)
}
