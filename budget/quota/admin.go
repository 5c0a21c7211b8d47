package quota

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
)

// AdminAction is what is asked of the admin handler.
type AdminAction string

const (
	// AdminStatus says how the limits of a subject stand: GET /status.
	AdminStatus AdminAction = "status"
	// AdminLimits says which limits are in effect for a subject: GET /limits.
	AdminLimits AdminAction = "limits"
	// AdminPreview says what another plan would mean for a subject: GET /preview.
	AdminPreview AdminAction = "preview"
	// AdminTopUp gives something back: POST /topup.
	AdminTopUp AdminAction = "topup"
	// AdminReset forgets what was spent: POST /reset.
	AdminReset AdminAction = "reset"
	// AdminErase forgets everything about somebody: POST /erase.
	AdminErase AdminAction = "erase"
	// AdminOpenAPI gets the description of the handler: GET /openapi.json.
	AdminOpenAPI AdminAction = "openapi"
)

// AdminAccess is what somebody wants to do.
type AdminAccess struct {
	Action AdminAction
	// Subject is whom it is about. It is nobody if the request does not say, or is not
	// well-formed.
	Subject Subject
	// Scope is whose counters are changed or erased, by all who share them; "" where
	// nothing is changed.
	Scope Scope
}

// ErrUnauthenticated is for an [AdminConfig.Authorize] that does not know who asks.
// It makes the response one of 401 rather than 403.
var ErrUnauthenticated = errors.New("quota: it is not known who asks")

// AdminConfig says how [Admin] works. Authorize and Enforcer must be set.
type AdminConfig struct {
	// Authorize returns nil if the sender of a request may do what it asks for. It is
	// called for every request to what the handler has, once its body was read and
	// before anything is done or told. What it returns is logged, and not shown.
	//
	// Access to a subject is to all limits that apply to it, also those that it
	// shares, such as [Global] ones; see Scopes.
	Authorize func(*http.Request, AdminAccess) error
	// Challenge is the WWW-Authenticate field of responses with status 401. Defaults
	// to "Bearer".
	Challenge string
	// Enforcer is whose limits they are.
	Enforcer *Enforcer
	// Logger is told of every change. Defaults to [slog.Default].
	Logger *slog.Logger
	// Scopes are those that the handler deals with; limits of others are neither
	// shown nor changed. Leave [Global] out for customers who look after their own
	// tenant. Defaults to all.
	Scopes []Scope
}

