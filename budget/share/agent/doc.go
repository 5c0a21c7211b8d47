// Package agent lets gates share a quota through a store: it drives the replica's
// side of package share, one goroutine for each gate, which asks the store when
// there is something to ask and hands the gate what it was granted. The gate
// itself never waits for a store.
//
// [Memory] is such a store for the gates of one program, and for tests.
//
// A [Sharing] in static mode needs none: each gate has its part of the quota and of the
// slots, by Config.Replicas, and [Sharing.SetReplicas] tells when there are others.
package agent
