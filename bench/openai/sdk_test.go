package openai_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	"github.com/headgate-go/headgate/bench/openai"
)

func TestTheSDKReadsWholeCompletionsAndStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, openai.Config{OutputTokens: 40, Reasoning: 30, CachedShare: 0.5})
		c := r.client()
		whole, err := c.Chat.Completions.New(t.Context(), chat())
		if err != nil {
			t.Fatal(err)
		}
		u := whole.Usage
		if u.PromptTokens != 2 || u.CompletionTokens != 70 || u.TotalTokens != 72 ||
			u.PromptTokensDetails.CachedTokens != 1 || u.CompletionTokensDetails.ReasoningTokens != 30 {
			t.Errorf("usage %s", u.RawJSON())
		}
		if got := whole.Choices[0]; got.FinishReason != "stop" || len(got.Message.Content) != 160 || got.Message.Role != "assistant" {
			t.Errorf("choice %s", got.RawJSON())
		}

		params := chat()
		params.N = sdk.Int(2)
		params.StreamOptions.IncludeUsage = sdk.Bool(true)
		stream := c.Chat.Completions.NewStreaming(t.Context(), params)
		texts, finished, usages := map[int64]string{}, map[int64]string{}, 0
		var last sdk.ChatCompletionChunk
		for stream.Next() {
			last = stream.Current()
			for _, choice := range last.Choices {
				texts[choice.Index] += choice.Delta.Content
				finished[choice.Index] += choice.FinishReason
			}
			if last.JSON.Usage.Valid() {
				usages++
			}
		}
		if stream.Err() != nil {
			t.Fatal(stream.Err())
		}
		if len(texts) != 2 || len(texts[0]) != 160 || texts[0] != texts[1] || finished[0] != "stop" || finished[1] != "stop" {
			t.Errorf("choices %v finished by %v", texts, finished)
		}
		if usages != 1 || len(last.Choices) != 0 || last.Usage.CompletionTokens != 140 || last.Usage.CompletionTokensDetails.ReasoningTokens != 60 {
			t.Errorf("%d usages, the last chunk is %s", usages, last.RawJSON())
		}
		s := r.double.Stats()
		if s.Completed != 2 || s.OutputTokens != 70+140 || s.ThoughtTokens != 30+60 || s.InputTokens != 4 {
			t.Errorf("books: %+v", s)
		}
	})
}

func TestAStreamHasItsUsageOnlyIfItIsAskedTo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, openai.Config{OutputTokens: 5})
		plain := r.post(chatPath, strings.Replace(hello, "{", `{"stream":true,`, 1))
		if strings.Contains(plain.body, "usage") || !strings.HasSuffix(plain.body, "data: [DONE]\n\n") {
			t.Errorf("not asked: %s", plain.body)
		}
		asked := r.post(chatPath, strings.Replace(hello, "{", `{"stream":true,"stream_options":{"include_usage":true},`, 1))
		if n := strings.Count(asked.body, `"usage":null`); n != 3 || strings.Count(asked.body, `"total_tokens":7`) != 1 {
			t.Errorf("asked: %s", asked.body)
		}
	})
}

func TestTheSDKReadsResponsesAndTheirStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, openai.Config{OutputTokens: 40, Reasoning: 30, CachedShare: 1})
		c := r.client()
		whole, err := c.Responses.New(t.Context(), response())
		if err != nil {
			t.Fatal(err)
		}
		u := whole.Usage
		if whole.Status != "completed" || len(whole.OutputText()) != 160 || u.InputTokens != 2 || u.OutputTokens != 70 ||
			u.InputTokensDetails.CachedTokens != 2 || u.OutputTokensDetails.ReasoningTokens != 30 {
			t.Errorf("response %s", whole.RawJSON())
		}
		stream := c.Responses.NewStreaming(t.Context(), response())
		var types []string
		text, number := "", int64(0)
		var last responses.ResponseStreamEventUnion
		for stream.Next() {
			last = stream.Current()
			if len(types) == 0 || types[len(types)-1] != last.Type {
				types = append(types, last.Type)
			}
			if last.SequenceNumber != number {
				t.Errorf("event %d has the number %d", number, last.SequenceNumber)
			}
			number++
			if last.Type == "response.output_text.delta" {
				text += last.Delta
			}
		}
		if stream.Err() != nil {
			t.Fatal(stream.Err())
		}
		want := "created in_progress output_item.added output_item.done output_item.added content_part.added " +
			"output_text.delta output_text.done content_part.done output_item.done completed"
		if got := strings.ReplaceAll(strings.Join(types, " "), "response.", ""); got != want {
			t.Errorf("events\n%s, want\n%s", got, want)
		}
		if final := last.Response; final.OutputText() != text || len(text) != 160 || final.Usage.TotalTokens != 72 {
			t.Errorf("text %q, at the end %s", text, final.RawJSON())
		}
	})
}