// Admin is a handler for those who look after limits. Mount it below a path with
// [http.StripPrefix]. [OpenAPI] describes it.
//
//	GET  /status?tenant=acme&user=alice             how the limits of a subject stand
//	GET  /limits?tenant=acme&user=alice&plan=pro    the limits in effect for a subject
//	GET  /preview?tenant=acme&user=alice&as=pro     the same as they would be by a plan, and what would be left
//	POST /topup?tenant=acme&user=alice              {"scope":"user","unit":"tokens","amount":5000}
//	POST /reset?tenant=acme&user=alice              {"scope":"user"}
//	POST /erase?tenant=acme&user=alice              {"scope":"user"}
//	GET  /openapi.json
//
// A subject is named by the parameters user, team, tenant, session, plan, and
// other[scope] for scopes of your own. Parameters and members of bodies that are not
// known, or come twice, are errors: a mistyped name would be about somebody else.
// Bodies are JSON of at most 16 KiB. All responses are JSON; what goes wrong is a
// [Problem]. The plan is as the request has it: nothing is known about subjects
// besides what they use.
//
// A top-up is not idempotent: ask for the status before repeating one whose response
// was lost.
//
// The error names every field that is wrong.
func Admin(cfg AdminConfig) (http.Handler, error) {
	a := &admin{cfg: cfg}
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("quota: AdminConfig."+format, args...))
	}
	if cfg.Authorize == nil {
		fail("Authorize is nil; without it anybody could change anybody's limits")
	}
	if cfg.Enforcer == nil {
		fail("Enforcer is nil")
	}
	if cfg.Challenge == "" {
		a.cfg.Challenge = "Bearer"
	}
	if badField(cfg.Challenge) {
		fail("Challenge is %q, which is no header field", clipText(cfg.Challenge))
	}
	if cfg.Logger == nil {
		a.cfg.Logger = slog.Default()
	}
	for _, s := range cfg.Scopes {
		if cfg.Enforcer != nil && !cfg.Enforcer.Hierarchy().Has(s) {
			fail("Scopes has %q, which is no scope of the hierarchy", clipText(string(s)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	a.cfg.Scopes = slices.Clone(cfg.Scopes)
	return a, nil
}

// admin is the handler.
type admin struct{ cfg AdminConfig }

// adminRoute is one thing that the handler does.
type adminRoute struct {
	method, path string
	action       AdminAction
	subject      bool     // it is about one
	params       []string // besides those of the subject
	body         []string // members
	do           func(*admin, context.Context, *adminRequest) (any, error)
}

// adminRoutes are all that there are.
var adminRoutes = []adminRoute{
	{method: "GET", path: "/status", action: AdminStatus, subject: true, do: (*admin).status},
	{method: "GET", path: "/limits", action: AdminLimits, subject: true, do: (*admin).limits},
	{method: "GET", path: "/preview", action: AdminPreview, subject: true, params: []string{"as"}, do: (*admin).preview},
	{method: "POST", path: "/topup", action: AdminTopUp, subject: true, body: []string{"scope", "unit", "amount"}, do: (*admin).topUp},
	{method: "POST", path: "/reset", action: AdminReset, subject: true, body: []string{"scope"}, do: (*admin).reset},
	{method: "POST", path: "/erase", action: AdminErase, subject: true, body: []string{"scope"}, do: (*admin).erase},
	{method: "GET", path: "/openapi.json", action: AdminOpenAPI, do: (*admin).openAPI},
}

// ServeHTTP does what a request asks for, if its sender may.
func (a *admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	var allow []string
	for i := range adminRoutes {
		route := &adminRoutes[i]
		if route.path != r.URL.Path {
			continue
		}
		if route.method == r.Method || route.method == http.MethodGet && r.Method == http.MethodHead {
			a.serve(w, r, route)
			return
		}
		allow = append(allow, route.method)
	}
	if allow == nil {
		blankProblem(http.StatusNotFound, "There is nothing here.").ServeHTTP(w, r)
		return
	}
	w.Header().Set("Allow", strings.Join(allow, ", "))
	blankProblem(http.StatusMethodNotAllowed, "").ServeHTTP(w, r)
}

func (a *admin) serve(w http.ResponseWriter, r *http.Request, route *adminRoute) {
	ctx := r.Context()
	req, bad := a.read(w, r, route)
	access := AdminAccess{Action: route.action, Subject: req.subject, Scope: req.scope}
	if bad != nil {
		access = AdminAccess{Action: route.action}
	}
	if err := a.cfg.Authorize(r, access); err != nil {
		p := blankProblem(http.StatusForbidden, "")
		if errors.Is(err, ErrUnauthenticated) {
			p = blankProblem(http.StatusUnauthorized, "")
			w.Header().Set("WWW-Authenticate", a.cfg.Challenge)
		}
		a.cfg.Logger.WarnContext(ctx, "quota: admin: refused", slog.String("action", string(route.action)),
			slog.Any("subject", access.Subject), slog.Any("error", err))
		p.ServeHTTP(w, r)
		return
	}
	if bad != nil {
		bad.ServeHTTP(w, r)
		return
	}
	answer, err := route.do(a, ctx, req)
	if route.method == http.MethodPost {
		a.log(ctx, route, req, err)
	}
	if err != nil {
		a.problem(ctx, route, err).ServeHTTP(w, r)
		return
	}
	writeAnswer(w, answer)
}

// log writes a change, or the attempt, into the log. Handlers of the log can add from
// the context who has made it.
func (a *admin) log(ctx context.Context, route *adminRoute, req *adminRequest, err error) {
	attrs := []slog.Attr{
		slog.String("action", string(route.action)), slog.Any("subject", req.subject), slog.String("scope", string(req.scope)),
	}
	if route.action == AdminTopUp {
		attrs = append(attrs, slog.String("unit", req.unit.String()), slog.Int64("amount", req.amount))
	}
	if err != nil {
		a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "quota: admin: not done", append(attrs, slog.Any("error", err))...)
		return
	}
	a.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "quota: admin: done", attrs...)
}

// problem is what an error looks like from outside.
func (a *admin) problem(ctx context.Context, route *adminRoute, err error) *Problem {
	var p *Problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, ErrUnavailable) || ctx.Err() != nil:
		if route.method == http.MethodPost {
			p = blankProblem(http.StatusServiceUnavailable, "The ledger cannot be reached. Whether anything was done is not known.")
		} else {
			p = blankProblem(http.StatusServiceUnavailable, "The ledger cannot be reached.")
		}
		p.RetryAfter = wholeSeconds(busyRetry)
		return p
	}
	a.cfg.Logger.ErrorContext(ctx, "quota: admin: failed", slog.String("action", string(route.action)), slog.Any("error", err))
	return blankProblem(http.StatusInternalServerError, "")
}

