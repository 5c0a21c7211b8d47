package ratelimited

import "time"

// Stats is a snapshot of a [Gate].
type Stats struct {
	// Slots in force; below SlotLimit while the provider is overloaded.
	Slots int64
	// SlotLimit is the number of slots as configured, or as found so far.
	SlotLimit int64
	// SlotsInUse are held by calls in flight.
	SlotsInUse int64
	// Running is the number of calls in flight, Waiting of calls in line (those
	// in backoff included).
	Running, Waiting int
	// PausedUntil is when a call may start again, if none may because the provider
	// is down; else the zero Time.
	PausedUntil time.Time
	// HoldTime is the moving average of the time that a call holds its slots.
	HoldTime time.Duration
	// Classes and Dimensions in the order of Config.
	Classes    []ClassStats
	Dimensions []DimensionStats
}

// ClassStats is a snapshot of a class.
type ClassStats struct {
	// Name of the class.
	Name string
	// Flows that are active: in line, in flight or in backoff.
	Flows int
	// SlotsInUse are held by the class's calls in flight.
	SlotsInUse int64
	// Waiting is the number of its calls in line.
	Waiting int
}

// DimensionStats is a snapshot of a dimension of the profile.
type DimensionStats struct {
	// Name of the dimension.
	Name string
	// Closed is the time in total for which a hint closed it.
	Closed time.Duration
	// ClosedUntil is when it reopens; zero if it is open.
	ClosedUntil time.Time
	// Level is the number of units that could be taken now, headroom
	// deducted; negative while an overrun is being repaid.
	Level int64
	// Limit is the number of units per window, as published, or as found so far where
	// that is Unknown: then 0 before the first call, and at least 1 after it.
	Limit int64
	// Queued are the units that calls in line ask for.
	Queued int64
	// Share is the part of the limit in force after cuts, headroom not counted.
	Share float64
}

// Stats returns a snapshot. It is cheap enough for a scrape, not for every call.
func (g *Gate) Stats() Stats {
	now := g.now()
	g.lock()
	core := g.core.Stats(now)
	hold := g.core.HoldTime()
	g.unlock()
	s := Stats{
		Slots: core.Slots, SlotLimit: core.SlotLimit, SlotsInUse: core.InUse,
		Running: core.Running, Waiting: core.Waiting, HoldTime: hold, PausedUntil: core.Paused,
	}
	for i, c := range core.Classes {
		s.Classes = append(s.Classes, ClassStats{
			Name: g.cfg.Classes[i].Name, Flows: c.Flows, SlotsInUse: c.InUse, Waiting: c.Waiting,
		})
	}
	for i, d := range core.Dims {
		dim := g.cfg.Profile.Dimensions[g.owner[i]]
		if i > 0 && g.owner[i] == g.owner[i-1] {
			// The second limiter of a dimension is its burst: the smaller level binds.
			last := &s.Dimensions[len(s.Dimensions)-1]
			last.Level = min(last.Level, d.Level)
			continue
		}
		s.Dimensions = append(s.Dimensions, DimensionStats{
			Name: dim.Name, Closed: d.Closed, ClosedUntil: d.Until, Level: d.Level,
			Limit: d.Limit, Queued: d.Queued, Share: d.Share,
		})
	}
	return s
}
