package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	anthropicdouble "github.com/headgate-go/headgate/bench/anthropic"
	openaidouble "github.com/headgate-go/headgate/bench/openai"
)

// In virtual time, with quotas of several sizes: nothing is refused behind the
// gate, and the books say what the double has counted.
func TestEveryReportIsCompleteAndNothingIsRefusedBehindTheGate(t *testing.T) {
	t.Parallel()
	for _, p := range providers {
		for _, args := range []string{"", "-users 6 -tpm 20000", "-users 3 -rpm 10 -tpm 0 -otpm 0", "-users 2 -tpm 10000 -otpm 3000"} {
			t.Run(p.name+" "+args, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var doubles []statistician
					got := invoke(t.Context(), remembered(memory, &doubles), append(strings.Fields(args), "-json", "-speed", "1", "-provider", p.name)...)
					if got.code != exitOK || got.stderr != "" {
						t.Fatalf("exit code %d: %s", got.code, got.stderr)
					}
					out := decode(t, got.stdout)
					if len(out.Providers) != 1 || out.Providers[0].Provider != p.name || out.Providers[0].Model != p.model {
						t.Fatalf("providers %+v, want %s with %s", out.Providers, p.name, p.model)
					}
					u, h := out.Providers[0].Runs[0], out.Providers[0].Runs[1]
					if h.Refused != 0 || h.ReportsOK != h.Reports || h.Calls != 5*h.Reports || h.EstimatedCalls != 0 {
						t.Errorf("behind the gate: %+v", h)
					}
					if u.Refused == 0 || u.ReportsOK == u.Reports {
						t.Errorf("the quota has room for all at once: %+v", u)
					}
					if h.FirstTextP50 <= 0 || h.FirstTextP50 >= h.Makespan {
						t.Errorf("first text after %v s of %v s", h.FirstTextP50, h.Makespan)
					}
					// Of calls that were cut off nobody reads the refusal.
					if s := doubles[0].Stats(); u.Refused > s.Refused {
						t.Errorf("%d refusals were counted without limits, the double has %d", u.Refused, s.Refused)
					}
					s := doubles[1].Stats()
					if s.Refused != 0 || s.Requests != int64(h.Calls) {
						t.Errorf("behind the gate the double got %d requests and refused %d", s.Requests, s.Refused)
					}
					counted := h.InputTokens
					if p.name == anthropic.name { // it does not count what is read from the cache
						counted -= h.CachedTokens
					}
					if counted != s.InputTokens || h.OutputTokens != s.OutputTokens {
						t.Errorf("settled at %d counted input tokens and %d of output, the double has %d and %d",
							counted, h.OutputTokens, s.InputTokens, s.OutputTokens)
					}
					for _, w := range s.Windows {
						// A bucket that is full at first lets two quotas through in a minute.
						if w.Share > 2 || p.name == gemini.name && w.Share > 1 {
							t.Errorf("%.2f of %s was used in a window", w.Share, w.Name)
						}
					}
				})
			})
		}
	}
}

// The prices are those of the file, written down once more.
func TestMoneyIsWhatThePricesSay(t *testing.T) {
	t.Parallel()
	// Dollars per million tokens are micro-dollars per token.
	prices := map[string]struct{ input, cached, written, output float64 }{
		"gemini":           {0.30, 0.03, 0.30, 2.50},
		"openai":           {0.25, 0.025, 0.25, 2.00},
		"openai-responses": {0.25, 0.025, 0.25, 2.00},
		"anthropic":        {3.00, 0.30, 3.75, 15.00},
	}
	synctest.Test(t, func(t *testing.T) {
		got := invoke(t.Context(), memory, "-json", "-speed", "1", "-users", "3")
		if got.code != exitOK {
			t.Fatalf("exit code %d: %s", got.code, got.stderr)
		}
		out := decode(t, got.stdout)
		if len(out.Providers) != len(prices) || out.PricesAsOf != "2026-11-30" {
			t.Fatalf("%d providers with prices as of %s", len(out.Providers), out.PricesAsOf)
		}
		for _, p := range out.Providers {
			rate := prices[p.Provider]
			for _, r := range p.Runs {
				exact := rate.input*float64(r.InputTokens-r.CachedTokens-r.CacheWriteTokens) +
					rate.cached*float64(r.CachedTokens) + rate.written*float64(r.CacheWriteTokens) + rate.output*float64(r.OutputTokens)
				// Each call is rounded up, by less than a micro-dollar.
				if over := float64(r.MicroDollars) - exact; r.MicroDollars == 0 || over < -0.001 || over > float64(r.Calls) {
					t.Errorf("%s, %s: %d micro-dollars, want %.2f and at most %d more", p.Provider, r.Name, r.MicroDollars, exact, r.Calls)
				}
			}
			cached := p.Runs[1].CachedTokens > 0
			if written := p.Runs[1].CacheWriteTokens > 0; cached != (p.Provider != "gemini") || written != (p.Provider == "anthropic") {
				t.Errorf("%s: %d tokens read from a cache, %d written", p.Provider, p.Runs[1].CachedTokens, p.Runs[1].CacheWriteTokens)
			}
		}
	})
}

