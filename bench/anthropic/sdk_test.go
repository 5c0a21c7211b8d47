package anthropic_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/anthropics/anthropic-sdk-go/v2/shared"

	"github.com/headgate-go/headgate/bench/anthropic"
)

func TestTheSDKReadsWholeAnswersAndStreamsAlike(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, anthropic.Config{OutputTokens: 100, Thoughts: 2000})
		params := says("hello")
		params.MaxTokens = 4000
		params.Thinking = sdk.ThinkingConfigParamOfEnabled(1024)
		whole, err := r.client().Messages.New(t.Context(), params)
		if err != nil {
			t.Fatal(err)
		}
		kinds, streamed, err := collect(t, r.client(), params)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"message_start", "content_block_start", "content_block_delta", "content_block_stop",
			"content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop",
		}
		if !slices.Equal(kinds, want) {
			t.Errorf("events %v, want %v", kinds, want)
		}
		for name, m := range map[string]*sdk.Message{"whole": whole, "streamed": &streamed} {
			u := m.Usage
			if u.InputTokens != 2 || u.OutputTokens != 1124 || u.OutputTokensDetails.ThinkingTokens != 1024 {
				t.Errorf("%s: usage %s, want 2 in, 1024 thoughts within the budget and 100 more out", name, u.RawJSON())
			}
			if m.StopReason != sdk.StopReasonEndTurn || m.Model != model || !strings.HasPrefix(m.ID, "msg_") || len(m.Content) != 2 {
				t.Fatalf("%s: %s", name, m.RawJSON())
			}
			thinking, text := m.Content[0], m.Content[1]
			if len(thinking.Thinking) != 4*1024 || thinking.Signature == "" || len(text.Text) != 400 {
				t.Errorf("%s: %d characters of thinking, %d of text", name, len(thinking.Thinking), len(text.Text))
			}
		}
		if whole.Content[1].Text != streamed.Content[1].Text {
			t.Errorf("text %q in one piece, %q streamed", whole.Content[1].Text, streamed.Content[1].Text)
		}
		s := r.double.Stats()
		if s.Completed != 2 || s.InFlight != 0 || s.InputTokens != 4 || s.OutputTokens != 2*1124 || s.ThoughtTokens != 2*1024 {
			t.Errorf("books: %+v", s)
		}
	})
}

func TestUsageIsReportedByTheFirstEventAndInTotalByTheLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, anthropic.Config{OutputTokens: 40})
		stream := r.client().Messages.NewStreaming(t.Context(), says("hello"))
		defer stream.Close()
		var got []int64
		for stream.Next() {
			switch e := stream.Current(); e.Type {
			case "message_start":
				got = append(got, e.Message.Usage.InputTokens, e.Message.Usage.OutputTokens)
			case "message_delta":
				got = append(got, e.Usage.InputTokens, e.Usage.OutputTokens)
			}
		}
		if want := []int64{2, 1, 2, 40}; !slices.Equal(got, want) || stream.Err() != nil {
			t.Errorf("input and output %v, %v; want %v", got, stream.Err(), want)
		}
	})
}

var sum = sdk.ToolUnionParam{OfTool: &sdk.ToolParam{Name: "sum", InputSchema: sdk.ToolInputSchemaParam{
	Properties: map[string]any{
		"a": map[string]any{"type": "integer"}, "note": map[string]any{"type": "string"}, "unused": map[string]any{"type": "boolean"},
	},
	Required: []string{"a", "note"},
}}}

func TestToolsAreCalledUntilTheirResultsCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, anthropic.Config{ToolCalls: 2})
		params := says("What is the sum?")
		params.Tools = []sdk.ToolUnionParam{sum}
		_, m, err := collect(t, r.client(), params)
		if err != nil || m.StopReason != sdk.StopReasonToolUse || len(m.Content) != 2 {
			t.Fatalf("%v, %s", err, m.RawJSON())
		}
		answer := sdk.NewUserMessage()
		for _, b := range m.Content {
			var input map[string]any
			if err := json.Unmarshal(b.Input, &input); err != nil || b.Name != "sum" || len(input) != 2 || input["note"] != "sample" {
				t.Errorf("call %s with %s, %v; want what the schema requires", b.Name, b.Input, err)
			}
			answer.OfUser.Content = append(answer.OfUser.Content, sdk.NewToolResultBlock(b.ID, "42", false))
		}
		params.Messages = append(params.Messages, m.ToParam(), answer)
		_, m, err = collect(t, r.client(), params)
		if err != nil || m.StopReason != sdk.StopReasonEndTurn || m.Content[0].Type != "text" {
			t.Errorf("after the results: %v, %s", err, m.RawJSON())
		}
	})
}

func TestMaxTokensCutAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, anthropic.Config{OutputTokens: 100})
		for most, want := range map[int64]int64{0: 0, 7: 7, 100: 100, 500: 100} {
			params := says("hello")
			params.MaxTokens = most
			m, err := r.client().Messages.New(t.Context(), params)
			if err != nil || m.Usage.OutputTokens != want {
				t.Fatalf("max_tokens %d: %v, %v; want %d tokens", most, m, err, want)
			}
			if cut := m.StopReason == sdk.StopReasonMaxTokens; cut != (most < 100) {
				t.Errorf("max_tokens %d: stop reason %s", most, m.StopReason)
			}
		}
	})
}

func TestAPromptIsCachedUpToItsMarkForItsLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, anthropic.Config{OutputTokens: 10, InputTPM: 10_000})
		long := strings.Repeat("word", 2000) // tokens
		ask := func(system, question string, ttl sdk.CacheControlEphemeralTTL) sdk.Usage {
			t.Helper()
			params := says(question)
			params.System = []sdk.TextBlockParam{{Text: system}}
			if ttl != "" {
				params.System[0].CacheControl = sdk.CacheControlEphemeralParam{TTL: ttl}
			}
			m, err := r.client().Messages.New(t.Context(), params)
			if err != nil {
				t.Fatal(err)
			}
			return m.Usage
		}
		expect := func(what string, u sdk.Usage, input, written, read int64) {
			t.Helper()
			if u.InputTokens != input || u.CacheCreationInputTokens != written || u.CacheReadInputTokens != read {
				t.Errorf("%s: %d, %d written, %d read; want %d, %d, %d", what,
					u.InputTokens, u.CacheCreationInputTokens, u.CacheReadInputTokens, input, written, read)
			}
		}
		expect("no mark", ask(long, "what", ""), 2001, 0, 0)
		expect("first", ask(long, "what", "5m"), 1, 2000, 0)
		expect("second", ask(long, "why?", "5m"), 1, 0, 2000)
		time.Sleep(4 * time.Minute)
		expect("kept alive by its use", ask(long, "when", "5m"), 1, 0, 2000)
		time.Sleep(4 * time.Minute)
		expect("still", ask(long, "when", "5m"), 1, 0, 2000)
		time.Sleep(5 * time.Minute)
		expect("expired", ask(long, "when", "1h"), 1, 2000, 0)
		time.Sleep(59 * time.Minute)
		hour := ask(long, "when", "1h")
		expect("an hour", hour, 1, 0, 2000)
		expect("another prompt", ask(long+"word", "when", "5m"), 1, 2001, 0)
		expect("a short one is not cached", ask("word", "when", "5m"), 2, 0, 0)

		if u := r.double.Stats(); u.InputTokens != 2001+2001+1+1+1+2001+1+2002+2 {
			t.Errorf("%d input tokens counted, want all but what was read", u.InputTokens)
		}
	})
}

func TestCountTokensCountsWhatTheQuotaCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, anthropic.Config{})
		n, err := r.client().Messages.CountTokens(t.Context(), sdk.MessageCountTokensParams{
			Model: model, System: sdk.MessageCountTokensParamsSystemUnion{OfString: sdk.String("Be brief.")},
			Messages: []sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock("hello"), sdk.NewImageBlockBase64("image/png", "AAAA"))},
		})
		if err != nil || n.InputTokens != 4+1568 {
			t.Errorf("%v, %v; want 4 for 14 characters and an image", n, err)
		}
		if s := r.double.Stats(); s.Requests != 0 || s.Other["count_tokens"] != 1 {
			t.Errorf("books: %+v", s)
		}
	})
}

