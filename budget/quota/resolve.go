package quota

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
)

// Resolver finds out for whom a request is. It may know some ids and not others, or
// only the plan. ok is false if it knows nothing, which is no error. An error says that the request
// claims something that does not hold, or that it could not be found out: then
// the request is for nobody, and is not to be served as such.
//
// Resolvers look at what the server has verified, at headers and at addresses;
// they do not read the request's body. They are safe for concurrent use.
type Resolver interface {
	Resolve(r *http.Request) (s Subject, ok bool, err error)
}

// ResolverFunc is a function as a [Resolver].
type ResolverFunc func(*http.Request) (Subject, bool, error)

// Resolve calls f.
func (f ResolverFunc) Resolve(r *http.Request) (Subject, bool, error) { return f(r) }

// Chain asks resolvers in order, the one to be trusted most first. For each scope,
// and for the plan, the first that has one wins. So an id that was claimed cannot
// take the place of one that was verified.
//
// The usual order is
//
//	Chain(Explicit(), Principal(verified), Header("X-User-Id"), clientIP)
//
// with the last two only where they are wanted. It ends with the first error, and
// with an error if the outcome is not valid; see [Subject.Validate]. Nil resolvers
// are passed over.
func Chain(resolvers ...Resolver) Resolver {
	return ResolverFunc(func(r *http.Request) (Subject, bool, error) {
		var all Subject
		for _, resolver := range resolvers {
			if resolver == nil {
				continue
			}
			s, ok, err := resolver.Resolve(r)
			if err != nil {
				return Subject{}, false, err
			}
			if ok {
				all.fill(s)
			}
		}
		if err := all.Validate(); err != nil {
			return Subject{}, false, err
		}
		return all, all.known(), nil
	})
}

// known reports whether anything is known of the subject.
func (s Subject) known() bool { return s.Plan != "" || !s.Nobody() }

// fill takes over from o what s does not have.
func (s *Subject) fill(o Subject) {
	for _, f := range []struct{ to, from *string }{
		{&s.User, &o.User},
		{&s.Team, &o.Team},
		{&s.Tenant, &o.Tenant},
		{&s.Session, &o.Session},
		{&s.Plan, &o.Plan},
	} {
		if *f.to == "" {
			*f.to = *f.from
		}
	}
	if len(o.Other) == 0 {
		return
	}
	other := maps.Clone(o.Other)
	for scope, id := range s.Other {
		if id != "" {
			other[scope] = id
		}
	}
	s.Other = other
}

// Explicit is the subject that the server has put into the request's context with
// [WithSubject].
func Explicit() Resolver {
	return ResolverFunc(func(r *http.Request) (Subject, bool, error) {
		s, ok := SubjectFrom(r.Context())
		return s, ok && s.known(), nil
	})
}

// Principal is what a function makes of the principal that the server has
// verified, such as the claims of a token that authentication has left in the
// request's context. It returns false for an anonymous request. It may name a
// plan.
func Principal(verified func(*http.Request) (Subject, bool)) Resolver {
	return ResolverFunc(func(r *http.Request) (Subject, bool, error) {
		if verified == nil {
			return Subject{}, false, errors.New("quota: Principal has no function")
		}
		s, ok := verified(r)
		return s, ok && s.known(), nil
	})
}

// Header takes the id of the user from a request header. See [HeaderID].
func Header(name string) Resolver { return HeaderID(User, name) }

// HeaderID takes the id of a scope from a request header, and nothing else: no
// header that is not signed ever sets a plan. With the name "" no header is read.
//
// Any client can send any header. Use this only behind a gateway that sets the
// header itself and drops the one that the client has sent, or a client can take
// an id for each request, or use up what is someone else's.
//
// A header that came more than once is ignored, because nothing tells which one
// the gateway has set, and so is a value with a comma, which is how proxies write
// several as one. Values of more than [MaxID] bytes, or with characters that no id
// has, are ignored as well. Spaces around the value are not part of it.
func HeaderID(scope Scope, name string) Resolver {
	return ResolverFunc(func(r *http.Request) (Subject, bool, error) {
		if name == "" {
			return Subject{}, false, nil
		}
		s, err := subjectWith(scope, headerID(r, name))
		if err != nil {
			return Subject{}, false, fmt.Errorf("quota: HeaderID: %w", err)
		}
		return s, !s.Nobody(), nil
	})
}

// headerID is the value of a header, or "" if it is no id.
func headerID(r *http.Request, name string) string {
	values := r.Header.Values(name)
	if len(values) != 1 {
		return ""
	}
	id := strings.Trim(values[0], " \t")
	if strings.Contains(id, ",") || validateID(id) != nil {
		return ""
	}
	return id
}

// subjectWith is the subject with one id.
func subjectWith(scope Scope, id string) (Subject, error) {
	if err := scope.validate(); err != nil {
		return Subject{}, err
	}
	switch scope {
	case User:
		return Subject{User: id}, nil
	case Team:
		return Subject{Team: id}, nil
	case Tenant:
		return Subject{Tenant: id}, nil
	case Session:
		return Subject{Session: id}, nil
	case Global:
		return Subject{}, fmt.Errorf("scope %q has no ids", Global)
	}
	return Subject{Other: map[Scope]string{scope: id}}, nil
}