// Over real connections, in real time. How quickly requests follow one another is
// then up to the machine, so only what holds on any is looked at: a request that was
// held up on its way may meet the next one's and be refused, and is sent again. That
// none is refused is asserted in virtual time.
func TestEveryProviderOverARealConnection(t *testing.T) {
	t.Parallel()
	got := invoke(t.Context(), loopback, "-json", "-users", "3", "-tpm", "20000", "-rpm", "0", "-speed", "50")
	if got.code != exitOK {
		t.Fatalf("exit code %d: %s", got.code, got.stderr)
	}
	out := decode(t, got.stdout)
	if len(out.Providers) != len(providers) {
		t.Fatalf("%d providers, want %d", len(out.Providers), len(providers))
	}
	for _, p := range out.Providers {
		if h := p.Runs[1]; h.Refused > 1 || h.ReportsOK != 3 || h.Calls != 15 {
			t.Errorf("%s behind the gate: %+v", p.Provider, h)
		}
	}
}

func TestJSONIsOneObjectOnOneLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := invoke(t.Context(), memory, "-json", "-speed", "1", "-users", "1", "-provider", "openai")
		if strings.Count(got.stdout, "\n") != 1 || !strings.HasSuffix(got.stdout, "}\n") {
			t.Fatalf("stdout %q, want one line", got.stdout)
		}
		run := `{"name":"%s","calls":5,"refused":0,"reports":1,"reports_ok":1,"input_tokens":N,"cached_tokens":N,` +
			`"cache_write_tokens":N,"output_tokens":N,"estimated_calls":N,"micro_dollars":N,"first_text_p50_s":N,"makespan_s":N}`
		want := `{"prices_as_of":"2026-11-30","providers":[{"provider":"openai","model":"gpt-5-mini","runs":[` +
			fmt.Sprintf(run, "unlimited") + "," + fmt.Sprintf(run, "headgate") + "]}]}\n"
		pattern := strings.ReplaceAll(regexp.QuoteMeta(want), ":N", `:[0-9]+(\.[0-9]{1,3})?`)
		if !regexp.MustCompile("^" + pattern + "$").MatchString(got.stdout) {
			t.Errorf("%s\nis not of the form\n%s", got.stdout, want)
		}
	})
}

func TestTheTablesExplainThemselves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := invoke(t.Context(), memory, "-speed", "1", "-users", "5")
		if got.code != exitOK || got.stderr != "" {
			t.Fatalf("exit code %d: %s", got.code, got.stderr)
		}
		for line := range strings.Lines(got.stdout) {
			if len(line) > 82 {
				t.Errorf("a line of %d characters: %s", len(line)-1, line)
			}
		}
		for _, want := range []string{
			"The Gemini API, model gemini-2.5-flash", "OpenAI's chat completions, model gpt-5-mini",
			"OpenAI's Responses API, model gpt-5-mini", "Anthropic's Messages API, model claude-sonnet-4-5",
			"300 requests, 40,000 tokens", "300 requests, 40,000 input and 8,000 output tokens",
			"unlimited     headgate", "429", "5 of 5", "read from a cache", "money", "$0.", "first text: p50", "makespan",
			"5 users ask at once for a report", "Prices as of 2026-11-30, from a file of examples", "1 times as fast",
		} {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("the tables do not say %q:\n%s", want, got.stdout)
			}
		}
	})
}

func TestAnInterruptEndsEverything(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]time.Duration{"unlimited": 500 * time.Millisecond, "headgate": 40 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), after)
				defer cancel()
				var doubles []statistician
				start := time.Now()
				got := invoke(ctx, remembered(memory, &doubles), "-json", "-speed", "1", "-provider", "gemini")
				if got.code != exitFailed || got.stderr != "providers: interrupted\n" || got.stdout != "" {
					t.Errorf("exit code %d, stdout %q, stderr %q", got.code, got.stdout, got.stderr)
				}
				if took := time.Since(start); took > after+time.Second {
					t.Errorf("it ended %v after the interrupt", took-after)
				}
				if gated := len(doubles) == 2; gated != (name == "headgate") {
					t.Errorf("the interrupt did not meet %s", name)
				}
			})
		})
	}
}

