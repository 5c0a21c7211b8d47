package share

import "math"

// tick is the grain of time of a quota's books.
const ticksPerSecond = 1_000_000

// slack makes up for fractions of a unit that do not add up to whole ones in
// binary.
const slack = 1e-6

// mirror keeps the books of one dimension as the provider does: what was spent,
// by the time at which the provider had counted it at the latest. Both shapes
// keep a ring of cells. A window has used what is in the ring. A bucket's level
// is replayed from the oldest cell on: spends are taken at the end of their cell,
// refunds are given before its beginning, so that what is dated late leaves it
// where it would be had it been told in time.
//
// Levels are float64 because scripts of a store compute in them, and must give
// the same answers.
type mirror struct {
	shape  Shape
	limit  float64 // units per window in force
	burst  float64 // of a bucket, in force
	window int64   // in ticks, like all times
	cell   int64

	ring []int64 // by number of the cell, modulo its length
	cur  int64   // number of the current cell
	last int64   // when the books were last brought up to date

	sum int64 // of the ring, for a window

	base  float64 // of a bucket: its level at since
	since int64   // not after the beginning of the current cell, or within it
	start float64 // its level at the beginning of the current cell, or at since
	stale bool    // start must be replayed
}

// maxRing bounds the cells of a ring.
const maxRing = 1 << 12

