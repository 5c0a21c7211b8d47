package share

import (
	"fmt"
	"time"
)

// Defaults of [LesseeConfig].
const (
	// DefaultFallback is the part of its share of the quota that a replica goes
	// on with while the store is down.
	DefaultFallback = 0.8
	// DefaultStock is for how long the credit of a leased replica lasts.
	DefaultStock = time.Second
	// DefaultIdle is after how long unused credit is given back.
	DefaultIdle = 500 * time.Millisecond
)

// LesseeConfig describes a [Lessee].
type LesseeConfig struct {
	// Dims of the quota, as all replicas and the coordinator name them.
	Dims []Dim
	// Epoch of this run of the replica: larger than that of any before it. If the
	// coordinator knows a larger one at the first request, one above that is taken.
	// Defaults to 1.
	Epoch int64
	// Fallback is the part of its share that a replica goes on with while the
	// store is down. Defaults to DefaultFallback; negative is none.
	Fallback float64
	// Idle is after how long unused credit is given back. Defaults to
	// DefaultIdle.
	Idle time.Duration
	// Mode defaults to Leased.
	Mode Mode
	// Replica is the name of the replica. Required.
	Replica string
	// Replicas is how many replicas there are at least, whatever the coordinator has
	// said; 0 is not to know. A static replica that has no store has
	// 1/Replicas of the quota from the beginning.
	Replicas int
	// Stock is for how long the credit of a leased replica lasts. Defaults to
	// DefaultStock.
	Stock time.Duration
	// Alone: there is no coordinator. The Mode must be Static.
	Alone bool
	// Wake, if not nil, is called when Due has come to be earlier than it was
	// answered last. It must not wait, and not call back.
	Wake func()
}

func (c LesseeConfig) withDefaults() (LesseeConfig, error) {
	var err error
	if c.Dims, err = Complete(c.Dims); err != nil {
		return c, err
	}
	if c.Epoch == 0 {
		c.Epoch = 1
	}
	if c.Fallback == 0 {
		c.Fallback = DefaultFallback
	}
	if c.Idle == 0 {
		c.Idle = DefaultIdle
	}
	if c.Stock == 0 {
		c.Stock = DefaultStock
	}
	switch {
	case len(c.Dims) == 0:
		return c, fmt.Errorf("share: LesseeConfig.Dims is empty")
	case c.Epoch < 0:
		return c, fmt.Errorf("share: LesseeConfig.Epoch is %d, must not be negative", c.Epoch)
	case !(c.Fallback <= 1):
		return c, fmt.Errorf("share: LesseeConfig.Fallback is %v, must not be above 1", c.Fallback)
	case c.Idle < 0:
		return c, fmt.Errorf("share: LesseeConfig.Idle is %v, must not be negative", c.Idle)
	case c.Mode > Static:
		return c, fmt.Errorf("share: LesseeConfig.Mode is %d, want Leased, Central or Static", c.Mode)
	case c.Replica == "":
		return c, fmt.Errorf("share: LesseeConfig.Replica is empty")
	case c.Replicas < 0:
		return c, fmt.Errorf("share: LesseeConfig.Replicas is %d, must not be negative", c.Replicas)
	case c.Stock < 0:
		return c, fmt.Errorf("share: LesseeConfig.Stock is %v, must not be negative", c.Stock)
	case c.Alone && (c.Mode != Static || c.Replicas == 0):
		return c, fmt.Errorf("share: LesseeConfig.Alone is set with Mode %v and %d Replicas, want static and at least 1", c.Mode, c.Replicas)
	}
	return c, nil
}
