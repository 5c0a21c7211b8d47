package ratelimited

// Alive is the number of calls that Close would wait for.
func (g *Gate) Alive() int {
	g.lock()
	defer g.unlock()
	return g.alive
}

// Failures is the number of failed waits whose waiter has not woken yet.
func (g *Gate) Failures() int {
	g.lock()
	defer g.unlock()
	return len(g.failures)
}

// Hold takes the gate's lock, as somebody who does much under it, and makes
// others expect that it may be taken. While it is held, there is a line for who
// looks for one.
func (g *Gate) Hold() (release func()) {
	g.lock()
	g.company.Store(true)
	g.line.Store(true)
	return g.unlock
}

// Posted is the number of tasks that are left to whoever has the lock.
func (g *Gate) Posted() (n int) {
	for t := g.posted.Load(); t != nil; t = t.next {
		n++
	}
	return n
}
