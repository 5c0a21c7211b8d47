package ratelimited

import (
	"cmp"
	"context"
	"time"
)

// labels are what a call's context says about it. They travel as one value, so
// that a call looks them up once.
type labels struct {
	// Set by a With… function.
	agent, class, flow, request string
	maxWait                     *time.Duration
	diversion                   Diversion // nil is none
	// Taken over from a context that answered to an accessor.
	pinned identity
}

// identity is what an agent framework's context answers to.
type identity struct{ agent, invocation, user string }

type labelsKey struct{}

// with derives a context with labels changed. A derived context hides the
// accessors of the original one, so their answers are pinned first.
func with(ctx context.Context, set func(*labels)) context.Context {
	l := &labels{}
	if old, ok := ctx.Value(labelsKey{}).(*labels); ok {
		*l = *old
	}
	l.pinned = identityOf(ctx, l.pinned)
	if set != nil {
		set(l)
	}
	return context.WithValue(ctx, labelsKey{}, l)
}

// identityOf asks ctx itself, by structural assertion, so that no agent
// framework is imported; the contexts of ADK Go answer. What ctx does not
// answer is taken from old.
func identityOf(ctx context.Context, old identity) identity {
	if c, ok := ctx.(interface{ UserID() string }); ok {
		if s := c.UserID(); s != "" {
			old.user = s
		}
	}
	if c, ok := ctx.(interface{ AgentName() string }); ok {
		if s := c.AgentName(); s != "" {
			old.agent = s
		}
	}
	if c, ok := ctx.(interface{ InvocationID() string }); ok {
		if s := c.InvocationID(); s != "" {
			old.invocation = s
		}
	}
	return old
}

// WithFlow sets the flow of the calls made with ctx: the party among which a
// gate is fair, usually a user or a tenant. Set it in server code from a
// verified identity. An empty key means the default; see Config.Flow.
func WithFlow(ctx context.Context, key string) context.Context {
	return with(ctx, func(l *labels) { l.flow = key })
}

// WithAgent sets the agent label of the calls made with ctx: the part of the
// program that makes them, for metrics and learned estimates. Use few, fixed
// labels. Unset, it is the AgentName that an agent framework's context answers
// to.
func WithAgent(ctx context.Context, label string) context.Context {
	return with(ctx, func(l *labels) { l.agent = label })
}

// WithRequest sets the request key of the calls made with ctx: one click of one
// user, whatever it fans out to. Ceilings per request count by it. Unset, it is
// the InvocationID that an agent framework's context answers to.
func WithRequest(ctx context.Context, key string) context.Context {
	return with(ctx, func(l *labels) { l.request = key })
}

// WithClass sets the class of the calls made with ctx, by its name in
// Config.Classes. A class that the gate does not have is an error of the call.
func WithClass(ctx context.Context, name string) context.Context {
	return with(ctx, func(l *labels) { l.class = name })
}

// WithMaxWait bounds how long calls made with ctx wait in line, instead of
// Config.MaxWait; 0 is not to wait at all, and a negative value counts as 0.
func WithMaxWait(ctx context.Context, d time.Duration) context.Context {
	d = max(d, 0)
	return with(ctx, func(l *labels) { l.maxWait = &d })
}

// MaxWait is what WithMaxWait set for the calls made with ctx; false if it was
// not called.
func MaxWait(ctx context.Context) (time.Duration, bool) {
	if d := labelsOf(ctx).maxWait; d != nil {
		return *d, true
	}
	return 0, false
}

// Pin takes the identities that an agent framework's context answers to (user,
// agent, invocation) over into a derived context, where they survive
// context.WithCancel, WithTimeout and WithValue. Use it before you derive a
// context from a framework's by yourself; the With… functions of this package
// do it anyway. Where a later context answers for itself, its answer is used.
func Pin(ctx context.Context) context.Context {
	if identityOf(ctx, identity{}) == (identity{}) {
		return ctx
	}
	return with(ctx, nil)
}

// labelsOf are the labels that were set for ctx, or none.
func labelsOf(ctx context.Context) *labels {
	if l, _ := ctx.Value(labelsKey{}).(*labels); l != nil {
		return l
	}
	return &unlabelled
}

// fill completes a call with what its context says: what was set, then what
// the context answers, then what was pinned. It returns what was set.
func (g *Gate) fill(ctx context.Context, c *Call) *labels {
	l := labelsOf(ctx)
	if c.Class == "" {
		c.Class = l.class
	}
	if c.Flow == "" {
		c.Flow = g.flowOf(ctx, l)
	}
	if c.Agent == "" {
		c.Agent = l.agent
	}
	if c.Request == "" {
		c.Request = l.request
	}
	if c.Agent == "" {
		c.Agent = agentAround(ctx, l)
	}
	if c.Request == "" {
		c.Request = l.pinned.invocation
		if a, ok := ctx.(interface{ InvocationID() string }); ok {
			c.Request = cmp.Or(a.InvocationID(), c.Request)
		}
	}
	return l
}

// agentAround is the agent label of a call for which none was set.
func agentAround(ctx context.Context, l *labels) string {
	if a, ok := ctx.(interface{ AgentName() string }); ok {
		return cmp.Or(a.AgentName(), l.pinned.agent)
	}
	return l.pinned.agent
}

// flowOf is the flow of a call that does not name one.
func (g *Gate) flowOf(ctx context.Context, l *labels) string {
	if l.flow != "" {
		return l.flow
	}
	if g.cfg.Flow != nil {
		if flow := g.cfg.Flow(ctx); flow != "" {
			return flow
		}
	}
	if a, ok := ctx.(interface{ UserID() string }); ok {
		return cmp.Or(a.UserID(), l.pinned.user)
	}
	return l.pinned.user
}

var unlabelled labels
