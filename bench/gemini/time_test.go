package gemini_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/bench/gemini"
)

func TestAHundredCallsOfThirtySecondsTakeThirtySecondsOfVirtualTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gemini.Config{Latency: 30 * time.Second, TTFTShare: 0.2, CallLog: 200})
		c, start := r.client(), time.Now()
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				if i%2 == 0 {
					if _, err := c.Models.GenerateContent(t.Context(), flash, genai.Text(fmt.Sprint(i)), nil); err != nil {
						t.Error(err)
					}
					return
				}
				if _, errs := collect(t, c, nil); len(errs) > 0 {
					t.Error(errs)
				}
			})
		}
		wg.Wait()
		if got := time.Since(start); got != 30*time.Second {
			t.Errorf("took %v, want 30s", got)
		}
		if s := r.double.Stats(); s.Completed != 100 || s.PeakInFlight != 100 {
			t.Errorf("books: %+v", s)
		}
		for _, call := range r.double.Calls() {
			if got := call.Ended.Sub(call.Decided); got != call.PlannedTotal || got != 30*time.Second || call.PlannedFirst != 6*time.Second {
				t.Errorf("planned %v and %v, took %v", call.PlannedFirst, call.PlannedTotal, got)
			}
		}
	})
}

func TestChunksComeWhenTheirTokensAreGenerated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gemini.Config{TTFT: time.Second, TokensPerSecond: 100, CallLog: 1})
		start := time.Now()
		var came []time.Duration
		cfg := with(gemini.HeaderOutput, "120", gemini.HeaderThoughts, "200")
		for _, err := range r.client().Models.GenerateContentStream(t.Context(), flash, genai.Text("hello"), cfg) {
			if err != nil {
				t.Fatal(err)
			}
			came = append(came, time.Since(start).Round(time.Millisecond))
		}
		// Thoughts are not shown, but they take their time: 48, 96 and 120 tokens
		// after 1 s and 200 thoughts.
		want := []time.Duration{3480 * time.Millisecond, 3960 * time.Millisecond, 4200 * time.Millisecond}
		if fmt.Sprint(came) != fmt.Sprint(want) {
			t.Errorf("chunks came after %v, want %v", came, want)
		}
		call := r.double.Calls()[0]
		if first := call.FirstByte.Sub(call.Decided).Round(time.Millisecond); first != want[0] {
			t.Errorf("first byte after %v, want %v", first, want[0])
		}
		if call.PlannedFirst != time.Second || call.PlannedTotal != 4200*time.Millisecond || call.Output != 320 || call.Thoughts != 200 {
			t.Errorf("call %+v", call)
		}
	})
}

func TestAClientThatWaitsAsLongAsAdvisedIsAdmitted(t *testing.T) {
	t.Parallel()
	for _, window := range []gemini.Window{gemini.Sliding, gemini.Fixed, gemini.Bucket} {
		for _, speed := range []float64{1, 20, 3} {
			t.Run(fmt.Sprintf("%v at speed %v", window, speed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, gemini.Config{RPM: 7, Window: window, Speed: speed, Latency: 100 * time.Millisecond})
					c, start, refused := r.client(), time.Now(), 0
					for admitted := 0; admitted < 30; {
						_, err := c.Models.GenerateContent(t.Context(), flash, genai.Text("hello"), nil)
						var e genai.APIError
						if !errors.As(err, &e) {
							admitted++
							continue
						}
						wait, err := time.ParseDuration(e.Details[2]["retryDelay"].(string))
						if err != nil {
							t.Fatal(err)
						}
						// A nanosecond early it is still refused, then it is not.
						time.Sleep(wait - 1)
						if _, err := c.Models.GenerateContent(t.Context(), flash, genai.Text("hello"), nil); err == nil {
							t.Fatal("admitted before the advised time")
						}
						time.Sleep(time.Nanosecond)
						if _, err := c.Models.GenerateContent(t.Context(), flash, genai.Text("hello"), nil); err != nil {
							t.Fatalf("refused after the advised time: %v", err)
						}
						admitted++
						refused++
					}
					if refused == 0 {
						t.Error("nothing was refused")
					}
					// 30 calls at 7 a minute: the fifth window at least has begun.
					elapsed := time.Duration(float64(time.Since(start)) * speed)
					if elapsed < 3*time.Minute || elapsed > 5*time.Minute {
						t.Errorf("30 calls took %v of nominal time", elapsed)
					}
				})
			})
		}
	}
}

func TestTheDayEndsAtMidnightPacificTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// A bubble begins at midnight UTC: 16:00 in California.
		r := newRig(t, gemini.Config{RPD: 1, Speed: 4})
		if got := r.post(unaryPath, hello); got.status != 200 {
			t.Fatalf("first call: %d", got.status)
		}
		time.Sleep(2*time.Hour - 1)
		if got := r.post(unaryPath, hello); got.status != 429 {
			t.Errorf("just before midnight: %d, want 429", got.status)
		}
		time.Sleep(time.Nanosecond)
		if got := r.post(unaryPath, hello); got.status != 200 {
			t.Errorf("at midnight, 8 h/4 after the start: %d, want 200", got.status)
		}
		if s := r.double.Stats(); s.Windows[2].Largest != 1 || s.RefusedBy["rpd"] != 1 {
			t.Errorf("books: %+v", s)
		}
	})
}

