package quota_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
)

// crossOrigin answers preflights, and all else with 200.
func crossOrigin(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	if r.Method == http.MethodOptions {
		w.Header().Set("Access-Control-Allow-Methods", "POST")
		w.WriteHeader(http.StatusNoContent)
	}
}

// options sends what a browser asks before a request to another origin: without
// credentials. What is changed is told by pairs of a header field and its value.
func (s server) options(changed ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodOptions, "/chat", nil)
	r.Header.Set("Origin", "https://app.example")
	r.Header.Set("Access-Control-Request-Method", "POST")
	r.Header.Set("Access-Control-Request-Headers", "authorization,content-type")
	for i := 0; i < len(changed); i += 2 {
		if r.Header.Del(changed[i]); changed[i+1] != "" {
			r.Header.Set(changed[i], changed[i+1])
		}
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

func TestAPreflightPassesWithoutAnIdentityAndIsNoTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limitsOf(daily("turns", quota.User, quota.Turns, 1), daily("all", quota.Global, quota.Turns, 100)))
		for _, cfg := range []quota.MiddlewareConfig{{}, {RequireIdentity: true}} {
			s := w.serve(http.HandlerFunc(crossOrigin), cfg)
			passes := func(when string) {
				t.Helper()
				got := s.options()
				if h := got.Header(); got.Code != http.StatusNoContent || h.Get("Access-Control-Allow-Methods") != "POST" || h.Get("RateLimit") != "" {
					t.Errorf("%s a preflight is answered %d with %v", when, got.Code, h)
				}
			}
			for range 3 {
				passes("at first")
			}
			if !cfg.RequireIdentity {
				w.stands(as("ann"), "all", quota.Turns, 0, 0)
				if got := s.get("ann"); got.Code != http.StatusOK {
					t.Errorf("the request itself is answered %d", got.Code)
				}
			}
			if got := s.get("ann"); got.Code != http.StatusTooManyRequests {
				t.Errorf("a second request is answered %d", got.Code)
			}
			passes("when nothing is left")
			w.stands(as("ann"), "all", quota.Turns, 1, 0)
		}
	})
}

func TestOnlyAPreflightPassesAsOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limitsOf(daily("turns", quota.User, quota.Turns, 1)))
	s := w.serve(http.HandlerFunc(crossOrigin), quota.MiddlewareConfig{})
	for _, field := range []string{"Origin", "Access-Control-Request-Method"} {
		if got := s.options(field, ""); got.Code != http.StatusUnauthorized {
			t.Errorf("OPTIONS without %s is answered %d, want 401", field, got.Code)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/chat", nil)
	r.Header.Set("Origin", "https://app.example")
	r.Header.Set("Access-Control-Request-Method", "POST")
	got := httptest.NewRecorder()
	if s.handler.ServeHTTP(got, r); got.Code != http.StatusUnauthorized {
		t.Errorf("a POST that looks like a preflight is answered %d, want 401", got.Code)
	}
	if got := s.options("X-User", "bad"); got.Code != http.StatusNoContent {
		t.Errorf("a preflight whose claim does not hold is answered %d: nobody was to look at it", got.Code)
	}
}

// What does not look at methods must not run models in a preflight for nobody.
func TestNoModelRunsInAPreflight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		skip := daily("tokens", quota.User, quota.Tokens, 1000)
		skip.Missing = quota.Skip
		for _, limits := range []quota.LimitsConfig{{}, limitsOf(skip), limitsOf(daily("tokens", quota.User, quota.Tokens, 1000))} {
			w := newWorld(t, limits)
			calls := 0
			s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				res, err := w.try(r.Context(), tokens(100))
				if err == nil {
					calls++
					w.settle(res, tokens(100))
				} else if !quota.Refuse(rw, r, err) || !errors.Is(err, budget.ErrDenied) {
					t.Errorf("it is no denial: %v", err)
				}
			}), quota.MiddlewareConfig{})
			handler := s.handler
			for name, around := range map[string]http.Handler{
				"for nobody": handler,
				"behind what has set a subject": http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					handler.ServeHTTP(rw, r.WithContext(quota.WithSubject(r.Context(), quota.Subject{Tenant: "acme", User: "ann"})))
				}),
			} {
				got := server{t, around}.options()
				p := problemOf(t, got)
				if p.Detail != "The server needs to know for whom this is." {
					t.Errorf("%s: %s", name, p.Detail)
				}
				if got.Code != http.StatusUnauthorized || p.Reason != quota.ReasonNoSubject || calls != 0 {
					t.Errorf("%s: status %d, reason %q, %d calls", name, got.Code, p.Reason, calls)
				}
			}
			if s.get("ann"); calls != 1 {
				t.Errorf("%d calls in the request itself", calls)
			}
		}
	})
}

func TestAPreflightWithinATurnOrASecondMiddlewarePasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limitsOf(daily("turns", quota.User, quota.Turns, 9), daily("tokens", quota.Team, quota.Tokens, 1000)))
		inner := w.serve(http.HandlerFunc(crossOrigin), quota.MiddlewareConfig{RequireIdentity: true})
		if got := w.serve(inner.handler, quota.MiddlewareConfig{}).options(); got.Code != http.StatusNoContent {
			t.Errorf("behind two middlewares a preflight is answered %d", got.Code)
		}
		turn := w.admit(as("ann"))
		defer turn.End()
		s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.call(r.Context(), tokens(100)) }), quota.MiddlewareConfig{})
		within := server{t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			s.handler.ServeHTTP(rw, r.WithContext(turn.Context()))
		})}
		if got := within.options(); got.Code != http.StatusOK {
			t.Errorf("within a turn a preflight is answered %d", got.Code)
		}
		w.stands(as("ann"), "tokens", quota.Tokens, 100, 0)
	})
}
