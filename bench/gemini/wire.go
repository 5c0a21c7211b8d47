package gemini

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// The shapes of answers, with the fields in the order of real traffic.

type generateResponse struct {
	Candidates    []candidate    `json:"candidates"`
	UsageMetadata *usageMetadata `json:"usageMetadata,omitempty"`
	ModelVersion  string         `json:"modelVersion"`
	CreateTime    string         `json:"createTime,omitempty"` // Vertex AI only
	ResponseID    string         `json:"responseId"`
}

type candidate struct {
	Content       content `json:"content"`
	FinishReason  string  `json:"finishReason,omitempty"`
	Index         int     `json:"index"`
	FinishMessage string  `json:"finishMessage,omitempty"`
}

type content struct {
	Parts []part `json:"parts,omitempty"`
	Role  string `json:"role"`
}

type part struct {
	Text             *string       `json:"text,omitempty"` // present though empty in a last chunk
	Thought          bool          `json:"thought,omitempty"`
	FunctionCall     *functionCall `json:"functionCall,omitempty"`
	ThoughtSignature string        `json:"thoughtSignature,omitempty"`
}

type functionCall struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
	ID   string          `json:"id,omitempty"`
}

type usageMetadata struct {
	PromptTokenCount        int64           `json:"promptTokenCount,omitempty"`
	CandidatesTokenCount    int64           `json:"candidatesTokenCount,omitempty"`
	TotalTokenCount         int64           `json:"totalTokenCount,omitempty"`
	TrafficType             string          `json:"trafficType,omitempty"` // Vertex AI only
	PromptTokensDetails     []modalityCount `json:"promptTokensDetails,omitempty"`
	CandidatesTokensDetails []modalityCount `json:"candidatesTokensDetails,omitempty"` // Vertex AI only
	ThoughtsTokenCount      int64           `json:"thoughtsTokenCount,omitempty"`
}

type modalityCount struct {
	Modality   string `json:"modality"`
	TokenCount int64  `json:"tokenCount"`
}

type countResponse struct {
	TotalTokens             int64           `json:"totalTokens"`
	TotalBillableCharacters int64           `json:"totalBillableCharacters,omitempty"` // Vertex AI only
	PromptTokensDetails     []modalityCount `json:"promptTokensDetails"`
}

type errorResponse struct {
	Error errorBody `json:"error"`
}

type errorBody struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Status  string `json:"status"`
	Details []any  `json:"details,omitempty"`
}

// The details of an error, in the JSON form of google.rpc messages.

type quotaFailure struct {
	Type       string           `json:"@type"`
	Violations []quotaViolation `json:"violations"`
}

type quotaViolation struct {
	QuotaMetric     string          `json:"quotaMetric"`
	QuotaID         string          `json:"quotaId"`
	QuotaDimensions quotaDimensions `json:"quotaDimensions"`
	QuotaValue      string          `json:"quotaValue"`
}

type quotaDimensions struct {
	Location string `json:"location"`
	Model    string `json:"model"`
}

type help struct {
	Type  string     `json:"@type"`
	Links []helpLink `json:"links"`
}

type helpLink struct {
	Description string `json:"description"`
	URL         string `json:"url"`
}

type retryInfo struct {
	Type       string `json:"@type"`
	RetryDelay string `json:"retryDelay"`
}

const typePrefix = "type.googleapis.com/google.rpc."

// protoDuration writes a duration as protobuf's JSON does: seconds with 0, 3, 6
// or 9 decimal places.
func protoDuration(d time.Duration) string {
	seconds, ns := d/time.Second, d%time.Second
	s := strconv.FormatInt(int64(seconds), 10)
	if ns > 0 {
		digits := strconv.FormatInt(int64(ns+time.Second), 10)[1:]
		for strings.HasSuffix(digits, "000") {
			digits = digits[:len(digits)-3]
		}
		s += "." + digits
	}
	return s + "s"
}
