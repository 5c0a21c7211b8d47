package httpgate

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// api is whose format a request has.
type api uint8

const (
	geminiAPI api = iota
	openaiAPI
	anthropicAPI
)

// reader reads answers of the route; wanted is how many choices one is to have.
func (r *route) reader(wanted int64) reader {
	switch r.api {
	case geminiAPI:
		return &geminiReader{}
	case anthropicAPI:
		return &anthropicReader{}
	default:
		return &openaiReader{choices: choices{wanted: wanted}}
	}
}

// method is what a request asks for.
type method uint8

const (
	generate    method = iota // an answer
	embed                     // vectors: it has input only
	countTokens               // a number: it takes a request and no tokens
	respond                   // an answer of OpenAI's Responses API
)

// route is what a request's method and path tell.
type route struct {
	api    api
	method method
	model  string // "" if it is in the body
}

// kind is what is done with a request.
type kind uint8

const (
	unknown kind = iota
	gated        // it takes a place in line
	free         // it passes
	live         // it opens a live session
)

// match recognises a request by its method and the end of its path, so that
// proxies and gateways may put the API below any prefix.
func match(req *http.Request, list []pattern) (route, kind) {
	segments := strings.Split(strings.Trim(req.URL.EscapedPath(), "/"), "/")
	for i, s := range segments {
		if name, err := url.PathUnescape(s); err == nil {
			segments[i] = name
		}
	}
	if isLive(req, segments) {
		return route{}, live
	}
	for _, p := range list {
		if p.matches(req.Method, segments) {
			return route{}, free
		}
	}
	if req.Method != http.MethodPost {
		return route{}, unknown
	}
	if r, ok := matchGoogle(segments); ok {
		return r, gated
	}
	for _, m := range [...]struct {
		end string
		route
	}{
		{"v1/messages", route{api: anthropicAPI}},
		{"v1/messages/count_tokens", route{api: anthropicAPI, method: countTokens}},
		{"chat/completions", route{api: openaiAPI}},
		{"completions", route{api: openaiAPI}},
		{"embeddings", route{api: openaiAPI, method: embed}},
		{"responses", route{api: openaiAPI, method: respond}},
		{"responses/input_tokens", route{api: openaiAPI, method: countTokens}},
	} {
		if rest, ok := cutEnd(segments, m.end); ok {
			m.model = deployment(rest)
			return m.route, gated
		}
	}
	return route{}, unknown
}

// matchGoogle recognises the paths of the Gemini API and of Vertex AI, which end
// in the name of a model and a verb:
//
//	models/{model}:{verb}, tunedModels/{model}:{verb}             Gemini API
//	publishers/{publisher}/models/{model}:{verb}                  Vertex AI
//	endpoints/{endpoint}:{verb}                                   Vertex AI, tuned models
func matchGoogle(segments []string) (r route, ok bool) {
	n := len(segments)
	if n < 2 {
		return r, false
	}
	last := segments[n-1]
	colon := strings.LastIndexByte(last, ':')
	if colon < 1 {
		return r, false
	}
	switch segments[n-2] {
	case "models", "tunedModels", "endpoints":
	default:
		return r, false
	}
	r.model = last[:colon]
	switch last[colon+1:] {
	case "generateContent", "streamGenerateContent":
	case "countTokens":
		r.method = countTokens
	case "embedContent", "batchEmbedContents":
		r.method = embed
	case "predict":
		r.method = embed
		return r, isPublisher(segments, "google") && strings.Contains(r.model, "embedding")
	case "rawPredict", "streamRawPredict":
		r.api = anthropicAPI
		if strings.HasPrefix(r.model, "count-tokens") {
			r.method = countTokens
		}
		return r, isPublisher(segments, "anthropic")
	default:
		return r, false
	}
	return r, true
}

func isPublisher(segments []string, name string) bool {
	n := len(segments)
	return n >= 4 && segments[n-4] == "publishers" && segments[n-3] == name
}

// deployment is the name in …/deployments/{name}, which Azure has in place of a
// model.
func deployment(segments []string) string {
	if n := len(segments); n >= 2 && segments[n-2] == "deployments" {
		return segments[n-1]
	}
	return ""
}

// isLive reports whether a request opens a session in which many calls are made:
// a web socket, whatever its path; Google's BidiGenerateContent; OpenAI's
// realtime API, its tokens and calls included.
func isLive(req *http.Request, segments []string) bool {
	if req.Method == http.MethodConnect || hasToken(req.Header["Connection"], "upgrade") || len(req.Header["Upgrade"]) > 0 {
		return true
	}
	switch req.URL.Scheme {
	case "ws", "wss":
		return true
	}
	for _, s := range segments {
		if s == "realtime" || strings.Contains(strings.ToLower(s), "bidigeneratecontent") {
			return true
		}
	}
	return false
}

// hasToken reports whether a header that is a list has the token.
func hasToken(values []string, token string) bool {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

// cutEnd cuts the end of a path off.
func cutEnd(segments []string, end string) (rest []string, ok bool) {
	n := strings.Count(end, "/") + 1
	if len(segments) < n {
		return nil, false
	}
	rest = segments[:len(segments)-n]
	for _, s := range segments[len(rest):] {
		var part string
		if part, end, _ = strings.Cut(end, "/"); s != part {
			return nil, false
		}
	}
	return rest, true
}

// pattern is a request that passes: a method and the end of a path.
type pattern struct {
	method   string
	segments []string
}

// parsePattern reads "GET models/*".
func parsePattern(s string) (pattern, error) {
	method, path, found := strings.Cut(s, " ")
	p := pattern{method: method, segments: strings.Split(path, "/")}
	if !found || method == "" || strings.ToUpper(method) != method {
		return p, fmt.Errorf("want a method and the end of a path, as in \"GET models/*\"")
	}
	for _, segment := range p.segments {
		if segment == "" || strings.ContainsAny(segment, " ?#") {
			return p, fmt.Errorf("segment %q of the path, want a name or *", segment)
		}
	}
	return p, nil
}

// matches: a * stands for one segment, but not for one with a colon, which has
// a verb of Google's APIs in it.
func (p pattern) matches(method string, segments []string) bool {
	if method != p.method || len(segments) < len(p.segments) {
		return false
	}
	for i, s := range segments[len(segments)-len(p.segments):] {
		switch want := p.segments[i]; {
		case want == "*" && s != "" && !strings.Contains(s, ":"):
		case want != s:
			return false
		}
	}
	return true
}
