package retry_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate-go/headgate/retry"
)

// events is a list that goroutines may append to.
type events struct {
	mu   sync.Mutex
	list []string
}

func (e *events) add(name string) func() {
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.list = append(e.list, name)
	}
}

func (e *events) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

// reports is a Base that reports these outcomes of writing to the trace.
func reports(outcomes ...error) roundTripper {
	return func(r *http.Request) (*http.Response, error) {
		trace := httptrace.ContextClientTrace(r.Context())
		for _, err := range outcomes {
			if trace != nil && trace.WroteRequest != nil {
				trace.WroteRequest(httptrace.WroteRequestInfo{Err: err})
			}
		}
		return answer(200, nil, "{}")(r)
	}
}

func send(t *testing.T, ctx context.Context, base http.RoundTripper) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gemini.invalid/x", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&retry.Transport{Base: base}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

func TestWrittenIsToldOncePerRequest(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken pipe")
	for name, c := range map[string]struct {
		outcomes []error
		want     int
	}{
		"written":                              {[]error{nil}, 1},
		"not written":                          {nil, 0},
		"writing failed":                       {[]error{broken}, 0},
		"written again on another connection":  {[]error{nil, nil, nil}, 1},
		"failed, then written on another":      {[]error{broken, nil}, 1},
		"written, then failed on the next one": {[]error{nil, broken}, 1},
	} {
		var told atomic.Int32
		ctx := retry.WithWritten(t.Context(), func() { told.Add(1) })
		send(t, ctx, reports(c.outcomes...))
		if got := int(told.Load()); got != c.want {
			t.Errorf("%s: told %d times, want %d", name, got, c.want)
		}
		send(t, ctx, reports(c.outcomes...))
		if got := int(told.Load()); got != 2*c.want {
			t.Errorf("%s: told %d times after a second request, want %d", name, got, 2*c.want)
		}
	}
}

func TestWrittenJoinsTracesAndEarlierFunctions(t *testing.T) {
	t.Parallel()
	var e events
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { e.add("trace")() },
	})
	ctx = retry.WithWritten(ctx, e.add("outer"))
	ctx = retry.WithWritten(ctx, nil)
	ctx = retry.WithWritten(ctx, e.add("inner"))
	send(t, ctx, reports(nil, nil))
	if got, want := e.all(), []string{"inner", "outer", "trace", "trace"}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

func TestContextWithoutWrittenIsNotTraced(t *testing.T) {
	t.Parallel()
	ctx := retry.WithWritten(t.Context(), nil)
	if ctx != t.Context() {
		t.Error("a nil function made a new context")
	}
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		if httptrace.ContextClientTrace(r.Context()) != nil {
			t.Error("a request that nobody waits for was traced")
		}
		return answer(200, nil, "")(r)
	})
	send(t, ctx, base)
}

func TestWrittenIsToldBeforeTheAnswerOfARealClient(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/moved/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"candidates":[{"finishReason":"STOP"}]}`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	rt := &retry.Transport{Base: server.Client().Transport}

	var told atomic.Int32
	ctx := retry.WithWritten(t.Context(), func() { told.Add(1) })
	if err := unary(ctx, newGemini(t, server.URL, rt)); err != nil {
		t.Fatal(err)
	}
	if got := told.Load(); got != 1 {
		t.Errorf("told %d times of one call that was answered, want once", got)
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/moved/x", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: rt}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := told.Load() - 1; got != 2 {
		t.Errorf("told %d times of a redirected call, want once for each of its 2 requests", got)
	}
}

func TestWrittenIsNotToldWithoutAConnection(t *testing.T) {
	t.Parallel()
	l := listen(t)
	l.Close()
	ctx := retry.WithWritten(t.Context(), func() { t.Error("told of a request that was never written") })
	if err := post(ctx, &http.Transport{}, "http://"+l.Addr().String()); err == nil {
		t.Error("the call succeeded without a server")
	}
}
