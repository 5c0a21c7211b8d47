package quota

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/headgate-go/headgate/usage"
)

// DefaultTurnCalls is how many model calls a turn may make unless it is told
// otherwise. It is the number at which agent frameworks stop runaway loops (ADK's
// RunConfig: 500).
const DefaultTurnCalls = 500

// NoCap in a [TurnLimits] is no cap, where 0 leaves the cap to what is around.
const NoCap = -1

// TurnLimits are bounds of one turn, whoever it is for: against the loop that
// never ends. They hold over everything that works in the turn's context:
// sub-agents, parallel branches, agents that are used as tools.
//
// What is 0 is taken from the TurnLimits around: those of an outer
// [WithTurnLimits], then [Config].Turn.
type TurnLimits struct {
	// Calls is how many model calls may be made, those that fail included; [NoCap]
	// for any number.
	Calls int64
	// Cost is how much money they and paid tools may cost, in micro-dollars; [NoCap]
	// for any amount. What is under way counts with what is reserved for it. A call
	// that turns out dearer than it was estimated may exceed it, and what costs nothing
	// passes then, too.
	Cost usage.Micros
	// Room is what there must be left of each unit's limits for the turn to begin,
	// in place of anything at all: such as the tokens of a whole turn, so that a turn
	// is refused rather than cut short. Units are [Calls], [Tokens], [Credits] and
	// [Money]. It takes nothing. A limit whose Max is less has room when it is whole.
	Room Max
	// MaxOutput is the output limit of those of the turn's requests whose calls do
	// not tell their own (budget.Call.MaxOutput), in tokens, for limits that hold the
	// [Worst]. 0 is not known: Worst then holds as much as [P95], or the estimate if
	// that is more.
	MaxOutput int64
}

// Validate returns an error that names each field with a value that it cannot
// have.
func (l TurnLimits) Validate() error {
	var errs []error
	if l.Calls < NoCap {
		errs = append(errs, fmt.Errorf("quota: TurnLimits.Calls is %d, must not be below %d", l.Calls, NoCap))
	}
	if l.Cost < NoCap {
		errs = append(errs, fmt.Errorf("quota: TurnLimits.Cost is %d, must not be below %d", int64(l.Cost), NoCap))
	}
	if l.MaxOutput < 0 {
		errs = append(errs, fmt.Errorf("quota: TurnLimits.MaxOutput is %d, must not be negative", l.MaxOutput))
	}
	for _, u := range l.Room.units() {
		switch n := l.Room[u]; {
		case u != Calls && u != Tokens && u != Credits && u != Money:
			errs = append(errs, fmt.Errorf("quota: TurnLimits.Room has %v, which is none of calls, tokens, credits and money", u))
		case n < 0 || n > MaxAmount:
			errs = append(errs, fmt.Errorf("quota: TurnLimits.Room[%v] is %d, must be from 0 to %d", u, n, int64(MaxAmount)))
		}
	}
	return errors.Join(errs...)
}

// over is l with what it leaves open taken from base.
func (l TurnLimits) over(base TurnLimits) TurnLimits {
	if l.Calls == 0 {
		l.Calls = base.Calls
	}
	if l.Cost == 0 {
		l.Cost = base.Cost
	}
	if l.Room == nil {
		l.Room = base.Room
	}
	if l.MaxOutput == 0 {
		l.MaxOutput = base.MaxOutput
	}
	return l
}

// capsKey finds the innermost *caps of a context.
type capsKey struct{}

// WithTurnLimits returns a context whose turn has other bounds.
//
// Before the turn begins, such as for an endpoint, they become the turn's own, and
// that of any other turn that begins in its context after it has ended.
// Within a turn, such as for one agent, they bound what is done in the returned
// context, besides the bounds of the turn, which stay; Room has no meaning there.
// With an invalid value no turn begins and no call is made in the context: both
// return the error of [TurnLimits.Validate].
func WithTurnLimits(ctx context.Context, l TurnLimits) context.Context {
	c := &caps{limits: l, err: l.Validate()}
	if outer, _ := ctx.Value(capsKey{}).(*caps); outer != nil {
		c.err = errors.Join(outer.err, c.err)
		if c.turn = outer.turn; c.turn != nil {
			c.outer = outer
		} else { // nothing is counted yet: one setting over the other
			c.limits = l.over(outer.limits)
		}
	}
	return context.WithValue(ctx, capsKey{}, c)
}

