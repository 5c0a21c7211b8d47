package quota_test

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget/quota"
)

func TestKeyIsThePathOfIDs(t *testing.T) {
	t.Parallel()
	full := quota.Subject{Tenant: "acme", Team: "ops", User: "alice@example.org", Session: "s1", Plan: "pro"}
	for _, c := range []struct {
		s         quota.Subject
		scope     quota.Scope
		key, tree string // "" if there is none
	}{
		{full, quota.Tenant, "tenant=acme", "tenant=acme"},
		{full, quota.Team, "tenant=acme/team=ops", "tenant=acme"},
		{full, quota.User, "tenant=acme/user=alice@example.org", "tenant=acme"},
		{full, quota.Session, "tenant=acme/user=alice@example.org/session=s1", "tenant=acme"},
		{full, quota.Global, "global", "global"},
		{quota.Subject{User: "alice"}, quota.User, "user=alice", "user=alice"},
		{quota.Subject{User: "alice", Session: "s1"}, quota.Session, "user=alice/session=s1", "user=alice"},
		{quota.Subject{Team: "ops", User: "alice"}, quota.Team, "team=ops", "team=ops"},
		{quota.Subject{Tenant: "acme", Session: "s1"}, quota.Session, "tenant=acme/session=s1", "tenant=acme"},
		{quota.Subject{Session: "s1"}, quota.Session, "session=s1", "session=s1"},
		{quota.Subject{User: "a b/c=d%e:f{g}*"}, quota.User, "user=a%20b%2Fc%3Dd%25e%3Af%7Bg%7D%2A", "user=a%20b%2Fc%3Dd%25e%3Af%7Bg%7D%2A"},
		{quota.Subject{User: "Ω"}, quota.User, "user=%CE%A9", "user=%CE%A9"},
		{quota.Subject{User: "-._~@+"}, quota.User, "user=-._~@+", "user=-._~@+"},
		{quota.Subject{}, quota.Global, "global", "global"},
		{quota.Subject{Tenant: "acme"}, quota.User, "", ""},
		{quota.Subject{}, quota.Tenant, "", ""},
		{quota.Subject{User: "alice", Other: map[quota.Scope]string{"project": "p1"}}, "project", "", ""}, // not declared
	} {
		for _, h := range []*quota.Hierarchy{quota.DefaultHierarchy(), nil} {
			key, ok := h.Key(c.s, c.scope)
			if key != c.key || ok != (c.key != "") {
				t.Errorf("key of the %s of %v is %q, %v; want %q", c.scope, c.s, key, ok, c.key)
			}
			if tree := h.TreeOf(c.s, c.scope); tree != c.tree {
				t.Errorf("tree of the %s of %v is %q, want %q", c.scope, c.s, tree, c.tree)
			}
		}
	}
}

func TestTreeIsTheTenantsOrElseTheUsers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    quota.Subject
		want string
	}{
		{quota.Subject{Tenant: "acme", Team: "ops", User: "alice", Session: "s1"}, "tenant=acme"},
		{quota.Subject{Team: "ops", User: "alice", Session: "s1"}, "user=alice"},
		{quota.Subject{Team: "ops", Session: "s1"}, "team=ops"},
		{quota.Subject{Session: "s1"}, "session=s1"},
		{quota.Subject{Plan: "pro"}, "global"},
	} {
		if got := quota.DefaultHierarchy().Tree(c.s); got != c.want {
			t.Errorf("the tree of %v is %q, want %q", c.s, got, c.want)
		}
	}
}

