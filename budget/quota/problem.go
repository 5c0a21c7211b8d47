package quota

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// The problem types of denials. They are those that the IETF draft on RateLimit
// fields registers (draft-ietf-httpapi-ratelimit-headers-11, 23 May 2026); all
// else is "about:blank", which says no more than the status (RFC 9457 §4.2.1).
const (
	// ProblemQuotaExceeded is the type of denials by a limit.
	ProblemQuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	// ProblemReducedCapacity is the type of denials because limits cannot be checked.
	ProblemReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

	problemBlank = "about:blank"
)

// problemInstance is what the id of a turn stands behind in [Problem].Instance: a
// tag URI (RFC 4151), which names something and leads nowhere.
const problemInstance = "tag:headgate-go.github.io,2026:turn/"

// Problem is a problem report of RFC 9457: what a client that was refused is told.
// As JSON it is of the media type application/problem+json.
//
// It is made of a [Denial] by [Denial.Problem] or by [Middleware]. It holds nobody's
// id, no text of a call, and no numbers of a limit that others share whom the client
// must not know of.
type Problem struct {
	// Type is a URI for what happened, Title its name, Status the response's status
	// and Detail a sentence for people.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Instance names the turn that it happened in, as the log does; "" if there is
	// none.
	Instance string `json:"instance,omitempty"`
	// Violated are the policies that refused, by the names that the RateLimit fields
	// have for them.
	Violated []string `json:"violated-policies,omitempty"`
	// Reason, Stage, Scope and Unit are those of the denial; "" if they say nothing.
	Reason Reason `json:"reason,omitempty"`
	Stage  string `json:"stage,omitempty"`
	Scope  Scope  `json:"scope,omitempty"`
	Unit   string `json:"unit,omitempty"`
	// Limit is how much of the unit may be used (of a rolling limit at once), Used
	// what is used, and Remaining what is left, never below 0; money is in
	// micro-dollars. They are nil if they are not known, or not to be told.
	Limit     *int64 `json:"limit,omitempty"`
	Used      *int64 `json:"used,omitempty"`
	Remaining *int64 `json:"remaining,omitempty"`
	// ResetsAt is when the limit starts afresh; zero if it never does at once.
	ResetsAt time.Time `json:"resetsAt,omitzero"`
	// RetryAfter is how long to wait in seconds, rounded up, and at least 1; 0 if
	// that is not known, or waiting does not help. The header field Retry-After says
	// the same.
	RetryAfter int64 `json:"retryAfter,omitempty"`
	// Never is true if it can never pass, however long one waits.
	Never bool `json:"never,omitempty"`
}

// Problem is the denial as a problem report. The numbers of [Global] limits, and of
// those of scopes that are not built in, are left out: they tell what others use.
//
// Its status is 429 where a limit denied, 401 where the subject has no id, 503 where
// limits cannot be checked, also where what denied only stands in for them, and 500
// where prices are missing, which is the server's own fault.
func (d *Denial) Problem(now time.Time) *Problem {
	return d.problem(now, d.Scope.builtIn() && d.Scope != Global)
}

// problem is the report, with the numbers if they may be shown.
func (d *Denial) problem(now time.Time, show bool) *Problem {
	p := &Problem{
		Status: denialStatus(d), Reason: d.Reason, Stage: d.Stage.String(), Scope: d.Scope, Never: d.Never,
		RetryAfter: denialRetry(d, now),
	}
	p.Type, p.Title = problemBlank, http.StatusText(p.Status)
	counted := d.Limit != "" || d.Reason == ReasonTurnCalls || d.Reason == ReasonTurnCost
	switch p.Status {
	case http.StatusTooManyRequests:
		p.Type, p.Title = ProblemQuotaExceeded, "Quota Exceeded"
		if d.Limit != "" {
			p.Violated = []string{d.Limit}
		}
		if !counted {
			break
		}
		p.Unit = d.Unit.String()
		if !d.ResetsAt.IsZero() {
			p.ResetsAt = d.ResetsAt.UTC()
		}
		if show || d.Limit == "" {
			limit, used, left := d.Max, max(d.Used, 0), d.Left()
			p.Limit, p.Used, p.Remaining = &limit, &used, &left
		}
	case http.StatusServiceUnavailable:
		p.Type, p.Title = ProblemReducedCapacity, "Temporary Reduced Capacity"
		if p.Reason != ReasonClosed {
			p.Reason = ReasonUnavailable
		}
		p.Scope = ""
	}
	p.Detail = p.detail(d)
	return p
}

