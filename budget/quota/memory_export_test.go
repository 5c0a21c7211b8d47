package quota

import "time"

// Skew is how far the wall clock of a ledger is from the program's.
func Skew(m *Memory) time.Duration { return time.Duration(m.skew.Load()) }

// Step sets the wall clock of a ledger forward, or back.
func Step(m *Memory, d time.Duration) { m.skew.Add(int64(d)) }
