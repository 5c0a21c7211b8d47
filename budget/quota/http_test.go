package quota_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// quietLog takes everything.
var quietLog = slog.New(slog.DiscardHandler)

// byHeader is a user of the tenant acme by the header X-User; without it nobody is
// known. "bad" is a claim that does not hold.
var byHeader = quota.ResolverFunc(func(r *http.Request) (quota.Subject, bool, error) {
	user := r.Header.Get("X-User")
	if user == "bad" {
		return quota.Subject{}, false, errors.New("no such principal")
	}
	if user == "" {
		return quota.Subject{}, false, nil
	}
	return quota.Subject{Tenant: "acme", Team: "support", User: user, Session: user + "-1"}, true, nil
})

// server is an edge in front of a handler.
type server struct {
	t       testing.TB
	handler http.Handler
}

// serve puts a handler behind a middleware.
func (w *world) serve(next http.Handler, cfg quota.MiddlewareConfig) server {
	w.t.Helper()
	cfg.Logger = quietLog
	limit, err := quota.Middleware(w.Enforcer, byHeader, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return server{w.t, limit(next)}
}

// get sends a request of a user.
func (s server) get(user string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/chat", nil)
	if user != "" {
		r.Header.Set("X-User", user)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// problemOf reads a problem report.
func problemOf(t testing.TB, w *httptest.ResponseRecorder) quota.Problem {
	t.Helper()
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Fatalf("status %d, Content-Type %q, body %q: this is no problem report", w.Code, got, w.Body)
	}
	var p quota.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	if p.Status != w.Code {
		t.Errorf("the report says %d, the response has %d", p.Status, w.Code)
	}
	return p
}

var served = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })

// turnRate is 20 turns a minute with a burst of 5: one turn every 3 seconds.
var turnRate = quota.LimitsConfig{Limits: []quota.Limit{{
	Name: "user-turns", Scope: quota.User, Window: quota.Rolling(time.Minute), Max: quota.Max{quota.Turns: 20}, Burst: quota.Max{quota.Turns: 5},
}}}

func TestWhoWaitsAsLongAsRetryAfterSaysPasses(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, time.Millisecond, 1001 * time.Millisecond, 2999 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			s := newWorld(t, turnRate).serve(served, quota.MiddlewareConfig{})
			for i := range 5 {
				if w := s.get("alice"); w.Code != 200 {
					t.Fatalf("request %d has status %d", i, w.Code)
				}
			}
			time.Sleep(after)
			w := s.get("alice")
			if w.Code != 429 {
				t.Fatalf("the sixth request has status %d", w.Code)
			}
			p := problemOf(t, w)
			if w.Header().Get("Retry-After") != fmt.Sprint(p.RetryAfter) || p.RetryAfter < 1 {
				t.Fatalf("Retry-After is %q, retryAfter %d", w.Header().Get("Retry-After"), p.RetryAfter)
			}
			if want := int64((3*time.Second - after + time.Second - 1) / time.Second); p.RetryAfter != want {
				t.Errorf("after %v, Retry-After is %d, want %d", after, p.RetryAfter, want)
			}
			if w := s.get("bob"); w.Code != 200 {
				t.Errorf("bob has status %d", w.Code)
			}
			time.Sleep(time.Duration(p.RetryAfter) * time.Second)
			if w := s.get("alice"); w.Code != 200 {
				t.Errorf("after the wait, the status is %d", w.Code)
			}
		})
	}
}

func TestACalendarLimitIsToldToTheSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "month", Scope: quota.Tenant, Window: quota.Month, Max: quota.Max{quota.Turns: 1}},
		}}).serve(served, quota.MiddlewareConfig{})
		time.Sleep(1500 * time.Millisecond) // midnight of 2000-01-01 UTC and a bit
		s.get("alice")
		w := s.get("bob") // of the same tenant
		p := problemOf(t, w)
		if want := int64(31*24*3600 - 1); p.RetryAfter != want || !p.ResetsAt.Equal(time.Date(2000, 2, 1, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("retry after %d, want %d; resets at %v", p.RetryAfter, want, p.ResetsAt)
		}
		if *p.Limit != 1 || *p.Used != 1 || *p.Remaining != 0 || p.Scope != quota.Tenant || p.Unit != "turns" {
			t.Errorf("the report is %+v", p)
		}
		time.Sleep(time.Duration(p.RetryAfter) * time.Second)
		if w := s.get("bob"); w.Code != 200 {
			t.Errorf("in the next month, the status is %d", w.Code)
		}
	})
}

