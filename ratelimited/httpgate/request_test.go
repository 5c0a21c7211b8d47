package httpgate_test

import (
	"context"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/httpgate"
)

const hello = `{"model":"gpt-5","messages":[{"role":"user","content":"hi"}]}`

// The request of a response is the client's own: another one made with its context
// would go past the gate.
func TestResponseHasTheClientsRequest(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"answer": 200, "refusal": 400} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1})
				inner := false
				p := newProvider(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(status)
					io.WriteString(w, completion(5))
				})
				defer p.Close()
				rt := newTransport(t, roundTripper(func(req *http.Request) (*http.Response, error) {
					inner = httpgate.HasPermit(req.Context(), g)
					return p.base().RoundTrip(req)
				}), g, httpgate.Config{})
				req := chatRequest(t, t.Context(), chatURL)
				resp, err := rt.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if !inner {
					t.Error("the context of the request that was sent does not tell of its permit")
				}
				if resp.Request != req || httpgate.HasPermit(resp.Request.Context(), g) {
					t.Error("the response does not have the client's request")
				}
			})
		})
	}
}

// A body that is kept in memory can be sent once more by the round tripper below,
// as net/http does on a connection that was closed; one that has GetBody keeps it.
func TestRoundTripperBelowCanSendTheBodyAgain(t *testing.T) {
	t.Parallel()
	for name, getBody := range map[string]bool{"kept in memory": false, "with GetBody": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1})
				req := post(t, chatURL, hello)
				own := 0
				switch get := req.GetBody; {
				case !getBody:
					req.GetBody, req.Body = nil, io.NopCloser(strings.NewReader(hello))
				default:
					req.GetBody = func() (io.ReadCloser, error) { own++; return get() }
				}
				rt := newTransport(t, roundTripper(func(sent *http.Request) (*http.Response, error) {
					before := own
					for range 2 {
						if sent.GetBody == nil {
							t.Fatal("the request that was sent has no GetBody")
						}
						body, err := sent.GetBody()
						if err != nil {
							t.Fatal(err)
						}
						if got, err := io.ReadAll(body); err != nil || string(got) != hello {
							t.Errorf("a further body is %q, %v; want the first one", got, err)
						}
					}
					if getBody && own != before+2 {
						t.Error("the client's own GetBody was not asked")
					}
					return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
				}), g, httpgate.Config{})
				drained(t, rt, req)
				if !getBody && req.GetBody != nil {
					t.Error("the client's request was changed")
				}
			})
		})
	}
}

// However large the bound on what is kept is, the body is sent whole.
func TestLargestBoundKeepsTheWholeBody(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int64{"largest": math.MaxInt64, "one less": math.MaxInt64 - 1, "one byte": 1} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1})
				p := newProvider(t, func(_ int, w http.ResponseWriter, _ *http.Request) { io.WriteString(w, completion(5)) })
				defer p.Close()
				req := post(t, chatURL, "")
				req.GetBody, req.ContentLength, req.Body = nil, -1, io.NopCloser(strings.NewReader(hello))
				drained(t, newTransport(t, p.base(), g, httpgate.Config{MaxBuffered: most}), req)
				if p.count() != 1 || p.bodies[0] != hello {
					t.Errorf("the provider got %q, want the body", p.bodies)
				}
			})
		})
	}
}

// models is a budget that notes the models it is asked for.
type models []string

func (b *models) Reserve(_ context.Context, c budget.Call) (budget.Reservation, error) {
	*b = append(*b, c.Model)
	return nil, nil
}

// The name of a model reaches the budgets whole, or not at all: cut off, it could
// be the name of another, with another price.
func TestNameOfAModelIsNeverCutOff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ model, want string }{
		"tuned": {"ft:gpt-4o-mini-2024-07-18:my-organization:support-bot-v2:AbCdEfGh", "ft:gpt-4o-mini-2024-07-18:my-organization:support-bot-v2:AbCdEfGh"},
		"a profile of Bedrock's": {
			"arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
			"arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
		},
		"beyond belief": {strings.Repeat("gpt-5", 200), ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1})
				var asked models
				rt := newTransport(t, roundTripper(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
				}), g, httpgate.Config{Budgets: []budget.Budget{&asked}})
				drained(t, rt, post(t, chatURL, strings.Replace(hello, "gpt-5", c.model, 1)))
				if len(asked) != 1 || asked[0] != c.want {
					t.Errorf("the budget was asked for %q, want %q", asked, c.want)
				}
			})
		})
	}
}
