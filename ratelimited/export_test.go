package ratelimited

// Alive is the number of calls that Close would wait for.
func (g *Gate) Alive() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.alive
}

// Failures is the number of failed waits whose waiter has not woken yet.
func (g *Gate) Failures() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.failures)
}
