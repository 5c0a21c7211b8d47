package blocks

import (
	"log/slog"
	"time"
)

// renewBatch is how many blocks are renewed in one operation.
const renewBatch = 256

// renewEvery is how long lies between two renewals of a block: a third of the TTL, so
// that one may fail.
func (l *Ledger) renewEvery() int64 { return int64(l.cfg.TTL) / 3 }

// every is how often it is looked whether there is anything to be done.
func (l *Ledger) every() time.Duration {
	return max(min(l.cfg.Idle, l.cfg.TTL/6)/2, time.Millisecond)
}

// purgeEvery is how often what has ended is forgotten where nothing happens.
const purgeEvery = time.Minute

// arm sets the timer. The tree's lock is held.
func (t *tree) arm() {
	if !t.ticking {
		t.ticking = true
		t.l.arm(true)
	}
}

func (l *Ledger) arm(soon bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.timer != nil && (l.soon || !soon) {
		return
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	d := purgeEvery
	if soon {
		d = l.every()
	}
	l.soon = soon
	l.timer = time.AfterFunc(d, l.tick)
}

// tick does what time brings.
func (l *Ledger) tick() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.timer = nil
	l.work.Add(1)
	l.mu.Unlock()
	defer l.work.Done()

	trees, soon := l.all(), false
	for _, t := range trees {
		soon = t.pass() || soon
	}
	if soon || len(trees) > 0 {
		l.arm(soon)
	}
}

// pass does what time brings to a tree, and reports whether there will be more in a
// moment.
func (t *tree) pass() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.l.now()
	if t.expire(now) {
		t.serve(now)
	}
	t.forget(now, max(t.l.cfg.Remember, longest), len(t.records))
	for _, c := range t.counters {
		c.look(now)
		c.purge(now)
	}
	if !t.renewing && len(t.olderThan(t.l.renewEvery(), now)) > 0 {
		t.renewing = t.l.begin(t.renewBlocks)
	}
	t.ticking = len(t.open)+len(t.counters) > 0
	if !t.ticking && len(t.records) == 0 {
		t.gone = true
		t.l.mu.Lock()
		delete(t.l.trees, t.name)
		t.l.mu.Unlock()
	}
	return t.ticking
}

// stale is how long a counter, or a window of it, is remembered that is not used.
const stale = time.Minute

// purge forgets pools, and the counter itself, that nobody needs any more.
func (c *counter) purge(now int64) {
	if c.working || c.lost != nil || len(c.t.waiters) > 0 || len(c.talk) > 0 {
		return
	}
	kept := c.pools[:0]
	for _, p := range c.pools {
		if p.empty() && now-p.usedAt >= int64(stale) {
			p.gone, p.known = true, false
		} else {
			kept = append(kept, p)
		}
	}
	clear(c.pools[len(kept):])
	if c.pools = kept; len(kept) == 0 && len(c.crossed) == 0 && now-c.usedAt >= int64(stale) {
		delete(c.t.counters, c.key)
	}
}

// busy are the counters of which something is leased or still to be told.
func (t *tree) busy() (counters []*counter) {
	for _, c := range t.counters {
		busy := c.lost != nil
		for _, p := range c.pools {
			busy = busy || !p.empty()
		}
		if busy {
			counters = append(counters, c)
		}
	}
	return counters
}

// olderThan are the blocks that were not renewed for so long.
func (t *tree) olderThan(age, now int64) (due []*block) {
	for _, c := range t.counters {
		for _, p := range c.pools {
			for _, b := range p.blocks {
				if !b.lapsed && now-b.renewed >= age {
					due = append(due, b)
				}
			}
		}
	}
	return due
}

// renewBlocks has blocks live for longer. Those that do not any more are noted.
func (t *tree) renewBlocks() {
	t.mu.Lock()
	due := t.olderThan(t.l.renewEvery()/2, t.l.now()) // so that they go together from now on
	t.mu.Unlock()
	for len(due) > 0 {
		batch := due[:min(len(due), renewBatch)]
		if due = due[len(batch):]; !t.renewBatch(batch) {
			break // the others will not do better
		}
	}
	t.mu.Lock()
	t.renewing = false
	t.mu.Unlock()
}

func (t *tree) renewBatch(batch []*block) bool {
	l := t.l
	ids := make([]string, len(batch))
	for i, b := range batch {
		ids[i] = b.id
	}
	ctx, cancel := l.within(l.ctx)
	defer cancel()
	l.stats.trips.Add(1)
	l.stats.renewals.Add(1)
	sent := l.now()
	lost, err := l.next.Renew(ctx, t.name, l.cfg.TTL, ids...)
	if err != nil {
		l.stats.failures.Add(1)
		return false
	}
	t.mu.Lock()
	for _, b := range batch {
		b.renewed = sent
		b.until = sent + int64(l.cfg.TTL-l.cfg.Margin)
	}
	lapsed := t.lapsed(lost)
	for _, c := range t.counters {
		for _, p := range c.pools {
			p.recount()
		}
		c.look(l.now())
	}
	t.mu.Unlock()
	l.tellLapsed(lapsed)
	return true
}

// tellLapsed tells of blocks that the ledger did not hold any more while they were in
// use. It is logged once a minute at most. No lock is held.
func (l *Ledger) tellLapsed(n int) {
	if n == 0 {
		return
	}
	all := l.stats.lapsed.Add(int64(n))
	l.mu.Lock()
	quiet := !l.toldAt.IsZero() && time.Since(l.toldAt) < time.Minute
	if !quiet {
		l.toldAt = time.Now()
	}
	l.mu.Unlock()
	if !quiet {
		l.cfg.Logger.Warn("blocks: blocks had lapsed in the ledger while they were in use; what was spent of them is booked now",
			slog.Int64("number", all))
	}
}

// lapsed notes which blocks the ledger does not hold any more, and returns how many
// of them should be held.
func (t *tree) lapsed(ids []string) (n int) {
	if len(ids) == 0 {
		return 0
	}
	gone := make(map[string]bool, len(ids))
	for _, id := range ids {
		gone[id] = true
	}
	for _, c := range t.counters {
		for _, p := range c.pools {
			for _, b := range p.blocks { // and not those that were settled meanwhile
				if gone[b.id] {
					b.lapsed = true
					n++
				}
			}
		}
	}
	return n
}
