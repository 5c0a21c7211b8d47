package httpgate_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/httpgate"
)

func TestWrongConfigIsNamed(t *testing.T) {
	t.Parallel()
	g := newGate(t, ratelimited.Config{Slots: 1})
	inner := newTransport(t, nil, g, httpgate.Config{})
	for want, cfg := range map[string]httpgate.Config{
		"Config.MaxBuffered is -1":      {MaxBuffered: -1},
		"Config.Refusals is 7":          {Refusals: 7},
		"Config.Slots is -2":            {Slots: -2},
		"Config.TypicalOutput is -3":    {TypicalOutput: -3},
		"Config.Unknown is 9":           {Unknown: 9},
		"Config.Budgets[1] is nil":      {Budgets: []budget.Budget{&ledger{}, nil}},
		`Config.Free[1] is "models"`:    {Free: []string{"GET models", "models"}},
		`Config.Free[0] is "GET a?b=c"`: {Free: []string{"GET a?b=c"}},
	} {
		if _, err := httpgate.New(nil, g, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error that says %q", err, want)
		}
	}
	if _, err := httpgate.New(nil, nil, httpgate.Config{}); err == nil || !strings.Contains(err.Error(), "gate is nil") {
		t.Errorf("without a gate: %v", err)
	}
	other := newTransport(t, inner, newGate(t, ratelimited.Config{Slots: 1}), httpgate.Config{})
	for name, base := range map[string]http.RoundTripper{"itself": inner, "another around it": other} {
		if _, err := httpgate.New(base, g, httpgate.Config{}); err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("a transport around %s was made: %v", name, err)
		}
	}
}

// What a transport does not know it refuses, unless it is told to let it pass;
// live sessions it refuses in any case.
func TestUnknownRequestsPassOnlyIfConfigured(t *testing.T) {
	t.Parallel()
	passed := errors.New("passed")
	base := roundTripper(func(*http.Request) (*http.Response, error) { return nil, passed })
	for name, c := range map[string]struct {
		cfg    httpgate.Config
		passes string // the requests that pass, by their first letters
	}{
		"default":     {httpgate.Config{}, "m"},
		"none free":   {httpgate.Config{Free: []string{}}, ""},
		"own free":    {httpgate.Config{Free: []string{"POST v1/batches"}}, "b"},
		"unknown too": {httpgate.Config{Unknown: httpgate.Pass, Free: []string{}}, "mbo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, ratelimited.Config{Slots: 1})
			rt := newTransport(t, base, g, c.cfg)
			for first, request := range map[string][2]string{
				"m": {"GET", "/v1/models"}, "b": {"POST", "/v1/batches"}, "o": {"PUT", "/other"}, "l": {"GET", "/v1/realtime"},
			} {
				req, err := http.NewRequest(request[0], "http://x.invalid"+request[1], nil)
				if err != nil {
					t.Fatal(err)
				}
				_, err = rt.RoundTrip(req)
				if strings.Contains(c.passes, first) != (err == passed) {
					t.Errorf("%s %s: %v", request[0], request[1], err)
				}
				if e, ok := errors.AsType[*httpgate.RouteError](err); err != passed && (!ok || e.Live != (first == "l")) {
					t.Errorf("%s %s: %v, want a RouteError", request[0], request[1], err)
				}
			}
		})
	}
}

// closer is a round tripper that counts CloseIdleConnections.
type closer struct {
	roundTripper
	closed int
}

func (c *closer) CloseIdleConnections() { c.closed++ }

func TestIdleConnectionsOfBaseCanBeClosed(t *testing.T) {
	t.Parallel()
	g := newGate(t, ratelimited.Config{Slots: 1})
	base := &closer{}
	(&http.Client{Transport: newTransport(t, base, g, httpgate.Config{})}).CloseIdleConnections()
	if base.closed != 1 {
		t.Errorf("base was asked %d times, want once", base.closed)
	}
	rt := newTransport(t, roundTripper(nil), g, httpgate.Config{})
	rt.CloseIdleConnections()
	if rt.Gate() != g {
		t.Error("Gate is another gate")
	}
}