// oneAtATime allows one turn of a user at a time.
var oneAtATime = quota.LimitsConfig{Limits: []quota.Limit{{Name: "tabs", Scope: quota.User, Max: quota.Max{quota.ConcurrentTurns: 1}}}}

func TestATurnEndsWhenTheHandlerReturnsOrPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneAtATime)
		var inner server
		s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/chat" {
				w.stands(as("alice"), "tabs", quota.ConcurrentTurns, 0, 1)
			}
			if got := inner.get("alice"); got.Code != 429 {
				t.Errorf("a second request at the same time has status %d", got.Code)
			}
			panic(http.ErrAbortHandler)
		}), quota.MiddlewareConfig{})
		inner = w.serve(served, quota.MiddlewareConfig{})
		func() {
			defer func() {
				if recover() != http.ErrAbortHandler {
					t.Error("the panic did not come through")
				}
			}()
			s.get("alice")
		}()
		w.stands(as("alice"), "tabs", quota.ConcurrentTurns, 0, 0)
		for range 3 {
			if got := inner.get("alice"); got.Code != 200 {
				t.Errorf("after it, the status is %d", got.Code)
			}
		}
	})
}

func TestTooManyAtATimeIsToldToComeBackSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneAtATime)
		turn := w.admit(as("alice"))
		defer turn.End()
		got := w.serve(served, quota.MiddlewareConfig{}).get("alice")
		if p := problemOf(t, got); p.Reason != quota.ReasonConcurrency || got.Header().Get("Retry-After") == "" {
			t.Errorf("reason %q, Retry-After %q", p.Reason, got.Header().Get("Retry-After"))
		}
	})
}

func TestOneRequestIsOneTurnHoweverManyLayersAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Turns: 1}},
		}})
		var who quota.Subject
		innermost := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			who, _ = quota.SubjectFrom(r.Context())
			turn, err := w.Admit(r.Context())
			if err != nil || turn.Denied() != nil {
				t.Errorf("the handler's own turn: %v, %v", err, turn.Denied())
			}
			turn.End() // which is not its own to end
			if found, ok := w.TurnFrom(r.Context()); !ok || found.ID() != turn.ID() {
				t.Error("the handler is in no turn")
			}
		}), quota.MiddlewareConfig{})
		if got := w.serve(innermost.handler, quota.MiddlewareConfig{}).get("alice"); got.Code != 200 {
			t.Errorf("status %d, %s", got.Code, got.Body)
		}
		if who.User != "alice" || who.Tenant != "acme" {
			t.Errorf("the handler serves %+v", who)
		}
		w.stands(as("alice"), "day", quota.Turns, 1, 0)
	})
}

func TestTheResolverDecidesForWhomARequestIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, turnRate)
	var who quota.Subject
	s := w.serve(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { who, _ = quota.SubjectFrom(r.Context()) }), quota.MiddlewareConfig{})
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r = r.WithContext(as("mallory")) // somebody has left it there
	got := httptest.NewRecorder()
	s.handler.ServeHTTP(got, r)
	if got.Code != 401 || !who.Nobody() {
		t.Errorf("a request of which nothing is known has status %d and is for %+v", got.Code, who)
	}
}

