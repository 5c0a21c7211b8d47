package quotaconfig

import (
	"encoding"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/usage"
)

// formatVersion is the version of the format.
const formatVersion = 1

// config reads a whole file.
func (p *parser) config(root *yaml.Node) *Config {
	top := node{root, ""}
	fields, ok := p.object(top, "version", "revision", "mode", "zone", "scopes", "limits", "plans", "overrides", "credits", "prices")
	if !ok {
		return nil
	}
	if v := fields["version"]; !v.there() {
		p.miss(top, "version", fmt.Sprintf("this is version %d of the format", formatVersion))
	} else if number, ok := p.number(v, quota.MaxAmount); ok && number != formatVersion {
		p.fail(v, "%d is not %d", number, formatVersion)
	}
	var config quota.LimitsConfig
	config.Version, _ = p.text(fields["revision"])
	p.word(fields["mode"], &config.Mode, modes)
	p.zone, _ = p.zoneName(fields["zone"])
	config.Hierarchy = p.scopes(fields["scopes"])
	config.Limits = p.limits(fields["limits"])
	names, plans, _ := p.members(fields["plans"], "must have the names of plans as keys", nil)
	for i, name := range names {
		p.lines[fmt.Sprintf("plans[%d]", i)] = p.lines[plans[name].path] // of a name that is none
		p.plans = append(p.plans, plans[name].path)
		config.Plans = append(config.Plans, p.plan(name, plans[name]))
	}
	for _, n := range p.array(fields["overrides"]) {
		config.Overrides = append(config.Overrides, p.override(n))
	}
	out := &Config{Credits: p.credits(fields["credits"])}
	p.prices(fields["prices"], out)
	var err error
	out.Limits, err = quota.NewLimits(config)
	p.adopt(err)
	return out
}

// adopt takes over what is wrong with the limits as such.
func (p *parser) adopt(err error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return
	}
	for _, err := range joined.Unwrap() {
		if e, ok := errors.AsType[*quota.LimitError](err); ok {
			p.failAt(p.named(e.Path), e.Problem)
		} else {
			p.failAt("", err.Error())
		}
	}
}

// unnamed is the path of a plan whose name is none.
var unnamed = regexp.MustCompile(`^plans\[(\d+)\](\..+)$`)

// named is a path in the file: what a plan says stands under its name, whatever
// that is.
func (p *parser) named(path string) string {
	m := unnamed.FindStringSubmatch(path)
	if m == nil || m[2] == ".name" {
		return path
	}
	i, _ := strconv.Atoi(m[1])
	return p.plans[i] + m[2]
}

// The words for policies.
var (
	modes    = []string{"off", "observe", "enforce"}
	missings = []string{"deny", "skip"}
	failures = []string{"auto", "open", "closed"}
	holds    = []string{"mean", "p95", "worst"}
)

// word reads one of a few words.
func (p *parser) word(n node, to encoding.TextUnmarshaler, words []string) {
	s, ok := p.text(n)
	if ok && (!slices.Contains(words, s) || to.UnmarshalText([]byte(s)) != nil) {
		p.fail(n, "%s is none of %s", quoted(s), strings.Join(words, ", "))
	}
}

// zoneName is a zone that windows can be in.
func (p *parser) zoneName(n node) (string, bool) {
	s, ok := p.text(n)
	if !ok {
		return "", false
	}
	if _, err := quota.ParseWindow("day@" + s); err != nil {
		p.fail(n, "%s is neither a zone of the time zone database nor \"tenant\"", quoted(s))
		return "", false
	}
	return s, true
}

