package ratelimited

import (
	"context"
	"time"

	"github.com/headgate-go/headgate/usage"
)

// Diversion is for whoever can send a call elsewhere, as package route can: it
// tells whether the call should rather do that than wait. It is asked
//
//   - when the provider has refused the call and it would go back into the line,
//   - in line, whenever the channel is closed, and once a second while the store of a
//     shared quota (Config.Share) does not answer.
//
// A call that leaves ends: all that it holds is back, and its sequence has the
// provider's error, or in line a [WaitError] that matches [ErrDiverted]. A call
// that was sent and not refused is never asked.
//
// The methods are called in the goroutine that ranges the call, while no lock is
// held. Where one context serves several calls they are called by each.
type Diversion interface {
	// Changed returns a channel that is closed when calls in line should be asked;
	// nil is never, but for a store that does not answer. After Leaves it must not
	// return the same closed channel again.
	Changed() <-chan struct{}
	// Leaves reports whether the call ends here because it goes elsewhere. err is
	// the refusal of the provider, or nil if the call is in line. No call like it
	// will start at this gate before wait has passed, as far as that is known; what
	// is due to others in line is not counted, because a call keeps its place.
	Leaves(err error, wait time.Duration) bool
}

// WithDiversion has calls made with ctx ask d whether to leave. It concerns
// models and not [Gate.Acquire], whose caller decides for itself.
func WithDiversion(ctx context.Context, d Diversion) context.Context {
	return with(ctx, func(l *labels) { l.diversion = d })
}

// leaves reports whether a call that was refused goes elsewhere, where it would
// wait here for so long before it is sent again.
func (c *modelCall[Req, Resp]) leaves(err error, wait time.Duration) bool {
	return c.elsewhere != nil && c.elsewhere.Leaves(err, max(wait, c.m.gate.shutFor(&c.Usage)))
}

// await is wait for a call that may leave.
func (g *Gate) await(ctx context.Context, p *place, ready <-chan struct{}, r *request, d Diversion) error {
	if d == nil {
		return g.wait(ctx, p, ready)
	}
	for {
		select {
		case _, open := <-ready:
			return g.woken(ctx, p, true, open)
		case <-ctx.Done():
			return g.woken(ctx, p, false, true)
		case <-d.Changed():
		case <-g.hearsSilence():
		}
		if !g.leavesLine(ctx, p, r, d) {
			continue
		}
		select {
		case _, open := <-ready: // it need not any more
			return g.woken(ctx, p, true, open)
		default:
			return g.woken(ctx, p, false, true)
		}
	}
}

// leavesLine asks whether a call in line leaves. If that panics, its place is given
// up.
func (g *Gate) leavesLine(ctx context.Context, p *place, r *request, d Diversion) (leaves bool) {
	asked := false
	defer func() {
		if !asked {
			_ = g.woken(ctx, p, false, true)
		}
	}()
	leaves = d.Leaves(nil, g.shutFor(&r.Usage))
	asked = true
	return leaves
}

// shutFor is how long no call of that usage starts, whatever its place in line.
func (g *Gate) shutFor(u *usage.Usage) time.Duration {
	var buf costs
	n := buf.of(g)
	g.admissionCosts(n, u)
	now := g.now()
	g.lock()
	defer g.unlock()
	return g.core.ShutFor(now, n)
}
