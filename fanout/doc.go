// Package fanout runs many branches of one piece of work side by side, never
// more than a given width at a time.
//
//	reviews, err := fanout.Map(ctx, 8, reviewers,
//		func(ctx context.Context, r Reviewer) (Review, error) {
//			return r.Review(ctx, change)
//		})
//
// An agent that asks fifty sub-agents at once sends fifty model calls in one
// millisecond. A width makes it eight, and the ninth starts when one has ended.
//
// # Which function
//
//   - [ForEach] and [Map] stop at the first error: the branches that run are
//     cancelled, and no further one starts.
//   - [ForEachAll] and [MapAll] run every branch, whatever happens to the others.
//     A branch that was throttled, timed out or denied is recorded as an
//     [Outcome]; it never cancels its siblings.
//   - [Stream] yields the outcomes as branches finish. Ranging no further cancels
//     the rest, so the loop's own code is the policy for failures.
//   - [Quorum] ends as soon as enough branches have succeeded, or too many have
//     failed, and cancels the rest.
//   - [Groups] cuts a slice, and [Compose] makes agents of a framework, which runs
//     them itself, into a sequence of parallel groups.
//
// # What always holds
//
// At most width branches run at a time, on at most width goroutines, however
// many items there are. A width below 1 is an error, never "unbounded". Items are
// taken up in their order.
//
// No function returns, and no loop over a [Stream] ends, before every branch
// that was started has returned. Go cannot stop a function from outside: a
// branch that ignores its context is waited for. So nothing runs on behind the
// caller's back: when a fan-out returns, the model calls that it cancelled have
// ended too, and the gate has settled each for what it used.
//
// A branch starts only while its context is alive, and waiting for width ends
// with the context too. What has not started by then does not start; its error
// says so and matches the context's error and its cause.
//
// The error of a branch is an [*Error], which names the item's index and wraps
// what the function returned. A panic in a branch becomes that branch's error, a
// [*PanicError] with value and stack. A branch that ends its goroutine with
// [runtime.Goexit], as FailNow of package testing does, ends with [ErrGoexit].
//
// # One width for a whole request
//
// The width of a call bounds that call alone. Nested calls multiply: eight
// branches that ask eight each are sixty-four. [WithWidth] puts a shared width
// into a context. All fan-outs under that context, side by side or nested, draw
// from it, and each still keeps to its own:
//
//	ctx, err := fanout.WithWidth(ctx, 8) // for everything that this request does
//
// A branch has one place in the shared width. While it waits for a nested
// fan-out it does nothing itself, so its place is lent to the others, and it
// takes a place again before the nested call returns. A shared width of 1 is
// therefore enough for any depth, and the width is kept all the same.
//
// The place travels in the branch's context. A nested fan-out must be given the
// context that the branch's function received, or one derived from it: with an
// outer context the parent would keep its place while it waits, and the fan-out
// can wait for itself.
//
// # Contexts of agent frameworks
//
// A branch gets a derived context, which hides the methods that a framework's own
// context has beside context.Context. Where the gate of package ratelimited reads
// user, agent and request from these, pass ratelimited.Pin(ctx) to the fan-out,
// or name them with ratelimited.WithFlow, WithAgent and WithRequest.
//
// # This width, or a ceiling at the gate
//
// A width bounds what a program starts: goroutines, memory, open files,
// connections, and how much work is wasted when a fan-out is cancelled. It sees
// only the branches that the program itself runs through this package.
//
// A quota is the business of the gate of package ratelimited. Its ceilings for
// each request and each flow (Config.PerRequest, Config.PerFlow) bind every
// model call, whoever started it: an agent framework's own parallel agents,
// parallel tool calls, agents called as tools. They count requests in flight
// and not agents, and fairly, over all requests of the process. Where calls go
// through a gate, do not tune a width until the provider no longer refuses: the
// gate does that better, and a branch that waits in the gate's line costs a
// goroutine.
//
// So: the gate's ceiling for what one request may take of the quota, a width
// for what its branches cost the process, and [Compose] where only the framework
// can run the agents and there is no gate.
package fanout