// denialStatus is the status of a response to a denial.
func denialStatus(d *Denial) int {
	switch d.Reason {
	case ReasonNoSubject:
		return http.StatusUnauthorized
	case ReasonUnpriced:
		return http.StatusInternalServerError
	case ReasonUnavailable, ReasonClosed:
		return http.StatusServiceUnavailable
	}
	if errors.Is(d, ErrUnavailable) { // a local bucket stood in for the ledger
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}

// denialRetry is how long to wait after a denial in whole seconds; 0 if that is not
// known. A client that is told nothing, or 0, comes back at once.
func denialRetry(d *Denial, now time.Time) int64 {
	if d.Never {
		return 0
	}
	if delay, ok := d.RetryDelay(now); ok {
		return wholeSeconds(delay)
	}
	switch d.Reason {
	case ReasonRate, ReasonConcurrency, ReasonBusy, ReasonUnavailable:
		return 1
	}
	return 0
}

// wholeSeconds is d in seconds, rounded up, and at least 1: who waits that long has
// waited long enough.
func wholeSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return max(s, 1)
}

// detail is a sentence about a denial. It has no text of errors, which may tell how
// the server is built.
func (p *Problem) detail(d *Denial) string {
	switch d.Reason {
	case ReasonNoSubject:
		if d.Scope == "" {
			return "The server needs to know for whom this is."
		}
		return fmt.Sprintf("The server needs to know the %s that this is for.", d.Scope)
	case ReasonUnpriced:
		return "What this costs is not known to the server."
	case ReasonClosed:
		return "The server is about to stop."
	}
	if p.Status == http.StatusServiceUnavailable {
		return "Limits cannot be checked now, so nothing was done. Try again later."
	}
	var s string
	switch d.Reason {
	case ReasonTurnCalls, ReasonTurnCost:
		s = "This is more than one request may use."
	case ReasonConcurrency:
		s = "Too much is under way at the same time."
	case ReasonBusy:
		s = "What is left is set aside for what is under way."
	case ReasonNeverFits:
		s = "This needs more than the limit ever lets pass at once."
	case ReasonRate:
		s = "That was too much in too short a time."
	default:
		s = "The limit is used up, or less is left than this needs."
	}
	if p.Limit != nil {
		s += fmt.Sprintf(" Used: %s of %s%s.", amountText(d.Unit, *p.Used), amountText(d.Unit, *p.Limit), unitWords[d.Unit])
	}
	switch {
	case d.Stage == MidTurn:
		s += " The work has stopped early."
	case d.Never:
		s += " Waiting does not help."
	}
	return s
}

// unitWords are what stands behind a number for people. Money has a dollar sign
// before it.
var unitWords = map[Unit]string{
	Turns: " requests", ConcurrentTurns: " requests at a time", Calls: " model calls", Tokens: " tokens", Credits: " credits",
}

// Error is the detail, or else the title.
func (p *Problem) Error() string {
	if p.Detail != "" {
		return p.Detail
	}
	return p.Title
}

// ServeHTTP answers with the report. What the handler has said about a body that
// now is not sent is taken back. It does not matter what the request was.
func (p *Problem) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	body, err := json.Marshal(p)
	if err != nil { // a status, texts and numbers; a time outside the years 0 to 9999
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	for _, name := range []string{"Content-Encoding", "Content-Length", "Content-Disposition", "Etag", "Last-Modified"} {
		h.Del(name)
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store") // RFC 6585 §4: a 429 is never to be kept
	h.Set("X-Content-Type-Options", "nosniff")
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // the client may be gone
}

// WriteEvent writes the report as a server-sent event named "error", for a stream
// that has begun and cannot have another status any more. It begins with an empty
// line, so that it does not become part of an event that was broken off.
func (p *Problem) WriteEvent(w io.Writer) error {
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("quota: a problem report: %w", err)
	}
	_, err = fmt.Fprintf(w, "\n\nevent: error\ndata: %s\n\n", body)
	return err
}
