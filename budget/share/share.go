package share

import (
	"fmt"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// Shape is how a dimension of a quota is enforced.
type Shape uint8

const (
	// Window counts what happened in the last window's length.
	Window Shape = iota
	// Bucket refills continuously up to its burst.
	Bucket
	// Slots has no time: what is held is held until it is given back.
	Slots
)

// String is the shape's name: "window", "bucket" or "slots".
func (s Shape) String() string {
	switch s {
	case Window:
		return "window"
	case Bucket:
		return "bucket"
	case Slots:
		return "slots"
	}
	return fmt.Sprintf("Shape(%d)", uint8(s))
}

// Dim is one dimension of a quota: a limit of the provider, or the slots. All
// replicas that share a quota name the same dimensions in the same order; there
// is at most one of shape Slots, and it is the last.
type Dim struct {
	// Shape of the limit.
	Shape Shape
	// Limit is the number of units per Window; for Slots, the number of slots.
	Limit int64
	// Burst is the capacity of a Bucket. Defaults to Limit.
	Burst int64
	// Window is the time in which Limit units may be used. Defaults to a minute.
	Window time.Duration
	// Cell is the grain in which spends are dated. Defaults to Window/60; for a
	// Bucket that fills up sooner than that, to a part of the time in which it does.
	Cell time.Duration
	// Pace: the Bucket spreads what another dimension lets pass, over a time that
	// is much shorter than a call takes. What is in flight would fill it, so it is
	// debited when it is granted, and nothing of it is held in stock.
	Pace bool
}

// withDefaults fills in what is not set, and checks the rest.
func (d Dim) withDefaults(i int) (Dim, error) {
	if d.Burst == 0 {
		d.Burst = d.Limit
	}
	if d.Window == 0 {
		d.Window = budget.DefaultWindow
	}
	if d.Cell == 0 {
		d.Cell = d.Window / budget.DefaultCells
		if d.Shape == Bucket && d.Burst < d.Limit {
			fills := time.Duration(float64(d.Window) * float64(d.Burst) / float64(d.Limit))
			d.Cell = max(min(d.Cell, fills/fillCells), d.Cell/fillCells)
		}
		d.Cell = max(d.Cell, time.Microsecond)
	}
	switch {
	case d.Shape > Slots:
		return d, fmt.Errorf("share: Dims[%d].Shape is %d, want Window, Bucket or Slots", i, d.Shape)
	case d.Limit < 0:
		return d, fmt.Errorf("share: Dims[%d].Limit is %d, must not be negative", i, d.Limit)
	case d.Burst < 0:
		return d, fmt.Errorf("share: Dims[%d].Burst is %d, must not be negative", i, d.Burst)
	case d.Window < time.Microsecond:
		return d, fmt.Errorf("share: Dims[%d].Window is %v, must be at least a microsecond", i, d.Window)
	case d.Cell < time.Microsecond || d.Cell > d.Window:
		return d, fmt.Errorf("share: Dims[%d].Cell is %v, must lie between a microsecond and Window (%v)", i, d.Cell, d.Window)
	case d.Window/d.Cell > maxRing:
		return d, fmt.Errorf("share: Dims[%d].Cell is %v, divides Window (%v) into more than %d cells", i, d.Cell, d.Window, maxRing)
	case d.Pace && d.Shape != Bucket:
		return d, fmt.Errorf("share: Dims[%d].Pace is set, but its Shape is not Bucket", i)
	}
	return d, nil
}

// fillCells is how many cells there are at least in the time in which a bucket fills
// up, as long as that does not take more than so many times the usual number.
const fillCells = 8

// Complete returns the dimensions of a quota with their defaults, as a coordinator of
// any kind and the replicas take them. The error names the field that is wrong.
func Complete(list []Dim) ([]Dim, error) {
	list = append([]Dim(nil), list...)
	for i, d := range list {
		d, err := d.withDefaults(i)
		if err != nil {
			return nil, err
		}
		if d.Shape == Slots && i < len(list)-1 {
			return nil, fmt.Errorf("share: Dims[%d].Shape is Slots, must be the last of %d", i, len(list))
		}
		list[i] = d
	}
	return list, nil
}

// Mode says how a replica comes by what it may spend.
type Mode uint8

const (
	// Leased replicas hold about one second of their recent demand.
	Leased Mode = iota
	// Central replicas ask for every call; nothing is held in stock.
	Central
	// Static replicas have their part of the quota, and ask nobody.
	Static
)

// String is the mode's name: "leased", "central" or "static".
func (m Mode) String() string {
	switch m {
	case Leased:
		return "leased"
	case Central:
		return "central"
	case Static:
		return "static"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// ParseMode is the mode of a name.
func ParseMode(name string) (Mode, error) {
	for m := Leased; m <= Static; m++ {
		if m.String() == name {
			return m, nil
		}
	}
	return 0, fmt.Errorf("share: mode is %q, want leased, central or static", name)
}

// Request is what a replica tells and asks the coordinator, in one atomic step.
// It is a report (what was spent, what is still held) and a question (what the
// replica wants).
type Request struct {
	// Replica names the replica: the same after a restart.
	Replica string
	// Epoch grows with every restart of the replica. A request of an older one
	// is stale. It comes from a clock, which may be behind: see Reply.Newest.
	Epoch int64
	// Seq grows by one with every new request of a run of the replica, from 1. A
	// request that was not answered is sent again, with its Seq.
	Seq int64
	// Coordinator is the epoch of the coordinator in the last Reply; 0 if there was none.
	Coordinator int64
	// Prev is Reply.At of the last Reply, and Since is how long ago that came in:
	// the request was not sent before Prev+Since on the coordinator's clock. 0
	// if there was none.
	Prev  int64
	Since time.Duration
	// Mode of the replica.
	Mode Mode
	// Weight is the replica's share relative to the others, such as the number of
	// flows that wait there; 0 is 1.
	Weight float64
	// Alone is for how long the replica has gone by its part of the quota, because
	// the coordinator did not answer; 0 if it has not since the last Reply.
	Alone time.Duration
	// Dims are in the order of the quota's.
	Dims []DimReport
	// Leave: the replica stops. What it still has is counted as spent at expiry.
	Leave bool
}

// DimReport is the part of a [Request] that is about one dimension.
type DimReport struct {
	// Spent is what the provider has counted since the last report, each by its
	// age at sending. An amount below 0 takes back a part of what was reported
	// for that age: less was used in the end. Empty for Slots.
	Spent []Spend
	// Has is what the replica still holds: credit that it keeps, and what is in
	// flight and not counted yet; slots in use and in stock. What it was granted
	// before and is neither here nor in Spent is given back.
	Has int64
	// Want is how much more the replica could use, its Need included.
	Want int64
	// Need is the least that lets its first waiting call go, beside what it has:
	// the call's cost less the credit at hand. 0 if none waits for this. The Needs of
	// all dimensions are granted together, or none is.
	Need int64
	// Left is what the provider itself has said to be left; nil if it has not.
	Left *Left
	// Limit is the published limit as the replica knows it; the smallest of
	// all replicas is in force.
	Limit int64
	// Share is the part of Limit in force, in (0, 1]; 0 is 1. The smallest of all
	// replicas is in force.
	Share float64
}

// Spend is an amount that the provider has counted by a certain time.
type Spend struct {
	// Age is how long before the sending of the request that was.
	Age time.Duration
	// Amount in units; below 0 for a refund.
	Amount int64
}

// Left is what a provider says is left of a limit: in the headers of an answer, or
// by a refusal.
type Left struct {
	// Units that are left.
	Units int64
	// Reset is after how long all will be back; 0 if that is not known.
	Reset time.Duration
}

// Reply is the coordinator's answer to a [Request].
type Reply struct {
	// Granted is what the replica may use from now on beside what it has, per
	// dimension.
	Granted []int64
	// TTL is how long the replica may use what it has, from the moment at which it sent the
	// request.
	TTL time.Duration
	// Epoch of the coordinator. It changes when the coordinator has lost its state.
	Epoch int64
	// At is the coordinator's clock, in microseconds: see Request.Prev.
	At int64
	// RetryAfter is when it is worth asking again; 0 if all Needs were granted.
	RetryAfter time.Duration
	// Replicas is how many replicas there are, with this one.
	Replicas int
	// Limits are the published limits of the whole quota, per dimension.
	Limits []int64
	// Parts are, in static mode, what this replica may use of them, in [0, 1].
	Parts []float64
	// Scarce tells per dimension that others wait for more than there is. If not all
	// Needs were granted, only those count that come before this replica, but for
	// Slots: what it has left of that dimension it should give back, or two that wait
	// would keep from each other what both need. Of Slots it should give back, too,
	// what comes back before it has asked again, or one that is always busy would keep
	// them all.
	Scarce []bool
	// Stale: the request was not taken in. It is of an older epoch or Seq of the
	// replica than was seen; or of an older epoch of the coordinator, which then
	// wants to be told all that was spent within the last window.
	Stale bool
	// Newest is the epoch of the replica that is gone by, where that or its Seq makes a
	// request stale; else 0. A replica that has had no other answer yet is younger all
	// the same: its clock is behind that of a former life. It goes on under a larger
	// epoch, once.
	Newest int64
}
