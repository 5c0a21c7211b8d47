package fleet

import "time"

// Outcome is what became of a call.
type Outcome uint8

const (
	// Waiting: it waits for its turn.
	Waiting Outcome = iota
	// Flying: it was sent, and has not ended.
	Flying
	// Served: it has ended well.
	Served
	// Expired: it gave up before its turn came.
	Expired
	// Failed: it was refused as often as it was tried.
	Failed
	// Lost: its replica has died.
	Lost

	outcomes
)

var outcomeNames = [...]string{"waiting", "flying", "served", "expired", "failed", "lost"}

// String is the outcome's name.
func (o Outcome) String() string { return outcomeNames[o] }

// Record is what became of one call.
type Record struct {
	// Asked is when the user made the call, Started when it was sent for the last time,
	// Counted when the provider let it in, Ended when it was over. All since the start;
	// below 0 is not yet, or never.
	Asked, Started, Counted, Ended time.Duration
	Tokens                         int64
	User                           int32
	Replica                        int32
	Outcome                        Outcome
	Attempts                       uint8
}

// Log is what happened in a run.
type Log struct {
	Config Config
	// Calls in the order in which they were made.
	Calls []Record
	// Trips are the round trips to the store, by the second in which they reached it.
	Trips []int32
	// Refusals are the 429s of the provider, by second, and Attempts all that it saw.
	Refusals []int32
	Attempts int64
	// Use is the largest part of the quota that was asked of the provider in one of its
	// windows, refused or not.
	Use float64
	// Events is how many were simulated.
	Events int64
}

// seconds is how many seconds there are, the last one perhaps in part.
func (c *Config) seconds() int { return int((c.Length + time.Second - 1) / time.Second) }
