package quota

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/budget/quota/internal/rolling"
)

// MiddlewareConfig says how [Middleware] answers. The zero MiddlewareConfig leaves it
// to the limits whether nobody may pass.
type MiddlewareConfig struct {
	// Challenge is the WWW-Authenticate field of a response with status 401, which
	// must have one (RFC 9110 §15.5.2). Defaults to "Bearer".
	Challenge string
	// FieldsOnDenialOnly leaves the RateLimit fields out of responses to requests that
	// pass. That saves a step of the ledger for each tree of the subject.
	FieldsOnDenialOnly bool
	// Logger is told of what went wrong. Defaults to [slog.Default].
	Logger *slog.Logger
	// NoIdentity is the status where an id is missing, or does not hold: 401, or 403.
	// Defaults to 401.
	NoIdentity int
	// RequireIdentity refuses requests of which no id is known at all. Without it the
	// limits decide; see [Limit].Missing. These, and those with an id that does not
	// hold, are counted as [OutcomeUnidentified], not as denials.
	RequireIdentity bool
	// Scopes are those whose numbers clients are told: how much their limits are, how
	// much is used and left. Defaults to all scopes but [Global] and scopes of your
	// own that are within no other, because these tell what strangers use.
	Scopes []Scope
	// Write answers with a problem report, such as by a page for browsers. The fields
	// RateLimit, RateLimit-Policy, Retry-After and WWW-Authenticate are set already.
	// Defaults to [Problem.ServeHTTP].
	Write func(http.ResponseWriter, *http.Request, *Problem)
}

// Middleware makes of each request a turn. It finds out for whom the request is,
// puts the subject into its context, and has the enforcer admit the turn. The handler
// is given the turn's context; the turn ends when the handler returns or panics. A
// request whose context belongs to a turn that is under way stays part of it, whoever
// it is for.
//
// Who is denied gets a [Problem]:
//
//   - 429 with Retry-After, if waiting helps, in seconds rounded up and at least 1. It
//     is the whole time, also where that is weeks.
//   - 503 if the ledger cannot be reached, or the enforcer is closed.
//   - 401 or 403, as MiddlewareConfig.NoIdentity has it, if an id is missing or the
//     request claims one that does not hold.
//
// A CORS preflight (OPTIONS with Origin and Access-Control-Request-Method) goes to the
// handler as it is: it has no credentials, as the Fetch standard says ("CORS
// protocol and credentials"), and browsers make no request whose preflight was refused.
// It is no turn, nobody is asked for whom it is, and its response has no RateLimit
// fields. No model runs in it, whatever the handler does: where limits are enforced at
// all, the enforcer denies every call in its context with [ReasonNoSubject].
//
// Responses have the RateLimit-Policy and RateLimit fields of
// draft-ietf-httpapi-ratelimit-headers-11. They name the limits that are enforced on
// the subject; those of a denial name the one that denied. See [MiddlewareConfig]
// for what clients are not told.
//
// Denials in the middle of the turn come out of the agent as errors. Answer them with
// [Refuse].
//
// The error names every argument that is wrong.
func Middleware(e *Enforcer, resolver Resolver, cfg MiddlewareConfig) (func(http.Handler) http.Handler, error) {
	g := &edge{e: e, resolver: resolver, cfg: cfg}
	if err := g.init(); err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
	}, nil
}

// edge is where requests come in.
type edge struct {
	e        *Enforcer // nil outside of a middleware
	resolver Resolver
	cfg      MiddlewareConfig
	shown    map[Scope]bool
	silent   atomic.Int64 // until when no fields are made, in Unix nanoseconds
}

// edgeKey finds the passage of a request in its context.
type edgeKey struct{}

// passage is a request that has passed.
type passage struct {
	edge   *edge
	turn   *Turn
	writer *responseWriter // that the handler was given
}

// bare answers for handlers that are behind no middleware.
var bare = &edge{cfg: MiddlewareConfig{
	Challenge: "Bearer", NoIdentity: http.StatusUnauthorized, Write: writeProblem,
}}

func writeProblem(w http.ResponseWriter, r *http.Request, p *Problem) { p.ServeHTTP(w, r) }

// init checks and completes the configuration.
func (g *edge) init() error {
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("quota: Middleware: "+format, args...))
	}
	if g.e == nil {
		fail("the enforcer is nil")
	}
	if g.resolver == nil {
		fail("the resolver is nil")
	}
	if g.cfg.Challenge == "" {
		g.cfg.Challenge = "Bearer"
	}
	if badField(g.cfg.Challenge) {
		fail("Challenge is %q, which is no header field", clipText(g.cfg.Challenge))
	}
	switch g.cfg.NoIdentity {
	case 0:
		g.cfg.NoIdentity = http.StatusUnauthorized
	case http.StatusUnauthorized, http.StatusForbidden:
	default:
		fail("NoIdentity is %d, must be 401 or 403", g.cfg.NoIdentity)
	}
	if g.cfg.Logger == nil {
		g.cfg.Logger = slog.Default()
	}
	if g.cfg.Write == nil {
		g.cfg.Write = writeProblem
	}
	g.shown = map[Scope]bool{}
	for _, s := range g.cfg.Scopes {
		if g.e != nil && !g.e.Hierarchy().Has(s) {
			fail("Scopes has %q, which is no scope of the hierarchy", clipText(string(s)))
		}
		g.shown[s] = true
	}
	if g.cfg.Scopes == nil && g.e != nil {
		for _, s := range g.e.Hierarchy().Scopes() {
			g.shown[s] = s != Global && (s.builtIn() || len(g.e.Hierarchy().Path(s)) > 1)
		}
	}
	return errors.Join(errs...)
}