// What the SDK makes of an error.
type sdkError struct {
	status int
	kind   shared.ErrorType
	code   sdk.ErrorCode
	retry  string
	should string
}

func TestFaultsAreTheErrorsOfTheAPI(t *testing.T) {
	t.Parallel()
	for fault, want := range map[string]sdkError{
		"429":           {429, "rate_limit_error", "", "30", "true"},
		"429@retry=90s": {429, "rate_limit_error", "", "90", "true"},
		"429-bare":      {429, "rate_limit_error", "", "", "true"},
		"429-spend":     {429, "rate_limit_error", sdk.ErrorCodeEnforcedSpendLimitReached, "", ""},
		"429-contract":  {429, "rate_limit_error", sdk.ErrorCodeContractSpendLimitReached, "", ""},
		"429-ramp":      {429, "rate_limit_error", sdk.ErrorCodeRampLimitExceeded, "30", ""},
		"402":           {402, "billing_error", sdk.ErrorCodeLinkedOrganizationSpendLimitReached, "", ""},
		"400-spend":     {400, "invalid_request_error", "", "", "false"},
		"500":           {500, "api_error", "", "", ""},
		"500-safe":      {500, "api_error", "", "", "true"},
		"502":           {502, "", "", "", ""},
		"504":           {504, "timeout_error", "", "", ""},
		"529":           {529, "overloaded_error", "", "", "true"},
		"529@retry=5s":  {529, "overloaded_error", "", "5", "true"},
		"529@0s-20s":    {529, "overloaded_error", "", "20", "true"},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, anthropic.Config{Latency: time.Second, RPM: 100, InputTPM: 5000, Faults: []string{fault}})
				_, err := r.client().Messages.New(t.Context(), says("hello"))
				_, _, streamed := collect(t, r.client(), says("hello"))
				for _, err := range []error{err, streamed} {
					e, ok := errors.AsType[*sdk.Error](err)
					if !ok {
						t.Fatalf("error %v", err)
					}
					got := sdkError{e.StatusCode, e.Type(), e.ErrorCode(), e.Response.Header.Get("Retry-After"), e.Response.Header.Get("X-Should-Retry")}
					if got != want {
						t.Errorf("got %+v, want %+v", got, want)
					}
					if fault != "502" && (e.RequestID == "" || e.Response.Header.Get("Anthropic-Ratelimit-Requests-Limit") != "100") {
						t.Errorf("headers %v", e.Response.Header)
					}
				}
			})
		})
	}
}

func TestStreamsBreakInTheWaysOfTheAPI(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, anthropic.Config{OutputTokens: 64})
		try := func(fault string) ([]string, sdk.Message, error) {
			return collect(t, r.client(), says("hello"), option.WithHeader(anthropic.HeaderFault, fault))
		}
		kinds, m, err := try("stream-error@after=5")
		e, ok := errors.AsType[*sdk.Error](err)
		if !ok || e.StatusCode != 200 || e.Type() != shared.ErrorTypeOverloadedError || len(m.Content) != 1 {
			t.Errorf("error event: %v, %s, %v", kinds, m.RawJSON(), err)
		}
		if _, _, err = try("stream-error@code=500"); err == nil || !strings.Contains(err.Error(), "api_error") {
			t.Errorf("error event 500: %v", err)
		}
		for _, fault := range []string{"cut", "cut@after=1000", "cut-json"} {
			if kinds, m, err = try(fault); err != nil || m.StopReason != "" || len(kinds) == 0 {
				t.Errorf("%s: %v, stop reason %q, %v; want a clean end without one", fault, kinds, m.StopReason, err)
			}
		}
		if _, _, err = try("drop"); err == nil {
			t.Error("drop: the connection did not break")
		}
		if _, _, err = try("hang@for=5s"); err == nil {
			t.Error("hang: the connection did not break")
		}
		if s := r.double.Stats(); s.Failed != 7 || s.InFlight != 0 {
			t.Errorf("books: %+v", s)
		}
	})
}
