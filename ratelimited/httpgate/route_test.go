package httpgate

import (
	"net/http"
	"strings"
	"testing"
)

// What is done with a request is told by its method and the end of its path, in
// front of whatever host and prefix.
func TestRequestsAreRecognisedByTheirPath(t *testing.T) {
	t.Parallel()
	const (
		google = "https://generativelanguage.googleapis.com/v1beta/models/"
		vertex = "https://l-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/"
	)
	for _, c := range []struct {
		request string
		kind    kind
		route   route
	}{
		{"POST " + google + "gemini-2.5-flash:generateContent", gated, route{geminiAPI, generate, "gemini-2.5-flash"}},
		{"POST " + google + "gemini-2.5-flash:streamGenerateContent?alt=sse", gated, route{geminiAPI, generate, "gemini-2.5-flash"}},
		{"POST " + google + "gemini-2.5-flash%3AgenerateContent", gated, route{geminiAPI, generate, "gemini-2.5-flash"}},
		{"POST " + google + "gemini-2.5-flash:countTokens", gated, route{geminiAPI, countTokens, "gemini-2.5-flash"}},
		{"POST " + google + "gemini-embedding-001:embedContent", gated, route{geminiAPI, embed, "gemini-embedding-001"}},
		{"POST " + google + "gemini-embedding-001:batchEmbedContents", gated, route{geminiAPI, embed, "gemini-embedding-001"}},
		{"POST http://proxy/some/prefix/v1/tunedModels/mine:generateContent", gated, route{geminiAPI, generate, "mine"}},
		{"POST " + vertex + "google/models/gemini-3-pro:streamGenerateContent", gated, route{geminiAPI, generate, "gemini-3-pro"}},
		{"POST https://h/v1/projects/p/locations/l/endpoints/123:generateContent", gated, route{geminiAPI, generate, "123"}},
		{"POST " + vertex + "google/models/text-embedding-005:predict", gated, route{geminiAPI, embed, "text-embedding-005"}},
		{"POST " + vertex + "anthropic/models/claude-sonnet-5:rawPredict", gated, route{anthropicAPI, generate, "claude-sonnet-5"}},
		{"POST " + vertex + "anthropic/models/claude-sonnet-5:streamRawPredict", gated, route{anthropicAPI, generate, "claude-sonnet-5"}},
		{"POST " + vertex + "anthropic/models/count-tokens:rawPredict", gated, route{anthropicAPI, countTokens, "count-tokens"}},
		{"POST https://api.openai.com/v1/chat/completions", gated, route{openaiAPI, generate, ""}},
		{"POST https://api.openai.com/v1/completions", gated, route{openaiAPI, generate, ""}},
		{"POST https://api.openai.com/v1/responses", gated, route{openaiAPI, respond, ""}},
		{"POST https://api.openai.com/v1/responses/input_tokens", gated, route{openaiAPI, countTokens, ""}},
		{"POST https://api.openai.com/v1/embeddings/", gated, route{openaiAPI, embed, ""}},
		{"POST https://x.openai.azure.com/openai/deployments/my%20gpt/chat/completions?api-version=1", gated, route{openaiAPI, generate, "my gpt"}},
		{"POST https://x.openai.azure.com/openai/deployments/e/embeddings", gated, route{openaiAPI, embed, "e"}},
		{"POST https://generativelanguage.googleapis.com/v1beta/openai/chat/completions", gated, route{openaiAPI, generate, ""}},
		{"POST https://api.anthropic.com/v1/messages?beta=true", gated, route{anthropicAPI, generate, ""}},
		{"POST https://api.anthropic.com/v1/messages/count_tokens", gated, route{anthropicAPI, countTokens, ""}},

		{"GET https://api.openai.com/v1/models", free, route{}},
		{"GET https://api.openai.com/v1/models/gpt-5", free, route{}},
		{"GET " + google + "gemini-2.5-flash", free, route{}},
		{"GET https://api.openai.com/v1/files/file-1/content", free, route{}},

		{"GET wss://api.openai.com/v1/responses", live, route{}},
		{"GET https://api.openai.com/v1/realtime?model=gpt-realtime", live, route{}},
		{"POST https://api.openai.com/v1/realtime/client_secrets", live, route{}},
		{"GET https://h/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent", live, route{}},
		{"GET https://h/ws/google.cloud.aiplatform.v1.LlmBidiService/BidiGenerateContent", live, route{}},
		{"POST " + google + "m:bidiGenerateContent", live, route{}},
		{"CONNECT https://h/v1/models", live, route{}},

		{"GET " + google + "gemini-2.5-flash:generateContent", unknown, route{}},
		{"DELETE https://api.openai.com/v1/models/ft", unknown, route{}},
		{"POST " + google + "veo:predictLongRunning", unknown, route{}},
		{"POST " + google + ":generateContent", unknown, route{}},
		{"POST " + vertex + "google/models/imagen:predict", unknown, route{}},
		{"POST " + vertex + "meta/models/llama:rawPredict", unknown, route{}},
		{"POST https://api.openai.com/v1/threads/t/messages", unknown, route{}},
		{"POST https://api.openai.com/v1/batches", unknown, route{}},
		{"POST https://api.anthropic.com/v1/messages/batches", unknown, route{}},
		{"POST https://api.openai.com/", unknown, route{}},
		{"POST https://bedrock-runtime.us-east-1.amazonaws.com/model/anthropic.claude-sonnet-4-5-20250929-v1:0/invoke", unknown, route{}},
		{"POST https://bedrock-runtime.us-east-1.amazonaws.com/model/anthropic.claude-sonnet-4-5-20250929-v1%3A0/invoke-with-response-stream", unknown, route{}},
		{"POST https://bedrock-runtime.us-east-1.amazonaws.com/model/amazon.nova-pro-v1:0/converse", unknown, route{}},
		{"POST https://bedrock-runtime.us-east-1.amazonaws.com/model/amazon.nova-pro-v1:0/converse-stream", unknown, route{}},
	} {
		t.Run(c.request, func(t *testing.T) {
			t.Parallel()
			method, url, _ := strings.Cut(c.request, " ")
			req, err := http.NewRequest(method, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			free := patterns(t, DefaultFree()...)
			if r, kind := match(req, free); r != c.route || kind != c.kind {
				t.Errorf("got %+v and %d, want %+v and %d", r, kind, c.route, c.kind)
			}
			req.Header.Set("Connection", "keep-alive, Upgrade")
			req.Header.Set("Upgrade", "websocket")
			if _, kind := match(req, free); kind != live {
				t.Errorf("as a web socket it is %d, want a live session", kind)
			}
		})
	}
}

func patterns(t *testing.T, list ...string) (found []pattern) {
	t.Helper()
	for _, s := range list {
		p, err := parsePattern(s)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		found = append(found, p)
	}
	return found
}

func TestWrongPatternIsAnError(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "models", "GET", "GET ", "get models", "GET a//b", "GET /models", "GET models?x", " models"} {
		if _, err := parsePattern(s); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
}
