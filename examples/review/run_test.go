package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/bench/gemini"
)

// decode reads what -json printed.
func decode(t *testing.T, stdout string) (runs map[string]jsonRun) {
	t.Helper()
	var out struct{ Runs []jsonRun }
	d := json.NewDecoder(strings.NewReader(stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%v in %q", err, stdout)
	}
	runs = map[string]jsonRun{}
	for _, r := range out.Runs {
		runs[r.Name] = r
	}
	return runs
}

// In virtual time the program does what it promises to the millisecond.
func TestTheGatedBurstIsWholeWithinTheQuotaAndNearTheBound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args       string
		fit        int     // calls that have room at once
		ratio, use float64 // at most
	}{
		{"-seed 1", 24, 1.10, 1},
		{"-seed 2 -users 5 -tpm 60000 -window fixed", 12, 1.10, 1},
		// A bucket may let two quotas through in a minute, and the first calls,
		// whose estimates are too high, take more of it than they need.
		{"-seed 3 -users 5 -tpm 60000 -window bucket", 12, 1.30, 2},
		// Of 10 requests a minute the headroom leaves 9.
		{"-rpm 10 -tpm 0 -users 3", 10, 1.20, 1},
		{"-tpm 0 -rpm 0 -slots 3 -users 3", 15, 1.15, 0},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := invoke(t.Context(), memory, append(strings.Fields(c.args), "-json", "-speed", "1")...)
				if got.code != exitOK {
					t.Fatalf("exit code %d: %s", got.code, got.stderr)
				}
				runs := decode(t, got.stdout)
				h := runs["headgate"]
				if h.Throttled != 0 || h.Failed != 0 || h.ReviewsOK != h.Reviews || h.Calls != 5*h.Reviews {
					t.Errorf("behind the gate: %+v", h)
				}
				if ratio := h.Makespan / h.Bound; ratio < 1 || ratio > c.ratio {
					t.Errorf("the burst took %.3f times the bound, want 1 to %v", ratio, c.ratio)
				}
				if h.MaxWindowUse > c.use {
					t.Errorf("%v of the quota was used in one window, want at most %v", h.MaxWindowUse, c.use)
				}
				// What is cut off for a sibling's 429 was not throttled itself.
				u := runs["unlimited"]
				if all := 4 * u.Reviews; all > c.fit && (u.Throttled == 0 || u.Throttled > u.Calls-c.fit || u.Failed < u.Throttled || u.ReviewsOK == u.Reviews) {
					t.Errorf("without a gate, and with room for %d calls at once: %+v", c.fit, u)
				}
			})
		})
	}
}

// The same over real connections, in real time. How quickly requests follow one
// another is then up to the machine, so only what holds on any is looked at.
func TestBothRunsOverARealConnection(t *testing.T) {
	t.Parallel()
	got := invoke(t.Context(), loopback, "-json", "-users", "3", "-tpm", "30000", "-speed", "300", "-slots", "8")
	if got.code != exitOK {
		t.Fatalf("exit code %d: %s", got.code, got.stderr)
	}
	runs := decode(t, got.stdout)
	if u := runs["unlimited"]; u.Reviews != 3 || u.Failed < u.Throttled || (u.Failed > 0) != (u.ReviewsOK < 3) || u.MaxWindowUse > 1 {
		t.Errorf("without a gate: %+v", u)
	}
	if h := runs["headgate"]; h.Calls != 15 || h.Throttled != 0 || h.Failed != 0 || h.ReviewsOK != 3 || h.MaxWindowUse > 1 {
		t.Errorf("behind the gate: %+v", h)
	}
}

func TestJSONIsOneObjectOnOneLineWithTheseFields(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := invoke(t.Context(), memory, "-json", "-users", "2", "-speed", "1")
		if strings.Count(got.stdout, "\n") != 1 || !strings.HasSuffix(got.stdout, "\n") {
			t.Fatalf("stdout %q, want one line", got.stdout)
		}
		if long := regexp.MustCompile(`_s":[0-9]+\.[0-9]{4,}`).FindString(got.stdout); long != "" {
			t.Errorf("seconds with more than three decimals: %s", long)
		}
		var names []string
		d := json.NewDecoder(strings.NewReader(got.stdout))
		for {
			token, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if s, ok := token.(string); ok {
				names = append(names, s)
			}
		}
		fields := "name %s calls reviews reviews_ok throttled failed makespan_s bound_s p50_s p99_s max_window_use"
		want := fmt.Sprintf("runs "+fields+" "+fields, "unlimited", "headgate")
		if s := strings.Join(names, " "); s != want {
			t.Errorf("names and strings:\n%s\nwant\n%s", s, want)
		}
	})
}

func TestTheTableExplainsItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := invoke(t.Context(), memory, "-speed", "1", "-users", "3", "-tpm", "30000")
		if n := strings.Count(got.stdout, "\n"); n < 10 || n > 20 {
			t.Errorf("%d lines, want 10 to 20", n)
		}
		for line := range strings.Lines(got.stdout) {
			if len(line) > 81 {
				t.Errorf("a line of %d characters: %s", len(line)-1, line)
			}
		}
		for _, want := range []string{
			"3 users", "15 calls", "1,000 requests", "30,000 input tokens", "sliding", "unlimited", "headgate",
			"3 of 3", "429", "makespan", "least possible", "p50", "p99", "in any minute",
		} {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("the table does not say %q:\n%s", want, got.stdout)
			}
		}
		for _, want := range []string{"unlimited 0:", "headgate  0:02", "headgate  2:0", "in line", "3/3 reviews"} {
			if !strings.Contains(got.stderr, want) {
				t.Errorf("the progress does not say %q:\n%s", want, got.stderr)
			}
		}
	})
}

