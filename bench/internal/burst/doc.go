// Package burst plays bursts of calls through admission policies in virtual time
// and measures what becomes of them.
//
// A [Shape] is a burst and the provider that it meets; a [Policy] is a way to
// admit calls; a [Window] is how the provider's quota renews itself. [Run] plays
// one of each. The provider is package engine; what it refuses comes back as the
// error that the SDK of the Gemini API gives. The policies are the real
// libraries, and Headgate, set up as their users would.
//
// All that happens in a run is logged first and measured afterwards, by
// functions that see the log only: [Metrics] are the figures and a [Sample] is
// an instant. The bounds that figures are compared with, the fluid bound on
// goodput and the lower bound on the makespan, are computed from the shape and
// hold for every policy.
package burst
