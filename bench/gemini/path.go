package gemini

import "strings"

// Methods of the API that are served.
const (
	methodGenerate = "generateContent"
	methodStream   = "streamGenerateContent"
	methodCount    = "countTokens"
)

// target is what a request's path asks for.
type target struct {
	method string
	model  string
	vertex bool
}

// parsePath reads a path of the Gemini API or of Vertex AI. The method may be
// one that is not served.
//
//	/v1beta/models/{model}:{method}                                             Gemini API
//	/v1/projects/{p}/locations/{l}/publishers/{p}/models/{model}:{method}       Vertex AI
//	/v1/publishers/{p}/models/{model}:{method}                                  Vertex AI, express mode
//	/v1/projects/{p}/locations/{l}/endpoints/{endpoint}:{method}                Vertex AI, tuned model
func parsePath(path string) (target, bool) {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(segments) < 3 || !isVersion(segments[0]) {
		return target{}, false
	}
	last := segments[len(segments)-1]
	colon := strings.LastIndexByte(last, ':')
	if colon < 1 {
		return target{}, false
	}
	t := target{model: last[:colon], method: last[colon+1:]}
	// What is left between version and model says which API is meant.
	middle := segments[1 : len(segments)-1]
	for _, form := range []struct {
		vertex   bool
		segments []string
	}{
		{false, []string{"models"}},
		{false, []string{"tunedModels"}},
		{true, []string{"publishers", "*", "models"}},
		{true, []string{"projects", "*", "locations", "*", "publishers", "*", "models"}},
		{true, []string{"projects", "*", "locations", "*", "endpoints"}},
	} {
		if matches(middle, form.segments) {
			t.vertex = form.vertex
			return t, true
		}
	}
	return target{}, false
}

// isVersion knows v1, v1beta, v1beta1, v1alpha and their like.
func isVersion(segment string) bool {
	return len(segment) >= 2 && segment[0] == 'v' && segment[1] >= '1' && segment[1] <= '9'
}

func matches(segments, pattern []string) bool {
	if len(segments) != len(pattern) {
		return false
	}
	for i, p := range pattern {
		if segments[i] == "" || p != "*" && p != segments[i] {
			return false
		}
	}
	return true
}
