package usage

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Rule recognises names of a model that are not listed one by one. Exactly one
// of the conditions must be set; Provider may be set besides.
type Rule struct {
	// Provider, if set, limits the rule to names that begin with it and a slash,
	// and is left out before the condition is looked at: Provider "aws" and
	// StartsWith "claude-" recognise "aws/claude-x" and not "claude-x".
	Provider string

	// Equals, StartsWith, EndsWith and Contains compare text, ignoring case.
	Equals, StartsWith, EndsWith, Contains string
	// Regexp must be found in the name, in lower case, by the part that is found.
	Regexp *regexp.Regexp
	// Any is true if one of its rules is, All if all are.
	Any, All []Rule
}

// maxRuleDepth bounds how deep rules may nest.
const maxRuleDepth = 16

// validate reports what is wrong with a rule.
func (r *Rule) validate(depth int) error {
	if depth > maxRuleDepth {
		return fmt.Errorf("rules nest deeper than %d", maxRuleDepth)
	}
	set := 0
	for _, is := range [...]bool{
		r.Equals != "", r.StartsWith != "", r.EndsWith != "", r.Contains != "",
		r.Regexp != nil, len(r.Any) > 0, len(r.All) > 0,
	} {
		if is {
			set++
		}
	}
	switch set {
	case 0:
		return errors.New("a rule has no condition")
	case 1:
	default:
		return fmt.Errorf("a rule has %d conditions, but must have one", set)
	}
	for _, rules := range [...][]Rule{r.Any, r.All} {
		for i := range rules {
			if err := rules[i].validate(depth + 1); err != nil {
				return err
			}
		}
	}
	return nil
}

// folded is the rule with its texts in lower case.
func (r Rule) folded() Rule {
	fold := func(rules []Rule) []Rule {
		if rules == nil {
			return nil
		}
		out := make([]Rule, len(rules))
		for i := range rules {
			out[i] = rules[i].folded()
		}
		return out
	}
	r.Provider = strings.TrimSuffix(lower(r.Provider), "/")
	r.Equals, r.StartsWith = strings.ToLower(r.Equals), strings.ToLower(r.StartsWith)
	r.EndsWith, r.Contains = strings.ToLower(r.EndsWith), strings.ToLower(r.Contains)
	r.Any, r.All = fold(r.Any), fold(r.All)
	return r
}

// match is how many bytes of a name, which is in lower case, the rule accounts
// for, and whether it is true. r is folded.
func (r *Rule) match(name string) (length int, ok bool) {
	scope := 0
	if r.Provider != "" {
		rest, found := strings.CutPrefix(name, r.Provider)
		if !found || !strings.HasPrefix(rest, "/") {
			return 0, false
		}
		name, scope = rest[1:], len(r.Provider)+1
	}
	switch {
	case r.Equals != "":
		length, ok = len(r.Equals), name == r.Equals
	case r.StartsWith != "":
		length, ok = len(r.StartsWith), strings.HasPrefix(name, r.StartsWith)
	case r.EndsWith != "":
		length, ok = len(r.EndsWith), strings.HasSuffix(name, r.EndsWith)
	case r.Contains != "":
		length, ok = len(r.Contains), strings.Contains(name, r.Contains)
	case r.Regexp != nil:
		if at := r.Regexp.FindStringIndex(name); at != nil {
			length, ok = at[1]-at[0], true
		}
	case len(r.Any) > 0:
		for i := range r.Any {
			if n, is := r.Any[i].match(name); is {
				length, ok = max(length, n), true
			}
		}
	case len(r.All) > 0:
		ok = true
		for i := range r.All {
			n, is := r.All[i].match(name)
			if !is {
				return 0, false
			}
			length = max(length, n)
		}
	}
	return length + scope, ok
}

// Matches reports whether the rule recognises a name, ignoring case. A rule
// without a condition recognises nothing.
func (r Rule) Matches(name string) bool {
	r = r.folded()
	_, ok := r.match(lower(name))
	return ok
}