// caps counts what is done under a TurnLimits within a turn. Those made before a
// turn have no turn and count nothing.
type caps struct {
	outer  *caps
	around *caps // of a turn's own: those around it, of the turn of another Enforcer
	turn   *turn
	limits TurnLimits
	err    error // of limits, and those around

	mu sync.Mutex
	// mu guards all that follows.
	calls int64
	cost  int64 // spent and reserved, in micro-dollars
}

// within returns the caps that bind in ctx for a turn: the innermost one of that
// turn, from which outer leads to the turn's own.
func (t *turn) within(ctx context.Context) *caps {
	c, _ := ctx.Value(capsKey{}).(*caps)
	for c != nil && c.turn != t {
		if c.outer == nil {
			c = c.around
		} else {
			c = c.outer
		}
	}
	if c == nil {
		return t.caps
	}
	return c
}

// asked are the limits that a turn gets that begins in the context of c: what was
// set there, and also what was set for a turn that has ended, or that another Enforcer
// has.
func (c *caps) asked() (l TurnLimits) {
	for ; c != nil; c = c.outer {
		if c.turn != nil && c == c.turn.caps {
			return l.over(c.turn.asked)
		}
		l = l.over(c.limits)
	}
	return l
}

// of are the caps around a turn of e: those of the turns of others that it is in.
func (c *caps) of(e *Enforcer) *caps {
	for c != nil && (c.turn == nil || c.turn.e == e) {
		if c.turn == nil {
			return nil
		}
		c = c.turn.caps.around
	}
	return c
}

// priced reports whether any of the caps is one of money.
func (c *caps) priced() bool {
	for ; c != nil; c = c.outer {
		if c.limits.Cost > 0 {
			return true
		}
	}
	return false
}

// maxOutput is the innermost MaxOutput that is set.
func (c *caps) maxOutput() int64 {
	for ; c != nil; c = c.outer {
		if c.limits.MaxOutput > 0 {
			return c.limits.MaxOutput
		}
	}
	return 0
}

// take counts calls and reserves cost under all caps, or under none. With force it
// counts in any case; the denial is then what would have been.
func (c *caps) take(calls, cost int64, force bool) (denied *Denial) {
	for at := c; at != nil; at = at.outer {
		d := at.takeOne(calls, cost, force)
		if d == nil {
			continue
		}
		if !force {
			for back := c; back != at; back = back.outer {
				back.correct(-calls, -cost)
			}
			return d
		}
		if denied == nil {
			denied = d
		}
	}
	return denied
}

func (c *caps) takeOne(calls, cost int64, force bool) (denied *Denial) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch l := c.limits; {
	case l.Calls > 0 && calls > 0 && c.calls+calls > l.Calls:
		denied = &Denial{Reason: ReasonTurnCalls, Stage: MidTurn, Unit: Calls, Max: l.Calls, Used: c.calls, Requested: calls}
	case l.Cost > 0 && cost > 0 && cost > int64(l.Cost)-c.cost:
		denied = &Denial{Reason: ReasonTurnCost, Stage: MidTurn, Unit: Money, Max: int64(l.Cost), Used: c.cost, Requested: cost}
	}
	if denied == nil || force {
		c.calls += calls
		c.cost = addAmounts(c.cost, cost)
	}
	return denied
}

// correctAll changes what was counted, under all caps.
func (c *caps) correctAll(calls, cost int64) {
	for ; c != nil; c = c.outer {
		c.correct(calls, cost)
	}
}

func (c *caps) correct(calls, cost int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = max(c.calls+calls, 0)
	c.cost = max(addAmounts(c.cost, cost), 0)
}

// used is what was counted.
func (c *caps) used() (calls, cost int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls, c.cost
}

// addAmounts is a + b, at most [MaxAmount] and at least its negative.
func addAmounts(a, b int64) int64 {
	return min(max(min(max(a, -MaxAmount), MaxAmount)+min(max(b, -MaxAmount), MaxAmount), -MaxAmount), MaxAmount)
}
