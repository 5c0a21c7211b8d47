package ratelimited_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

func newHistory(t *testing.T) *usage.History {
	t.Helper()
	h, err := usage.NewHistory(usage.HistoryConfig{MinSamples: 1})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A gate that is made anew with what another one has learned begins where that
// one was.
func TestAHistoryIsLearnedFromAndOutlivesTheGate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHistory(t)
		first := newGate(t, ratelimited.Config{Slots: 1, History: h})
		for i := range 100 {
			estimates(t, first, "writer", 1, used(300, int32(200+i))) // raw: 100 and 100
		}
		saved, err := json.Marshal(h.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		var snapshot usage.HistorySnapshot
		if err := json.NewDecoder(bytes.NewReader(saved)).Decode(&snapshot); err != nil {
			t.Fatal(err)
		}
		restored := newHistory(t)
		if err := restored.Merge(snapshot, time.Now()); err != nil {
			t.Fatal(err)
		}
		for s, want := range map[usage.Statistic][2]int64{ // about; an average call has 250 tokens of output
			usage.P95: {300, 295}, usage.P50: {300, 250}, usage.Mean: {300, 250},
		} {
			second := newGate(t, ratelimited.Config{Slots: 1, History: restored, Statistic: s})
			u := estimates(t, second, "writer", 1, used(300, 250))
			near := func(what string, got, want int64) {
				if got < want*9/10 || got > want*11/10 {
					t.Errorf("%v: the first call's %s is estimated at %d, want about %d", s, what, got, want)
				}
			}
			near("input", u.Input, want[0])
			near("output", u.Output, want[1])
		}
	})
}

func TestWhatWasLearnedIsNotHeldBeyondTheRequestsLimit(t *testing.T) {
	for name, h := range map[string]*usage.History{"moving averages": nil, "history": newHistory(t)} {
		bubbleRun(t, "by", name, func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: 1, History: h})
			l := &ledger{}
			llm := wrap(t, answers(0, final(10, 4000)), g, ratelimited.WithBudgets(l))
			free, bound := prompt("hello"), prompt("hello")
			bound.Config = &genai.GenerateContentConfig{MaxOutputTokens: 150, CandidateCount: 2}
			for range 100 {
				if err := call(t.Context(), llm, free); err != nil {
					t.Fatal(err)
				}
			}
			if n := l.reserved[99].Usage.Output; n < 3500 {
				t.Errorf("a call without a limit is estimated at %d tokens of output, want about 4000", n)
			}
			if err := call(t.Context(), llm, bound); err != nil {
				t.Fatal(err)
			}
			if n := l.reserved[100].Usage.Output; n != 300 {
				t.Errorf("two candidates of at most 150 tokens are estimated at %d, want 300", n)
			}
		})
	}
}

func TestAnUnknownStatisticIsAnError(t *testing.T) {
	t.Parallel()
	_, err := ratelimited.NewGate(ratelimited.Config{Slots: 1, Statistic: 7})
	if err == nil || !strings.Contains(err.Error(), "Config.Statistic") {
		t.Errorf("got %v, want an error that names Config.Statistic", err)
	}
}