func TestHierarchyTakesScopesOfOnesOwn(t *testing.T) {
	t.Parallel()
	h, err := quota.NewHierarchy(append(quota.DefaultScopes(),
		quota.ScopeSpec{Scope: "task", Within: "project"}, // before what it is within
		quota.ScopeSpec{Scope: "project", Within: quota.Tenant},
		quota.ScopeSpec{Scope: "region"},
	)...)
	if err != nil {
		t.Fatal(err)
	}
	s := quota.Subject{Tenant: "acme", Other: map[quota.Scope]string{"project": "p1", "task": "t1", "region": "eu"}}
	for scope, want := range map[quota.Scope][2]string{
		"task":    {"tenant=acme/project=p1/task=t1", "tenant=acme"},
		"project": {"tenant=acme/project=p1", "tenant=acme"},
		"region":  {"region=eu", "region=eu"},
	} {
		if key, _ := h.Key(s, scope); key != want[0] || h.TreeOf(s, scope) != want[1] {
			t.Errorf("%s has the key %q in the tree %q, want %q", scope, key, h.TreeOf(s, scope), want)
		}
	}
	if want := []quota.Scope{"tenant", "user", "team", "session", "task", "project", "region", "global"}; !slices.Equal(h.Scopes(), want) {
		t.Errorf("the scopes are %v, want %v", h.Scopes(), want)
	}
	if want := []quota.Scope{"tenant", "project", "task"}; !slices.Equal(h.Path("task"), want) {
		t.Errorf("the path of a task is %v, want %v", h.Path("task"), want)
	}
	if !h.Has("task") || !h.Has(quota.Global) || h.Has("taskx") || quota.DefaultHierarchy().Has("task") {
		t.Error("Has does not know the scopes that are declared")
	}
	if h.Path("taskx") != nil {
		t.Errorf("a scope that is not declared has the path %v", h.Path("taskx"))
	}
	h.Path("task")[0], h.Scopes()[0] = "x", "x"
	if key, _ := h.Key(s, "task"); key != "tenant=acme/project=p1/task=t1" {
		t.Errorf("changing what Path returned makes the key %q", key)
	}

	var zero quota.Hierarchy
	if zero.Has(quota.User) || !zero.Has(quota.Global) || zero.Tree(s) != "global" {
		t.Error("the zero hierarchy has more than the global scope")
	}
}

func TestNewHierarchyNamesEveryBadScope(t *testing.T) {
	t.Parallel()
	type spec = quota.ScopeSpec
	for _, c := range []struct {
		scopes []spec
		want   []string
	}{
		{[]spec{{Scope: "", Within: ""}}, []string{"scopes[0].scope: a scope has no name"}},
		{[]spec{{Scope: "a"}, {Scope: "A/b"}}, []string{`scopes[1].scope: scope "A/b" has a name that is not`}},
		{[]spec{{Scope: "1a"}}, []string{`scope "1a"`}},
		{[]spec{{Scope: "a b"}}, []string{`scope "a b"`}},
		{[]spec{{Scope: quota.Global}}, []string{`scope "global" is always there`}},
		{[]spec{{Scope: "a"}, {Scope: "a"}}, []string{`scopes[1].scope: scope "a" is declared twice`}},
		{[]spec{{Scope: "a", Within: "b"}}, []string{`scopes[0].within: scope "a" is within "b", which is not declared`}},
		{[]spec{{Scope: "a", Within: quota.Global}}, []string{`scope "a" is within "global", which is not declared`}},
		{[]spec{{Scope: "a", Within: "a"}}, []string{`scope "a" is within itself`}},
		{[]spec{{Scope: "a", Within: "b"}, {Scope: "b", Within: "c"}, {Scope: "c", Within: "b"}}, []string{`scope "a" is within itself, by way of "c"`, `scope "b" is within itself`, `scope "c" is within itself`}},
		{[]spec{{Scope: "A"}, {Scope: "b", Within: "x"}}, []string{`scope "A"`, `scope "b"`}},
	} {
		h, err := quota.NewHierarchy(c.scopes...)
		if err == nil || h != nil {
			t.Errorf("%v: %v, %v", c.scopes, h, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v, want %s in it", c.scopes, err, want)
			}
		}
	}
}

// readKey reads what a key says, the way the manual of Hierarchy describes it.
func readKey(key string) (map[quota.Scope]string, error) {
	ids := map[quota.Scope]string{}
	if key == "global" {
		return ids, nil
	}
	for segment := range strings.SplitSeq(key, "/") {
		scope, escaped, ok := strings.Cut(segment, "=")
		if !ok {
			return nil, fmt.Errorf("segment %q has no id", segment)
		}
		id, err := url.PathUnescape(escaped)
		if err != nil {
			return nil, err
		}
		if _, twice := ids[quota.Scope(scope)]; twice || id == "" {
			return nil, errors.New("a scope stands twice, or without an id")
		}
		ids[quota.Scope(scope)] = id
	}
	return ids, nil
}