func TestFunctionsAreCalledAndTheirResultsAnsweredWithText(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, openai.Config{FunctionCalls: 2})
		c := r.client()
		schema := map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}}
		params := chat()
		params.Tools = []sdk.ChatCompletionToolUnionParam{sdk.ChatCompletionFunctionTool(sdk.FunctionDefinitionParam{Name: "weather", Parameters: schema})}
		whole, err := c.Chat.Completions.New(t.Context(), params)
		if err != nil {
			t.Fatal(err)
		}
		message := whole.Choices[0].Message
		if whole.Choices[0].FinishReason != "tool_calls" || len(message.ToolCalls) != 2 || message.Content != "" {
			t.Fatalf("answer %s", whole.RawJSON())
		}
		for i, call := range message.ToolCalls {
			if call.Function.Name != "weather" || call.Function.Arguments != `{"city":"sample"}` || call.ID == message.ToolCalls[1-i].ID {
				t.Errorf("call %s", call.RawJSON())
			}
		}
		stream := c.Chat.Completions.NewStreaming(t.Context(), params)
		var acc sdk.ChatCompletionAccumulator
		for stream.Next() {
			acc.AddChunk(stream.Current())
		}
		if got := acc.Choices[0].Message.ToolCalls; len(got) != 2 || got[0].ID == got[1].ID || got[0].Function.Arguments != `{"city":"sample"}` {
			t.Errorf("streamed calls %+v", got)
		}
		params.Messages = append(params.Messages, message.ToParam(), sdk.ToolMessage("sunny", message.ToolCalls[0].ID))
		after, err := c.Chat.Completions.New(t.Context(), params)
		if err != nil || after.Choices[0].FinishReason != "stop" || after.Choices[0].Message.Content == "" {
			t.Errorf("after the result: %v, %+v", err, after)
		}

		own := response()
		own.Tools = []responses.ToolUnionParam{responses.ToolParamOfFunction("weather", schema, false)}
		resp, err := c.Responses.New(t.Context(), own)
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.Output) != 2 || resp.Output[0].Type != "function_call" || resp.Output[0].AsFunctionCall().Arguments != `{"city":"sample"}` {
			t.Errorf("response %s", resp.RawJSON())
		}
	})
}

func TestTheLimitOfARequestEndsItsAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, openai.Config{OutputTokens: 100, Reasoning: 30})
		c := r.client()
		params := chat()
		params.MaxCompletionTokens = sdk.Int(50)
		whole, err := c.Chat.Completions.New(t.Context(), params)
		if err != nil || whole.Choices[0].FinishReason != "length" || whole.Usage.CompletionTokens != 50 || len(whole.Choices[0].Message.Content) != 80 {
			t.Errorf("completion %+v, %v", whole, err)
		}
		own := response()
		own.MaxOutputTokens = sdk.Int(50)
		stream := c.Responses.NewStreaming(t.Context(), own)
		var last responses.ResponseStreamEventUnion
		for stream.Next() {
			last = stream.Current()
		}
		if last.Type != "response.incomplete" || last.Response.IncompleteDetails.Reason != "max_output_tokens" || last.Response.Usage.OutputTokens != 50 {
			t.Errorf("response %s", last.RawJSON())
		}
	})
}

func TestEmbeddingsHaveOneVectorForEachInput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, openai.Config{TPM: 100})
		got, err := r.client().Embeddings.New(t.Context(), sdk.EmbeddingNewParams{
			Model: "text-embedding-3-small", Input: sdk.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"12345678", "123456789"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Data) != 2 || len(got.Data[0].Embedding) == 0 || got.Usage.PromptTokens != 5 || got.Usage.TotalTokens != 5 {
			t.Errorf("embeddings %s", got.RawJSON())
		}
		if s := r.double.Stats(); s.InputTokens != 5 || s.OutputTokens != 0 || s.Windows[1].Largest != 5 {
			t.Errorf("books: %+v", s)
		}
	})
}

