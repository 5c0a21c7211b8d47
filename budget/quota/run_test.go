package quota_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"testing/synctest"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/retry"
)

var errAgent = errors.New("the agent failed")

// events is an agent's run of three events, the last of which may be an error. It
// ignores that its consumer has stopped.
func events(last error) func(context.Context) iter.Seq2[string, error] {
	return func(context.Context) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			yield("one", nil)
			yield("two", nil)
			if last != nil {
				yield("", last)
				return
			}
			yield("three", nil)
		}
	}
}

func TestARunGivesItsPlaceBackHoweverItEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(ctx context.Context, w *world) (seen int)
		seen int
	}{
		{"completion", func(ctx context.Context, w *world) (seen int) {
			for range quota.Run(ctx, w.Enforcer, events(nil)) {
				seen++
			}
			return seen
		}, 3},
		{"error", func(ctx context.Context, w *world) (seen int) {
			for _, err := range quota.Run(ctx, w.Enforcer, events(errAgent)) {
				if seen++; err != nil && !errors.Is(err, errAgent) {
					panic(err)
				}
			}
			return seen
		}, 3},
		{"break, by a run that ignores it", func(ctx context.Context, w *world) (seen int) {
			for range quota.Run(ctx, w.Enforcer, events(nil)) {
				seen++
				break
			}
			return seen
		}, 1},
		{"panic of the consumer", func(ctx context.Context, w *world) (seen int) {
			defer func() { _ = recover() }()
			for range quota.Run(ctx, w.Enforcer, events(nil)) {
				seen++
				panic("consumer")
			}
			return seen
		}, 1},
		{"panic of the agent", func(ctx context.Context, w *world) (seen int) {
			defer func() { _ = recover() }()
			for range quota.Run(ctx, w.Enforcer, func(context.Context) iter.Seq2[string, error] { panic("agent") }) {
				seen++
			}
			return seen
		}, 0},
		{"cancel, by a consumer that forgets the sequence", func(ctx context.Context, w *world) (seen int) {
			ctx, cancel := context.WithCancel(ctx)
			next, stop := iter.Pull2(quota.Run(ctx, w.Enforcer, events(nil)))
			w.t.Cleanup(stop) // much later
			next()
			cancel()
			synctest.Wait()
			return 1
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, oneTurn)
				for i := range 20 {
					if seen := c.end(as("ann"), w); seen != c.seen {
						t.Fatalf("run %d: saw %d events, want %d", i, seen, c.seen)
					}
					w.stands(as("ann"), "at-once", quota.ConcurrentTurns, 0, 0)
				}
			})
		})
	}
}

func TestARunIsColdAndEachRangeIsATurnOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Turns: 2}},
		}})
		seq := quota.Run(as("ann"), w.Enforcer, events(nil))
		w.stands(as("ann"), "day", quota.Turns, 0, 0)
		for i := range 2 {
			for range seq {
			}
			w.stands(as("ann"), "day", quota.Turns, int64(i)+1, 0)
		}
		for event, err := range seq {
			if d := (*quota.Denial)(nil); !errors.As(err, &d) || d.Stage != quota.Admission || event != "" {
				t.Errorf("the third range: %q, %v", event, err)
			}
		}
	})
}

func TestARunWithinATurnIsPartOfIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneTurn)
		for _, err := range quota.Run(as("ann"), w.Enforcer, func(ctx context.Context) iter.Seq2[string, error] {
			return quota.Run(ctx, w.Enforcer, events(nil))
		}) {
			if err != nil {
				t.Error(err)
			}
			w.stands(as("ann"), "at-once", quota.ConcurrentTurns, 0, 1)
		}
	})
}

// metered is a model that reserves before it answers, as a rate-limited one does.
type metered struct{ w *world }

func (metered) Name() string { return "m-1" }

func (m metered) GenerateContent(ctx context.Context, tokensAsked int, _ bool) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		r, err := m.w.try(ctx, tokens(int64(tokensAsked)))
		if err != nil {
			yield("", fmt.Errorf("model: %w", err))
			return
		}
		m.w.settle(r, tokens(int64(tokensAsked)))
		yield("an answer", nil)
	}
}

func (metered) GetGoogleLLMVariant() genai.Backend { return genai.BackendVertexAI }

// politely is a last word.
func politely(d *quota.Denial) (string, error) {
	if d.Stage == quota.MidTurn {
		return "I had to stop early.", nil
	}
	return "Please come back later.", nil
}

func TestADenialBecomesALastWordThatKnowsItsStage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 100}},
		}})
		model := quota.AnswerModel(metered{w}, politely)
		if model.Name() != "m-1" || model.GetGoogleLLMVariant() != genai.BackendVertexAI {
			t.Error("the wrapper shows")
		}
		agent := func(ctx context.Context) iter.Seq2[string, error] { // it makes two calls
			return func(yield func(string, error) bool) {
				for range 2 {
					for item, err := range model.GenerateContent(ctx, 60, false) {
						if !yield(item, err) {
							return
						}
					}
				}
			}
		}
		all := func() (got []string) {
			for item, err := range quota.Answer(quota.Run(as("ann"), w.Enforcer, agent), politely) {
				if err != nil {
					t.Error(err)
				}
				got = append(got, item)
			}
			return got
		}
		if got := fmt.Sprint(all()); got != "[an answer I had to stop early.]" {
			t.Error(got)
		}
		w.call(as("ann"), tokens(40))
		if got := fmt.Sprint(all()); got != "[Please come back later.]" {
			t.Error(got)
		}
	})
}

func TestWhatTheProviderRefusesIsNoDenial(t *testing.T) {
	t.Parallel()
	limited := genai.APIError{Code: 429, Status: "RESOURCE_EXHAUSTED", Message: "quota exceeded"}
	seq := quota.Answer(events(limited)(context.Background()), func(d *quota.Denial) (string, error) {
		t.Errorf("asked to answer %v", d)
		return "", nil
	})
	var last error
	for _, err := range seq {
		last = err
	}
	if got, ok := last.(genai.APIError); !ok || got.Code != 429 {
		t.Errorf("got %v", last)
	}
}

func TestRetryLayersLeaveADenialAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		denial *quota.Denial
		want   retry.Class
	}{
		{&quota.Denial{Reason: quota.ReasonRate, RetryAfter: 1}, retry.Denied},
		{&quota.Denial{Reason: quota.ReasonUnavailable, Err: genai.APIError{Code: 503}}, retry.Denied},
		{&quota.Denial{Reason: quota.ReasonNeverFits, Never: true}, retry.NeverFits},
	} {
		if got := retry.Classify(fmt.Errorf("tool: %w", c.denial)).Class; got != c.want {
			t.Errorf("%v is %v, want %v", c.denial, got, c.want)
		}
	}
}