func TestAReportThatFailsBehindTheGateIsExitCode1(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		served := 0
		host := func(handler http.Handler) (hosted, error) {
			served++
			if served < 2 { // the unlimited run
				return memory(handler)
			}
			var calls atomic.Int32
			return memory(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if calls.Add(1) == 3 {
					http.Error(w, `{"error":{"message":"two\nlines","type":"invalid_request_error"}}`, http.StatusBadRequest)
					return
				}
				handler.ServeHTTP(w, r)
			}))
		}
		got := invoke(t.Context(), host, "-json", "-users", "2", "-speed", "1", "-provider", "openai")
		if got.code != exitFailed || !strings.HasPrefix(got.stderr, "providers: openai: 1 of 2 reports failed behind the gate") || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
		}
		if h := decode(t, got.stdout).Providers[0].Runs[1]; h.ReportsOK != 1 || h.Refused != 0 || h.EstimatedCalls == 0 {
			t.Errorf("it printed %+v", h)
		}
	})
}

func TestAModelWithoutAPriceIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	got := invoke(t.Context(), nowhere, "-provider", "openai", "-model", "my-model")
	if got.code != exitFailed || got.stderr != "providers: usage: no price for model \"my-model\"\n" {
		t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
	}
}

func TestPricesMayComeFromAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "prices.yaml")
	text := "version: 1\nas_of: 2026-11-01\nmodels:\n  - name: my-model\n    prices:\n      - input: 0\n        output: 1\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		got := invoke(t.Context(), memory, "-json", "-speed", "1", "-users", "1", "-provider", "anthropic", "-model", "my-model", "-prices", file)
		if got.code != exitOK {
			t.Fatalf("exit code %d: %s", got.code, got.stderr)
		}
		out := decode(t, got.stdout)
		if h := out.Providers[0].Runs[1]; out.PricesAsOf != "2026-11-01" || h.MicroDollars != h.OutputTokens {
			t.Errorf("prices as of %s, %d micro-dollars for %d tokens of output", out.PricesAsOf, h.MicroDollars, h.OutputTokens)
		}
	})
	if got := invoke(t.Context(), nowhere, "-prices", file+".old"); got.code != exitFailed || !strings.Contains(got.stderr, "-prices") {
		t.Errorf("a file that is not there: exit code %d, stderr %q", got.code, got.stderr)
	}
	if got := invoke(t.Context(), nowhere, "-prices", "main.go"); got.code != exitFailed || !strings.Contains(got.stderr, `-prices "main.go"`) {
		t.Errorf("a file of something else: exit code %d, stderr %q", got.code, got.stderr)
	}
}

// Doubles stand for the real endpoints here.
func TestAURLGetsTheGatedRunOnlyAndTheKeyFromTheEnvironment(t *testing.T) {
	chat, err := openaidouble.New(openaidouble.Config{OutputTokens: 20})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := anthropicdouble.New(anthropicdouble.Config{OutputTokens: 20})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		provider, variable, path string
		double                   http.Handler
	}{
		{"openai", "OPENAI_API_KEY", "/v1", chat},
		{"anthropic", "ANTHROPIC_API_KEY", "", messages},
	} {
		var key atomic.Pointer[string]
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			value := r.Header.Get("Authorization")
			key.Store(&value)
			c.double.ServeHTTP(w, r)
		}))
		t.Setenv(c.variable, "SECRET")
		got := invoke(t.Context(), nowhere, "-json", "-users", "1", "-rpm", "0", "-provider", c.provider, "-url", srv.URL+c.path)
		srv.Close()
		if got.code != exitOK {
			t.Errorf("%s: exit code %d: %s", c.provider, got.code, got.stderr)
			continue
		}
		runs := decode(t, got.stdout).Providers[0].Runs
		if len(runs) != 1 || runs[0].Name != "headgate" || runs[0].ReportsOK != 1 || runs[0].OutputTokens != 100 {
			t.Errorf("%s: runs %+v, want the gated one, whole", c.provider, runs)
		}
		if k := key.Load(); k == nil || *k != "Bearer SECRET" {
			t.Errorf("%s: the key was not sent", c.provider)
		}
		if !strings.HasPrefix(got.stderr, "This sends 5 requests to "+srv.URL) || strings.Contains(got.stderr+got.stdout, "SECRET") {
			t.Errorf("%s: stderr %s", c.provider, got.stderr)
		}
	}
}

func TestABrokenOutputIsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		r.Close()
		var stderr strings.Builder
		code := run(t.Context(), strings.Fields("-speed 1 -users 1 -provider gemini"), w, &stderr, memory)
		if code != exitFailed || !strings.Contains(stderr.String(), "closed pipe") {
			t.Errorf("exit code %d, stderr %q", code, stderr.String())
		}
	})
}