// A server that was begun within a turn, such as by a tool, outlives it.
func TestATurnThatIsOverDecidesForNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, turnRate)
	var who quota.Subject
	s := w.serve(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { who, _ = quota.SubjectFrom(r.Context()) }), quota.MiddlewareConfig{})
	turn, err := w.Admit(as("boss"))
	if err != nil {
		t.Fatal(err)
	}
	turn.End()
	r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(turn.Context())
	r.Header.Set("X-User", "alice")
	got := httptest.NewRecorder()
	if s.handler.ServeHTTP(got, r); got.Code != 200 || who.User != "alice" {
		t.Errorf("a request of alice has status %d and is for %+v", got.Code, who)
	}
}

func TestAMissingIdentityIsAnsweredAsConfigured(t *testing.T) {
	t.Parallel()
	skip := quota.LimitsConfig{Limits: []quota.Limit{{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Turns: 9}, Missing: quota.Skip}}}
	tests := []struct {
		name      string
		limits    quota.LimitsConfig
		cfg       quota.MiddlewareConfig
		user      string
		status    int
		challenge string
	}{
		{"a limit needs it", turnRate, quota.MiddlewareConfig{}, "", 401, "Bearer"},
		{"a limit needs it, 403", turnRate, quota.MiddlewareConfig{NoIdentity: 403}, "", 403, ""},
		{"a limit needs it, own challenge", turnRate, quota.MiddlewareConfig{Challenge: `Basic realm="x"`}, "", 401, `Basic realm="x"`},
		{"no limit needs it", skip, quota.MiddlewareConfig{}, "", 200, ""},
		{"no limit needs it, but it is required", skip, quota.MiddlewareConfig{RequireIdentity: true}, "", 401, "Bearer"},
		{"a claim that does not hold", skip, quota.MiddlewareConfig{}, "bad", 401, "Bearer"},
		{"a claim that does not hold, 403", skip, quota.MiddlewareConfig{NoIdentity: 403}, "bad", 403, ""},
		{"an id that cannot be one", skip, quota.MiddlewareConfig{}, strings.Repeat("x", 200), 401, "Bearer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := newWorld(t, tt.limits).serve(served, tt.cfg).get(tt.user)
			if got.Code != tt.status || got.Header().Get("WWW-Authenticate") != tt.challenge {
				t.Errorf("status %d, challenge %q, want %d and %q", got.Code, got.Header().Get("WWW-Authenticate"), tt.status, tt.challenge)
			}
			if tt.status == 200 {
				return
			}
			p := problemOf(t, got)
			if p.Reason != quota.ReasonNoSubject || p.Title != http.StatusText(tt.status) || p.Detail == "" {
				t.Errorf("the report is %+v", p)
			}
			for _, name := range []string{"RateLimit", "RateLimit-Policy", "Retry-After"} {
				if got.Header().Get(name) != "" {
					t.Errorf("%s is %q", name, got.Header().Get(name))
				}
			}
		})
	}
}

// Whoever forges ids is seen in the metrics, and not taken for somebody who was denied.
func TestRequestsThatAreTurnedAwayForWantOfAnIdentityAreCounted(t *testing.T) {
	t.Parallel()
	m, reg := newMetrics(t, quota.MetricsConfig{})
	w := newWorld(t, quota.LimitsConfig{}, func(c *quota.Config) { c.Hooks = m.Hooks() })
	s := w.serve(served, quota.MiddlewareConfig{RequireIdentity: true})
	for _, user := range []string{"", "bad", strings.Repeat("x", 200)} { // missing, forged, malformed
		if got := s.get(user); got.Code != 401 {
			t.Errorf("a request of %.10q has status %d", user, got.Code)
		}
	}
	if got := s.get("alice"); got.Code != 200 {
		t.Errorf("a request of alice has status %d", got.Code)
	}
	wantSeries(t, reg, map[string]float64{
		"decisions_total{outcome=unidentified,plan=none,scope=none,stage=admission}": 3,
		"decisions_total{outcome=allowed,plan=none,scope=none,stage=admission}":      1,
	})
	for at := range series(t, reg) {
		if strings.Contains(at, "outcome=denied") || strings.HasPrefix(at, "denials_total") {
			t.Errorf("there is %s, though no limit has denied anything", at)
		}
	}

	// That an identity cannot be looked up says nothing about the request.
	broken := quota.ResolverFunc(func(*http.Request) (quota.Subject, bool, error) { return quota.Subject{}, false, errStoreDown })
	wrap, err := quota.Middleware(w.Enforcer, broken, quota.MiddlewareConfig{Logger: quietLog})
	if err != nil {
		t.Fatal(err)
	}
	if got := (server{t, wrap(served)}).get("alice"); got.Code != 503 {
		t.Errorf("without the directory of users a request has status %d", got.Code)
	}
	wantSeries(t, reg, map[string]float64{"decisions_total{outcome=unidentified,plan=none,scope=none,stage=admission}": 3})
}

