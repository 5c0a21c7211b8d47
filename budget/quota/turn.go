package quota

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/usage"
)

// Turn is one run of an agent, from a message of a user to the answer, as
// [Enforcer.Admit] lets it begin, or denies it. What is done in its context belongs
// to it.
//
// A Turn is safe for concurrent use. A denied one behaves like any other: its End
// does nothing, and every model call in its context is denied as it was.
type Turn struct {
	turn  *turn
	ctx   context.Context
	owner bool // it began the turn
}

// turn is what all of the Turns share that are one.
type turn struct {
	e       *Enforcer
	id      string
	subject Subject    // valid
	scopes  []scopeKey // of the subject; never appended to in place
	plan    string
	began   time.Time
	ctx     context.Context // in which it began, and with which it ends
	asked   TurnLimits      // of the context in which it began
	caps    *caps
	claims  []claim
	counts  []bool        // which of claims hold turns that are to be counted at the end
	crossed func(Settled) // told of what counting them has crossed; may be nil
	kept    kept
	denied  *Denial
	unwatch func() bool // of the context; nil if it never ends

	mu sync.Mutex
	// mu guards all that follows.
	ended   bool
	stopped *Denial
}

// turnKey finds the *turn of an Enforcer in a context.
type turnKey struct{ e *Enforcer }

// Admit begins a turn for the subject of ctx, or denies it at once: [Turn.Denied]
// says which. Whoever gets a Turn must end it.
//
// If ctx belongs to a turn that is under way, that turn goes on, whatever the subject
// is by now: one request is one turn, however many layers ask. Ending the returned
// Turn then does nothing. To begin another one, use a context that is not derived
// from that of a turn.
//
// The limits of turns and of turns under way are taken, and of all others something
// must be left (see [TurnLimits].Room), in one step of the ledger for each of its
// trees. Nobody waits, and who is denied leaves no trace.
//
// The turn ends by itself when ctx ends, and when it is older than [Config].MaxTurn.
// The error is that of ctx, of a subject that is not valid, or of TurnLimits that
// are not; then there is no Turn.
func (e *Enforcer) Admit(ctx context.Context) (*Turn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if t := e.turnOf(ctx); t != nil && !t.over() {
		return &Turn{turn: t, ctx: ctx}, nil
	}
	around, _ := ctx.Value(capsKey{}).(*caps)
	if around != nil && around.err != nil {
		return nil, around.err
	}
	asked := around.asked()
	subject, _ := SubjectFrom(ctx)
	if err := subject.Validate(); err != nil && e.cfg.Mode != Off {
		return nil, fmt.Errorf("quota: no turn begins: %w", err)
	}
	t := &turn{e: e, id: budget.NewID(), subject: subject, began: time.Now(), ctx: ctx, asked: asked}
	t.caps = &caps{turn: t, limits: asked.over(e.cfg.Turn), around: around.of(e)}
	err := t.begin(ctx, t.caps.limits.Room)
	if err != nil {
		return nil, err
	}
	ctx = context.WithValue(ctx, turnKey{e}, t)
	ctx = context.WithValue(ctx, capsKey{}, t.caps)
	return &Turn{turn: t, ctx: ctx, owner: true}, nil
}

// begin takes what a turn needs. A denial is kept in it.
func (t *turn) begin(ctx context.Context, room Max) error {
	e := t.e
	if e.closed.Load() {
		t.deny(ctx, &Denial{Reason: ReasonClosed, Stage: Admission})
		return nil
	}
	w, d, err := e.look(ctx, t.subject, Admission)
	if err != nil {
		return err
	}
	t.plan = w.plan
	if d != nil {
		t.deny(ctx, d)
		return nil
	}
	a := e.asking(&w, Admission, t.id, t.began)
	if d := a.turns(room); d != nil {
		a.keep()
		t.deny(ctx, d)
		return nil
	}
	got, d, err := a.take(ctx, Note{Subject: e.note(t.subject), Turn: t.id})
	switch {
	case err != nil:
		return err
	case d != nil:
		a.keep()
		t.deny(ctx, d)
		return nil
	}
	told := false
	defer func() {
		if !told { // a hook has panicked, and nobody gets the turn
			a.giveBack(ctx, len(a.claims))
		}
	}()
	a.report(ctx, got, t.id, "", false)
	told = true
	t.scopes = slices.Clip(a.scopes)
	t.keep(ctx, &a)
	return nil
}

// keep keeps what was taken until the end.
func (t *turn) keep(ctx context.Context, a *asking) {
	lives := false
	t.counts = make([]bool, len(a.claims))
	if len(a.claims) > 1 || a.claims != nil && a.claims[0].state == claimOpen {
		t.crossed = t.e.crossings(a.who, a.now, t.id, "")
	}
	for i := range a.claims {
		c := &a.claims[i]
		leases := false
		for j := range c.entries {
			leases = leases || c.entries[j].Kind == Lease
			t.counts[i] = t.counts[i] || c.entries[j].Kind == Hold
		}
		switch {
		case c.state == claimOpen:
			t.book(ctx, c)
		case c.state != claimHeld:
		case leases:
			lives = true
		case t.counts[i]: // nothing can be denied any more
			_ = t.e.later.do(ctx, t.settlement(c))
			c.state = claimTaken
		case !t.e.local: // it holds nothing, and is not worth a round trip
			c.state = claimTaken
		}
	}
	if t.claims = a.keep(); !lives {
		return
	}
	t.kept = kept{claims: t.claims, ctx: ctx, began: t.began, expire: t.expire}
	t.e.keeper.add(&t.kept)
	if ctx.Done() != nil {
		t.mu.Lock()
		t.unwatch = context.AfterFunc(ctx, func() { t.end(ctx) })
		t.mu.Unlock()
	}
}

