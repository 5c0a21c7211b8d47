package quota

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// LimitsConfig is what [Limits] are made of. The zero LimitsConfig limits nobody.
type LimitsConfig struct {
	// Version names this set of limits, for example "2026-11-30"; it is not
	// interpreted.
	Version string
	// Hierarchy are the scopes. Defaults to [DefaultHierarchy].
	Hierarchy *Hierarchy
	// Mode is the mode of limits that have none, neither of their own nor by their
	// plan. Defaults to [Enforce].
	Mode Mode
	// Limits are the limits of everybody.
	Limits []Limit
	// Plans are what differs for the subjects of plans. Names are unique.
	Plans []Plan
	// Overrides are what differs for single subjects. Of several that are for one
	// subject, later ones go over earlier ones.
	Overrides []Override
}

// Limits are the limits of everybody, of plans and of single subjects: a whole
// set, valid and unchangeable. To change limits while a program runs, make a new
// set and give it to whoever has the old one. Nothing that was spent is lost by
// that, because counters do not depend on limits.
//
// What of them is in effect for a subject, [Limits.For] says. A Limits is safe for
// concurrent use.
type Limits struct {
	version   string
	hierarchy *Hierarchy
	mode      Mode
	common    limitList
	plans     map[string]limitList
	names     []string // of plans, sorted

	overrides []Override
	// byKey finds overrides by scope and key, in rising order; ids are the ids of
	// their subjects, so that subjects without any need no key.
	byKey map[Scope]map[string][]int
	ids   map[Scope]map[string]bool
}

// limitList are the limits of a plan, or the common ones.
type limitList struct {
	mode      Mode    // of the plan
	raw       []Limit // with the mode in effect, still without defaults
	effective []Limit // complete, without those that are off
}

// LimitError is one thing that is wrong with limits.
type LimitError struct {
	// Path is the place, as a file has it, such as "plans.pro.limits[0].max.tokens"
	// or "limits[2].window".
	Path string
	// Problem is what is wrong there, with the value.
	Problem string
}

// Error is the path and the problem.
func (e *LimitError) Error() string { return "quota: " + e.Path + ": " + e.Problem }

// NewLimits makes limits. If anything is wrong with them, the error joins
// ([errors.Join]) a [*LimitError] for each thing that is.
func NewLimits(config LimitsConfig) (*Limits, error) {
	l := &Limits{
		version: config.Version, hierarchy: config.Hierarchy, mode: config.Mode,
		plans: make(map[string]limitList, len(config.Plans)),
		byKey: map[Scope]map[string][]int{}, ids: map[Scope]map[string]bool{},
	}
	if l.hierarchy == nil {
		l.hierarchy = DefaultHierarchy()
	}
	if l.mode == ModeUnset {
		l.mode = Enforce
	}
	c := checker{hierarchy: l.hierarchy, names: map[string]limitSlot{}}
	c.config(&config)
	if len(c.found) > 0 {
		return nil, errors.Join(c.found...)
	}
	l.common = l.list(config.Limits, ModeUnset)
	for _, p := range config.Plans {
		l.plans[p.Name] = l.list(Overlay(config.Limits, p.Limits), p.Mode)
	}
	l.names = slices.Sorted(maps.Keys(l.plans))
	for i, o := range config.Overrides {
		o.Limits = deepCopy(o.Limits)
		o.Subject.Other = maps.Clone(o.Subject.Other)
		l.overrides = append(l.overrides, o)
		key, _ := l.hierarchy.Key(o.Subject, o.Scope)
		if l.byKey[o.Scope] == nil {
			l.byKey[o.Scope], l.ids[o.Scope] = map[string][]int{}, map[string]bool{}
		}
		l.byKey[o.Scope][key] = append(l.byKey[o.Scope][key], i)
		l.ids[o.Scope][o.Subject.ID(o.Scope)] = true
	}
	return l, nil
}

// list makes a list of limits, of which plan is the mode of their plan.
func (l *Limits) list(limits []Limit, plan Mode) limitList {
	raw := deepCopy(limits)
	for i := range raw {
		raw[i].Mode = firstMode(raw[i].Mode, planMode(raw[i].Scope, plan), l.mode)
	}
	return limitList{plan, raw, effective(slices.Clone(raw))}
}

// planMode is the mode that a plan gives to a limit of a scope.
func planMode(s Scope, plan Mode) Mode {
	if s == Global {
		return ModeUnset
	}
	return plan
}

// firstMode is the first that is set.
func firstMode(modes ...Mode) Mode {
	for _, m := range modes {
		if m != ModeUnset {
			return m
		}
	}
	return ModeUnset
}

