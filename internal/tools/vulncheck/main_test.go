package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestADatabaseIsReachedOnlyIfItAnswersLikeOne(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		handler http.HandlerFunc
		want    string // in the error; "" for none
	}{
		{"a database", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/db/index/db.json" {
				http.NotFound(w, r)
				return
			}
			_, _ = w.Write([]byte(`{"modified":"2026-11-01T10:00:00Z"}`))
		}, ""},
		{"a server without one", http.NotFound, "it answers 404 Not Found"},
		{"a refusing firewall", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
		}, "it answers 403 Forbidden"},
		{"a sign-in page", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<html>please sign in</html>"))
		}, "not that of a vulnerability database"},
		{"other JSON", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("{}"))
		}, "not that of a vulnerability database"},
		{"an answer cut short", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"modified":"20`))
		}, "not that of a vulnerability database"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(tt.handler)
			defer srv.Close()
			err := reach(t.Context(), srv.Client(), srv.URL+"/db", time.Minute)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("reach = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestAMachineWithoutTheDatabaseIsToldWhy(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close() // nobody listens there any more
	err := reach(t.Context(), srv.Client(), srv.URL, time.Minute)
	if err == nil {
		t.Fatal("a closed port was reached")
	}
	if strings.Contains(err.Error(), "index/db.json") {
		t.Errorf("reach = %v: the reason repeats the address", err)
	}
	message := skipped(srv.URL, err.Error())
	for _, part := range []string{"skipped", srv.URL, "refused"} {
		if !strings.Contains(message, part) {
			t.Errorf("message = %q, want %q in it", message, part)
		}
	}
}

// silence is a server that takes a request and never answers.
type silence struct{}

func (silence) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestASilentDatabaseIsGivenUpAfterTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		err := reach(t.Context(), &http.Client{Transport: silence{}}, "https://db.example", 10*time.Second)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("reach = %v, want a deadline exceeded", err)
		}
		if waited := time.Since(start); waited != 10*time.Second {
			t.Errorf("waited %v, want 10s", waited)
		}
	})
}

func TestADatabaseInAFolderIsNotAskedFor(t *testing.T) {
	t.Parallel()
	if err := reach(t.Context(), http.DefaultClient, "file:///none/here", time.Minute); err != nil {
		t.Errorf("reach = %v, want none", err)
	}
}

func TestTheEndOfAScanIsToldApart(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		code   int
		stderr string
		want   string
		clean  bool
	}{
		{"nothing found", 0, "", "no known vulnerability", true},
		{"a vulnerability found", 3, "", "vulnerabilities found", false},
		{"found, with a fetch in the report's text", 3, "fetching vulnerabilities: x", "vulnerabilities found", false},
		{"the database went away", 1, "govulncheck: fetching vulnerabilities: Get \"https://db.example\": no such host\n",
			"skipped: the vulnerability database https://db.example cannot be reached: Get", true},
		{"the module does not load", 1, "govulncheck: loading packages: no Go files\n",
			"ended with code 1: govulncheck: loading packages", false},
		{"bad flags", 2, "flag provided but not defined", "ended with code 2", false},
		{"ended by a signal", -1, "", "ended with code -1", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			message, clean := judge(tt.code, tt.stderr, "https://db.example")
			if !strings.Contains(message, tt.want) || clean != tt.clean {
				t.Errorf("judge = %q, %v, want %q, %v", message, clean, tt.want, tt.clean)
			}
		})
	}
}
