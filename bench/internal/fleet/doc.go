// Package fleet simulates a fleet of replicas that share the quota of one provider:
// a discrete-event simulation in virtual time, without goroutines.
//
// What decides is the product's own code and no copy of it: every replica has a gate's
// core (internal/gate), which is driven as the shell drives it, and shares the quota by
// budget/share: a Lessee in each replica, and one Coordinator in a store. What is
// simulated is the rest: users and the calls that they make, the network to the store
// and to the provider, the provider's windows, and replicas that die and join.
//
// [Run] plays one [Config] and returns the [Log] of all calls, and [Measure] turns a log
// into figures. Everything random comes from the seed, and the traffic does not depend on
// the mode of sharing: two modes meet the same calls.
package fleet