// scopes are the scopes that there are.
func (p *parser) scopes(n node) *quota.Hierarchy {
	if !n.there() {
		return p.loader.Hierarchy
	}
	if p.loader.Hierarchy != nil {
		p.fail(n, "are set, but the program has scopes of its own")
		p.doubtful = true
		return p.loader.Hierarchy
	}
	specs := quota.DefaultScopes()
	paths := make([]string, len(specs)) // the built-in ones have none
	elements := p.array(n)
	p.doubtful = p.failed[n.path]
	for _, element := range elements {
		fields, ok := p.object(element, "scope", "within")
		if ok && !fields["scope"].there() {
			p.miss(element, "scope", "name the scope")
		}
		scope, named := p.text(fields["scope"])
		within, placed := p.text(fields["within"])
		switch {
		case !named && fields["scope"].there():
			p.doubts[fields["scope"].Value] = true
		case !named:
			p.doubtful = true
		case !placed && fields["within"].there():
			p.doubts[scope] = true
		default:
			specs, paths = append(specs, quota.ScopeSpec{Scope: quota.Scope(scope), Within: quota.Scope(within)}), append(paths, element.path)
		}
	}
	misnamed := map[quota.Scope]bool{}
	for first := true; ; first = false { // until those that are left are right together
		h, err := quota.NewHierarchy(specs...)
		if err == nil {
			return h
		}
		wrong := map[int]bool{}
		for _, err := range each(err) {
			var i int
			var field string
			e, ok := errors.AsType[*quota.LimitError](err)
			if ok {
				_, err = fmt.Sscanf(e.Path, "scopes[%d].%s", &i, &field)
			}
			if !ok || err != nil {
				p.fail(n, "%s", problemsOf(err))
				return nil
			}
			wrong[i] = true
			p.doubts[string(specs[i].Scope)] = true
			misnamed[specs[i].Scope] = misnamed[specs[i].Scope] || field == "scope"
			if first && (field == "scope" || !misnamed[specs[i].Within]) {
				p.failAt(join(paths[i], field), e.Problem)
			}
		}
		right, where := []quota.ScopeSpec(nil), []string(nil)
		for i := range specs {
			if !wrong[i] {
				right, where = append(right, specs[i]), append(where, paths[i])
			}
		}
		specs, paths = right, where
	}
}

// scope is the scope of a limit or an override. One whose declaration is wrong is
// not wrong here, too.
func (p *parser) scope(n node) quota.Scope {
	s, ok := p.text(n)
	if scope := quota.Scope(s); ok && (p.doubts[s] || p.doubtful) && !quota.DefaultHierarchy().Has(scope) {
		p.failed[n.path] = true
	}
	return quota.Scope(s)
}

// problemsOf are the problems of an error that may join many, in one line.
func problemsOf(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "quota: ")
	}
	return strings.Join(lines, "; ")
}

// plan reads a plan.
func (p *parser) plan(name string, n node) quota.Plan {
	plan := quota.Plan{Name: name}
	fields, ok := p.object(n, "mode", "limits")
	if !ok {
		return plan
	}
	p.word(fields["mode"], &plan.Mode, modes)
	plan.Limits = p.limits(fields["limits"])
	return plan
}

// override reads an override.
func (p *parser) override(n node) (o quota.Override) {
	fields, ok := p.object(n, "scope", "subject", "until", "reason", "mode", "limits")
	if !ok {
		return o
	}
	o.Scope = p.scope(fields["scope"])
	o.Until, _ = p.instant(fields["until"])
	o.Reason, _ = p.text(fields["reason"])
	p.word(fields["mode"], &o.Mode, modes)
	o.Limits = p.limits(fields["limits"])
	p.quiet[n.path] = p.less[n.path] || p.failed[join(n.path, "mode")] || p.failed[join(n.path, "limits")] // or it seems to change nothing
	scopes, ids, _ := p.members(fields["subject"], "must have scopes as keys", nil)
	for _, scope := range scopes {
		id, ok := p.text(ids[scope])
		if !ok {
			p.quiet[join(n.path, "subject")] = true // or it seems to have no id
			continue
		}
		switch quota.Scope(scope) {
		case quota.User:
			o.Subject.User = id
		case quota.Team:
			o.Subject.Team = id
		case quota.Tenant:
			o.Subject.Tenant = id
		case quota.Session:
			o.Subject.Session = id
		default:
			if o.Subject.Other == nil {
				o.Subject.Other = map[quota.Scope]string{}
			}
			o.Subject.Other[quota.Scope(scope)] = id
		}
	}
	return o
}

// limits reads a list of limits.
func (p *parser) limits(n node) (out []quota.Limit) {
	for _, element := range p.array(n) {
		out = append(out, p.limit(element))
	}
	return out
}