// in reports whether the handler deals with a scope.
func (a *admin) in(s Scope) bool { return a.cfg.Scopes == nil || slices.Contains(a.cfg.Scopes, s) }

func (a *admin) status(ctx context.Context, req *adminRequest) (any, error) {
	all, err := a.cfg.Enforcer.Status(ctx, req.subject)
	if err != nil {
		return nil, a.noLimits(ctx, err)
	}
	return &adminStatuses{req.subject, a.statuses(all)}, nil
}

func (a *admin) limits(ctx context.Context, req *adminRequest) (any, error) {
	all, err := a.cfg.Enforcer.Limits(ctx, req.subject)
	if err != nil {
		return nil, a.noLimits(ctx, err)
	}
	return &adminEffective{req.subject, a.effective(all)}, nil
}

func (a *admin) preview(ctx context.Context, req *adminRequest) (any, error) {
	then := req.subject
	then.Plan = req.as
	limits, err := a.cfg.Enforcer.Limits(ctx, then)
	if err != nil {
		return nil, a.noLimits(ctx, err)
	}
	p := &adminPreview{Subject: req.subject, As: req.as, Limits: a.effective(limits)}
	for _, half := range []struct {
		to *[]adminStatus
		s  Subject
	}{{&p.Now, req.subject}, {&p.Then, then}} {
		all, err := a.cfg.Enforcer.Status(ctx, half.s)
		if err != nil {
			return nil, a.noLimits(ctx, err)
		}
		*half.to = a.statuses(all)
	}
	if fixed, ok := (*a.cfg.Enforcer.limits.Load()).(*Limits); ok {
		known := fixed.PlanOf(then) != "" || then.Plan == ""
		p.Known = &known
	}
	return p, nil
}

func (a *admin) topUp(ctx context.Context, req *adminRequest) (any, error) {
	if err := a.has(ctx, req, func(u Unit) bool { return u == req.unit }); err != nil {
		return nil, err
	}
	all, err := a.cfg.Enforcer.TopUp(ctx, req.subject, req.scope, req.unit, req.amount)
	if err != nil {
		return nil, err
	}
	return &adminStatuses{req.subject, a.statuses(all)}, nil
}

func (a *admin) reset(ctx context.Context, req *adminRequest) (any, error) {
	if err := a.has(ctx, req, func(u Unit) bool { return u != ConcurrentTurns }); err != nil {
		return nil, err
	}
	all, err := a.cfg.Enforcer.Reset(ctx, req.subject, req.scope)
	if err != nil {
		return nil, err
	}
	return &adminStatuses{req.subject, a.statuses(all)}, nil
}

func (a *admin) erase(ctx context.Context, req *adminRequest) (any, error) {
	if err := a.cfg.Enforcer.Erase(ctx, req.subject, req.scope); err != nil {
		return nil, err
	}
	return &adminErased{req.subject, req.scope, time.Now().UTC().Truncate(time.Second)}, nil
}

func (a *admin) openAPI(context.Context, *adminRequest) (any, error) { return OpenAPI(), nil }

// has returns an error unless a limit of the scope counts such a unit, so that there
// is something to change.
func (a *admin) has(ctx context.Context, req *adminRequest, which func(Unit) bool) error {
	limits, err := a.cfg.Enforcer.Limits(ctx, req.subject)
	if err != nil {
		return a.noLimits(ctx, err)
	}
	for i := range limits {
		if limits[i].Scope == req.scope && slices.ContainsFunc(limits[i].Max.units(), which) {
			return nil
		}
	}
	return blankProblem(http.StatusNotFound, fmt.Sprintf("No limit of the scope %q counts that for the subject.", req.scope))
}

// noLimits is the error of a look-up: one that failed for another reason than the
// ledger's is that of where limits are kept.
func (a *admin) noLimits(ctx context.Context, err error) error {
	if errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
