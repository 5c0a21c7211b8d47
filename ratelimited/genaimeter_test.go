package ratelimited_test

import (
	"context"
	"iter"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

// oneShot is a model that answers with the given items.
type oneShot[Req, Resp any] struct{ items []Resp }

func (*oneShot[Req, Resp]) Name() string { return "one-shot" }

func (o *oneShot[Req, Resp]) GenerateContent(context.Context, Req, bool) iter.Seq2[Resp, error] {
	return func(yield func(Resp, error) bool) {
		for _, item := range o.items {
			if !yield(item, nil) {
				return
			}
		}
	}
}

// reading wraps a model of any types with the built-in meter, makes one call and
// tells what was reserved and what was settled, and at which item (from 0) the
// slot was back; -1 if it never was.
func reading[Req, Resp any](t *testing.T, req Req, items ...Resp) (reserved, settled usage.Usage, free int) {
	t.Helper()
	g := newGate(t, ratelimited.Config{Slots: 1})
	l := &ledger{}
	llm, err := ratelimited.New[Req, Resp](&oneShot[Req, Resp]{items}, g, ratelimited.WithBudgets(l))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	free = -1
	for _, err := range llm.GenerateContent(t.Context(), req, true) {
		if err != nil {
			t.Error(err)
		}
		if free < 0 && g.Stats().SlotsInUse == 0 {
			free = n
		}
		n++
	}
	if n != len(items) {
		t.Errorf("%d items passed, want %d", n, len(items))
	}
	return l.reserved[0].Usage, l.last(t), free
}

type (
	genaiRequest struct {
		Model    string
		Contents []*genai.Content
		Config   *genai.GenerateContentConfig
	}
	genaiResponse = genai.GenerateContentResponse
)

func candidate(text string, reason genai.FinishReason) *genai.Candidate {
	return &genai.Candidate{Content: genai.NewContentFromText(text, genai.RoleModel), FinishReason: reason}
}

// When an answer is complete: that is when the slot comes back.
func TestAnswerIsCompleteWithItsFinish(t *testing.T) {
	t.Parallel()
	more := &genaiResponse{Candidates: []*genai.Candidate{candidate("a", "")}}
	for name, test := range map[string]struct {
		items []*genaiResponse
		free  int
	}{
		"finish reason":               {[]*genaiResponse{more, {Candidates: []*genai.Candidate{candidate("b", genai.FinishReasonStop)}}}, 1},
		"unspecified is none":         {[]*genaiResponse{more, {Candidates: []*genai.Candidate{candidate("b", genai.FinishReasonUnspecified)}}}, -1},
		"never":                       {[]*genaiResponse{more, more}, -1},
		"only when all have finished": {[]*genaiResponse{{Candidates: []*genai.Candidate{candidate("a", genai.FinishReasonStop), candidate("b", "")}}, {Candidates: []*genai.Candidate{candidate("a", genai.FinishReasonStop), candidate("b", genai.FinishReasonMaxTokens)}}}, 1},
		"usage alone is no end":       {[]*genaiResponse{{UsageMetadata: used(5, 5)}, {Candidates: []*genai.Candidate{nil}}}, -1},
		"a blocked prompt":            {[]*genaiResponse{{PromptFeedback: &genai.GenerateContentResponsePromptFeedback{BlockReason: genai.BlockedReasonSafety}}}, 0},
		"safety":                      {[]*genaiResponse{{Candidates: []*genai.Candidate{{FinishReason: genai.FinishReasonSafety}}}}, 0},
	} {
		if _, _, free := reading(t, &genaiRequest{}, test.items...); free != test.free {
			t.Errorf("%s: the slot was back at item %d, want %d", name, free, test.free)
		}
	}
	for name, test := range map[string]struct {
		items []*LLMResponse
		free  int
	}{
		"not partial":                  {[]*LLMResponse{part("a"), {}}, 1},
		"partial with a finish reason": {[]*LLMResponse{{Partial: true, TurnComplete: true, FinishReason: genai.FinishReasonStop}, {FinishReason: genai.FinishReasonStop}}, 1},
		"error code":                   {[]*LLMResponse{part("a"), {ErrorCode: "SAFETY"}}, 1},
		"only partial ones":            {[]*LLMResponse{part("a"), part("b")}, -1},
	} {
		if _, _, free := reading(t, &LLMRequest{}, test.items...); free != test.free {
			t.Errorf("%s: the slot was back at item %d, want %d", name, free, test.free)
		}
	}
}

// embedded types as a framework might have them: the fields are promoted from a
// struct, from an unexported one, from a pointer.
type (
	inner struct {
		Contents []*genai.Content
		Config   *genai.GenerateContentConfig
	}
	byValue   struct{ inner }
	ByPointer struct {
		Label string
		*inner
	}
	deepResponse struct {
		Pad [3]int64
		*Middle
	}
	Middle struct {
		Pad [5]int32
		Base
	}
	Base struct {
		Pad           string
		UsageMetadata *genai.GenerateContentResponseUsageMetadata
		Partial       bool
	}
)

// Fields are found wherever Go promotes them from, and nil pointers on the way
// are harmless.
func TestFieldsAreFoundWhereverTheyArePromotedFrom(t *testing.T) {
	t.Parallel()
	contents := genai.Text(strings.Repeat("word ", 100))
	config := &genai.GenerateContentConfig{MaxOutputTokens: 77}
	answer := &LLMResponse{UsageMetadata: used(9, 9)}
	plain, _, _ := reading(t, &LLMRequest{Contents: contents, Config: config}, answer)
	if plain.Input < 50 || plain.Output != 77 {
		t.Fatalf("the plain request is estimated at %v", plain)
	}
	in := inner{contents, config}
	if got, _, _ := reading(t, &byValue{in}, answer); got != plain {
		t.Errorf("promoted from a struct: estimated at %v, want %v", got, plain)
	}
	if got, _, _ := reading(t, &ByPointer{"x", &in}, answer); got != plain {
		t.Errorf("promoted from a pointer: estimated at %v, want %v", got, plain)
	}
	empty := usage.Estimator{}.GenAI(nil, nil)
	if got, _, _ := reading(t, &ByPointer{Label: "x"}, answer); got != empty {
		t.Errorf("promoted from a nil pointer: estimated at %v, want %v", got, empty)
	}
	if got, _, _ := reading[*LLMRequest](t, nil, answer); got != empty {
		t.Errorf("a nil request: estimated at %v, want %v", got, empty)
	}
	deep := &deepResponse{Middle: &Middle{Base: Base{UsageMetadata: used(30, 12)}}}
	if _, got, free := reading(t, &LLMRequest{}, &deepResponse{Middle: &Middle{Base: Base{Partial: true}}}, deep); got.Input != 30 || got.Output != 12 || free != 1 {
		t.Errorf("through two embedded structs: settled at %v, free at %d; want 30 and 12 at item 1", got, free)
	}
	if _, got, free := reading(t, &LLMRequest{}, &deepResponse{}); !got.Has(usage.Estimated) || free != 0 {
		t.Errorf("a response without its embedded struct: settled at %v, free at %d", got, free)
	}
}

// Reading changes nothing of what it reads.
func TestRequestsAndItemsAreOnlyRead(t *testing.T) {
	t.Parallel()
	req := func() *LLMRequest {
		return &LLMRequest{Model: "m", Contents: genai.Text("hello"), Config: &genai.GenerateContentConfig{MaxOutputTokens: 5}, Tools: map[string]any{"a": 1}}
	}
	items := func() []*LLMResponse { return []*LLMResponse{part("a"), final(3, 4)} }
	gotReq, gotItems := req(), items()
	reading(t, gotReq, gotItems...)
	if !reflect.DeepEqual(gotReq, req()) || !reflect.DeepEqual(gotItems, items()) {
		t.Errorf("a call has changed its request or its items: %+v, %+v", gotReq, gotItems)
	}
}
