package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

func dayVar(to *time.Time) func(string) error {
	return func(s string) (err error) {
		*to, err = time.Parse(time.DateOnly, s)
		return err
	}
}

// moment is an instant, or a day of which the zone is not known yet.
type moment struct {
	at  time.Time
	day bool
}

// in is the instant, or noon of the day in the zone of a window: noon of UTC is on
// another day in the far east.
func (m moment) in(w quota.Window) time.Time {
	if !m.day {
		return m.at
	}
	year, month, day := m.at.Date()
	return time.Date(year, month, day, 12, 0, 0, 0, w.Location())
}

// instantVar reads a day or an instant.
func instantVar(to *moment) func(string) error {
	return func(s string) error {
		if at, err := time.Parse(time.DateOnly, s); err == nil {
			*to = moment{at, true}
			return nil
		}
		at, err := time.Parse(time.RFC3339, s)
		*to = moment{at: at}
		return err
	}
}

// subjectVar reads ids by scope.
func subjectVar(to *quota.Subject) func(string) error {
	return func(s string) error {
		for pair := range strings.SplitSeq(s, ",") {
			scope, id, ok := strings.Cut(strings.TrimSpace(pair), "=")
			if !ok {
				return fmt.Errorf("%q has no =", pair)
			}
			switch quota.Scope(scope) {
			case quota.User:
				to.User = id
			case quota.Team:
				to.Team = id
			case quota.Tenant:
				to.Tenant = id
			case quota.Session:
				to.Session = id
			default:
				return fmt.Errorf("%q is none of user, team, tenant and session", scope)
			}
		}
		return to.Validate()
	}
}

func unitVar(to *quota.Unit) func(string) error {
	return func(s string) error {
		for u := range quota.Unit(quota.Units) {
			if u.String() == s {
				*to = u
				return nil
			}
		}
		return fmt.Errorf("%q is no unit", s)
	}
}

func unitsVar(to *[]quota.Unit) func(string) error {
	return func(s string) error {
		for name := range strings.SplitSeq(s, ",") {
			var u quota.Unit
			if err := unitVar(&u)(name); err != nil {
				return err
			}
			*to = append(*to, u)
		}
		return nil
	}
}

func windowVar(to *quota.Window) func(string) error {
	return func(s string) (err error) {
		*to, err = quota.ParseWindow(s)
		return err
	}
}

func windowsVar(to *[]quota.Window) func(string) error {
	return func(s string) error {
		for name := range strings.SplitSeq(s, ",") {
			var w quota.Window
			if err := windowVar(&w)(name); err != nil {
				return err
			}
			*to = append(*to, w)
		}
		return nil
	}
}

// listVar reads names; "" is none.
func listVar(to *[]string) func(string) error {
	return func(s string) error {
		*to = nil
		for name := range strings.SplitSeq(s, ",") {
			if name != "" {
				*to = append(*to, name)
			}
		}
		return nil
	}
}

func renameVar(to map[string]string) func(string) error {
	return func(s string) error {
		for pair := range strings.SplitSeq(s, ",") {
			from, name, ok := strings.Cut(pair, "=")
			if !ok || from == "" || name == "" {
				return errors.New("it must be OLD=NEW,…")
			}
			to[strings.ToLower(from)] = strings.ToLower(name)
		}
		return nil
	}
}

// renamer renames models on both sides, so that they agree.
func renamer(names map[string]string) func(string) string {
	return func(model string) string {
		model = strings.ToLower(model)
		if to, ok := names[model]; ok {
			return to
		}
		return model
	}
}
