package quota

import "time"

// Skew is how far the wall clock of a ledger is from the program's.
func Skew(m *Memory) time.Duration { return time.Duration(m.skew.Load()) }

// Pass has time pass for a ledger at once. Nobody may use it meanwhile.
func Pass(m *Memory, d time.Duration) {
	m.base = m.base.Add(-d)
	m.skew.Add(int64(d))
}

// Step sets the wall clock of a ledger forward, or back.
func Step(m *Memory, d time.Duration) { m.skew.Add(int64(d)) }
