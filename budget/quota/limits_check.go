package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate-go/headgate/usage"
)

// maxName bounds the names of limits and plans, in bytes: they are labels of
// metrics.
const maxName = 64

// checker gathers what is wrong with limits.
type checker struct {
	hierarchy *Hierarchy
	names     map[string]limitSlot // what each name stands for
	found     []error
}

// add notes something that is wrong in a place.
func (c *checker) add(path, format string, args ...any) {
	c.found = append(c.found, &LimitError{Path: path, Problem: fmt.Sprintf(format, args...)})
}

// config checks all of a configuration.
func (c *checker) config(config *LimitsConfig) {
	c.mode("mode", config.Mode)
	c.limits("limits", config.Limits, true)
	plans := make(map[string]bool, len(config.Plans))
	for i := range config.Plans {
		p := &config.Plans[i]
		path := "plans." + p.Name
		switch problem := badName(p.Name, "-_."); {
		case problem != "":
			path = fmt.Sprintf("plans[%d]", i)
			c.add(path+".name", "%s", problem)
		case plans[p.Name]:
			c.add(path, "is the name of two plans")
		}
		plans[p.Name] = true
		c.mode(path+".mode", p.Mode)
		c.limits(path+".limits", p.Limits, false)
	}
	for i := range config.Overrides {
		c.override(fmt.Sprintf("overrides[%d]", i), &config.Overrides[i])
	}
}

// override checks an override.
func (c *checker) override(path string, o *Override) {
	c.mode(path+".mode", o.Mode)
	c.limits(path+".limits", o.Limits, false)
	if len(o.Limits) == 0 && o.Mode == ModeUnset {
		c.add(path, "changes nothing: it has neither limits nor a mode")
	}
	if o.Subject.Plan != "" {
		c.add(path+".subject.plan", "is %q, but an override is for a subject and not for a plan", clipText(o.Subject.Plan))
	}
	o.Subject.check(func(field, _ string, problem error) {
		switch field {
		case "plan": // is told above
		case "Other":
			c.add(path+".subject", "%v", problem)
		default:
			c.add(path+".subject."+field, "%v", problem)
		}
	})
	switch {
	case o.Scope == "":
		c.add(path+".scope", "is not set")
		return
	case o.Scope == Global:
		c.add(path+".scope", "is %q, but everybody is not one subject", o.Scope)
		return
	case !c.hierarchy.Has(o.Scope):
		c.add(path+".scope", "%q is no scope of the hierarchy", clipText(string(o.Scope)))
		return
	}
	if _, ok := c.hierarchy.Key(o.Subject, o.Scope); !ok {
		c.add(path+".subject", "has no id for the scope %s", o.Scope)
		return
	}
	counts := c.hierarchy.Path(o.Scope)
	for _, scope := range append([]Scope{User, Team, Tenant, Session}, slices.Sorted(maps.Keys(o.Subject.Other))...) {
		if scope.validate() == nil && o.Subject.ID(scope) != "" && !slices.Contains(counts, scope) {
			c.add(path+".subject."+string(scope), "does not matter to an override for a %s; leave it out", o.Scope)
		}
	}
}

// limits checks a list of limits; only common ones may be global.
func (c *checker) limits(path string, limits []Limit, common bool) {
	first := make(map[limitSlot]int, len(limits))
	for i := range limits {
		l, at := &limits[i], fmt.Sprintf("%s[%d]", path, i)
		if !c.limit(at, l, common) {
			continue
		}
		s := l.slot()
		if by, twice := first[s]; twice {
			c.add(at, "is for %v, and so is %s[%d]; put all amounts into one", s, path, by)
		} else {
			first[s] = i
		}
		name := l.Name
		if name == "" {
			name = s.String()
		}
		if other, taken := c.names[name]; taken && other != s {
			c.add(at+".name", "%q stands for %v already, and here for %v", clipText(name), other, s)
			continue
		}
		c.names[name] = s
	}
}

// limit checks a limit, and reports whether its scope and window can be relied
// on.
func (c *checker) limit(path string, l *Limit, common bool) bool {
	ok := true
	if l.Name != "" {
		if problem := badName(l.Name, "-_./:@+"); problem != "" {
			c.add(path+".name", "%s", problem)
		}
	}
	switch {
	case l.Scope == "":
		c.add(path+".scope", "is not set")
		ok = false
	case !c.hierarchy.Has(l.Scope):
		c.add(path+".scope", "%q is no scope of the hierarchy", clipText(string(l.Scope)))
		ok = false
	case l.Scope == Global && !common:
		c.add(path+".scope", "is %q; what everybody shares is limited for everybody, not by a plan or an override", Global)
	}
	windowed := true // the kind of window is known
	if _, has := l.Max[ConcurrentTurns]; l.concurrent() {
		if !has || len(l.Max) > 1 {
			c.add(path+".window", "is not set; only a limit of %v alone has none", ConcurrentTurns)
			ok, windowed = false, false
		}
	} else {
		if err := l.Window.Validate(); err != nil {
			c.add(path+".window", "%v", err)
			ok, windowed = false, false
		}
		if has {
			c.add(path+".window", "is set, but %v are not counted in windows; make them a limit of their own, without one", ConcurrentTurns)
		}
	}
	c.amounts(path, l, windowed)
	c.mode(path+".mode", l.Mode)
	known := func(field string, names []string, value uint8) {
		if int(value) >= len(names) {
			c.add(path+"."+field, "%d is none of %s", value, strings.Join(names, ", "))
		}
	}
	known("missing", missingNames, uint8(l.Missing))
	known("failure", failureNames, uint8(l.Failure))
	known("hold", holdNames, uint8(l.Hold))
	c.timing(path, l, windowed)
	return ok
}