// What a resolver says besides that it knows nobody is worth nothing, and neither is
// whom somebody before has put into the context.
func TestARequestOfNobodyKnownIsForNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quota.LimitsConfig{})
	who := quota.Subject{User: "unset"}
	resolver := quota.ResolverFunc(func(*http.Request) (quota.Subject, bool, error) {
		return quota.Subject{User: "mallory", Plan: "pro"}, false, nil
	})
	wrap, err := quota.Middleware(w.Enforcer, resolver, quota.MiddlewareConfig{})
	if err != nil {
		t.Fatal(err)
	}
	handler := wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { who, _ = quota.SubjectFrom(r.Context()) }))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r = r.WithContext(quota.WithSubject(r.Context(), quota.Subject{User: "alice"}))
	if handler.ServeHTTP(httptest.NewRecorder(), r); !who.Nobody() {
		t.Errorf("the request is for %+v", who)
	}
}

// deaf is a ledger that cannot be reached.
type deaf struct{ quota.Ledger }

func (deaf) Reserve(context.Context, quota.Reserve) (quota.Reserved, error) {
	return quota.Reserved{}, fmt.Errorf("%w: dial tcp 10.0.0.7:6379", quota.ErrUnavailable)
}

func (deaf) Status(context.Context, string, ...quota.Entry) ([]quota.Status, error) {
	return nil, fmt.Errorf("%w: dial tcp 10.0.0.7:6379", quota.ErrUnavailable)
}

func TestAnUnreachableLedgerIs503AndNotTheClientsQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t, turnRate, func(c *quota.Config) { c.Ledger = deaf{c.Ledger} })
	got := w.serve(served, quota.MiddlewareConfig{}).get("alice")
	p := problemOf(t, got)
	if got.Code != 503 || got.Header().Get("Retry-After") != "1" || p.Type != quota.ProblemReducedCapacity {
		t.Errorf("status %d, Retry-After %q, type %q", got.Code, got.Header().Get("Retry-After"), p.Type)
	}
	if strings.Contains(got.Body.String(), "10.0.0.7") || got.Header().Get("RateLimit") != "" {
		t.Errorf("it tells too much: %s, RateLimit %q", got.Body, got.Header().Get("RateLimit"))
	}
}

// counting counts how often it was asked how counters stand.
type counting struct {
	deaf
	asked *int
}

func (c counting) Reserve(ctx context.Context, r quota.Reserve) (quota.Reserved, error) {
	return c.Ledger.Reserve(ctx, r)
}

func (c counting) Status(ctx context.Context, tree string, e ...quota.Entry) ([]quota.Status, error) {
	*c.asked++
	return c.deaf.Status(ctx, tree, e...)
}

func TestFieldsThatCannotBeMadeStopNobodyAndAreNotTriedAgainAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		w := newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Turns: 99}},
		}}, func(c *quota.Config) { c.Ledger = counting{deaf{c.Ledger}, &asked} })
		s := w.serve(served, quota.MiddlewareConfig{})
		for range 10 {
			if got := s.get("alice"); got.Code != 200 || got.Header().Get("RateLimit") != "" {
				t.Errorf("status %d, RateLimit %q", got.Code, got.Header().Get("RateLimit"))
			}
		}
		if asked != 1 {
			t.Errorf("the ledger was asked %d times", asked)
		}
		time.Sleep(time.Minute)
		if s.get("alice"); asked != 2 {
			t.Errorf("a minute later, the ledger was asked %d times in all", asked)
		}
	})
}

