package redisledger

import "time"

// Pass has time pass for a ledger at once; back if d is negative.
func Pass(l *Ledger, d time.Duration) { l.offset.Add(int64(d / time.Microsecond)) }

// Skew is how far a ledger's clock is from the server's.
func Skew(l *Ledger) time.Duration { return time.Duration(l.offset.Load()) * time.Microsecond }

// SetClock has a ledger go by a clock in place of the server's.
func SetClock(l *Ledger, clock func() time.Time) { l.clock = clock }

// Exactly has a ledger always run the scripts that reckon large amounts.
func Exactly(l *Ledger) { l.exact.all = true }

// Busy reports whether a round trip is under way.
func Busy(l *Ledger) bool {
	l.sender.mu.Lock()
	defer l.sender.mu.Unlock()
	return l.sender.trips > 0
}

// Waiting is how many requests wait for a round trip.
func Waiting(l *Ledger) int {
	l.sender.mu.Lock()
	defer l.sender.mu.Unlock()
	return len(l.sender.waiting)
}

// Width is how many round trips are under way at a time.
const Width = width

// Mix has a script have the keys of several trees, whatever the server is.
func Mix(l *Ledger) { l.sender.apart.Store(false) }

// Mixes reports whether a script may have the keys of several trees.
func Mixes(l *Ledger) bool { return !l.sender.apart.Load() }
