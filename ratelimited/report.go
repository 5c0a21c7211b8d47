package ratelimited

import (
	"context"
	"time"
)

// LimitReport is what a provider says is left of one of its limits, in the
// headers of an answer for instance.
type LimitReport struct {
	// Dimension names the limit: the Name of a Dimension of the profile. A name
	// that the profile does not have is ignored.
	Dimension string
	// Remaining is the number of units left in the window; negative counts as 0.
	Remaining int64
	// Reset is the time from now until the whole limit is there again; 0 or less
	// if that is not known, which is taken for as long as the longest hint that is
	// waited for (retry.Policy.MaxHint), at most a window.
	Reset time.Duration
	// Sent is when the request was sent that was answered with this report; the
	// zero Time is now. A report is ignored if one about a later request came
	// before it.
	Sent time.Time
}

// Report tells the gate what the provider says is left of its limits. It only
// ever lowers what the gate believes is left: other programs may use the quota,
// but calls that the gate has sent may not have been counted yet. It never waits
// but for the gate's lock, and is safe for concurrent use.
func (g *Gate) Report(reports ...LimitReport) {
	if len(reports) == 0 {
		return
	}
	now := g.now()
	g.lock()
	defer g.unlock()
	for _, r := range reports {
		sent := r.Sent
		if sent.IsZero() || sent.After(now) {
			sent = now
		}
		for i, d := range g.owner {
			dim := &g.cfg.Profile.Dimensions[d]
			if dim.Name != r.Dimension || i > 0 && g.owner[i-1] == d { // the pace of a Burst is not reported
				continue
			}
			if sent.Before(g.reported[i]) {
				continue
			}
			g.reported[i] = sent
			reset := min(max(r.Reset, 0), dim.window())
			if reset == 0 {
				reset = min(dim.window(), g.maxHint())
			}
			g.core.Lower(now, i, max(r.Remaining, 0), reset)
		}
	}
}

// gateKey is the key of the gate behind which a call runs.
type gateKey struct{}

// Report is Gate.Report for the gate behind which a call runs: a model that
// learns from its provider what is left calls it with the context that it was
// called with. It does nothing where no gate asked for reports. A model whose
// method ReportsLimits() bool answers true is called with a context that knows
// the gate; see [Pin] for what a derived context hides.
func Report(ctx context.Context, reports ...LimitReport) {
	if g, ok := ctx.Value(gateKey{}).(*Gate); ok {
		g.Report(reports...)
	}
}

// Holds reports whether ctx is that of a call that holds a permit of the gate, as
// far as a context tells: a model's attempts are called with one that does if the
// model reports limits, or uses a retry.Transport. What stands further in before
// the same gate, such as a gate at the HTTP layer, lets the call pass then.
func Holds(ctx context.Context, g *Gate) bool {
	held, _ := ctx.Value(gateKey{}).(*Gate)
	return held != nil && held == g
}

// withGate derives the context of an attempt for a model that reports limits.
func withGate(ctx context.Context, g *Gate) context.Context {
	return context.WithValue(ctx, gateKey{}, g)
}
