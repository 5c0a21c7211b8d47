package ratelimited_test

import (
	"testing"

	"github.com/headgate-go/headgate/ratelimited"
	"google.golang.org/genai"
)

// gemini is a concrete model, as model/gemini of ADK Go returns it.
type geminiModel struct{ *fakeLLM }

func (geminiModel) GetGoogleLLMVariant() genai.Backend { return genai.BackendVertexAI }
func (geminiModel) Client() *genai.Client              { return &genai.Client{} }

// A model of ADK Go is wrapped without type arguments, as an interface value and
// as a concrete type, and the result is such a model again. That this compiles
// is the test.
func TestModelOfAnAgentFrameworkIsWrappedAsItStands(t *testing.T) {
	t.Parallel()
	gate := newGate(t, ratelimited.Config{Slots: 1})

	var geminiLLM LLM = answers(0, final(1, 1))
	llm, err := ratelimited.New(geminiLLM, gate)
	if err != nil {
		t.Fatal(err)
	}
	var again LLM = llm
	if again.Name() != "fake" {
		t.Errorf("the wrapper is called %q, want the model's name: frameworks send it", again.Name())
	}

	concrete, err := ratelimited.New(answers(0, final(1, 1)), gate)
	if err != nil {
		t.Fatal(err)
	}
	again = concrete
	if err := call(t.Context(), again, hello()); err != nil {
		t.Error(err)
	}
	if concrete.Gate() != gate {
		t.Error("the wrapper does not tell its gate")
	}
	var _ ratelimited.Model[*LLMRequest, *LLMResponse] = concrete
}

// Frameworks adapt requests to the API that a model says it speaks to, and open
// live sessions on its client: the first is passed on, the second is not,
// because a live session would go round the gate.
func TestWrapperTellsTheVariantAndHidesTheClient(t *testing.T) {
	t.Parallel()
	gate := newGate(t, ratelimited.Config{Slots: 1})
	variant := func(llm any) genai.Backend {
		return llm.(interface{ GetGoogleLLMVariant() genai.Backend }).GetGoogleLLMVariant()
	}
	vertex := wrap(t, geminiModel{answers(0)}, gate)
	if got := variant(vertex); got != genai.BackendVertexAI {
		t.Errorf("the variant is %v, want the model's", got)
	}
	if got := variant(wrap(t, vertex, newGate(t, ratelimited.Config{Slots: 1}))); got != genai.BackendVertexAI {
		t.Errorf("through two wrappers the variant is %v, want the model's", got)
	}
	if got := variant(wrap(t, answers(0), gate)); got != genai.BackendUnspecified {
		t.Errorf("the variant of a model that does not tell is %v, want none", got)
	}
	if _, ok := vertex.(interface{ Client() *genai.Client }); ok {
		t.Error("the client is passed on: live sessions would go round the gate")
	}
}