func TestHeadersOverruleTheConfigurationAndTheHookHasTheLastWord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, openai.Config{
			OutputTokens: 10, OutputSigma: 1, TTFT: time.Minute, Speed: 2,
			Answer: func(req openai.Request, a *openai.Answer) {
				if req.Responses || req.Stream || req.Model != "gpt-5-mini" || req.PromptTokens != 2 || req.MaxOutputTokens != 0 {
					t.Errorf("request %+v", req)
				}
				a.Text = "Canals have gates."
			},
		})
		start := time.Now()
		got, err := r.client().Chat.Completions.New(t.Context(), chat(), with(
			openai.HeaderOutput, "800", openai.HeaderReasoning, "1200", openai.HeaderCached, "1", openai.HeaderLatency, "8s")...)
		if err != nil {
			t.Fatal(err)
		}
		if u := got.Usage; u.CompletionTokens != 2000 || u.CompletionTokensDetails.ReasoningTokens != 1200 || u.PromptTokensDetails.CachedTokens != 1 {
			t.Errorf("usage %s", u.RawJSON())
		}
		if got.Choices[0].Message.Content != "Canals have gates." || time.Since(start) != 4*time.Second {
			t.Errorf("%q after %v, want the hook's text after 4s", got.Choices[0].Message.Content, time.Since(start))
		}
		_, err = r.client().Chat.Completions.New(t.Context(), chat(), with(openai.HeaderOutput, "lots")...)
		var e *sdk.Error
		if !errors.As(err, &e) || e.StatusCode != 400 || !strings.Contains(e.Message, openai.HeaderOutput) || !strings.Contains(e.Message, "lots") {
			t.Errorf("a wrong header: %v", err)
		}
	})
}

func TestPiecesComeWhenTheirTokensAreGenerated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, openai.Config{TTFT: time.Second, TokensPerSecond: 16, OutputTokens: 32, Reasoning: 16})
		c, start := r.client(), time.Now()
		var came []string
		stream := c.Chat.Completions.NewStreaming(t.Context(), chat())
		for stream.Next() {
			came = append(came, fmt.Sprintf("%v", time.Since(start)))
		}
		if got, want := strings.Join(came, " "), "1s 3s 4s 4s"; got != want || stream.Err() != nil {
			t.Errorf("the chunks came at %s, want %s (%v)", got, want, stream.Err())
		}
	})
}

func TestFaultsBreakAnswersInTheirWays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault  string
		pieces int // of text that come before it
		end    func(error) bool
	}{
		{"stream-error@after=1", 1, hasEvent("server_error")},
		{"stream-error@after=0,code=429", 0, hasEvent("rate_limit_exceeded")},
		{"cut@after=2", 2, func(err error) bool { return err == nil }},
		{"cut-json@after=1", 1, func(err error) bool { return err != nil && hasEvent("")(err) == false }},
		{"drop@after=1", 1, func(err error) bool { return err != nil }},
		{"hang@for=5s,after=1", 1, func(err error) bool { return err != nil }},
		{"500", 0, hasStatus(500)},
		{"502", 0, func(err error) bool { return err != nil }},
		{"503", 0, hasStatus(503)},
		{"402", 0, hasStatus(402)},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, openai.Config{OutputTokens: 64, Faults: []string{c.fault}})
				stream := r.client().Chat.Completions.NewStreaming(t.Context(), chat())
				pieces, finished := 0, false
				for stream.Next() {
					for _, choice := range stream.Current().Choices {
						if choice.Delta.Content != "" {
							pieces++
						}
						finished = finished || choice.FinishReason != ""
					}
				}
				if !c.end(stream.Err()) || pieces != c.pieces || finished {
					t.Errorf("%d pieces, finished %v, then %v", pieces, finished, stream.Err())
				}
				responses := r.client().Responses.NewStreaming(t.Context(), response())
				pieces = 0
				for responses.Next() {
					switch event := responses.Current(); event.Type {
					case "response.output_text.delta":
						pieces++
					case "response.completed":
						t.Error("the response was completed")
					}
				}
				if err := responses.Err(); pieces > c.pieces || err == nil && !strings.Contains(c.fault, "cut") && !strings.Contains(c.fault, "stream-error") {
					t.Errorf("responses: %d pieces, then %v", pieces, err)
				}
			})
		})
	}
}

func hasEvent(code string) func(error) bool {
	return func(err error) bool {
		e, ok := errors.AsType[*ssestream.StreamError](err)
		if !ok {
			return false
		}
		var body struct{ Error struct{ Code string } }
		return json.Unmarshal(e.Event.Data, &body) == nil && body.Error.Code == code
	}
}

func hasStatus(code int) func(error) bool {
	return func(err error) bool {
		e, ok := errors.AsType[*sdk.Error](err)
		return ok && e.StatusCode == code
	}
}

func TestAResponseMayFailInItsLastEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, openai.Config{Faults: []string{"failed@code=429"}})
		whole, err := r.client().Responses.New(t.Context(), response())
		if err != nil || whole.Status != "failed" || whole.Error.Code != "rate_limit_exceeded" {
			t.Errorf("response %+v, %v", whole, err)
		}
		stream := r.client().Responses.NewStreaming(t.Context(), response())
		last := ""
		for stream.Next() {
			last = stream.Current().Type
		}
		if last != "response.failed" || stream.Err() != nil {
			t.Errorf("ended with %s, %v", last, stream.Err())
		}
	})
}
