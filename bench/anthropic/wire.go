package anthropic

import "encoding/json"

// The shapes of answers, with the fields in the order of real traffic.

type message struct {
	Model        string  `json:"model"`
	ID           string  `json:"id"`
	Type         string  `json:"type"`
	Role         string  `json:"role"`
	Content      []block `json:"content"`
	StopReason   *string `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
	Usage        usage   `json:"usage"`
}

// block is a content block. Text, thinking and signature are pointers because
// they are present, though empty, where a block of their type begins.
type block struct {
	Type      string          `json:"type"`
	Thinking  *string         `json:"thinking,omitempty"`
	Signature *string         `json:"signature,omitempty"`
	Text      *string         `json:"text,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
}

type usage struct {
	InputTokens              int64          `json:"input_tokens"`
	CacheCreationInputTokens int64          `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     int64          `json:"cache_read_input_tokens"`
	CacheCreation            *cacheCreation `json:"cache_creation,omitempty"` // not in message_delta
	OutputTokens             int64          `json:"output_tokens"`
	OutputTokensDetails      *outputDetails `json:"output_tokens_details,omitempty"` // not in message_start
	ServiceTier              string         `json:"service_tier,omitempty"`          // not in message_delta
}

type cacheCreation struct {
	FiveMinutes int64 `json:"ephemeral_5m_input_tokens"`
	OneHour     int64 `json:"ephemeral_1h_input_tokens"`
}

type outputDetails struct {
	ThinkingTokens int64 `json:"thinking_tokens"`
}

// event is an event of a stream; what it does not have is left out.
type event struct {
	Type         string   `json:"type"`
	Message      *message `json:"message,omitempty"`
	Index        *int     `json:"index,omitempty"`
	ContentBlock *block   `json:"content_block,omitempty"`
	Delta        any      `json:"delta,omitempty"`
	Usage        *usage   `json:"usage,omitempty"`
}

type textDelta struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type thinkingDelta struct {
	Type     string `json:"type"`
	Thinking string `json:"thinking"`
}

type signatureDelta struct {
	Type      string `json:"type"`
	Signature string `json:"signature"`
}

type inputDelta struct {
	Type        string `json:"type"`
	PartialJSON string `json:"partial_json"`
}

type messageDelta struct {
	StopReason   *string `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
}

type countResponse struct {
	InputTokens int64 `json:"input_tokens"`
}

type errorResponse struct {
	Type      string    `json:"type"`
	Error     errorBody `json:"error"`
	RequestID string    `json:"request_id,omitempty"`
}

type errorBody struct {
	Details *errorDetails `json:"details"`
	Type    string        `json:"type"`
	Message string        `json:"message"`
}

type errorDetails struct {
	ErrorCode string `json:"error_code"`
}
