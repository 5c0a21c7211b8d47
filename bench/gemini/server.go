package gemini

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// Stats are the counters of a Server. Besides what engine.Stats says, Other has
// "count_tokens" for requests of a token count and "invalid" for requests that
// were answered with 400 or 404.
type Stats = engine.Stats

// WindowUse is the largest use of one quota: "rpm", "tpm" or "rpd".
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
// 20 MB, and some room.
const maxBody = 32 << 20

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
	if !ok || r.Method != http.MethodPost {
		s.invalid(w, http.StatusNotFound, fmt.Sprintf("There is no %s %s.", r.Method, r.URL.Path))
		return
	}
	switch t.method {
	case methodGenerate, methodStream:
		s.generate(w, r, t)
	case methodCount:
		s.countTokens(w, r, t)
	default:
		s.invalid(w, http.StatusNotFound, fmt.Sprintf("There is no method %s.", t.method))
	}
}

func (s *Server) countTokens(w http.ResponseWriter, r *http.Request, t target) {
	_, p, err := readPrompt(w, r)
	if err != nil {
		s.invalid(w, http.StatusBadRequest, err.Error())
		return
	}
	s.engine.Count("count_tokens")
	answer := countResponse{TotalTokens: p.tokens(), PromptTokensDetails: p.details(0)}
	if t.vertex {
		answer.TotalBillableCharacters = p.textRunes
	}
	writeJSON(w, http.StatusOK, answer)
}

// invalid answers a request that is wrong in itself.
func (s *Server) invalid(w http.ResponseWriter, code int, message string) {
	s.engine.Count("invalid")
	writeError(w, errorBody{Code: code, Message: message, Status: statusOf(code)}, false)
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // cannot be: all that is sent here marshals
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	setHeaders(w, "application/json; charset=UTF-8")
	w.WriteHeader(code)
	w.Write(append(body, '\n')) // a client that is gone needs no answer
}

// setHeaders sets what the API sends with every answer.
func setHeaders(w http.ResponseWriter, contentType string) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Server", "headgate-double")
	h["Vary"] = []string{"Origin", "X-Origin", "Referer"}
	h.Set("X-Content-Type-Options", "nosniff")
}
