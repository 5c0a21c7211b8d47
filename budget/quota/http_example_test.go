package quota_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// enforcerOf is an enforcer with one limit.
func enforcerOf(limit quota.Limit) (*quota.Enforcer, error) {
	limits, err := quota.NewLimits(quota.LimitsConfig{Limits: []quota.Limit{limit}})
	if err != nil {
		return nil, err
	}
	ledger, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		return nil, err
	}
	return quota.New(quota.Config{Ledger: ledger, Limits: limits})
}

// A user may send three messages, and another one every 20 seconds.
func ExampleMiddleware() {
	enforcer, err := enforcerOf(quota.Limit{
		Name: "chat", Scope: quota.User, Window: quota.Rolling(time.Minute), Max: quota.Max{quota.Turns: 3},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = enforcer.Close(context.Background()) }()
	// Behind a gateway that sets the header; else use what authentication has found.
	limit, err := quota.Middleware(enforcer, quota.Header("X-User-Id"), quota.MiddlewareConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	chat := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := "Hello!", error(nil) // of an agent that runs in r.Context()
		switch {
		case err == nil:
			fmt.Fprint(w, answer)
		case !quota.Refuse(w, r, err): // what was denied in the middle
			http.Error(w, "the agent has failed", http.StatusInternalServerError)
		}
	}))

	for range 4 {
		r := httptest.NewRequest(http.MethodPost, "/chat", strings.NewReader("Hi"))
		r.Header.Set("X-User-Id", "alice")
		w := httptest.NewRecorder()
		chat.ServeHTTP(w, r)
		fmt.Printf("%d, RateLimit: %s, Retry-After: %q\n", w.Code, w.Header().Get("RateLimit"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 200, RateLimit: "chat";r=2;t=20, Retry-After: ""
	// 200, RateLimit: "chat";r=1;t=20, Retry-After: ""
	// 200, RateLimit: "chat";r=0;t=20, Retry-After: ""
	// 429, RateLimit: "chat";r=0;t=20, Retry-After: "20"
}

// Support gives a user something back. Its staff are known by a token.
func ExampleAdmin() {
	enforcer, err := enforcerOf(quota.Limit{
		Name: "daily", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1000},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = enforcer.Close(context.Background()) }()
	admin, err := quota.Admin(quota.AdminConfig{
		Enforcer: enforcer,
		Authorize: func(r *http.Request, a quota.AdminAccess) error {
			switch {
			case r.Header.Get("Authorization") != "Bearer support": // check a real token here
				return quota.ErrUnauthenticated
			case a.Action == quota.AdminErase:
				return errors.New("support may not erase")
			}
			return nil
		},
		Logger: slog.New(slog.DiscardHandler), // use your own: it is told of every change
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/admin/quota/", http.StripPrefix("/admin/quota", admin))

	for _, path := range []string{"topup", "erase"} {
		body := map[string]string{"topup": `{"scope":"user","unit":"tokens","amount":500}`, "erase": `{"scope":"user"}`}[path]
		r := httptest.NewRequest(http.MethodPost, "/admin/quota/"+path+"?user=alice", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer support")
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(path, w.Code)
	}
	// Output:
	// topup 200
	// erase 403
}
