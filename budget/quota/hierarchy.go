package quota

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Hierarchy says which scopes there are, and within which other scope the ids of
// each live. It makes the keys of counters.
//
// A key is the path of ids from the outermost scope to its own:
//
//	tenant=acme/user=alice/session=s1
//
// Each id stands behind the name of its scope, and every byte of it that is not
// an ASCII letter, a digit or one of "-._~@+" is written as % and two hexadecimal
// digits. So two different paths never have the same key, whatever is in the ids,
// and a key needs no further quoting in a store, a URL or a log. Upper and lower
// case differ: a database that keeps keys needs a collation that tells them apart.
//
// An id of an outer scope that the subject does not have is left out of the path:
// user=alice is the alice of no tenant, and nobody else.
//
// A nil Hierarchy is [DefaultHierarchy]; the zero Hierarchy has only [Global]. It
// never changes, and is safe for concurrent use.
type Hierarchy struct {
	scopes []Scope           // in declared order
	paths  map[Scope][]Scope // from the outermost scope to the scope itself
}

// ScopeSpec declares a scope.
type ScopeSpec struct {
	// Scope is the name; see [Scope] for what it may be.
	Scope Scope
	// Within is the scope in which the ids live, or "" if they are unique by
	// themselves.
	Within Scope
}

// DefaultScopes are the scopes of [DefaultHierarchy]: tenants, users and teams
// within their tenant, and sessions within their user. To add one of your own,
// append it:
//
//	NewHierarchy(append(DefaultScopes(), ScopeSpec{Scope: "project", Within: Tenant})...)
func DefaultScopes() []ScopeSpec {
	return []ScopeSpec{
		{Scope: Tenant},
		{Scope: User, Within: Tenant},
		{Scope: Team, Within: Tenant},
		{Scope: Session, Within: User},
	}
}

var defaultHierarchy = func() *Hierarchy {
	h, err := NewHierarchy(DefaultScopes()...)
	if err != nil {
		panic(err) // a constant
	}
	return h
}()

// DefaultHierarchy has the scopes of [DefaultScopes], and [Global].
func DefaultHierarchy() *Hierarchy { return defaultHierarchy }

