package budget

import (
	"context"
	"time"
)

// Sharing lets several gates share the quota of one provider, each in a process
// of its own. It is what a gate's configuration takes; package
// budget/share/agent and the stores under budget implement it.
type Sharing interface {
	// Join makes what one gate needs. It does no I/O and starts nothing: the
	// quota it returns is driven by its Start.
	Join(q SharedQuota) (Shared, error)
}

// SharedQuota is what a gate tells of the quota that it shares.
type SharedQuota struct {
	// Name of the gate.
	Name string
	// Limits of the provider, in the order in which a call's costs are counted.
	Limits []SharedLimit
	// Slots is the number of calls in flight of all gates together.
	Slots int64
}

// SharedLimit is one limit of the provider.
type SharedLimit struct {
	// Name of the dimension that the limit is of, for metrics and logs.
	Name string
	// Bucket: it refills continuously up to Burst; else it is a sliding window.
	Bucket bool
	// Pace: it spreads what another limit lets pass, over a time much shorter
	// than calls take.
	Pace bool
	// Limit is the number of units per Window, and Burst the capacity of a bucket.
	Limit, Burst int64
	// Window of the limit, and the grain in which it slides.
	Window, Cell time.Duration
}

// Shared is one gate's part of a shared quota.
type Shared interface {
	// Limiters are one per limit. Like all limiters they are arithmetic, used under
	// the gate's lock; what they can give is what the gate has been granted.
	// Where only another grant helps, Fits tells no instant.
	Limiters() []Limiter
	// Slots lends the slots; nil if the gate's slots are its own.
	Slots() SlotLender
	// Start lets the gate be granted what it needs from now on. It is called
	// once, and starts whatever goroutine that takes; Close ends it.
	Start(h Host)
	// Close gives back what the gate still has. It is called when the gate has
	// been drained, or has given up on that. Calling it again does nothing.
	Close(ctx context.Context) error
}

// SlotLender lends slots to a gate. It is used under the gate's lock.
type SlotLender interface {
	// Fits reports whether so many more slots may be in use now. If not, only a
	// grant helps, or slots that come back.
	Fits(now time.Time, slots int64) bool
	// Use tells that so many slots are in use now, or, if negative, not any more.
	Use(now time.Time, slots int64)
	// SetLimit tells that all gates together have another number of slots.
	SetLimit(now time.Time, slots int64)
}

// Host is a gate as its [Shared] sees it.
type Host interface {
	// Update calls f under the gate's lock, with the time and what the calls in
	// line ask for, and then starts every call that can start. f must not wait,
	// and must not keep d.
	Update(f func(now time.Time, d *Demand))
}

// Demand is what the calls in the line of a gate ask for.
type Demand struct {
	// Next is what the first call takes, per limit, that waits for units or slots;
	// nil if none does.
	Next []int64
	// Slots that this call takes.
	Slots int64
	// Backlog is what all waiting calls together take, per limit, as far as there
	// are slots for them; BacklogSlots are those slots.
	Backlog      []int64
	BacklogSlots int64
	// Flows is the number of parties that have calls in line or in flight.
	Flows int
}