// limit reads a limit.
func (p *parser) limit(n node) (l quota.Limit) {
	fields, ok := p.object(n, "name", "scope", "window", "max", "burst", "soft", "ceiling",
		"mode", "missing", "failure", "hold", "max_wait", "thresholds")
	if !ok {
		return l
	}
	l.Name, _ = p.text(fields["name"])
	l.Scope = p.scope(fields["scope"])
	l.Max = p.amounts(fields["max"], true)
	l.Burst = p.amounts(fields["burst"], false)
	l.Ceiling = p.amounts(fields["ceiling"], false)
	p.word(fields["mode"], &l.Mode, modes)
	p.word(fields["missing"], &l.Missing, missings)
	p.word(fields["failure"], &l.Failure, failures)
	p.word(fields["hold"], &l.Hold, holds)
	if wait, ok := p.span(fields["max_wait"]); ok {
		l.MaxWait = &wait
	}
	if fields["thresholds"].there() {
		l.Thresholds = []int{}
	}
	for _, element := range p.array(fields["thresholds"]) {
		percent, _ := p.number(element, quota.MaxPercent)
		l.Thresholds = append(l.Thresholds, int(percent)) // 0 for one that is wrong, which says nothing of the others
	}
	windowed, softened := true, true
	if fields["window"].there() {
		l.Window, windowed = p.window(fields["window"])
	}
	if fields["soft"].there() {
		l.Soft, softened = p.truth(fields["soft"])
	}
	if !windowed { // what fits with the window is not known
		p.quiet[n.path] = true // it may be another's window
		for _, key := range [...]string{"window", "burst", "soft", "max_wait", "thresholds"} {
			p.quiet[join(n.path, key)] = true
		}
	}
	if !softened {
		p.quiet[join(n.path, "ceiling")] = true
	}
	p.quietAmounts(n.path, l.Max)
	return l
}

// quietAmounts keeps quiet about bursts and ceilings that do not fit with a most
// which is wrong.
func (p *parser) quietAmounts(limit string, most quota.Max) {
	at := join(limit, "max")
	p.quiet[at] = p.less[at]
	for unit, name := range unitNames {
		_, has := most[quota.Unit(unit)]
		if p.failed[join(at, name)] || !has && (p.failed[at] || p.less[at]) {
			p.quiet[join(limit, "burst."+name)], p.quiet[join(limit, "ceiling."+name)] = true, true
		}
	}
}

// window is a window, in the zone of the file unless it names one.
func (p *parser) window(n node) (quota.Window, bool) {
	s, ok := p.text(n)
	if !ok {
		return quota.Window{}, false
	}
	w, err := quota.ParseWindow(s)
	if err == nil && p.zone != "" && !w.IsRolling() && !strings.Contains(s, "@") {
		w, err = quota.ParseWindow(s + "@" + p.zone)
	}
	if err != nil {
		p.fail(n, "%s", strings.TrimPrefix(err.Error(), "quota: window "))
		return quota.Window{}, false
	}
	return w, true
}

// unitByName are the units by their names, which are in unitNames in order.
var unitByName, unitNames = func() (map[string]quota.Unit, []string) {
	units, names := map[string]quota.Unit{}, make([]string, quota.Units)
	for u := range quota.Units {
		names[u] = quota.Unit(u).String()
		units[names[u]] = quota.Unit(u)
	}
	return units, names
}()

// amounts are amounts by unit. For those that limits are about, one that is wrong
// is taken for 1, so that nothing else seems to be wrong because of it.
func (p *parser) amounts(n node, about bool) quota.Max {
	fields, ok := p.object(n, unitNames...)
	if !ok {
		return nil
	}
	out := make(quota.Max, len(fields))
	for _, name := range unitNames {
		if !fields[name].there() {
			continue
		}
		unit := unitByName[name]
		amount, ok := int64(0), false
		if unit == quota.Money {
			amount, ok = p.money(fields[name])
		} else {
			amount, ok = p.number(fields[name], quota.MaxAmount)
		}
		switch {
		case ok:
			out[unit] = amount
		case about:
			out[unit] = 1
		}
	}
	return out
}

// dollars is how money is written.
var dollars = regexp.MustCompile(`^(0|[1-9][0-9]*)(\.[0-9]+)?$`)

// money is an amount in dollars, in quotes.
func (p *parser) money(n node) (int64, bool) {
	s, tag, ok := p.scalar(n)
	switch {
	case !ok:
		return 0, false
	case negative.MatchString(s):
		p.fail(n, "must not be negative: %s", clip(s))
		return 0, false
	case tag != "!!str" && dollars.MatchString(s):
		p.fail(n, "must be in quotes, so that no reader makes a binary fraction of it: \"%s\"", clip(s))
		return 0, false
	case tag != "!!str" || !dollars.MatchString(s):
		p.fail(n, "must be dollars, such as \"1.00\", but is %s", quoted(s))
		return 0, false
	}
	amount, err := usage.ParseMicros(s)
	switch {
	case errors.Is(err, usage.ErrOverflow) || err == nil && amount > quota.MaxAmount:
		p.fail(n, "%s is more than %v, the most there is", quoted(s), usage.Micros(quota.MaxAmount))
		return 0, false
	case err != nil:
		p.fail(n, "%s", strings.TrimPrefix(err.Error(), "usage: "))
		return 0, false
	}
	return int64(amount), true
}
