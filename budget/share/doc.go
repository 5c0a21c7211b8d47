// Package share shares the quota of a provider between the replicas of a program,
// so that all of them together never ask for more than the provider has, and
// none waits while there is something left. It is pure: it takes the time as an
// argument, does no I/O and keeps no goroutine. Package agent drives it behind a
// gate; a store such as budget/redisbudget keeps the shared state.
//
// # The coordinator
//
// A [Coordinator] is the quota's one owner. It keeps a mirror of the provider for
// every dimension: what was spent, in a ring of cells (for a sliding window) or as
// the level of a bucket that refills. And it keeps, for every replica, what is
// *outstanding*: granted, and neither reported as spent nor given back. What it can
// grant is
//
//	level of the mirror now − sum of all that is outstanding
//
// This is the guard for spend after debit. Were the mirror debited when units are
// granted, its bucket would refill, or its window slide on, while the replica still
// holds them and the provider has not heard of them; spent later they would come
// on top of what was granted since. [CoordinatorConfig] can switch the guard
// off, to show that.
//
// A unit of quota goes through these states: granted (credit of a replica), taken
// (in flight: the provider may count it at any time), counted (the provider has
// done so by now), reported. It is outstanding until it was reported, and dated by
// the time at which it was counted at the latest. A mirror that is debited late
// is never more generous than the provider. A refund, when a call used less than it
// was held at, is dated by the earliest time at which its cost can have been
// counted. So no window of the provider's holds more than the quota and no bucket
// is asked for more than it has, however late requests arrive there, and whatever
// happens on the way to the coordinator. Clocks need not agree: ages are sent,
// not times.
//
// Slots are one more dimension, without time.
//
// # One step
//
// [Coordinator.Do] takes in a report and answers a question, in one atomic step, so
// that it can be one script of a store. Requests carry a sequence number: the
// last one again gets the last reply again, an older one is stale. A replica that
// was restarted has a larger epoch; what its former life had outstanding counts
// as spent when that lease ends. Epochs come from clocks: where the first answer that a
// replica has is that a younger one is known, its clock is behind, and it goes on under an
// epoch above that, once; so of two of one name the one that comes last stays. A coordinator that has lost its state has
// another epoch, too: for one TTL it grants nothing and learns what replicas have,
// and what they have spent within the last window. What a replica has spent and did
// not report before it died is then unknown.
//
// # Leases
//
// What is granted may be used until one TTL after the request was sent. It is
// renewed by the next request: when a quarter of the stock is left, when half of the
// TTL has passed, or when a call waits. Unused credit goes back after half a second.
// The lease of a replica that says nothing any more ends one TTL, and the time
// for which its last requests may be on their way, after its last request: what was
// outstanding then counts as spent at that time, and only slots come back. If it was
// only cut off and comes back, it says itself what it has spent, and that is
// corrected.
//
// # Who gets what
//
// The Need of a replica is the least that lets its first waiting call go. It is
// granted in all dimensions together, or not at all. Replicas are served by start-time
// fair queueing: each has a counter of what it was granted, as a part of the whole
// quota, over its weight, and the least is next. One that cannot be served has a
// claim, which those that have had more do not touch; so a large call is not starved
// by small ones. A claim is forgotten when the replica does not ask again in twice
// the time that it was told to wait. Beyond its Need a replica gets what it Wants, about
// one second of its recent demand and its backlog, out of what nobody claims: max-min
// fair, by weight, over what all replicas want.
//
// # Modes
//
// [Leased] replicas hold a stock and mostly need no round trip for a call. [Central]
// ones ask for each call. [Static] ones have 1/R of the quota each and only say that
// they are there; when a replica joins it waits until all others have heard of
// it and, where a window remembers what they have used, until that is forgotten, so
// that the parts never add up to more than the whole. Where they have no store, the
// program is told how many there are, and tells them ([Lessee.SetReplicas]).
//
// # When the coordinator does not answer
//
// A replica goes on with what it has until its lease ends, and then with Fallback/R
// of the quota, where R is the number of replicas that it was told last. A bucket
// begins with nothing then. A window begins with what the replica has used itself
// within the last window, because that is what it may use again when it is
// forgotten; after a window it has its whole part. So all replicas together stay
// within the quota when all are cut off. One that is cut off alone uses its part
// beside what the others are granted, which is at most Fallback/R of the quota too
// much for each such replica; Fallback below 0 forbids it. When replicas come back
// from an outage, the coordinator grants nothing for one TTL if half of the others
// have not been heard of yet.
//
// What the provider itself says is left, in the headers of an answer or by a refusal,
// lowers what the coordinator grants; and for a replica that goes by its part, that
// part.
//
// Two more bounds are not exact. A call that is larger than the replica's part of a
// bucket or a window runs when nothing else was used, and a replica always has at
// least one slot, while it goes by its part. And what a call uses above what it was
// held at is spent before anybody knew: the mirror goes negative, and repays before
// anything is granted.
package share
