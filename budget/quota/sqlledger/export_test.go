package sqlledger

import "time"

// Pass moves the clock of a ledger's store forward, or back. It is the ledger's own
// idea of it: other ledgers on the same tables do not notice.
func Pass(l *Ledger, d time.Duration) { l.offset.Add(int64(d)) }

// Skew is how far it is moved.
func Skew(l *Ledger) time.Duration { return time.Duration(l.offset.Load()) }
