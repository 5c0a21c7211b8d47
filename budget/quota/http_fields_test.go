package quota_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget/quota"
)

// fields are the RateLimit fields of a response as their grammar has them.
func fields(t testing.TB, h http.Header) (policy, limit []fieldItem) {
	t.Helper()
	for _, f := range []struct {
		name string
		to   *[]fieldItem
	}{{"RateLimit-Policy", &policy}, {"RateLimit", &limit}} {
		items, err := parseFieldList(h.Get(f.name))
		if err != nil {
			t.Fatalf("%s: %s is not a structured field: %v", f.name, h.Get(f.name), err)
		}
		*f.to = items
	}
	return policy, limit
}

// fieldItem is a String with parameters that are Integers or Strings.
type fieldItem struct {
	name   string
	params map[string]string
}

// parseFieldList reads a List of a structured field, as strictly as RFC 9651 §4.2
// has it, with Strings for items.
func parseFieldList(s string) ([]fieldItem, error) {
	var items []fieldItem
	for s != "" {
		name, rest, err := parseFieldString(s)
		if err != nil {
			return nil, err
		}
		item := fieldItem{name, map[string]string{}}
		for s = rest; strings.HasPrefix(s, ";"); {
			key, value, found := strings.Cut(s[1:], "=")
			if !found || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || key == "" || key[0] < 'a' {
				return nil, fmt.Errorf("parameter at %q", s)
			}
			if strings.HasPrefix(value, `"`) {
				if item.params[key], s, err = parseFieldString(value); err != nil {
					return nil, err
				}
				continue
			}
			end := strings.IndexAny(value+";", ";, ")
			n, err := strconv.ParseInt(value[:end], 10, 64)
			if err != nil || n < -999_999_999_999_999 || n > 999_999_999_999_999 || strconv.FormatInt(n, 10) != value[:end] {
				return nil, fmt.Errorf("integer at %q", value)
			}
			item.params[key], s = value[:end], value[end:]
		}
		items = append(items, item)
		if s == "" {
			return items, nil
		}
		rest, more := strings.CutPrefix(s, ", ")
		if !more || rest == "" {
			return nil, fmt.Errorf("comma at %q", s)
		}
		s = rest
	}
	return items, nil
}

func parseFieldString(s string) (value, rest string, err error) {
	if !strings.HasPrefix(s, `"`) {
		return "", "", fmt.Errorf("string at %q", s)
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), s[i+1:], nil
		case c == '\\' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\'):
			i++
			b.WriteByte(s[i])
		case c < ' ' || c > '~' || c == '\\':
			return "", "", fmt.Errorf("byte %q", c)
		default:
			b.WriteByte(c)
		}
	}
	return "", "", fmt.Errorf("no end of %q", s)
}

func TestFieldsSayWhatIsEnforcedOnTheSubjectAndHowItStands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // from midnight of 2000-01-01, a Saturday, UTC
		w := newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "rate", Scope: quota.User, Window: quota.Rolling(time.Minute), Max: quota.Max{quota.Turns: 20}, Burst: quota.Max{quota.Turns: 5}},
			{Name: "tabs", Scope: quota.User, Max: quota.Max{quota.ConcurrentTurns: 2}},
			{Name: "day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 400_000, quota.Money: 2_000_000}},
			{Name: "soft", Scope: quota.Team, Window: quota.Day, Max: quota.Max{quota.Turns: 1}, Soft: true, Ceiling: quota.Max{quota.Turns: 10}},
			{Name: "open-ended", Scope: quota.Team, Window: quota.Hour, Max: quota.Max{quota.Turns: 1}, Soft: true},
			{Name: "trial", Scope: quota.Team, Window: quota.Week, Max: quota.Max{quota.Turns: 1}, Mode: quota.Observe},
			{Name: "all", Scope: quota.Global, Window: quota.Day, Max: quota.Max{quota.Turns: 1_000}},
			{Name: "huge", Scope: quota.Tenant, Window: quota.Month, Max: quota.Max{quota.Tokens: quota.MaxAmount}},
		}})
		w.call(as("alice"), tokens(1_000)) // at 4 dollars per million
		time.Sleep(2*time.Hour + 300*time.Millisecond)
		got := w.serve(served, quota.MiddlewareConfig{}).get("alice")
		if got.Code != 200 {
			t.Fatalf("status %d", got.Code)
		}
		const policy = `"rate";q=20;w=60;headgate-burst=5, "tabs";q=2;qu="concurrent-requests", ` +
			`"day:tokens";q=400000;qu="tokens";w=86400, "day:money";q=2000000;qu="micro-dollars";w=86400, ` +
			`"soft";q=10;w=86400, "huge";q=999999999999999;qu="tokens";w=2629746`
		const limit = `"rate";r=4;t=3, "tabs";r=1, "day:tokens";r=399000;t=79200, "day:money";r=1996000;t=79200, ` +
			`"soft";r=9;t=79200, "huge";r=999999999999999;t=2671200`
		if h := got.Header().Get("RateLimit-Policy"); h != policy {
			t.Errorf("RateLimit-Policy is\n%s, want\n%s", h, policy)
		}
		if h := got.Header().Get("RateLimit"); h != limit {
			t.Errorf("RateLimit is\n%s, want\n%s", h, limit)
		}
		fields(t, got.Header())
	})
}