// amounts checks the amounts of a limit, and whether the window allows them if its
// kind is known.
func (c *checker) amounts(path string, l *Limit, windowed bool) {
	if len(l.Max) == 0 {
		c.add(path+".max", "has no unit; leave the limit out if nothing is limited")
	}
	each := func(field string, amounts Max, allowed bool, why string, check func(at string, u Unit, amount, most int64)) {
		if len(amounts) > 0 && !allowed {
			c.add(path+"."+field, "is set, but %s", why)
		}
		for _, u := range amounts.units() {
			at := path + "." + field + "." + u.String()
			amount := amounts[u]
			most, has := l.Max[u]
			switch {
			case int(u) >= Units:
				c.add(at, "there is no such unit")
			case amount < 0:
				c.add(at, "must not be negative: %s", amountText(u, amount))
			case amount > MaxAmount:
				c.add(at, "%s is more than %s, the most there is", amountText(u, amount), amountText(u, MaxAmount))
			case !has:
				c.add(at, "is set, but max.%v is not", u)
			case check != nil && most >= 0:
				check(at, u, amount, most)
			}
		}
	}
	each("max", l.Max, true, "", nil)
	each("burst", l.Burst, l.rolling() || !windowed, "only rolling windows have a burst", func(at string, u Unit, amount, most int64) {
		switch {
		case most == 0 && amount > 0:
			c.add(at, "is %s, but max.%v is 0, which lets nothing pass", amountText(u, amount), u)
		case most > 0 && amount == 0:
			c.add(at, "is 0, but max.%v is not; to let nothing pass, make that 0", u)
		}
	})
	each("ceiling", l.Ceiling, l.Soft, "only soft limits have a ceiling", func(at string, u Unit, amount, most int64) {
		if amount < most {
			c.add(at, "is %s, below max.%v, which is %s", amountText(u, amount), u, amountText(u, most))
		}
	})
	if l.Soft && windowed && l.rolling() {
		c.add(path+".soft", "is set, but a rolling window has no end at which to bill an overage")
	}
}

// timing checks the time to wait and the thresholds, and whether the window allows
// them if its kind is known.
func (c *checker) timing(path string, l *Limit, windowed bool) {
	if l.MaxWait != nil {
		switch {
		case *l.MaxWait < 0:
			c.add(path+".max_wait", "must not be negative: %v", *l.MaxWait)
		case windowed && !l.rolling():
			c.add(path+".max_wait", "is %v, but only rolling windows can be waited for", *l.MaxWait)
		}
	}
	if len(l.Thresholds) > 0 && windowed && (l.rolling() || l.concurrent()) {
		c.add(path+".thresholds", "are set, but only calendar windows have them")
	}
	last := 0
	for i, percent := range l.Thresholds {
		at := fmt.Sprintf("%s.thresholds[%d]", path, i)
		switch {
		case percent < 1 || percent > MaxPercent:
			c.add(at, "%d is not between 1 and %d percent", percent, MaxPercent)
			continue // and those behind it are right or wrong without it
		case percent <= last:
			c.add(at, "%d is not above the one before, %d", percent, last)
		}
		last = max(last, percent)
	}
}

// mode checks a mode.
func (c *checker) mode(path string, m Mode) {
	if int(m) >= len(modeNames) {
		c.add(path, "%d is none of %s", uint8(m), strings.Join(modeNames, ", "))
	}
}

// badName says what is wrong with a name, or nothing.
func badName(name, marks string) string {
	switch {
	case name == "":
		return "is not set"
	case len(name) > maxName:
		return fmt.Sprintf("%q has %d bytes, more than %d", clipText(name), len(name), maxName)
	}
	for _, r := range name {
		if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune(marks, r)) {
			return fmt.Sprintf("%q has %q in it; it may have letters, digits and %s", clipText(name), r, marks)
		}
	}
	return ""
}

// amountText is an amount for an error: money in dollars, all else as a number.
func amountText(u Unit, amount int64) string {
	if u == Money {
		return usage.Micros(amount).String()
	}
	return fmt.Sprint(amount)
}