// checkKeys returns an error unless from each key exactly the ids on its path can
// be read, so that different paths cannot share a key; and unless the tree of a
// key follows from the key alone.
func checkKeys(h *quota.Hierarchy, s quota.Subject) error {
	for _, scope := range h.Scopes() {
		key, ok := h.Key(s, scope)
		if want := scope == quota.Global || s.ID(scope) != ""; ok != want {
			return fmt.Errorf("%s: a key is there: %v, want %v", scope, ok, want)
		}
		if !ok {
			continue
		}
		ids, err := readKey(key)
		if err != nil {
			return fmt.Errorf("%s: key %q: %w", scope, key, err)
		}
		n := 0
		for _, on := range h.Path(scope) {
			if id := s.ID(on); id != "" {
				n++
				if ids[on] != id {
					return fmt.Errorf("%s: key %q has the %s %q, want %q", scope, key, on, ids[on], id)
				}
			}
		}
		if len(ids) != n {
			return fmt.Errorf("%s: key %q has %d ids, want %d", scope, key, len(ids), n)
		}
		tree, _, _ := strings.Cut(key, "/")
		if got := h.TreeOf(s, scope); got != tree {
			return fmt.Errorf("%s: key %q is in the tree %q, want %q", scope, key, got, tree)
		}
		for _, c := range []byte(key) {
			if c <= ' ' || c > '~' || strings.IndexByte(`{}:*?[]"'\`, c) >= 0 {
				return fmt.Errorf("%s: key %q has the byte %q", scope, key, c)
			}
		}
	}
	return nil
}

var idLike = rapid.OneOf(
	rapid.StringOfN(rapid.RuneFrom([]rune(`ab:/=%{}A2F `)), 0, 6, -1),
	rapid.SampledFrom([]string{"", "a", "A", "a:b", "b:c", "a/user=b", "%2F", "%252F", "user=a", "global", "tenant=a", "é", "e\u0301"}),
	rapid.String(),
)

func subjectLike(t *rapid.T, label string) quota.Subject {
	id := func(name string) string { return idLike.Draw(t, label+name) }
	return quota.Subject{
		Tenant: id("tenant"), Team: id("team"), User: id("user"), Session: id("session"),
		Other: map[quota.Scope]string{"project": id("project")},
	}
}

func TestLookAlikesNeverShareAKey(t *testing.T) {
	t.Parallel()
	h, err := quota.NewHierarchy(append(quota.DefaultScopes(), quota.ScopeSpec{Scope: "project", Within: quota.Team})...)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := subjectLike(t, "a"), subjectLike(t, "b")
		for _, s := range []quota.Subject{a, b} {
			if err := checkKeys(h, s); err != nil {
				t.Fatal(err)
			}
		}
		for _, i := range h.Scopes() {
			for _, j := range h.Scopes() {
				keyA, okA := h.Key(a, i)
				keyB, okB := h.Key(b, j)
				if okA && okB && (keyA == keyB) != samePath(h, a, i, b, j) {
					t.Fatalf("%v %s and %v %s have the keys %q and %q", a, i, b, j, keyA, keyB)
				}
			}
		}
	})
}

// samePath reports whether two subjects are the same one in a scope.
func samePath(h *quota.Hierarchy, a quota.Subject, i quota.Scope, b quota.Subject, j quota.Scope) bool {
	if i != j {
		return false
	}
	for _, scope := range h.Path(i) {
		if a.ID(scope) != b.ID(scope) {
			return false
		}
	}
	return true
}

func FuzzKey(f *testing.F) {
	f.Add("acme", "ops", "alice", "s1")
	f.Add("", "", "a:b", "c")
	f.Add("", "", "a", "b:c")
	f.Add("a/user=b", "", "", "x")
	f.Add("\xff%", "=", "/", "\n")
	f.Fuzz(func(t *testing.T, tenant, team, user, session string) {
		s := quota.Subject{Tenant: tenant, Team: team, User: user, Session: session}
		if err := checkKeys(nil, s); err != nil {
			t.Fatal(err)
		}
		if s.Validate() != nil {
			return
		}
		for _, scope := range quota.DefaultHierarchy().Scopes() {
			if key, _ := quota.DefaultHierarchy().Key(s, scope); len(key) > 1174 {
				t.Fatalf("the key of a valid subject has %d bytes", len(key))
			}
		}
	})
}

func TestLongestKeyIsAsLongAsDocumented(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("é", quota.MaxID/2)
	s := quota.Subject{Tenant: id, Team: id, User: id, Session: id}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	if key, _ := quota.DefaultHierarchy().Key(s, quota.Session); len(key) != 1174 {
		t.Errorf("it has %d bytes, want 1174", len(key))
	}
}

func TestKeyAllocatesOnce(t *testing.T) {
	s := quota.Subject{Tenant: "acme", User: "alice b", Session: "s1"}
	if n := testing.AllocsPerRun(100, func() { quota.DefaultHierarchy().Key(s, quota.Session) }); n > 1 {
		t.Errorf("%v allocations a key, want 1", n)
	}
}
