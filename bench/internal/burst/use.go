package burst

import (
	"cmp"
	"slices"
	"time"
)

// entry is what a call counted when it was let in.
type entry struct {
	at     time.Duration
	tokens float64
}

// entries are the calls that were let in, in order of the time that when says.
func (m *measure) entries(when func(*attempt) time.Duration) (list []entry) {
	m.log.attempts(func(r *record, a *attempt) {
		if a.admitted {
			list = append(list, entry{when(a), float64(r.call.tokens)})
		}
	})
	slices.SortFunc(list, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	return list
}

func decided(a *attempt) time.Duration { return a.decided }
func sent(a *attempt) time.Duration    { return a.sent }

// book is one limit's count of what was let in, kept by the rules of a window.
// Instants must not go back.
type book struct {
	window Window
	length time.Duration // of the window
	amount float64       // of the quota
	tokens bool          // it counts tokens, else requests
	holds  float64       // what a bucket holds where it is not amount; 0 is amount

	entries []entry // that count in a sliding window
	head    int
	used    float64
	at      time.Duration
}

// books are those of the provider's limits.
func (m *measure) books() []*book {
	s := m.shape
	list := []*book{
		{window: m.window, length: minute, amount: float64(s.granted(s.TokensPerMinute)), tokens: true},
		{window: m.window, length: minute, amount: float64(s.granted(s.RequestsPerMinute))},
	}
	if s.Quantum > 0 {
		for _, b := range list[:2] {
			list = append(list, &book{window: m.window, length: s.Quantum, tokens: b.tokens,
				amount: float64(perQuantum(int64(b.amount), s.Quantum))})
		}
	}
	return list
}

// mirrored are the books that the policy goes by. One that mirrors the quota
// keeps a unit longer in its window, for it does not know when the provider
// counts it; leaves some headroom in a bucket; and paces a quota that is checked
// in bursts.
func (m *measure) mirrored() []*book {
	list := m.books()
	if !m.gate {
		return list
	}
	for _, b := range list {
		switch {
		case b.length < minute:
			b.window, b.amount, b.holds = bucketWindow, pace*b.amount, (1-pace)*b.amount
		case m.mirror == slidingWindow:
			b.window, b.length = slidingWindow, b.length+mirrorCell+m.delay
		default:
			b.window, b.amount = m.mirror, b.amount*headroom(m.shape, m.mirror)
		}
	}
	return list
}

// advance brings the book up to now.
func (b *book) advance(now time.Duration) {
	switch b.window {
	case bucketWindow: // used is what is missing to a full bucket
		b.used = max(0, b.used-b.amount*float64(now-b.at)/float64(b.length))
	case slidingWindow:
		for b.head < len(b.entries) && b.entries[b.head].at+b.length <= now {
			b.used -= b.cost(b.entries[b.head].tokens)
			b.head++
		}
	default:
		if now/b.length != b.at/b.length {
			b.used = 0
		}
	}
	b.at = now
}

func (b *book) cost(tokens float64) float64 {
	if b.tokens {
		return tokens
	}
	return 1
}

func (b *book) add(e entry) {
	b.advance(e.at)
	b.used += b.cost(e.tokens)
	if b.window == slidingWindow {
		b.entries = append(b.entries, e)
	}
}

// use is the use of the quota.
func (b *book) use() float64 { return ratio(b.used, b.amount) }

// fit is how many calls of so many tokens it has room for. One that is larger
// than what a bucket holds fits when that is full.
func (b *book) fit(tokens float64) int {
	holds, cost := b.amount, b.cost(tokens)
	if b.holds > 0 {
		holds = b.holds
	}
	if cost > holds && b.used < 1e-6 {
		return 1
	}
	return int((holds - b.used + 1e-6) / cost)
}

// maxUse is the largest use of any limit in any window of the provider's kind.
func (m *measure) maxUse() (largest float64) {
	for _, b := range m.books() {
		for _, e := range m.entries(decided) {
			b.add(e)
			largest = max(largest, b.use())
		}
	}
	return largest
}

// change is a step in the number of calls that wait or are under way.
type change struct {
	at               time.Duration
	waiting, running int
	tokens           int64 // of the call that begins (waiting 1) or ends (-1) to wait
	throttled        int
}

// changes are all of them, in order of time.
func (m *measure) changes() (list []change) {
	for _, r := range m.log.records {
		r.waits(func(from, to time.Duration) {
			list = append(list,
				change{at: from, waiting: 1, tokens: r.call.tokens}, change{at: to, waiting: -1, tokens: r.call.tokens})
		})
		for _, a := range r.attempts {
			throttled := change{at: a.ended, running: -1}
			if a.throttled {
				throttled.throttled = 1
			}
			list = append(list, change{at: a.sent, running: 1}, throttled)
		}
	}
	slices.SortStableFunc(list, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	return list
}

// The instants at which idle slots are looked for: not those at which things
// happen.
const (
	idleStep   = 100 * time.Millisecond
	idleOffset = 37 * time.Millisecond
)

// idle is the share of slot time, while the run lasts, in which a slot was free
// and a waiting call could have had it. A call could have had it if the largest
// of those that wait fits into the quota, as the policy mirrors it: that leaves
// out what the guard costs, and policies that keep room for a large call.
func (m *measure) idle() float64 {
	if m.slots == 0 || m.end == 0 {
		return 0
	}
	books := m.mirrored()
	entries, changes := m.entries(sent), m.changes()
	waiting := make(map[int64]int) // calls by tokens
	var n, running, steps, i, j int
	var idle float64
	for now := idleOffset; now < m.end; now += idleStep {
		for ; i < len(changes) && changes[i].at <= now; i++ {
			c := changes[i]
			n += c.waiting
			running += c.running
			if waiting[c.tokens] += c.waiting; waiting[c.tokens] == 0 {
				delete(waiting, c.tokens)
			}
		}
		for ; j < len(entries) && entries[j].at <= now; j++ {
			for _, b := range books {
				b.add(entries[j])
			}
		}
		steps++
		if free := m.slots - running; n > 0 && free > 0 && !m.down(now) {
			var largest int64
			for tokens := range waiting {
				largest = max(largest, tokens)
			}
			could := min(free, n)
			for _, b := range books {
				b.advance(now)
				could = min(could, b.fit(float64(largest)))
			}
			idle += float64(max(could, 0))
		}
	}
	return ratio(idle, float64(steps*m.slots))
}

// down reports whether the provider is out at an instant.
func (m *measure) down(now time.Duration) bool {
	return now >= m.shape.OutageFrom && now < m.shape.OutageTo
}

// series samples the run.
func (m *measure) series() (list []Sample) {
	step := time.Second
	for m.end/step >= MaxSamples {
		step += time.Second
	}
	books := m.books()
	entries, changes := m.entries(decided), m.changes()
	var s Sample
	i, j := 0, 0
	for now := time.Duration(0); ; now += step {
		s.At, s.Throttled, s.Use = now.Seconds(), 0, 0
		for ; i < len(changes) && changes[i].at <= now; i++ {
			s.Waiting += changes[i].waiting
			s.InFlight += changes[i].running
			s.Throttled += changes[i].throttled
		}
		for ; j < len(entries) && entries[j].at <= now; j++ {
			for _, b := range books {
				b.add(entries[j])
			}
		}
		for _, b := range books {
			b.advance(now)
			s.Use = max(s.Use, b.use())
		}
		list = append(list, s)
		if now >= m.end {
			return list
		}
	}
}
