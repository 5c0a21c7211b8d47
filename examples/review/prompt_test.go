package main

import (
	"context"
	"iter"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate-go/headgate/usage"
)

// seen is a model that notes its requests.
type seen struct {
	LLM
	requests chan *LLMRequest
}

func (s seen) GenerateContent(ctx context.Context, req *LLMRequest, stream bool) iter.Seq2[*LLMResponse, error] {
	s.requests <- req
	return s.LLM.GenerateContent(ctx, req, stream)
}

// The gate's first estimates must not be below what the double counts, or the
// first calls would go beyond its quota; far above they would waste it. No two
// calls may be alike, or they would take the same time.
func TestPromptsAreOf5000TokensAndFirstEstimatesALittleHigher(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		o := options{latency: time.Second, model: "m", seed: seed, speed: planSpeed}
		p, err := serve(memory, o.model, o.config())
		if err != nil {
			t.Fatal(err)
		}
		model := seen{p.llm, make(chan *LLMRequest, 10)}
		for user := range 2 {
			if _, err := review(t.Context(), model, proposal(seed, user)); err != nil {
				t.Fatal(err)
			}
		}
		close(model.requests)
		texts := map[string]bool{}
		for req := range model.requests {
			text := textOf(req.Config.SystemInstruction) + textOf(req.Contents[0])
			texts[text] = true
			if n := utf8.RuneCountInString(text); n != promptRunes {
				t.Errorf("seed %d: a prompt has %d characters, want %d", seed, n, promptRunes)
			}
			if e := (usage.Estimator{}).GenAI(req.Contents, req.Config).Input; e < promptTokens || e > promptTokens*11/10 {
				t.Errorf("seed %d: a prompt of %d tokens is estimated at %d", seed, promptTokens, e)
			}
		}
		if len(texts) != 10 {
			t.Errorf("seed %d: %d different prompts, want 10", seed, len(texts))
		}
		if s := p.double.Stats(); s.Completed != 10 || s.InputTokens != 10*promptTokens || s.OutputTokens != 10*outputTokens {
			t.Errorf("seed %d: %d calls of %d input and %d output tokens in all", seed, s.Completed, s.InputTokens, s.OutputTokens)
		}
		p.close()
	}
}

func TestTheSeedMakesTheProposal(t *testing.T) {
	t.Parallel()
	first, again := proposal(1, 2), proposal(1, 2)
	if first != again {
		t.Error("one seed and user made two proposals")
	}
	if first == proposal(1, 3) || first == proposal(2, 2) {
		t.Error("two users or seeds made one proposal")
	}
}

func TestCutKeepsCharactersWhole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text  string
		runes int
		want  string
	}{{"gräben", 3, "grä"}, {"gräben", 6, "gräben"}, {"gräben", 9, "gräben"}, {"gräben", 0, ""}, {"", 3, ""}} {
		if got := cut(c.text, c.runes); got != c.want {
			t.Errorf("cut(%q, %d) = %q, want %q", c.text, c.runes, got, c.want)
		}
	}
}