func TestAClosedEnforcerIs503(t *testing.T) {
	t.Parallel()
	w := newWorld(t, turnRate)
	s := w.serve(served, quota.MiddlewareConfig{})
	if err := w.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := s.get("alice"); got.Code != 503 {
		t.Errorf("status %d", got.Code)
	}
}

func TestARequestThatHasEndedIsNotServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, turnRate)
	s := w.serve(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it is served") }), quota.MiddlewareConfig{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	r.Header.Set("X-User", "alice")
	got := httptest.NewRecorder()
	s.handler.ServeHTTP(got, r)
	if got.Code != 503 {
		t.Errorf("status %d", got.Code)
	}
}

func TestWhatCannotBeFoundOutIsNotTheClientsFault(t *testing.T) {
	t.Parallel()
	w := newWorld(t, turnRate)
	down := quota.ResolverFunc(func(*http.Request) (quota.Subject, bool, error) {
		return quota.Subject{}, false, fmt.Errorf("directory at 10.0.0.8: %w", quota.ErrUnavailable)
	})
	limit, err := quota.Middleware(w.Enforcer, down, quota.MiddlewareConfig{Logger: quietLog})
	if err != nil {
		t.Fatal(err)
	}
	got := server{t, limit(served)}.get("alice")
	if p := problemOf(t, got); got.Code != 503 || p.RetryAfter != 1 || strings.Contains(got.Body.String(), "10.0.0.8") {
		t.Errorf("a directory that is down: status %d, %s", got.Code, got.Body)
	}
	inner := w.serve(served, quota.MiddlewareConfig{})
	outer := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		inner.handler.ServeHTTP(rw, r.WithContext(quota.WithTurnLimits(r.Context(), quota.TurnLimits{MaxOutput: -1})))
	})
	if got := (server{t, outer}).get("alice"); got.Code != 500 || strings.Contains(got.Body.String(), "-1") {
		t.Errorf("limits of turns that are not valid: status %d, %s", got.Code, got.Body)
	}
}

func TestARefusalCanBeAPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, turnRate)
	s := w.serve(served, quota.MiddlewareConfig{Write: func(w http.ResponseWriter, _ *http.Request, p *quota.Problem) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(p.Status)
		_, _ = io.WriteString(w, "<p>"+p.Title)
	}})
	for range 5 {
		s.get("alice")
	}
	got := s.get("alice")
	if got.Code != 429 || got.Body.String() != "<p>Quota Exceeded" || got.Header().Get("Retry-After") == "" || got.Header().Get("RateLimit") == "" {
		t.Errorf("status %d, body %q, header %v", got.Code, got.Body, got.Header())
	}
}

func TestMiddlewareNamesEverythingThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := quota.Middleware(nil, nil, quota.MiddlewareConfig{NoIdentity: 404, Challenge: "a\r\nb"})
	if err == nil {
		t.Fatal("there is no error")
	}
	for _, want := range []string{"enforcer is nil", "resolver is nil", "NoIdentity is 404", `Challenge is "a\r\nb"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	_, err = quota.Middleware(newWorld(t, turnRate).Enforcer, byHeader, quota.MiddlewareConfig{Scopes: []quota.Scope{quota.User, "planet"}})
	if err == nil || !strings.Contains(err.Error(), `"planet"`) {
		t.Errorf("an unknown scope: %v", err)
	}
}

func TestALimitIsToldWithItsTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, turnRate)
	s := w.serve(served, quota.MiddlewareConfig{})
	var seen []string
	for range 8 {
		if got := s.get("alice"); got.Code == 429 {
			seen = append(seen, problemOf(t, got).Instance)
		}
	}
	slices.Sort(seen)
	if len(seen) != 3 || len(slices.Compact(slices.Clone(seen))) != 3 || !strings.HasPrefix(seen[0], "tag:") {
		t.Errorf("the instances are %q, want three different ones", seen)
	}
}