// NewHierarchy declares all scopes that there are. [Global] is always there and
// is not declared. The order does not matter to keys; see [Hierarchy.Tree] for
// where it does. If anything is wrong (a bad name, a scope that is declared twice,
// one within an unknown scope or within itself), the error joins ([errors.Join]) a
// [*LimitError] for each thing that is, with a path such as "scopes[4].within".
func NewHierarchy(scopes ...ScopeSpec) (*Hierarchy, error) {
	h := &Hierarchy{paths: make(map[Scope][]Scope, len(scopes))}
	within := make(map[Scope]Scope, len(scopes))
	var errs []error
	fail := func(i int, field, problem string) {
		errs = append(errs, &LimitError{Path: fmt.Sprintf("scopes[%d].%s", i, field), Problem: problem})
	}
	var at []int // where each of h.scopes is declared
	for i, spec := range scopes {
		if err := spec.Scope.validate(); err != nil {
			fail(i, "scope", err.Error())
			continue
		}
		if spec.Scope == Global {
			fail(i, "scope", fmt.Sprintf("scope %q is always there and cannot be declared", Global))
			continue
		}
		if _, twice := within[spec.Scope]; twice {
			fail(i, "scope", fmt.Sprintf("scope %q is declared twice", spec.Scope))
			continue
		}
		within[spec.Scope] = spec.Within
		h.scopes, at = append(h.scopes, spec.Scope), append(at, i)
	}
	for i, scope := range h.scopes {
		path, err := pathOf(scope, within)
		if err != nil {
			fail(at[i], "within", err.Error())
			continue
		}
		h.paths[scope] = path
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return h, nil
}

// pathOf lists the scopes from the outermost one to scope.
func pathOf(scope Scope, within map[Scope]Scope) ([]Scope, error) {
	path := []Scope{scope}
	for {
		last := path[len(path)-1]
		outer := within[last]
		if outer == "" {
			slices.Reverse(path)
			return path, nil
		}
		if _, declared := within[outer]; !declared {
			return nil, fmt.Errorf("scope %q is within %.40q, which is not declared", last, string(outer))
		}
		if slices.Contains(path, outer) {
			return nil, fmt.Errorf("scope %q is within itself, by way of %q", scope, last)
		}
		path = append(path, outer)
	}
}

// Has reports whether the scope is declared, or [Global].
func (h *Hierarchy) Has(scope Scope) bool {
	return scope == Global || h.path(scope) != nil
}

// Scopes are all scopes in the order in which they were declared, [Global] last.
func (h *Hierarchy) Scopes() []Scope {
	return append(slices.Clone(h.orDefault().scopes), Global)
}

// Path lists the scopes whose ids make up a scope's keys, from the outermost one
// to the scope itself. It is nil if the scope is not declared.
func (h *Hierarchy) Path(scope Scope) []Scope {
	if scope == Global {
		return []Scope{Global}
	}
	return slices.Clone(h.path(scope))
}

// Key is the key of the subject's counters in a scope. ok is false if the subject
// has no id in it, or if the scope is not declared. The key of [Global] is
// "global".
//
// Key escapes whatever is in the ids, and is as long as they make it: check ids
// with [Subject.Validate] where they come in. Keys of valid subjects in the
// default hierarchy have at most 1,174 bytes.
func (h *Hierarchy) Key(s Subject, scope Scope) (key string, ok bool) {
	if scope == Global {
		return string(Global), true
	}
	path := h.path(scope)
	if path == nil || s.ID(scope) == "" {
		return "", false
	}
	return makeKey(s, path), true
}

// TreeOf names what a store keeps in one place, such as a hash slot or a shard,
// together with the subject's counters in a scope: the outermost id of their key.
// So everything of a tenant is in its tree, and a user without a tenant has a tree
// of their own. [Global] has one of its own, too: one atomic step cannot reach
// both it and a tenant's counters. The same key always has the same tree. It is
// "" where [Hierarchy.Key] has no key.
func (h *Hierarchy) TreeOf(s Subject, scope Scope) string {
	if scope == Global {
		return string(Global)
	}
	path := h.path(scope)
	if path == nil || s.ID(scope) == "" {
		return ""
	}
	for i := range path {
		if s.ID(path[i]) != "" {
			return makeKey(s, path[i:i+1])
		}
	}
	return ""
}

// Tree is the tree of the subject itself: that of the first scope, in the order
// of declaration, in which it has an id. With the default hierarchy that is the
// tenant's, without a tenant the user's, then the team's, then the session's; and
// that of [Global] for nobody.
func (h *Hierarchy) Tree(s Subject) string {
	for _, scope := range h.orDefault().scopes {
		if tree := h.TreeOf(s, scope); tree != "" {
			return tree
		}
	}
	return string(Global)
}

func (h *Hierarchy) orDefault() *Hierarchy {
	if h == nil {
		return defaultHierarchy
	}
	return h
}

func (h *Hierarchy) path(scope Scope) []Scope { return h.orDefault().paths[scope] }

// makeKey writes the ids that are there, each behind its scope. It measures first,
// so that it allocates once.
func makeKey(s Subject, path []Scope) string {
	n := 0
	for _, scope := range path {
		if id := s.ID(scope); id != "" {
			n += len(scope) + len("=/") + len(id)
			for i := range len(id) {
				if !plain[id[i]] {
					n += 2
				}
			}
		}
	}
	var b strings.Builder
	b.Grow(n)
	for _, scope := range path {
		id := s.ID(scope)
		if id == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('/')
		}
		b.WriteString(string(scope))
		b.WriteByte('=')
		for i := range len(id) {
			if c := id[i]; plain[c] {
				b.WriteByte(c)
			} else {
				const hex = "0123456789ABCDEF"
				b.WriteByte('%')
				b.WriteByte(hex[c>>4])
				b.WriteByte(hex[c&15])
			}
		}
	}
	return b.String()
}

// plain says which bytes of an id stand for themselves in a key: the unreserved
// characters of RFC 3986 §2.3, and two that are common in ids. None has a meaning
// in a Redis hash tag or glob pattern.
var plain = func() (set [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~@+") {
		set[c] = true
	}
	return set
}()