func TestADenialNamesOnlyTheLimitThatDenied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "rate", Scope: quota.User, Window: quota.Rolling(time.Minute), Max: quota.Max{quota.Turns: 20}, Burst: quota.Max{quota.Turns: 1}},
			{Name: "day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Turns: 3, quota.Calls: 9}},
		}})
		s := w.serve(served, quota.MiddlewareConfig{})
		s.get("alice")
		got := s.get("alice")
		if l := got.Header().Get("RateLimit"); l != `"rate";r=0;t=3` || got.Header().Get("Retry-After") != "3" {
			t.Errorf("RateLimit is %s, Retry-After %s", l, got.Header().Get("Retry-After"))
		}
		for range 2 {
			time.Sleep(3 * time.Second)
			s.get("alice")
		}
		time.Sleep(4 * time.Second)
		got = s.get("alice")
		const policy, limit = `"day:turns";q=3;w=86400`, `"day:turns";r=0;t=86390`
		if got.Header().Get("RateLimit-Policy") != policy || got.Header().Get("RateLimit") != limit {
			t.Errorf("got %s and %s, want %s and %s", got.Header().Get("RateLimit-Policy"), got.Header().Get("RateLimit"), policy, limit)
		}
		if p := problemOf(t, got); !slices.Equal(p.Violated, []string{"day:turns"}) {
			t.Errorf("the report has the policies %q", p.Violated)
		}
	})
}

func TestClientsAreNotToldWhatStrangersUse(t *testing.T) {
	t.Parallel()
	h, err := quota.NewHierarchy(append(quota.DefaultScopes(), quota.ScopeSpec{Scope: "region"}, quota.ScopeSpec{Scope: "project", Within: quota.Tenant})...)
	if err != nil {
		t.Fatal(err)
	}
	limit := func(name string, s quota.Scope, n int64) quota.Limit {
		return quota.Limit{Name: name, Scope: s, Window: quota.Day, Max: quota.Max{quota.Turns: n}, Missing: quota.Skip}
	}
	s := quota.Subject{Tenant: "acme", User: "alice", Other: map[quota.Scope]string{"region": "eu", "project": "p1"}}
	whole := quota.ResolverFunc(func(*http.Request) (quota.Subject, bool, error) { return s, true, nil })
	names := func(global int64, cfg quota.MiddlewareConfig) ([]string, *httptest.ResponseRecorder) {
		w := newWorld(t, quota.LimitsConfig{Hierarchy: h, Limits: []quota.Limit{
			limit("g", quota.Global, global), limit("r", "region", 70), limit("p", "project", 60), limit("u", quota.User, 50),
		}})
		cfg.Logger = quietLog
		m, err := quota.Middleware(w.Enforcer, whole, cfg)
		if err != nil {
			t.Fatal(err)
		}
		got := httptest.NewRecorder()
		m(served).ServeHTTP(got, httptest.NewRequest(http.MethodGet, "/", nil))
		_, items := fields(t, got.Header())
		var names []string
		for _, i := range items {
			names = append(names, i.name)
		}
		slices.Sort(names)
		return names, got
	}
	if got, _ := names(80, quota.MiddlewareConfig{}); !slices.Equal(got, []string{"p", "u"}) {
		t.Errorf("by default clients are told of %q", got)
	}
	if got, _ := names(80, quota.MiddlewareConfig{Scopes: []quota.Scope{quota.Global, quota.User}}); !slices.Equal(got, []string{"g", "u"}) {
		t.Errorf("with scopes of one's choice clients are told of %q", got)
	}
	if got, _ := names(80, quota.MiddlewareConfig{Scopes: []quota.Scope{}}); got != nil {
		t.Errorf("with no scopes clients are told of %q", got)
	}
	if got, _ := names(80, quota.MiddlewareConfig{FieldsOnDenialOnly: true}); got != nil {
		t.Errorf("of a request that passes, clients are told of %q", got)
	}
	told, got := names(0, quota.MiddlewareConfig{})
	if p := problemOf(t, got); got.Code != 429 || told != nil || p.Limit != nil || p.Used != nil || p.Remaining != nil || p.Scope != quota.Global {
		t.Errorf("status %d, told of %q, report %s", got.Code, told, got.Body)
	}
}

