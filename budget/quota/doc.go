// Package quota limits what people may use: users, teams, tenants and sessions
// have limits in turns, model calls, tokens, credits and money, per window of
// time, that hold over sub-agents and parallel branches.
//
// # Who, how much, and where it is kept
//
// A [Subject] says for whom something is done. The server's own code puts it into
// the context ([WithSubject]) when it knows who asks, and from there it reaches every
// model call. [Limits] say what may be used: common limits, plans, and overrides for
// single subjects; each [Limit] is on a scope, in a [Window], of so much of a [Unit].
// A [Ledger] keeps what was spent: a [Memory], or a store that several processes
// share. What a call will use is reserved before it, and settled to what it really
// used afterwards, or released.
//
// # Two checks
//
// An [Enforcer] brings the three together. A turn, one message of a user and all that
// it sets off, is admitted or denied at once, before anything is done:
//
//	turn, err := enforcer.Admit(quota.WithSubject(ctx, subject))
//	if err != nil {
//		return err
//	}
//	defer turn.End()
//	if denial := turn.Denied(); denial != nil {
//		return denial // which limit, how much was used, when to come back
//	}
//	answer(turn.Context())
//
// [Run] does the same around the events of an agent framework's runner. Within the
// turn, [Enforcer.Budget] meters every model call of a rate-limited model:
//
//	model, err := ratelimited.New(llm, gate, ratelimited.WithBudgets(enforcer.Budget()))
//
// It waits a moment for limits that refill, and denies what is used up. What costs
// but is no model call is metered with [Enforcer.Meter].
//
// A [Denial] is a value at admission and an error in the middle of a turn. [Answer]
// and [AnswerModel] put a last word in its place, which [Denial].Stage tells whether
// work was cut short. It is never made of what a model provider refuses, and retry
// layers leave it alone.
//
// # What is bounded by what
//
// Limits are of people. A turn has bounds of its own against loops that do not end
// ([TurnLimits]): 500 model calls unless it is told otherwise, and a cost. Turns and
// what calls reserve end by themselves: with their context, after the longest turn
// ([Config].MaxTurn), and, when the process dies, after [Config].TTL.
//
// What is spent can exceed a limit by what calls under way use more than was reserved
// for them, because it is spent already when it is known. With [Config].FinalOutput
// the last of a budget is given to one call with a shorter answer, instead of refusing
// somebody who has something left.
//
// While the ledger cannot be reached, the [FailurePolicy] of each limit decides. New
// limits are best tried in [Observe] mode: they decide and report, and deny nothing.
package quota
