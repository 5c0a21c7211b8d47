package anthropic

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// Stats are the counters of a Server. Besides what engine.Stats says, Other has
// "count_tokens" for requests of a token count and "invalid" for requests that
// were answered with 400, 401 or 404.
type Stats = engine.Stats

// WindowUse is the largest use of one quota: "rpm", "itpm", "otpm", and
// "rpm-burst" where there is one.
type WindowUse = engine.WindowUse

// Call is one entry of the call log. Its Name is the model's, its Input what
// counts against the quota.
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
	cache  *cache
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
	return &Server{cfg: cfg, engine: e, cache: newCache(e.Shorten)}, nil
}

// Stats returns the counters since the start or the last Reset. An answer that
// a client has read to its end is counted.
func (s *Server) Stats() Stats { return s.engine.Stats() }

// Calls returns the latest calls, as many as CallLog says, in the order in
// which they ended.
func (s *Server) Calls() []Call { return s.engine.Records() }

// Reset forgets counters, call log, windows and cached prompts, and starts the
// time of windows and faults anew. Calls in flight go on and keep their places
// under Concurrency, but are not counted any more.
func (s *Server) Reset() {
	s.engine.Reset()
	s.cache.reset()
}

// Close ends the calls under way, whose connections break, and has all later
// ones answered with 529. It does not wait for them: that is up to the
// http.Server.
func (s *Server) Close() { s.engine.Close() }

// maxBody bounds the body of a request: what the API takes, 32 MB.
const maxBody = 32 << 20

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET /stats":
		writeJSON(w, http.StatusOK, s.Stats())
	case "GET /calls":
		writeJSON(w, http.StatusOK, append([]Call{}, s.Calls()...)) // [] where there are none
	case "POST /reset":
		s.Reset()
		writeJSON(w, http.StatusOK, struct{}{})
	case "POST /v1/messages":
		s.messages(w, r)
	case "POST /v1/messages/count_tokens":
		s.countTokens(w, r)
	default:
		s.invalid(w, failure{status: http.StatusNotFound, kind: "not_found_error", message: fmt.Sprintf("There is no %s %s.", r.Method, r.URL.Path)})
	}
}

func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) {
	_, p, wrong := readPrompt(w, r, true)
	if wrong != nil {
		s.invalid(w, *wrong)
		return
	}
	s.engine.Count("count_tokens")
	writeJSON(w, http.StatusOK, countResponse{InputTokens: p.tokens()})
}

// invalid answers a request that is wrong in itself.
func (s *Server) invalid(w http.ResponseWriter, f failure) {
	s.engine.Count("invalid")
	f.write(w)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // cannot be: all that is sent here marshals
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	setHeaders(w, "application/json")
	w.WriteHeader(status)
	w.Write(append(body, '\n')) // a client that is gone needs no answer
}

// setHeaders sets what comes with every answer.
func setHeaders(w http.ResponseWriter, contentType string) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Server", "headgate-double")
	h.Set("Anthropic-Organization-Id", "00000000-0000-4000-8000-000000000000")
}

// setLimits sets the headers that report what is left of the quotas. Tokens are
// rounded to thousands; -tokens- is input and output together. A reset is the
// instant at which all of the quota is there again, in whole seconds.
func (s *Server) setLimits(w http.ResponseWriter) {
	now := time.Now()
	var both engine.Left
	for _, l := range s.engine.Left() {
		switch l.Name {
		case quotaRPM:
			setLimit(w, "Requests", l, now)
			continue
		case quotaITPM:
			setLimit(w, "Input-Tokens", rounded(l), now)
		case quotaOTPM:
			setLimit(w, "Output-Tokens", rounded(l), now)
		default:
			continue
		}
		both.Limit += l.Limit
		both.Remaining += l.Remaining
		both.Full = max(both.Full, l.Full)
	}
	if both.Limit > 0 {
		setLimit(w, "Tokens", rounded(both), now)
	}
}

func rounded(l engine.Left) engine.Left {
	l.Remaining = min((l.Remaining+500)/1000*1000, l.Limit)
	return l
}

func setLimit(w http.ResponseWriter, name string, l engine.Left, now time.Time) {
	reset := now.Add(l.Full)
	if whole := reset.Truncate(time.Second); whole.Before(reset) {
		reset = whole.Add(time.Second)
	}
	h := w.Header()
	h.Set("Anthropic-Ratelimit-"+name+"-Limit", fmt.Sprint(l.Limit))
	h.Set("Anthropic-Ratelimit-"+name+"-Remaining", fmt.Sprint(l.Remaining))
	h.Set("Anthropic-Ratelimit-"+name+"-Reset", reset.UTC().Format(time.RFC3339))
}
