// Package ratelimited puts one model, and all who call it, behind a gate, so
// that every call goes out as soon as the provider's quota has room for it: in
// fair order, none throttled that could have waited, and each charged for what
// it really used.
//
// Wrap the shared model once and hand the wrapper to everybody:
//
//	gate, err := ratelimited.NewGate(ratelimited.Config{
//		Slots:   30,
//		Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 1000, InputTokensPerMinute: 1_000_000}),
//	})
//	…
//	llm, err := ratelimited.New(model, gate)
//
// A model is anything with the two methods of [Model]. ADK Go's model.LLM is
// one as it stands, and so is the wrapper around it; package genaimodel makes one
// of a genai client. [NewMetered] takes a model of any request and response
// types, with a [Meter] that reads them. Programs whose models have another shape
// use the [Gate] directly: [Gate.Acquire], then [Permit.End].
//
// # What happens to a call
//
// Nothing, until its sequence is ranged. Each range is one call:
//
//  1. It is estimated, by the meter and by what earlier calls of the same model
//     and agent label have really used.
//  2. The estimate is reserved on every customer budget ([WithBudgets]). A
//     denial ends the call.
//  3. It waits in line for slots and for room in every limit of the [Profile],
//     and takes all of it together. While it waits, it holds nothing.
//  4. It is sent. Refused before its first item, it may go back into the line,
//     with its first place and without its slot; see below.
//  5. Items pass on as they come, untouched. Before the one that completes the
//     answer is yielded, the slot is back: agent frameworks run tools and other
//     agents inside that yield, and at a limit of 1 they would wait for
//     themselves.
//  6. At its end, everything is settled to what was used, once: whether it was
//     completed, failed, broken off, cancelled, panicked, or pulled and
//     forgotten, in which case the end of its context is its end.
//
// # What is tried again
//
// A call is never sent twice after an item of it was delivered. Before that, a
// call that was throttled (429) was not executed and goes back into the line. An
// overloaded provider, and one that cannot be reached, are tried again as long
// as retries are few; see retry.Budget. Everything else is passed on at once: a
// quota per day, a hint to come back later than allowed, an error that may have
// been billed. What Headgate itself refuses says so ([WaitError],
// [NeverFitsError], budget.DeniedError) and is tried again by no layer that asks
// retry.Classify.
//
// A refusal also speaks to the others. A hint closes the limits that it names
// for every caller until it lapses; then one call tries, and the others follow
// when it is answered. Each burst of refusals lowers the rate a little, and time
// restores it. An overloaded provider gets fewer calls at a time. One that refuses
// call after call is down: where calls are bounded in how long they wait (by
// MaxWait or their context's deadline) they then wait for the end of that, while
// one at a time tries, after pauses of some seconds; to have tried costs a call
// none of its attempts. Without such a bound a call that is refused is not kept
// waiting for an outage that may take hours.
//
// # Who is who
//
// The gate is fair among flows: usually users or tenants. The flow, the agent
// label and the request key of a call are what was set with [WithFlow],
// [WithAgent] and [WithRequest]; otherwise what the context answers to UserID,
// AgentName and InvocationID, as the contexts of ADK Go do. A derived context
// hides these: see [Pin]. Ceilings for every flow and every request
// (Config.PerFlow, Config.PerRequest) also bind the branches that a framework
// starts by itself. Classes ([WithClass]) divide the gate among kinds of traffic.
//
// # What to set
//
// Slots, always: calls per second times seconds per call is a guide. The
// [Profile], or the gate knows no limits but its slots. MaxWait decides between
// waiting and failing fast; unset, a call waits as long as its context lets it,
// and fails at once where waiting is hopeless. Headroom leaves a part of the
// quota to other programs of the same project. Registerer and Logger say what
// happens: metrics have labels from bounded sets only; who it was is in the log;
// prompts and answers are in neither. CHOOSING.md beside this file weighs the
// choices.
//
// # What it does not do
//
// A gate alone is one process's view of the quota: replicas share it (Config.Share),
// or each gets a part. An estimate is an estimate: a call that uses more is repaid by waiting. Live
// sessions would go round the gate; the wrapper does not offer them.
package ratelimited