// deepCopy copies limits with all that they refer to.
func deepCopy(limits []Limit) []Limit {
	out := slices.Clone(limits)
	for i := range out {
		l := &out[i]
		l.Max, l.Burst, l.Ceiling = maps.Clone(l.Max), maps.Clone(l.Burst), maps.Clone(l.Ceiling)
		l.Thresholds = slices.Clone(l.Thresholds)
		if l.MaxWait != nil {
			wait := *l.MaxWait
			l.MaxWait = &wait
		}
	}
	return out
}

// effective completes limits in place, and leaves out those that are off.
func effective(limits []Limit) []Limit {
	limits = slices.DeleteFunc(limits, func(l Limit) bool { return l.Mode == Off })
	for i := range limits {
		limits[i] = limits[i].complete(limits[i].Mode)
	}
	return limits
}

// For are the limits in effect for a subject, now. They are complete, and none
// is [Off]; the slice must not be changed.
//
// They are the common limits, those of the subject's plan laid over them, and
// those of its overrides over these. A subject without a plan, or with one that
// is not known, has the common limits. The mode of each is the first that is set
// of: the override's, its own, its plan's (not for global limits), that of the
// configuration.
//
// Whether the subject has ids for the scopes does not matter here; see
// [Limit].Missing. For a subject without overrides nothing is allocated.
func (l *Limits) For(s Subject) []Limit {
	if len(l.overrides) == 0 {
		return l.planned(s).effective
	}
	return l.At(s, time.Now())
}

// At is [Limits.For] at an instant, which decides which overrides have ended.
func (l *Limits) At(s Subject, now time.Time) []Limit {
	list := l.planned(s)
	var found []int
	for scope, ids := range l.ids {
		if !ids[s.ID(scope)] {
			continue
		}
		key, ok := l.hierarchy.Key(s, scope)
		if !ok {
			continue
		}
		for _, i := range l.byKey[scope][key] {
			if l.overrides[i].active(now) {
				found = append(found, i)
			}
		}
	}
	if len(found) == 0 {
		return list.effective
	}
	slices.Sort(found)
	limits := slices.Clone(list.raw)
	for _, i := range found {
		limits = l.overrides[i].apply(limits)
	}
	for i := range limits {
		if limits[i].Mode == ModeUnset { // one that an override has added
			limits[i].Mode = firstMode(planMode(limits[i].Scope, list.mode), l.mode)
		}
	}
	return effective(limits)
}

// Limits is [Limits.For], so that a fixed set is a [LimitResolver], too. The error
// is nil.
func (l *Limits) Limits(_ context.Context, s Subject) ([]Limit, error) { return l.For(s), nil }

// planned are the limits of the subject's plan.
func (l *Limits) planned(s Subject) limitList {
	if s.Plan != "" {
		if list, ok := l.plans[s.Plan]; ok {
			return list
		}
	}
	return l.common
}

// PlanOf is the subject's plan if it is known, and "" otherwise: a name out of a
// closed set, fit for a metric's label.
func (l *Limits) PlanOf(s Subject) string {
	if _, ok := l.plans[s.Plan]; ok {
		return s.Plan
	}
	return ""
}

// Plans are the names of the plans, sorted.
func (l *Limits) Plans() []string { return slices.Clone(l.names) }

// Version is [LimitsConfig.Version].
func (l *Limits) Version() string { return l.version }

// Hierarchy are the scopes.
func (l *Limits) Hierarchy() *Hierarchy { return l.hierarchy }

// Names are the names of all limits, sorted, those of overrides included: the
// closed set of a metric's label.
func (l *Limits) Names() []string {
	seen := map[string]bool{}
	add := func(limits []Limit) {
		for i := range limits {
			seen[limits[i].complete(Enforce).Name] = true
		}
	}
	add(l.common.raw)
	for _, list := range l.plans {
		add(list.raw)
	}
	for i := range l.overrides {
		add(l.overrides[i].Limits)
	}
	return slices.Sorted(maps.Keys(seen))
}

// CompleteLimits checks a list of limits that comes from elsewhere and gives it
// the form that [Limits.For] has: complete, without limits that are [Off]. Limits
// without a mode have the given one, and [Enforce] if that is not set. A nil
// hierarchy is [DefaultHierarchy]. The list is copied. The error joins a
// [*LimitError] for each thing that is wrong.
func CompleteLimits(h *Hierarchy, mode Mode, limits []Limit) ([]Limit, error) {
	if h == nil {
		h = DefaultHierarchy()
	}
	c := checker{hierarchy: h, names: map[string]limitSlot{}}
	c.mode("mode", mode)
	c.limits("limits", limits, true)
	if len(c.found) > 0 {
		return nil, errors.Join(c.found...)
	}
	out := deepCopy(limits)
	for i := range out {
		out[i].Mode = firstMode(out[i].Mode, mode, Enforce)
	}
	return effective(out), nil
}