// book has the turn counted in a claim that passed without the ledger, once that is
// back. If it was counted for good, and only the reply was lost, it is the same
// reservation, so that it is counted once. What it held was given back.
func (t *turn) book(ctx context.Context, c *claim) {
	op := operation{do: bookClaim, tree: c.tree, id: c.id + ".o", then: t.crossed}
	op.settle = Settle{ID: op.id, Tree: c.tree, Actual: Amounts{Turns: 1}}
	op.note = Note{Subject: t.e.note(t.subject), Turn: t.id}
	for i := range c.entries {
		if e := &c.entries[i]; e.Unit == Turns && !e.Rolling {
			if e.Kind == Count {
				op.id, op.settle.ID = c.id, c.id
			}
			op.entries = append(op.entries, e.spent(e.Amount))
		}
	}
	if len(op.entries) > 0 {
		_ = t.e.later.add(ctx, op) // and keep nobody waiting for another try now
	}
}

// settlement counts the turn in a claim that held it.
func (t *turn) settlement(c *claim) operation {
	return operation{
		do: settleClaim, tree: c.tree, id: c.id, then: t.crossed,
		settle: Settle{ID: c.id, Tree: c.tree, Actual: Amounts{Turns: 1}},
	}
}

// idle returns a context in which nothing is to be metered, because nobody knows for whom:
// all calls in it are denied, unless the enforcer denies nothing.
func (e *Enforcer) idle(ctx context.Context) context.Context {
	if e.cfg.Mode != Enforce {
		return ctx
	}
	t := &turn{
		e: e, id: budget.NewID(), began: time.Now(), ctx: ctx, ended: true,
		denied: &Denial{Reason: ReasonNoSubject, Stage: Admission},
	}
	t.caps = &caps{turn: t}
	return context.WithValue(ctx, turnKey{e}, t)
}

// deny makes the turn one that was denied.
func (t *turn) deny(ctx context.Context, d *Denial) {
	d.Stage = Admission
	t.denied, t.ended = d, true
	t.e.denied(ctx, t.subject, t.plan, t.id, "", d, false)
}

// turnOf finds the turn of a context.
func (e *Enforcer) turnOf(ctx context.Context) *turn {
	t, _ := ctx.Value(turnKey{e}).(*turn)
	return t
}

// over reports whether the turn has ended, and was not denied.
func (t *turn) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.denied == nil && (t.ended || t.ctx.Err() != nil || time.Since(t.began) >= t.e.cfg.MaxTurn)
}

// end gives back what the turn holds, once.
func (t *turn) end(ctx context.Context) {
	t.mu.Lock()
	was := t.ended
	t.ended = true
	unwatch := t.unwatch
	t.mu.Unlock()
	if was {
		return
	}
	if unwatch != nil {
		unwatch()
	}
	for i := range t.claims {
		switch c := &t.claims[i]; {
		case c.state != claimHeld:
		case t.counts[i]:
			_ = t.e.later.do(ctx, t.settlement(c))
		default:
			t.e.release(ctx, c.tree, c.id)
		}
	}
	if t.kept.ctx != nil {
		t.e.keeper.remove(&t.kept)
	}
}

// expire ends a turn that is too old.
func (t *turn) expire() {
	t.e.cfg.Logger.Warn("quota: a turn was ended because it is too old; it no longer counts as under way",
		slog.String("turn", t.id), slog.Any("subject", t.subject), slog.Duration("longest", t.e.cfg.MaxTurn))
	t.end(context.Background())
}

// stop notes the first denial in the middle of the turn.
func (t *turn) stop(d *Denial) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped == nil {
		t.stopped = d
	}
}

// Context is the context of the turn. Give it to the agent's runner: everything in
// it is counted as the turn's.
func (t *Turn) Context() context.Context { return t.ctx }

// ID is a random name of the turn, for logs.
func (t *Turn) ID() string { return t.turn.id }

// Subject is for whom the turn began.
func (t *Turn) Subject() Subject { return t.turn.subject }

// Denied says why the turn must not be run; nil if it may.
func (t *Turn) Denied() *Denial { return t.turn.denied }

// Stopped is the first denial in the middle of the turn, or nil: the answer is not
// what it could have been. Agents may have swallowed the error.
func (t *Turn) Stopped() *Denial {
	t.turn.mu.Lock()
	defer t.turn.mu.Unlock()
	return t.turn.stopped
}

// Used is how many model calls the turn has made, and what they and paid tools cost
// so far, in micro-dollars, with what is reserved for those under way. Cost is only
// known where money is limited.
func (t *Turn) Used() (calls int64, cost usage.Micros) {
	n, m := t.turn.caps.used()
	return n, usage.Micros(m)
}

// End ends the turn, and gives its place among those under way back. Only the first
// call of the Turn that began it does anything. It does not wait for calls that are
// still under way; they are settled on their own. With a ledger that is elsewhere it
// may take as long as an operation; if that fails, it is done later.
func (t *Turn) End() {
	if t.owner {
		t.turn.end(t.ctx)
	}
}

// TurnFrom returns the turn that ctx belongs to; ok is false if there is none. It
// cannot end it.
func (e *Enforcer) TurnFrom(ctx context.Context) (t *Turn, ok bool) {
	if found := e.turnOf(ctx); found != nil {
		return &Turn{turn: found, ctx: ctx}, true
	}
	return nil, false
}