func TestAPromptTakesTheSameTimeStreamedOrNotAndInAnyOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := gemini.Config{Latency: 8 * time.Second, LatencySigma: 0.5, OutputSigma: 0.5, Seed: 1}
		forward, backward := newRig(t, cfg), newRig(t, cfg)
		took := func(r *rig, path string, i int) time.Duration {
			start := time.Now()
			body := fmt.Sprintf(`{"contents":[{"parts":[{"text":"prompt %d"}]}]}`, i)
			if got := r.post(path, body); got.status != 200 || got.err != nil {
				t.Fatalf("%d %v", got.status, got.err)
			}
			return time.Since(start)
		}
		var first, second [10]time.Duration
		different := map[time.Duration]bool{}
		for i := range 10 {
			first[i] = took(forward, unaryPath, i)
			different[first[i]] = true
		}
		for i := 9; i >= 0; i-- {
			second[i] = took(backward, streamPath, i)
		}
		if first != second {
			t.Errorf("unary  %v\nstream %v", first, second)
		}
		if len(different) != 10 {
			t.Errorf("10 prompts take %d different times", len(different))
		}
	})
}

func TestACallEndsWhenItsClientGoesAway(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		stream  bool
		headers []string
		after   time.Duration
		output  int64
	}{
		{"waiting for the whole answer", false, nil, 5 * time.Second, 400},
		{"before the first token", true, nil, time.Second / 2, 0},
		{"within a stream", true, nil, 5 * time.Second, 400},
		{"hanging", false, []string{gemini.HeaderFault, "hang"}, time.Hour, 1000},
		{"hanging within a stream", true, []string{gemini.HeaderFault, "hang@after=2"}, time.Hour, 1000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, gemini.Config{TTFT: time.Second, TokensPerSecond: 100, OutputTokens: 1000, Concurrency: 1, CallLog: 1})
				c := r.client()
				ctx, cancel := context.WithTimeout(t.Context(), tt.after)
				defer cancel()
				var err error
				if tt.stream {
					for _, err = range c.Models.GenerateContentStream(ctx, flash, genai.Text("hello"), with(tt.headers...)) {
						if err != nil {
							break
						}
					}
				} else {
					_, err = c.Models.GenerateContent(ctx, flash, genai.Text("hello"), with(tt.headers...))
				}
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("error %v, want deadline exceeded", err)
				}
				synctest.Wait() // no time passes
				s := r.double.Stats()
				if s.InFlight != 0 || s.Cancelled != 1 || s.Completed+s.Failed != 0 {
					t.Errorf("books: %+v", s)
				}
				if s.OutputTokens != tt.output {
					t.Errorf("%d tokens generated until then, want %d", s.OutputTokens, tt.output)
				}
				if call := r.double.Calls()[0]; call.Outcome != gemini.Cancelled || call.Ended.Sub(call.Arrived) != tt.after {
					t.Errorf("call %+v", call)
				}
				if _, err := c.Models.GenerateContent(t.Context(), flash, genai.Text("next"), nil); err != nil {
					t.Errorf("the place is still taken: %v", err)
				}
			})
		})
	}
}

func TestAHangEndsWhenItsTimeIsUp(t *testing.T) {
	t.Parallel()
	for _, path := range []string{unaryPath, streamPath} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, gemini.Config{Speed: 10, Faults: []string{"hang@for=20s,n=1"}})
			start := time.Now()
			if got := r.post(path, hello); got.err == nil || time.Since(start) != 2*time.Second {
				t.Errorf("answer %+v after %v, want a broken connection after 2s", got, time.Since(start))
			}
			if s := r.double.Stats(); s.Failed != 1 || s.InFlight != 0 {
				t.Errorf("books: %+v", s)
			}
		})
	}
}

func TestASlowCallTakesAFactorMoreTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gemini.Config{Latency: time.Second, Faults: []string{"slow@n=1", "slow@n=2,x=2.5"}})
		for i, want := range []time.Duration{10 * time.Second, 2500 * time.Millisecond, time.Second} {
			start := time.Now()
			if got := r.post(unaryPath, hello); got.status != 200 || time.Since(start) != want {
				t.Errorf("call %d: %d after %v, want 200 after %v", i, got.status, time.Since(start), want)
			}
		}
		if s := r.double.Stats(); s.Completed != 3 || s.Faults["slow"] != 2 {
			t.Errorf("books: %+v; a slow answer is a whole one", s)
		}
	})
}

func TestCloseBreaksCallsUnderWayAndRefusesMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gemini.Config{TTFT: time.Second, TokensPerSecond: 10, OutputTokens: 1000})
		waiting, streaming := make(chan answer, 1), make(chan answer, 1)
		go func() { waiting <- r.post(unaryPath, hello) }()
		go func() { streaming <- r.post(streamPath, hello) }()
		time.Sleep(10 * time.Second)
		start := time.Now()
		r.double.Close()
		if got := <-waiting; got.status != 503 {
			t.Errorf("an answer that had not begun: %d, want 503", got.status)
		}
		if got := <-streaming; got.status != 200 || got.err == nil {
			t.Errorf("a stream: %d, error %v; want a broken connection", got.status, got.err)
		}
		if got := r.post(unaryPath, hello); got.status != 503 {
			t.Errorf("a later call: %d, want 503", got.status)
		}
		if time.Since(start) != 0 {
			t.Errorf("it took %v", time.Since(start))
		}
		if s := r.double.Stats(); s.InFlight != 0 || s.Cancelled != 2 {
			t.Errorf("books: %+v", s)
		}
	})
}
