package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// Stats are the counters of a Server. Besides what engine.Stats says, Other has
// "invalid" for requests that were answered with 400, 404 or 405.
type Stats = engine.Stats

// WindowUse is the largest use of one quota: "rpm", "tpm", "rpd" or "tpd".
type WindowUse = engine.WindowUse

// Call is one entry of the call log. Its Name is the model's.
type Call = engine.Record

// Outcome is how a call ended.
type Outcome = engine.Outcome

// The outcomes.
const (
	// Completed is a call that was answered in full.
	Completed = engine.Completed
	// Refused is a call that was turned away.
	Refused = engine.Refused
	// Failed is a call that a fault broke.
	Failed = engine.Failed
	// Cancelled is a call whose client went away.
	Cancelled = engine.Cancelled
)

// Server is the double: an http.Handler. Its methods may be called from several
// goroutines. Its time begins when it is made.
//
// A handler ends as soon as its client goes away, if the body was read, as
// net/http cancels the request's context then.
type Server struct {
	cfg    Config
	engine *engine.Engine
}

// New makes a double. The error names the field of cfg that is wrong, and its
// value. A Server has no goroutines of its own; Close is needed only to end
// calls that are under way.
func New(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	ec, err := cfg.engine()
	if err != nil {
		return nil, err
	}
	e, err := engine.New(ec)
	if err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, engine: e}, nil
}

// Stats returns the counters since the start or the last Reset. An answer that
// a client has read to its end is counted.
func (s *Server) Stats() Stats { return s.engine.Stats() }

// Calls returns the latest calls, as many as CallLog says, in the order in
// which they ended.
func (s *Server) Calls() []Call { return s.engine.Records() }

// Reset forgets counters, call log and windows, and starts the time of windows
// and faults anew. Calls in flight go on and keep their places under
// Concurrency, but are not counted any more.
func (s *Server) Reset() { s.engine.Reset() }

// Close ends the calls under way, whose connections break, and has all later
// ones answered with 503. It does not wait for them: that is up to the
// http.Server.
func (s *Server) Close() { s.engine.Close() }

// maxBody bounds the body of a request: what the API takes with inline files,
// 50 MB, and some room.
const maxBody = 64 << 20

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET /stats":
		writeJSON(w, http.StatusOK, s.Stats())
		return
	case "GET /calls":
		writeJSON(w, http.StatusOK, append([]Call{}, s.Calls()...)) // [] where there are none
		return
	case "POST /reset":
		s.Reset()
		writeJSON(w, http.StatusOK, struct{}{})
		return
	}
	t, ok := parsePath(r.URL.Path)
	switch {
	case !ok:
		s.invalid(w, http.StatusNotFound, &invalid{message: fmt.Sprintf("Invalid URL (%s %s)", r.Method, r.URL.Path)})
	case r.Method != http.MethodPost:
		s.invalid(w, http.StatusMethodNotAllowed, &invalid{message: fmt.Sprintf("Not allowed to %s on %s.", r.Method, r.URL.Path)})
	default:
		s.answer(w, r, t)
	}
}

// endpoint is what a path asks for.
type endpoint string

const (
	endpointChat       endpoint = "chat/completions"
	endpointResponses  endpoint = "responses"
	endpointEmbeddings endpoint = "embeddings"
)

// target is an endpoint and, on some paths of Azure, the deployment that stands
// for the model.
type target struct {
	endpoint   endpoint
	deployment string
}

// parsePath reads a path of OpenAI or of Azure OpenAI:
//
//	/v1/{endpoint}
//	/openai/v1/{endpoint}
//	/openai/deployments/{deployment}/{endpoint}
func parsePath(path string) (t target, ok bool) {
	rest, ok := strings.CutPrefix(path, "/v1/")
	if !ok {
		rest, ok = strings.CutPrefix(path, "/openai/v1/")
	}
	if !ok {
		if rest, ok = strings.CutPrefix(path, "/openai/deployments/"); !ok {
			return t, false
		}
		if t.deployment, rest, ok = strings.Cut(rest, "/"); !ok || t.deployment == "" {
			return t, false
		}
	}
	switch t.endpoint = endpoint(rest); t.endpoint {
	case endpointChat, endpointResponses, endpointEmbeddings:
		return t, true
	}
	return t, false
}

// invalid answers a request that is wrong in itself.
func (s *Server) invalid(w http.ResponseWriter, status int, e *invalid) {
	s.engine.Count("invalid")
	writeError(w, status, apiError{Message: e.message, Type: "invalid_request_error", Param: orNull(e.param), Code: orNull(e.code)})
}

// apiError is the error object of the API.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

type errorBody struct {
	Error apiError `json:"error"`
}

// orNull is a string of JSON, or null for the empty one.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func writeError(w http.ResponseWriter, status int, e apiError) {
	writeJSON(w, status, errorBody{e})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(marshal(v), '\n')) // a client that is gone needs no answer
}

// marshal writes JSON as the API does, which does not escape <, > and &.
func marshal(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // cannot be: answers are made of strings, numbers and valid JSON
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
