// Package bench plays bursts of calls through admission policies, against a
// provider with a quota, in virtual time:
//
//	go test -bench . ./bench
//
// Every benchmark is a cell: a shape (the burst and the provider that it meets),
// a window (how the provider's quota renews itself: fixed, sliding or bucket) and
// a policy (no limit, the SDK's retries, x/sync, x/time/rate, failsafe-go,
// Headgate, and an oracle). All the libraries are the real ones, unmodified;
// package virtual runs them in virtual time, so that ten minutes of traffic take
// a fraction of a second. What the policies are set to, and where that comes
// from, stands in their Settings.
//
// A cell is played once, from a fixed seed, and reports:
//
//   - goodput: tokens of completed calls over the fluid bound G*, after the
//     guard share that Headgate states for a mirrored window; share is the same
//     without the guard, for comparisons
//   - makespan: the time of the whole burst over a lower bound of it, for bursts
//     that every call survived
//   - 429/attempt, wasted: refusals, and tokens sent for nothing
//   - p50-s and p99-s of every class of calls: seconds to be admitted for good
//   - jain, gap, gap-bound: fairness among backlogged flows, in quota-seconds
//   - idle: slots that were free while a waiting call could have run
//   - max-use: the largest use of the quota in any window
//
// The tests of this package hold Headgate to its targets in every cell; where it
// falls short, the cell stands in a list with what it reaches.
package bench
