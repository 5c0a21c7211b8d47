package quota

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"unicode"
	"unicode/utf8"
)

// Scope is a kind of whom a limit is on. The scopes below are built in; others
// are declared in a [Hierarchy]. The name of a scope is a lower-case letter,
// followed by up to 31 lower-case letters, digits and underscores. It stands in
// keys, configuration, errors and metrics.
type Scope string

const (
	// User is one person, or whatever acts as one. User ids live within their
	// tenant: alice of one tenant is not alice of another.
	User Scope = "user"
	// Team is a group of users of a tenant.
	Team Scope = "team"
	// Tenant is a customer: an organisation with users, teams and sessions.
	Tenant Scope = "tenant"
	// Session is one conversation of a user.
	Session Scope = "session"
	// Global is everybody together. It has no ids, and every subject is part of
	// it, also one without any id.
	Global Scope = "global"
)

const (
	// MaxID is the largest length of an id, in bytes.
	MaxID = 128
	// MaxOther is the largest number of ids in [Subject].Other.
	MaxOther = 8
	// maxScope is the largest length of a scope's name, in bytes.
	maxScope = 32
)

// validate returns an error unless s can be the name of a scope.
func (s Scope) validate() error {
	if s == "" {
		return errors.New("a scope has no name")
	}
	if len(s) > maxScope {
		return fmt.Errorf("scope %.40q… is a name of %d bytes, above %d", string(s), len(s), maxScope)
	}
	for i, c := range []byte(s) {
		letter := 'a' <= c && c <= 'z'
		if !letter && (i == 0 || c != '_' && (c < '0' || c > '9')) {
			return fmt.Errorf("scope %q has a name that is not a lower-case letter and then lower-case letters, digits and underscores", string(s))
		}
	}
	return nil
}

// Subject says for whom work is done: an id for each scope that is known, and
// the plan. "" is no id. The zero Subject is nobody.
//
// It is set by the server's own code from a principal that it has verified, and
// never from the body of a request, where a caller could name somebody else.
//
// A Subject is a value. Whoever gets one does not change its map.
type Subject struct {
	User    string `json:"user,omitempty"`
	Team    string `json:"team,omitempty"`
	Tenant  string `json:"tenant,omitempty"`
	Session string `json:"session,omitempty"`
	// Other are the ids of scopes that are not built in.
	Other map[Scope]string `json:"other,omitempty"`
	// Plan names the plan whose limits hold. "" and a name that is not known are
	// the common limits.
	Plan string `json:"plan,omitempty"`
}

// ID is the subject's id in a scope, or "" if it has none. [Global] has no ids.
func (s Subject) ID(scope Scope) string {
	switch scope {
	case User:
		return s.User
	case Team:
		return s.Team
	case Tenant:
		return s.Tenant
	case Session:
		return s.Session
	case Global:
		return ""
	}
	return s.Other[scope]
}

// Nobody reports whether the subject has no id at all. A plan is no id.
func (s Subject) Nobody() bool {
	if s.User != "" || s.Team != "" || s.Tenant != "" || s.Session != "" {
		return false
	}
	for _, id := range s.Other {
		if id != "" {
			return false
		}
	}
	return true
}

// Validate returns an error that names each id that cannot be one: ids, and the
// plan, are at most [MaxID] bytes of UTF-8 without control characters and line
// breaks. Upper and lower case differ, and so do all other characters: nothing
// is trimmed, folded or normalised.
//
// Other holds at most [MaxOther] ids, and none of a built-in scope.
func (s Subject) Validate() error {
	var errs []error
	s.check(func(field, sep string, err error) {
		errs = append(errs, fmt.Errorf("quota: subject: %s%s%w", field, sep, err))
	})
	return errors.Join(errs...)
}

// check tells what is wrong with the ids. The problem goes on after the field's
// name and a separator.
func (s Subject) check(tell func(field, sep string, problem error)) {
	check := func(name, id string) {
		if err := validateID(id); err != nil {
			tell(name, " ", err)
		}
	}
	check("user", s.User)
	check("team", s.Team)
	check("tenant", s.Tenant)
	check("session", s.Session)
	check("plan", s.Plan)
	if len(s.Other) > MaxOther {
		tell("Other", " ", fmt.Errorf("has %d ids, above %d", len(s.Other), MaxOther))
		return
	}
	for _, scope := range slices.Sorted(maps.Keys(s.Other)) {
		if err := scope.validate(); err != nil {
			tell("Other", ": ", err)
			continue
		}
		if scope.builtIn() {
			tell("Other", " ", fmt.Errorf("has an id of %q, which is a built-in scope", scope))
			continue
		}
		check(string(scope), s.Other[scope])
	}
}

// builtIn reports whether the scope has a field of its own, or needs none.
func (s Scope) builtIn() bool {
	switch s {
	case User, Team, Tenant, Session, Global:
		return true
	}
	return false
}

// validateID returns an error that goes on after the name of an id. "" passes:
// it is no id.
func validateID(id string) error {
	if len(id) > MaxID {
		return fmt.Errorf("%.24q… has %d bytes, above %d", id, len(id), MaxID)
	}
	if !utf8.ValidString(id) {
		return fmt.Errorf("%q is not UTF-8", id)
	}
	for _, r := range id {
		if unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) {
			return fmt.Errorf("%q has the control character %U", id, r)
		}
	}
	return nil
}

// LogValue shows the ids that are there. Ids belong in logs and events, never in
// the labels of metrics.
func (s Subject) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 5+len(s.Other))
	add := func(name, id string) {
		if id != "" {
			attrs = append(attrs, slog.String(name, id))
		}
	}
	add("tenant", s.Tenant)
	add("team", s.Team)
	add("user", s.User)
	add("session", s.Session)
	for _, scope := range slices.Sorted(maps.Keys(s.Other)) {
		add(string(scope), s.Other[scope])
	}
	add("plan", s.Plan)
	return slog.GroupValue(attrs...)
}

type subjectKey struct{}

// WithSubject returns a context that carries the subject to everything that is
// done with it: the turn, sub-agents, agents that are used as tools, and every
// model call. It replaces a subject that ctx carries. It does not check the
// subject; admission does.
//
// A framework's own context hides its accessors once another context is derived
// from it; values such as this one survive. So set the subject on the context
// that is given to the framework, at the edge of the server.
func WithSubject(ctx context.Context, s Subject) context.Context {
	s.Other = maps.Clone(s.Other)
	return context.WithValue(ctx, subjectKey{}, s)
}

// SubjectFrom returns the subject that ctx carries; ok is false if it carries
// none.
func SubjectFrom(ctx context.Context) (s Subject, ok bool) {
	s, ok = ctx.Value(subjectKey{}).(Subject)
	return s, ok
}
