// Package route puts several models, each behind its own gate, in the place of
// one: regions of a provider, several providers, or a smaller model for when the
// large one is busy. Every call goes where it waits least.
//
//	pool, err := route.New(route.Config{Name: "chat"}, []route.Route[*model.LLMRequest, *model.LLMResponse]{
//		{Name: "eu", Model: eu}, // ratelimited.New(…, gateEU, ratelimited.WithBudgets(people))
//		{Name: "us", Model: us}, // ratelimited.New(…, gateUS, ratelimited.WithBudgets(people))
//		{Name: "small", Model: small, Tier: 1, Rewrite: toSmall},
//	})
//
// A [Pool] is a ratelimited.Model as its routes are, so an agent framework takes
// it for a model. Make one, and share it between all callers.
//
// # Which route a call takes
//
// The one with the shortest predicted wait ([Pool.ExpectedWait]), of the lowest
// tier. The next tier is used only while every route of the one before it would
// have the call wait longer than Config.Spill, and tiers beyond that accordingly.
// While no call has to wait, the routes of a tier share calls by their weights.
//
// Calls with the same key ([Sticky]) take the same route, as long as it works and
// does not have them wait longer than Config.Patience, so that a provider finds
// their common prompt in its cache. Keys are spread by rendezvous hashing over
// names and weights: when a route comes or goes, only the keys move that it gains
// or loses, and every process has the same idea of where they go.
//
// # When a call changes its route
//
// Only before its first item was delivered, and only if the route has not served
// it: the provider has refused it (throttled, out of quota, overloaded) or was not
// reached, or the gate does not admit it. A call that may have been executed, one
// that is wrong in itself, and one that a customer's budget denies ends with its
// error. A call that is refused stays in the line of its gate all the same, with
// its place, where that is faster than all other routes; and one in line leaves it
// when the provider turns out to be down, or closed for longer than it would wait
// elsewhere, or when the store of a quota that the gate shares has not answered for
// that long. The last route that is left retries as its gate says. A call is given
// to each route twice at most.
//
// Of several refusals the caller gets the last one that gives most hope.
//
// MaxWait bounds the waits at all routes together, not each of them.
//
// # Routes that fail
//
// A route whose calls fail in a row is left out, and so is at once one whose quota
// is used up. After a pause one call at a time tries it, and the first that is
// answered brings it back; each one that fails makes the pause longer. Failures
// are refusals, overload, what could not be sent, errors of the server, broken
// connections, and keys or models that the provider does not accept (401, 403,
// 404). Where every route is left out, calls are sent as if none were: the gates
// know how to wait for the end of an outage.
//
// # Who is charged
//
// Who serves. Give each route's model the budgets, with ratelimited.WithBudgets,
// and wrap the pool in no further ones: what a call has reserved at a route that
// it leaves is released there before it is reserved at the next, priced by that
// one's model. An attempt that is not served costs nothing, but it counts as a
// model call where all attempts of a turn are counted (quota.TurnLimits.Calls).
//
// # What can be seen
//
// With a Registerer: headgate_route_calls_total{pool,route,outcome} counts attempts,
// headgate_route_spills_total{pool,from,to,reason} calls that went on to another
// route, and headgate_route_up{pool,route} is 0 while one is left out; it stays so
// until a call needs the route and is answered. The log has a line when a route is
// left out, and when it is back. What happens inside a route is in its gate's
// metrics.
//
// To choose costs an estimate of the request for every route that is asked, which
// is one as long as calls need not wait.
//
// # What it does not do
//
// It does not ask two routes at once, and never sends a call again that may have
// been executed. It does not translate requests: all routes have the same types,
// and Route.Rewrite fits a request to its route. It knows nothing of what answers
// are worth: that is what tiers are for. Live sessions go round it, as they go
// round a gate. Its view of a route is one process's; gates that share a quota
// share it by themselves. A provider that neither answers nor fails is only found
// out by time limits of its client, or when its gate has no slot left.
package route
