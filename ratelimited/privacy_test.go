package ratelimited_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"google.golang.org/genai"
)

// Neither prompts nor answers reach a log, nor any error that is not the
// model's own, not even where the provider quotes the prompt in its refusal.
// Whose call it was does reach the log, where it belongs.
func TestPromptsNeverReachLogsOrErrors(t *testing.T) {
	const marker = "CONFIDENTIAL"
	quoting := func(e genai.APIError) error {
		e.Message = "quota exceeded for the prompt " + marker
		return e
	}
	hinted := genai.APIError{Code: 429, Status: "RESOURCE_EXHAUSTED", Details: []map[string]any{retryInfo("5s")}}
	stream := func(err error) func(context.Context, int, yields) {
		return func(_ context.Context, _ int, yield yields) { _ = yield(part(marker), nil) && yield(nil, err) }
	}
	for name, test := range map[string]struct {
		play  func(context.Context, int, yields)
		limit int64 // of the gate
		own   bool  // the error is the model's own
	}{
		"served":                  {play: answers(0, part(marker), final(1, 1)).play},
		"refused":                 {play: refusesFirst(9, quoting(genai.APIError{Code: 400})).play, own: true},
		"throttled, not in time":  {play: refusesFirst(9, quoting(hinted)).play},
		"overloaded":              {play: refusesFirst(9, quoting(genai.APIError{Code: 503})).play, own: true},
		"per day":                 {play: refusesFirst(9, quoting(genai.APIError{Code: 402})).play, own: true},
		"broken":                  {play: stream(quoting(hinted)), own: true},
		"never fits":              {play: answers(0).play, limit: 1},
		"the settlement fails":    {play: answers(0, part(marker), final(1, 1)).play},
		"the settlement panics":   {play: answers(0, part(marker), final(1, 1)).play},
		"cancelled after an item": {play: stream(context.Canceled), own: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var log bytes.Buffer
				limit := int64(1000)
				if test.limit > 0 {
					limit = test.limit
				}
				g := newGate(t, ratelimited.Config{
					Slots: 1, Profile: window(limit),
					Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
				})
				l := &ledger{}
				if strings.Contains(name, "fails") {
					l.settleErr = errStore
				}
				if strings.Contains(name, "panics") {
					l.panics = "settle"
				}
				llm := wrap(t, &fakeLLM{play: test.play}, g, ratelimited.WithBudgets(l))
				ctx, cancel := context.WithCancel(ratelimited.WithFlow(t.Context(), "user-7"))
				time.AfterFunc(3*time.Second, cancel)
				defer cancel()
				err := call(ctx, llm, prompt("Please keep this "+marker))
				if err != nil && !test.own {
					for _, s := range []string{err.Error(), fmt.Sprintf("%v", err), fmt.Sprintf("%s", err), fmt.Sprintf("%q", err)} {
						if strings.Contains(s, marker) {
							t.Errorf("an error of ours quotes the prompt: %s", s)
						}
					}
				}
				if strings.Contains(log.String(), marker) {
					t.Errorf("the log quotes the prompt: %s", &log)
				}
				if strings.Contains(name, "throttled") {
					if !errors.Is(err, context.Canceled) || !errors.As(err, new(genai.APIError)) {
						t.Errorf("got %v, want the cancellation and the refusal, to be read with errors.As", err)
					}
					for _, want := range []string{"flow=user-7", "verdict=throttled", "hint=5s", "attempt=1", "model=fake"} {
						if !strings.Contains(log.String(), want) {
							t.Errorf("the log says %q, want it to say %s", &log, want)
						}
					}
				}
			})
		})
	}
}
