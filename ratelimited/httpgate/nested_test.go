package httpgate_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/internal/memhttp"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/genaimodel"
	"github.com/headgate-go/headgate/ratelimited/httpgate"
)

// Agent frameworks run tools and other agents when they see that an answer is
// complete, inside the loop over its events. A call made there must not wait for
// the slot of the call that it is inside of: at a limit of 1 it would wait for
// ever.
func TestCallInsideTheLastEventDoesNotDeadlock(t *testing.T) {
	t.Parallel()
	for _, v := range vendors() {
		for name, play := range map[string]func(int, http.ResponseWriter, *http.Request){
			"stream": func(_ int, w http.ResponseWriter, r *http.Request) {
				sendEvents(w, r, time.Millisecond, append([]string{v.part("a")}, v.last(10, 5)...)...)
			},
			"one write": func(_ int, w http.ResponseWriter, r *http.Request) {
				all := v.part("a")
				for _, e := range v.last(10, 5) {
					all += e
				}
				sendEvents(w, r, 0, all)
			},
		} {
			t.Run(v.name+"/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					cfg := tokens(1000)
					cfg.MaxWait = new(time.Duration)
					g := newGate(t, cfg)
					l := &ledger{}
					p := newProvider(t, play)
					defer p.Close()
					rt := newTransport(t, p.base(), g, httpgate.Config{Budgets: []budget.Budget{l}})
					var inside func(n int)
					inside = func(n int) {
						if n == 0 {
							return
						}
						seen := false
						err := v.stream(t.Context(), rt, func(text string) bool {
							if text == "end" {
								seen = true
								inside(n - 1)
							}
							return true
						})
						if err != nil || !seen {
							t.Errorf("level %d: %v, complete: %v", n, err, seen)
						}
					}
					inside(4)
					if p.count() != 4 {
						t.Errorf("%d calls reached the provider, want 4", p.count())
					}
					mustBeIdle(t, g)
					l.expect(t, 0, 4*15)
					if n := booked(t, g, "tokens"); n != 4*10 {
						t.Errorf("the gate counts %d tokens, want 40", n)
					}
				})
			})
		}
	}
}

// The answer in one piece is complete with its last byte, before its reader has
// seen the end of the body.
func TestSlotIsBackBeforeTheLastByteOfAnAnswerInOnePiece(t *testing.T) {
	t.Parallel()
	for _, v := range vendors() {
		t.Run(v.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1})
				answer := v.answer("hi", 7, 3)
				p := newProvider(t, func(_ int, w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					for i := range answer {
						w.Write([]byte{answer[i]})
						w.(http.Flusher).Flush()
					}
					<-r.Context().Done() // the body does not end
				})
				defer p.Close()
				rt := newTransport(t, p.base(), g, httpgate.Config{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				resp, err := rt.RoundTrip(requestFor(t, ctx, v))
				if err != nil {
					t.Fatal(err)
				}
				for n := 0; n < len(answer); {
					if s := g.Stats(); s.SlotsInUse != 1 {
						t.Fatalf("the slot was back after %d of %d bytes", n, len(answer))
					}
					k, err := resp.Body.Read(make([]byte, 1))
					if err != nil {
						t.Fatal(err)
					}
					n += k
				}
				if s := g.Stats(); s.SlotsInUse != 0 {
					t.Errorf("%d slots in use though the answer is complete", s.SlotsInUse)
				}
			})
		})
	}
}

// A call that holds a permit of the gate already does not take a second one,
// which at a limit of 1 it would wait for for ever.
func TestCallThatHoldsAPermitTakesNoSecondOne(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(base http.RoundTripper, g *ratelimited.Gate) http.RoundTripper{
		"permit of the program": func(base http.RoundTripper, _ *ratelimited.Gate) http.RoundTripper { return base },
		"transport around another": func(base http.RoundTripper, g *ratelimited.Gate) http.RoundTripper {
			return roundTripper(base.RoundTrip) // something stands between the two
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cfg := tokens(1000)
				cfg.MaxWait = new(time.Duration)
				g := newGate(t, cfg)
				v := chatVendor()
				p := newProvider(t, func(_ int, w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					w.Write([]byte(v.answer("hi", 10, 5)))
				})
				defer p.Close()
				rt := http.RoundTripper(newTransport(t, p.base(), g, httpgate.Config{}))
				ctx := t.Context()
				if name == "permit of the program" {
					permit, err := g.Acquire(ctx, ratelimited.Call{})
					if err != nil {
						t.Fatal(err)
					}
					defer permit.Release()
					if _, err := v.unary(ctx, rt); err == nil {
						t.Fatal("an unmarked call passed a gate without a slot")
					}
					ctx = httpgate.WithPermit(ctx, g)
				} else {
					rt = newTransport(t, wrap(rt, g), g, httpgate.Config{})
				}
				if text, err := v.unary(ctx, rt); err != nil || text != "hi" {
					t.Errorf("got %q, %v", text, err)
				}
				other := newGate(t, ratelimited.Config{Slots: 1, MaxWait: new(time.Duration)})
				hold, err := other.Acquire(ctx, ratelimited.Call{})
				if err != nil {
					t.Fatal(err)
				}
				defer hold.Release()
				if _, err := v.unary(ctx, newTransport(t, p.base(), other, httpgate.Config{})); err == nil {
					t.Error("a permit of one gate passed another")
				}
			})
		})
	}
}

// A model behind a gate whose client has a transport behind the same gate takes
// one slot, or with one slot it would wait for itself.
func TestModelInFrontOfATransportOfTheSameGateTakesOnePermit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		v := geminiVendor()
		g := newGate(t, tokens(1000))
		p := newProvider(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			sendEvents(w, r, time.Millisecond, append([]string{v.part("a")}, v.last(10, 5)...)...)
		})
		defer p.Close()
		client, err := genai.NewClient(t.Context(), &genai.ClientConfig{
			APIKey: "key", Backend: genai.BackendGeminiAPI,
			HTTPClient:  &http.Client{Transport: newTransport(t, p.base(), g, httpgate.Config{})},
			HTTPOptions: genai.HTTPOptions{BaseURL: memhttp.URL},
		})
		if err != nil {
			t.Fatal(err)
		}
		model, err := genaimodel.New(client, "gemini-2.5-flash")
		if err != nil {
			t.Fatal(err)
		}
		llm, err := ratelimited.New(model, g)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, err := range llm.GenerateContent(ctx, &genaimodel.Request{Contents: genai.Text(prompt)}, true) {
			if err != nil {
				t.Fatal(err)
			}
		}
		mustBeIdle(t, g)
		if n := booked(t, g, "tokens"); n != 10 {
			t.Errorf("the gate counts %d tokens, want 10: one call", n)
		}
	})
}