func newMirror(d Dim, now int64) *mirror {
	m := &mirror{
		shape: d.Shape, limit: float64(d.Limit), burst: float64(d.Burst),
		window: d.Window.Microseconds(), cell: d.Cell.Microseconds(),
	}
	m.ring = make([]int64, (m.window-1)/m.cell+2)
	m.cur, m.last, m.since = floorDiv(now, m.cell), now, now
	m.base, m.start = m.burst, m.burst
	return m
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func (m *mirror) at(cell int64) *int64 {
	n := int64(len(m.ring))
	return &m.ring[(cell%n+n)%n]
}

func (m *mirror) oldest() int64 { return m.cur - int64(len(m.ring)) + 1 }

// advance brings the books up to now.
func (m *mirror) advance(now int64) {
	if now <= m.last {
		return
	}
	m.last = now
	to := floorDiv(now, m.cell)
	if to == m.cur {
		return
	}
	n := int64(len(m.ring))
	for steps := min(to-m.cur, n); steps > 0; steps-- {
		c := m.at(m.oldest())
		if m.shape == Bucket {
			m.fold(m.oldest(), *c)
		}
		m.sum -= *c
		*c = 0
		m.cur++
	}
	if m.cur < to { // a pause longer than the ring
		m.cur = to
		if m.shape == Bucket {
			m.fold(m.oldest()-1, 0)
		}
	}
	m.stale = true
}

// fold brings the base to the end of a cell.
func (m *mirror) fold(cell, spent int64) {
	end := (cell + 1) * m.cell
	if end <= m.since {
		return
	}
	m.base = m.step(m.base, end-m.since, spent)
	m.since = end
}

// step refills for a time and then spends.
func (m *mirror) step(level float64, ticks, spent int64) float64 {
	level = min(m.burst, level+m.limit*float64(ticks)/float64(m.window))
	return min(m.burst, level-float64(spent))
}

// replay computes the level at the beginning of the current cell.
func (m *mirror) replay() {
	m.stale = false
	level, at := m.base, m.since
	for cell := max(m.oldest(), floorDiv(at, m.cell)); cell < m.cur; cell++ {
		end := (cell + 1) * m.cell
		level = m.step(level, end-at, *m.at(cell))
		at = end
	}
	m.start = level
}

// level is what could be spent now if nothing were outstanding. The books are up
// to date.
func (m *mirror) level() float64 {
	switch m.shape {
	case Window:
		return m.limit - float64(m.sum)
	case Slots:
		return m.limit
	}
	if m.stale {
		m.replay()
	}
	return m.step(m.start, m.last-max(m.since, m.cur*m.cell), *m.at(m.cur))
}

// capacity is the highest level.
func (m *mirror) capacity() float64 {
	if m.shape == Bucket {
		return m.burst
	}
	return m.limit
}

// spend books an amount that the provider has counted by the given time, at the
// latest. It returns the cell, for take back.
func (m *mirror) spend(at, amount int64) (cell int64) {
	cell = min(floorDiv(at, m.cell), m.cur)
	switch {
	case m.shape == Slots:
	case cell >= m.oldest() && (m.shape == Window || (cell+1)*m.cell > m.since):
		*m.at(cell) += amount
		m.sum += amount
		m.stale = m.stale || cell < m.cur
	case m.shape == Bucket:
		m.base -= float64(amount)
		m.stale = true
		cell = m.oldest() - 1
	}
	return cell
}

// refund books that an amount that was counted at the given time, at the
// earliest, was not used after all. What has left the ring is forgotten, as in
// the provider's window; a bucket may have been full since.
func (m *mirror) refund(at, amount int64) {
	cell := min(floorDiv(at, m.cell), m.cur)
	if m.shape == Bucket {
		cell-- // its end is the beginning of that one
	}
	m.takeBack(cell, amount)
}

// takeBack undoes a spend of this cell.
func (m *mirror) takeBack(cell, amount int64) {
	if m.shape == Slots || cell < m.oldest() || m.shape == Bucket && (cell+1)*m.cell <= m.since {
		return
	}
	*m.at(cell) -= amount
	m.sum -= amount
	m.stale = m.stale || cell < m.cur
}

// within is what is in the ring and surely was spent within the last window: its
// oldest cell may be older.
func (m *mirror) within() (sum int64) {
	for cell := m.oldest(); cell <= m.cur; cell++ {
		if cell*m.cell >= m.last-m.window {
			sum += *m.at(cell)
		}
	}
	return sum
}

// debit takes an amount now, from a bucket or, below 0, gives it back.
func (m *mirror) debit(amount int64) {
	if m.shape == Bucket {
		m.restart(min(m.level()-float64(amount), m.burst))
		return
	}
	m.spend(m.last, amount)
}

// lower makes the level no higher than left. What is missing is booked as spent now,
// or for a window where it will be forgotten after reset: it returns the cell and the
// amount, for take back.
func (m *mirror) lower(left float64, reset int64) (cell, over int64) {
	over = whole(m.level() - left)
	if over <= 0 || m.shape == Slots {
		return 0, 0
	}
	at := m.last
	if m.shape == Window && reset > 0 {
		at -= max(m.window-reset, 0)
	}
	return m.spend(at, over), over
}

// set changes the limit and the burst in force. A bucket keeps its level, up to
// its burst; what was spent before can no longer be refunded.
func (m *mirror) set(limit, burst float64) {
	if limit == m.limit && burst == m.burst {
		return
	}
	if m.shape == Bucket {
		m.restart(min(m.level(), burst))
	}
	m.limit, m.burst = limit, burst
}

// restart gives a bucket a level, from now on.
func (m *mirror) restart(level float64) {
	clear(m.ring)
	m.sum = 0
	m.base, m.since, m.start, m.stale = level, m.last, level, false
}

// wait is how long it takes until the level has risen to need, if nothing is
// spent meanwhile; false if that never happens.
func (m *mirror) wait(need float64) (ticks int64, ok bool) {
	have := m.level()
	if have+slack >= need {
		return 0, true
	}
	switch m.shape {
	case Window:
		for cell := m.oldest(); cell <= m.cur; cell++ {
			if have += float64(*m.at(cell)); have+slack >= need {
				return (cell+int64(len(m.ring)))*m.cell - m.last, true
			}
		}
	case Bucket:
		if need > m.burst+slack || m.limit <= 0 {
			return 0, false
		}
		rest, spent := (m.cur+1)*m.cell-m.last, float64(*m.at(m.cur))
		if t := m.refills(need - have); t <= rest && need+spent <= m.burst {
			return t, true
		}
		end := m.step(m.start, (m.cur+1)*m.cell-max(m.since, m.cur*m.cell), *m.at(m.cur))
		return rest + m.refills(max(need-end, 0)), true
	}
	return 0, false
}

// refills is how long so many units take.
func (m *mirror) refills(units float64) int64 {
	t := math.Ceil(units * float64(m.window) / m.limit)
	return int64(min(t, math.MaxInt64/4))
}

// whole is a level in units.
func whole(level float64) int64 {
	return int64(math.Floor(max(min(level+slack, 1<<62), -1<<62)))
}
