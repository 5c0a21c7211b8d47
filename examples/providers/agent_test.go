package main

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-go/headgate/usage"
)

// asked is a request of a provider that there is not.
type asked struct {
	text   string
	stream bool
}

// scripted is that provider's model: its responses are words.
type scripted struct {
	answer func(ctx context.Context, text string) ([]string, error)

	mu sync.Mutex
	// mu guards all that follows.
	asked []asked
	ended int // sequences that were ranged to the end
}

func (s *scripted) Name() string { return "scripted" }

func (s *scripted) GenerateContent(ctx context.Context, text string, stream bool) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		s.mu.Lock()
		s.asked = append(s.asked, asked{text, stream})
		s.mu.Unlock()
		words, err := s.answer(ctx, text)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, w := range words {
			if !yield([]string{w}, nil) {
				return
			}
		}
		s.mu.Lock()
		s.ended++
		s.mu.Unlock()
	}
}

func (s *scripted) agent() Agent[string, []string] {
	return Agent[string, []string]{
		Model: s,
		Ask:   func(p Prompt) string { return p.Text },
		Text:  func(words []string) string { return strings.Join(words, "") },
	}
}

func TestAnAgentRunsOnAnyProviderThatMakesRequestsAndReadsText(t *testing.T) {
	t.Parallel()
	model := &scripted{answer: func(_ context.Context, text string) ([]string, error) {
		if strings.HasPrefix(text, task) {
			return []string{"The ", "", "report"}, nil
		}
		return []string{"found: ", text[len("Read the dossier. "):][:8]}, nil
	}}
	var heard []string
	report, err := model.agent().Report(t.Context(), "field 9", func(piece string) { heard = append(heard, piece) })
	if err != nil || report != "The report" || strings.Join(heard, "|") != "The |report" {
		t.Errorf("report %q, heard %q, %v", report, heard, err)
	}
	if model.ended != 5 {
		t.Errorf("%d answers were read to their end, want all 5", model.ended)
	}
	for _, a := range model.asked {
		written := strings.HasPrefix(a.text, task)
		if a.stream != written || !strings.Contains(a.text, "field 9") {
			t.Errorf("asked %+v: the writer is streamed, nobody else, and all know the subject", a)
		}
		// What was found is told in the order of the questions.
		for rest, i := a.text, 0; written && i < len(questions); i++ {
			found := questions[i] + "\nfound: " + questions[i][len("Read the dossier. "):][:8]
			at := strings.Index(rest, found)
			if at < 0 {
				t.Fatalf("the writer is not told %q after the others in %q", found, a.text)
			}
			rest = rest[at+len(found):]
		}
	}
}

func TestTheFirstErrorOfAResearcherEndsTheOthersAndTheReport(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	model := &scripted{answer: func(ctx context.Context, text string) ([]string, error) {
		if strings.HasPrefix(text, questions[2]) {
			return nil, broken
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	_, err := model.agent().Report(t.Context(), "field 9", func(string) { t.Error("something was heard") })
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "research: ") {
		t.Errorf("error %v, want that of the researcher", err)
	}
	for _, a := range model.asked {
		if strings.HasPrefix(a.text, task) {
			t.Error("the writer was asked")
		}
	}
}

func TestAnAnswerWithoutTextIsAnError(t *testing.T) {
	t.Parallel()
	model := &scripted{answer: func(_ context.Context, text string) ([]string, error) {
		if strings.HasPrefix(text, task) {
			return []string{""}, nil
		}
		return []string{"found"}, nil
	}}
	_, err := model.agent().Report(t.Context(), "field 9", func(string) { t.Error("something was heard") })
	if err == nil || err.Error() != "writing: the model gave no text" {
		t.Errorf("error %v", err)
	}
}

// Estimates that are too low would have the first calls of a burst refused, and
// estimates that are far too high would make them wait for nothing.
func TestTheDossierIsEstimatedAtAboutWhatTheDoublesCount(t *testing.T) {
	t.Parallel()
	counted := float64((len([]rune(dossier)) + 3) / 4)
	for _, f := range []usage.Family{usage.Gemini, usage.OpenAI, usage.Anthropic} {
		if ratio := float64(f.Text(dossier)) / counted; ratio < 1 || ratio > 1.6 {
			t.Errorf("%v: estimated at %.2f of what is counted, want 1 to 1.6", f, ratio)
		}
	}
	if counted < 1950 || counted > 2150 {
		t.Errorf("the dossier has %v tokens, want about 2,000", counted)
	}
}