// Whatever the limits are and however they stand, the fields can be read, name the
// same policies, and have no negative number.
func TestFieldsAreWellFormedWhateverTheLimits(t *testing.T) {
	t.Parallel()
	windows := []quota.Window{quota.Rolling(time.Millisecond), quota.Rolling(7 * time.Hour), quota.Minute, quota.Hour, quota.Day, quota.Week, quota.Month.Anchored(31)}
	rapid.Check(t, func(t *rapid.T) {
		var limits []quota.Limit
		for i, win := range windows {
			if !rapid.Bool().Draw(t, "there") {
				continue
			}
			l := quota.Limit{Name: fmt.Sprintf("l-%d", i), Scope: quota.User, Window: win, Max: quota.Max{}}
			for _, u := range rapid.SliceOfNDistinct(rapid.SampledFrom([]quota.Unit{quota.Turns, quota.Calls, quota.Tokens}), 1, 3, rapid.ID).Draw(t, "units") {
				l.Max[u] = rapid.Int64Range(0, quota.MaxAmount).Draw(t, "max")
			}
			if win.IsRolling() && rapid.Bool().Draw(t, "burst") {
				l.Burst = quota.Max{}
				for _, u := range slices.Sorted(maps.Keys(l.Max)) {
					if l.Max[u] > 0 {
						l.Burst[u] = rapid.Int64Range(1, quota.MaxAmount).Draw(t, "burst")
					}
				}
			}
			limits = append(limits, l)
		}
		set, err := quota.NewLimits(quota.LimitsConfig{Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		memory, err := quota.NewMemory(quota.MemoryConfig{})
		if err != nil {
			t.Fatal(err)
		}
		e, err := quota.New(quota.Config{Ledger: memory, Limits: set, Logger: quietLog})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close(t.Context()) }()
		m, err := quota.Middleware(e, byHeader, quota.MiddlewareConfig{Logger: quietLog})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("X-User", "alice")
			w := httptest.NewRecorder()
			m(served).ServeHTTP(w, r)
			policy, err := parseFieldList(w.Header().Get("RateLimit-Policy"))
			if err != nil {
				t.Fatal(err)
			}
			limit, err := parseFieldList(w.Header().Get("RateLimit"))
			if err != nil {
				t.Fatal(err)
			}
			if len(policy) != len(limit) || w.Code == 200 && len(limits) > 0 && len(limit) == 0 {
				t.Fatalf("%d policies, %d limits, status %d", len(policy), len(limit), w.Code)
			}
			for i := range policy {
				if policy[i].name != limit[i].name {
					t.Fatalf("policy %q, limit %q", policy[i].name, limit[i].name)
				}
				if policy[i].params["w"] == "0" || limit[i].params["t"] == "0" || limit[i].params["r"] == "" || policy[i].params["q"] == "" {
					t.Fatalf("policy %v, limit %v", policy[i].params, limit[i].params)
				}
				for _, n := range slices.Concat(slices.Collect(maps.Values(policy[i].params)), slices.Collect(maps.Values(limit[i].params))) {
					if strings.HasPrefix(n, "-") {
						t.Fatalf("negative: %v, %v", policy[i].params, limit[i].params)
					}
				}
			}
		}
	})
}

// Limits that come from elsewhere may have any name.
func TestANameCannotBreakOutOfAField(t *testing.T) {
	t.Parallel()
	memory, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		t.Fatal(err)
	}
	limit := func(name string, w quota.Window) quota.Limit {
		return quota.Limit{Name: name, Scope: quota.User, Window: w, Max: quota.Max{quota.Turns: 9}, Mode: quota.Enforce}
	}
	e, err := quota.New(quota.Config{
		Ledger: memory, Logger: quietLog,
		Limits: quota.LimitResolverFunc(func(context.Context, quota.Subject) ([]quota.Limit, error) {
			return []quota.Limit{
				limit(`a";r=99,"b\`, quota.Day), limit("c\r\nSet-Cookie: x", quota.Hour), limit("täglich", quota.Week), limit("fine", quota.Month),
			}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	got := (&world{Enforcer: e, t: t}).serve(served, quota.MiddlewareConfig{}).get("alice")
	policy, limits := fields(t, got.Header())
	if len(limits) != 2 || limits[0].name != `a";r=99,"b\` || limits[0].params["r"] != "8" || limits[1].name != "fine" || len(policy) != 2 {
		t.Errorf("RateLimit is %s", got.Header().Get("RateLimit"))
	}
}

func TestFieldsDoNotGrowBeyondWhatPasses(t *testing.T) {
	t.Parallel()
	var limits []quota.Limit
	for i := range 40 {
		limits = append(limits, quota.Limit{
			Name: fmt.Sprintf("%02d%s", i, strings.Repeat("x", 62)), Scope: quota.User,
			Window: quota.Rolling(time.Hour + time.Duration(i)*time.Second), Max: quota.Max{quota.Tokens: quota.MaxAmount},
		})
	}
	got := newWorld(t, quota.LimitsConfig{Limits: limits}).serve(served, quota.MiddlewareConfig{}).get("alice")
	if n := len(got.Header().Get("RateLimit-Policy")); n == 0 || n > 4<<10 {
		t.Errorf("RateLimit-Policy has %d bytes", n)
	}
	policy, limit := fields(t, got.Header())
	if len(policy) != len(limit) {
		t.Errorf("%d policies, %d limits", len(policy), len(limit))
	}
}