// serve serves a request.
func (g *edge) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	ctx := r.Context()
	t := g.e.turnOf(ctx)
	fresh := t == nil || t.over()
	if preflight(r) {
		if fresh {
			r = r.WithContext(g.e.idle(WithSubject(ctx, Subject{})))
		}
		next.ServeHTTP(w, r)
		return
	}
	if fresh {
		s, ok, err := g.resolver.Resolve(r)
		if err == nil {
			err = s.Validate()
		}
		if err != nil {
			g.unknown(w, r, err)
			return
		}
		if !ok {
			s = Subject{Plan: s.Plan} // and not whoever the context says
		}
		if g.cfg.RequireIdentity && s.Nobody() {
			g.unknown(w, r, nil)
			return
		}
		ctx = WithSubject(ctx, s)
	}
	turn, err := g.e.Admit(ctx)
	if err != nil {
		g.failed(w, r, err)
		return
	}
	defer turn.End()
	writer := &responseWriter{ResponseWriter: w}
	r = r.WithContext(context.WithValue(turn.Context(), edgeKey{}, passage{g, turn, writer}))
	if d := turn.Denied(); d != nil {
		g.refuse(w, r, d, turn)
		return
	}
	g.announce(w, r, turn.Subject())
	next.ServeHTTP(writer, r)
}

// preflight reports whether a request is a CORS-preflight request (Fetch standard,
// "HTTP requests").
func preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// unknown answers a request of which it is not known for whom it is.
func (g *edge) unknown(w http.ResponseWriter, r *http.Request, err error) {
	p := &Problem{Type: problemBlank, Status: g.cfg.NoIdentity, Reason: ReasonNoSubject}
	switch {
	case err == nil:
		p.Detail = "The server needs to know for whom this is."
	case r.Context().Err() != nil || errors.Is(err, ErrUnavailable):
		g.failed(w, r, err)
		return
	default:
		p.Detail = "What the request says about for whom it is does not hold, or could not be checked."
		g.cfg.Logger.InfoContext(r.Context(), "quota: it is not known for whom a request is", slog.Any("error", err))
	}
	g.e.unidentified()
	p.Title = http.StatusText(p.Status)
	g.write(w, r, p)
}

// failed answers a request that could neither be admitted nor denied.
func (g *edge) failed(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, ErrUnavailable):
		d := &Denial{Reason: ReasonUnavailable, Stage: Admission, RetryAfter: busyRetry}
		g.write(w, r, d.Problem(time.Now()))
	case r.Context().Err() != nil: // hardly anybody is there to read it
		g.write(w, r, blankProblem(http.StatusServiceUnavailable, "The request has ended before it was admitted."))
	default:
		g.cfg.Logger.ErrorContext(r.Context(), "quota: a request could not be admitted", slog.Any("error", err))
		g.write(w, r, blankProblem(http.StatusInternalServerError, ""))
	}
}

// blankProblem is a report that says no more than its status, and a detail.
func blankProblem(status int, detail string) *Problem {
	return &Problem{Type: problemBlank, Title: http.StatusText(status), Status: status, Detail: detail}
}

// problem is the report of a denial.
func (g *edge) problem(r *http.Request, d *Denial, turn *Turn) *Problem {
	var p *Problem
	if g.e == nil {
		p = d.Problem(time.Now())
	} else {
		p = d.problem(time.Now(), g.shown[d.Scope])
	}
	if d.Reason == ReasonNoSubject {
		p.Status = g.cfg.NoIdentity
		p.Title = http.StatusText(p.Status)
	}
	if turn != nil {
		p.Instance = problemInstance + turn.ID()
		if p.RetryAfter > 0 && d.Stage == MidTurn && g.e != nil {
			p.RetryAfter = max(p.RetryAfter, wholeSeconds(g.readmitted(r, d, turn)))
		}
	}
	return p
}

// readmitted is how long it takes after a denial in the middle of a turn until a rolling
// limit lets another turn begin: who asks again does so with a new one, of which nobody
// waits for debts, as the calls of a turn do.
func (g *edge) readmitted(r *http.Request, d *Denial, turn *Turn) time.Duration {
	l := g.limit(r, d, turn)
	if l == nil || !l.rolling() {
		return 0
	}
	room := min(turn.turn.caps.limits.Room[d.Unit], l.Burst[d.Unit])
	lacks := rolling.Quantity{Units: max(addAmounts(d.Used-d.Max, max(room, 1)), 0)}
	return time.Duration(lacks.Time(l.Max[d.Unit], int64(l.Window.Per())))
}

// limit is the limit by which a turn was denied; nil if it cannot be told.
func (g *edge) limit(r *http.Request, d *Denial, turn *Turn) *Limit {
	if g.e == nil || turn == nil || d.Limit == "" {
		return nil
	}
	limits, err := g.e.Limits(r.Context(), turn.Subject())
	if err != nil {
		return nil
	}
	for i := range limits {
		l := &limits[i]
		if _, has := l.Max[d.Unit]; has && l.Name == d.Limit && l.Scope == d.Scope {
			return l
		}
	}
	return nil
}

// refuse answers a denial.
func (g *edge) refuse(w http.ResponseWriter, r *http.Request, d *Denial, turn *Turn) {
	p := g.problem(r, d, turn)
	g.denialFields(w.Header(), r, d, p, turn)
	g.write(w, r, p)
}

// write writes a report in place of a response.
func (g *edge) write(w http.ResponseWriter, r *http.Request, p *Problem) {
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", g.cfg.Challenge)
	}
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
	}
	g.cfg.Write(w, r, p)
}

// badField reports whether s cannot be the value of a header field.
func badField(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