func TestTheTableOfASmallBurstSaysWhatIsSo(t *testing.T) {
	t.Parallel()
	for args, want := range map[string][]string{
		"-users 1":                              {"A user clicks.", "had room for the whole burst"},
		"-users 1 -tpm 10000":                   {"takes its whole click with it"},
		"-users 2 -rpm 0 -tpm 0 -window bucket": {"2 users click", "unlimited requests and unlimited input tokens", "two quotas"},
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := invoke(t.Context(), memory, append(strings.Fields(args), "-speed", "1")...)
				for _, w := range want {
					if !strings.Contains(got.stdout, w) {
						t.Errorf("the table does not say %q:\n%s", w, got.stdout)
					}
				}
			})
		})
	}
}

func TestTheProgressOnATerminalIsOneLineARun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		p := &progress{w: &b, terminal: true}
		o := options{users: 2, speed: 1}
		tally := &tally{calls: 12345}
		stop := p.watch("run", o, tally, nil)
		time.Sleep(time.Second + terminalEvery/2)
		synctest.Wait()
		tally.mu.Lock()
		tally.calls = 1 // the next line is shorter
		tally.mu.Unlock()
		stop()
		text := b.String()
		if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
			t.Errorf("%q, want one line break, at the end", text)
		}
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\r")[1:]
		if len(lines) != 11 {
			t.Errorf("%d lines in 1 s and at the end, want 11", len(lines))
		}
		if last, before := lines[len(lines)-1], lines[len(lines)-2]; len(last) < len(before) {
			t.Errorf("%q leaves the end of %q on the screen", last, before)
		}
	})
}

func TestAnInterruptEndsEverything(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]time.Duration{"plan": time.Millisecond, "unlimited": 2 * time.Second, "headgate": 40 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), after)
				defer cancel()
				start := time.Now()
				got := invoke(ctx, memory, "-json", "-speed", "1", "-users", "3", "-tpm", "30000")
				if got.code != exitFailed || !strings.HasSuffix(got.stderr, "review: interrupted\n") || got.stdout != "" {
					t.Errorf("exit code %d, stdout %q, stderr %q", got.code, got.stdout, got.stderr)
				}
				if took := time.Since(start); took > after+time.Second {
					t.Errorf("it ended %v after the interrupt", took-after)
				}
				if begun := "\n" + got.stderr; strings.Contains(begun, "\n"+name) != (name != "plan") {
					t.Errorf("the interrupt did not meet %s: %s", name, got.stderr)
				}
			})
		})
	}
}

func TestAReviewThatFailsBehindTheGateIsExitCode1(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		served := 0
		host := func(handler http.Handler) (hosted, error) {
			served++
			if served < 3 { // the plan, the unlimited run
				return memory(handler)
			}
			var calls atomic.Int32
			return memory(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if calls.Add(1) == 7 {
					http.Error(w, `{"error":{"code":400,"message":"two\nlines"}}`, http.StatusBadRequest)
					return
				}
				handler.ServeHTTP(w, r)
			}))
		}
		got := invoke(t.Context(), host, "-json", "-users", "2", "-speed", "1")
		last := got.stderr[strings.LastIndex(strings.TrimSpace(got.stderr), "\n")+1:]
		if got.code != exitFailed || !strings.Contains(last, "1 of 2 reviews failed behind the gate") || !strings.Contains(last, "two lines") {
			t.Errorf("exit code %d, last line %q", got.code, last)
		}
		if h := decode(t, got.stdout)["headgate"]; h.ReviewsOK != 1 || h.Failed == 0 || h.Throttled != 0 {
			t.Errorf("it printed %+v", h)
		}
	})
}

// The SDK's own environment variable leads -real to a double here.
func TestRealMakesTheGatedRunOnlyAndSaysFirstWhatItSends(t *testing.T) {
	double, err := gemini.New(gemini.Config{OutputTokens: 20})
	if err != nil {
		t.Fatal(err)
	}
	var keys atomic.Pointer[string]
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("X-Goog-Api-Key")
		keys.Store(&key)
		double.ServeHTTP(w, r)
	}))
	defer srv.Close()
	t.Setenv("GEMINI_API_KEY", "SECRET")
	t.Setenv("GOOGLE_GEMINI_BASE_URL", srv.URL)
	got := invoke(t.Context(), nowhere, "-real", "-json", "-users", "2", "-model", "gemini-test")
	if got.code != exitOK {
		t.Fatalf("exit code %d: %s", got.code, got.stderr)
	}
	runs := decode(t, got.stdout)
	h, ok := runs["headgate"]
	if !ok || len(runs) != 1 || h.Calls != 10 || h.ReviewsOK != 2 || h.Failed != 0 || h.Throttled != 0 {
		t.Errorf("runs %+v, want the gated one, whole", runs)
	}
	if h.Bound <= 0 || h.Bound > h.Makespan {
		t.Errorf("bound %v s, makespan %v s", h.Bound, h.Makespan)
	}
	if want := 10 * 5000 / 120_000.0; h.MaxWindowUse < want-0.001 || h.MaxWindowUse > want+0.001 {
		t.Errorf("largest use %v, want %v", h.MaxWindowUse, want)
	}
	if k := keys.Load(); k == nil || *k != "SECRET" {
		t.Error("the key was not sent")
	}
	if !strings.HasPrefix(got.stderr, "This sends 10 requests to the Gemini API, model gemini-test") || strings.Contains(got.stderr+got.stdout, "SECRET") {
		t.Errorf("stderr %s", got.stderr)
	}
	if s := double.Stats(); s.Admitted != 10 || s.InputTokens != 10*promptTokens {
		t.Errorf("the API got %d calls of %d tokens", s.Admitted, s.InputTokens)
	}
}
