package quota_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/budget/quota"
)

func request(headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/chat", strings.NewReader(`{"user":"mallory","metadata":{"user_id":"mallory"}}`))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func fixed(s quota.Subject) quota.Resolver {
	return quota.ResolverFunc(func(*http.Request) (quota.Subject, bool, error) {
		return s, !s.Nobody() || s.Plan != "", nil
	})
}

func TestFirstResolverThatHasAnIDWinsForEachScope(t *testing.T) {
	t.Parallel()
	type ids = map[quota.Scope]string
	for _, c := range []struct {
		what  string
		chain []quota.Subject
		want  quota.Subject
	}{
		{"no resolver", nil, quota.Subject{}},
		{"nobody knows", []quota.Subject{{}, {}}, quota.Subject{}},
		{"the first", []quota.Subject{{User: "a"}, {User: "b"}}, quota.Subject{User: "a"}},
		{"the second", []quota.Subject{{}, {User: "b"}}, quota.Subject{User: "b"}},
		{
			"each scope by itself",
			[]quota.Subject{{User: "a"}, {User: "b", Tenant: "t"}, {Tenant: "u", Team: "m", Session: "s", Plan: "pro"}},
			quota.Subject{User: "a", Tenant: "t", Team: "m", Session: "s", Plan: "pro"},
		},
		{
			"scopes of one's own",
			[]quota.Subject{{Other: ids{"project": "p", "area": ""}}, {Other: ids{"project": "q", "area": "x"}}},
			quota.Subject{Other: ids{"project": "p", "area": "x"}},
		},
	} {
		var chain []quota.Resolver
		for _, s := range c.chain {
			chain = append(chain, nil, fixed(s))
		}
		got, ok, err := quota.Chain(chain...).Resolve(request())
		if err != nil || ok != !c.want.Nobody() || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, %v, %v; want %v", c.what, got, ok, err, c.want)
		}
	}
}

// The trusted identity is alice. The body and a header claim others.
func TestOnlyTheVerifiedPrincipalIsCharged(t *testing.T) {
	t.Parallel()
	verified := quota.Principal(func(r *http.Request) (quota.Subject, bool) {
		user, _, ok := r.BasicAuth()
		return quota.Subject{User: user, Tenant: "acme", Plan: "free"}, ok
	})
	chain := quota.Chain(quota.Explicit(), verified, quota.Header("X-User-Id"), quota.HeaderID(quota.Tenant, "X-Tenant"))

	r := request("X-User-Id", "mallory", "X-Tenant", "bigcorp", "X-Plan", "enterprise")
	r.SetBasicAuth("alice", "")
	got, ok, err := chain.Resolve(r)
	if want := (quota.Subject{User: "alice", Tenant: "acme", Plan: "free"}); err != nil || !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("it is for %v, %v, %v; want %v", got, ok, err, want)
	}

	r = r.WithContext(quota.WithSubject(r.Context(), quota.Subject{User: "batch"}))
	got, ok, err = chain.Resolve(r)
	if want := (quota.Subject{User: "batch", Tenant: "acme", Plan: "free"}); err != nil || !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("with an explicit user it is for %v, %v, %v; want %v", got, ok, err, want)
	}

	r = r.WithContext(quota.WithSubject(t.Context(), quota.Subject{Plan: "trial"}))
	got, ok, err = chain.Resolve(r)
	if want := (quota.Subject{User: "alice", Tenant: "acme", Plan: "trial"}); err != nil || !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("with an explicit plan it is for %v, %v, %v; want %v", got, ok, err, want)
	}

	got, ok, err = quota.Chain(quota.Explicit(), verified).Resolve(request("X-User-Id", "mallory"))
	if err != nil || ok || !got.Nobody() {
		t.Errorf("no header is switched on, but the request is for %v, %v, %v", got, ok, err)
	}
}

func TestChainEndsWithTheFirstError(t *testing.T) {
	t.Parallel()
	broken := errors.New("directory is down")
	failing := quota.ResolverFunc(func(*http.Request) (quota.Subject, bool, error) {
		return quota.Subject{User: "x"}, true, broken
	})
	never := quota.ResolverFunc(func(*http.Request) (quota.Subject, bool, error) {
		t.Error("a resolver was asked after an error")
		return quota.Subject{}, false, nil
	})
	got, ok, err := quota.Chain(fixed(quota.Subject{User: "a"}), failing, never).Resolve(request())
	if !errors.Is(err, broken) || ok || !got.Nobody() {
		t.Errorf("%v, %v, %v", got, ok, err)
	}
	got, ok, err = quota.Chain(fixed(quota.Subject{User: strings.Repeat("x", 129)})).Resolve(request())
	if err == nil || ok || !got.Nobody() || !strings.Contains(err.Error(), "user") {
		t.Errorf("an overlong id: %v, %v, %v", got, ok, err)
	}
	if _, ok, err := quota.Chain(quota.Principal(nil), never).Resolve(request()); err == nil || ok {
		t.Errorf("a Principal without a function: %v, %v", ok, err)
	}
}

func TestHeaderIsReadOnlyIfItIsOneID(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", quota.MaxID)
	for _, c := range []struct {
		what, name string
		headers    []string
		want       string // "" if it is ignored
	}{
		{"switched off", "", []string{"X-User-Id", "alice", "", "alice"}, ""},
		{"not there", "X-User-Id", nil, ""},
		{"there", "X-User-Id", []string{"X-User-Id", "alice"}, "alice"},
		{"other case of the name", "x-user-id", []string{"X-User-Id", "Alice"}, "Alice"},
		{"spaces around", "X-User-Id", []string{"X-User-Id", "\t alice smith "}, "alice smith"},
		{"empty", "X-User-Id", []string{"X-User-Id", " "}, ""},
		{"twice", "X-User-Id", []string{"X-User-Id", "mallory", "X-User-Id", "alice"}, ""},
		{"twice the same", "X-User-Id", []string{"X-User-Id", "alice", "X-User-Id", "alice"}, ""},
		{"two in one", "X-User-Id", []string{"X-User-Id", "mallory, alice"}, ""},
		{"as long as may be", "X-User-Id", []string{"X-User-Id", long}, long},
		{"too long", "X-User-Id", []string{"X-User-Id", long + "x"}, ""},
		{"control character", "X-User-Id", []string{"X-User-Id", "a\x01b"}, ""},
		{"not UTF-8", "X-User-Id", []string{"X-User-Id", "a\xe9b"}, ""},
	} {
		got, ok, err := quota.Header(c.name).Resolve(request(c.headers...))
		if want := (quota.Subject{User: c.want}); err != nil || ok != (c.want != "") || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v, %v; want %q", c.what, got, ok, err, c.want)
		}
	}
}

func TestHeaderSetsOnlyItsOwnScope(t *testing.T) {
	t.Parallel()
	for scope, want := range map[quota.Scope]quota.Subject{
		quota.User:    {User: "x"},
		quota.Team:    {Team: "x"},
		quota.Tenant:  {Tenant: "x"},
		quota.Session: {Session: "x"},
		"project":     {Other: map[quota.Scope]string{"project": "x"}},
	} {
		got, ok, err := quota.HeaderID(scope, "X-Id").Resolve(request("X-Id", "x"))
		if err != nil || !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v, %v; want %v", scope, got, ok, err, want)
		}
	}
	for _, scope := range []quota.Scope{quota.Global, "", "Plan"} {
		if got, ok, err := quota.HeaderID(scope, "X-Id").Resolve(request("X-Id", "x")); err == nil || ok {
			t.Errorf("%q: %v, %v, want an error", scope, got, ok)
		}
	}
}
