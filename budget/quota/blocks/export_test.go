package blocks

// Size is how much a ledger remembers.
func Size(l *Ledger) (trees, counters, records int) {
	for _, t := range l.all() {
		t.mu.Lock()
		trees++
		counters += len(t.counters)
		records += len(t.records)
		t.mu.Unlock()
	}
	return trees, counters, records
}
