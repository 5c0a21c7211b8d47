package ledgertest

import (
	"math"
	"slices"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// model is a ledger that keeps nothing but what has happened, and reckons
// everything from it each time anew: slow, and with no state that could be wrong.
type model struct {
	calls map[string]*call
	logs  map[place][]*event         // of calendar counters, by window
	rolls map[quota.Counter][]*event // of rolling counters
}

// place is a calendar counter in one window.
type place struct {
	quota.Counter
	start int64 // Unix seconds
}

// call is a reservation.
type call struct {
	id        string
	entries   []quota.Entry
	exclusive string
	places    []place  // by entry
	took      []*event // by entry, of the rolling ones
	state     string   // "open", "settled", "released" or "expired"
	late      bool
	expires   time.Time
	ended     time.Time
	first     quota.Reserved
	last      quota.Settled
	seq       int64
	used      quota.Amounts
}

// event is something that happened to a counter.
type event struct {
	what   string // "use", "top-up" or "reset"
	call   *call
	at     time.Time
	amount int64
}

func newModel() *model {
	return &model{make(map[string]*call), make(map[place][]*event), make(map[quota.Counter][]*event)}
}

func (m *model) place(e *quota.Entry, now time.Time) place {
	return place{e.Counter, e.SpanAt(now).Start.Unix()}
}

// committed is what the calls have used, in the order in which it became known.
func (m *model) committed(p place) (sum int64) {
	used, kept := make(map[*call]int64), make(map[*call]int64)
	for _, ev := range m.logs[p] {
		switch ev.what {
		case "use": // of the whole call
			more := ev.amount - used[ev.call]
			if more < 0 { // what a reset has cleared is not given back
				more = -min(-more, kept[ev.call])
			}
			sum = max(sum+more, 0)
			kept[ev.call] += more
			used[ev.call] = ev.amount
		case "top-up":
			sum = max(sum-ev.amount, 0)
		case "reset":
			sum = 0
			clear(kept)
		}
	}
	return sum
}

// reserved is what the open calls hold.
func (m *model) reserved(p place) (sum int64) {
	for _, c := range m.calls {
		if c.state != "open" {
			continue
		}
		for i, e := range c.entries {
			if c.places[i] == p && (e.Kind == quota.Hold || e.Kind == quota.Lease) {
				sum += e.Amount
			}
		}
	}
	return sum
}

// missing is what is missing from the burst of a rolling counter, in parts of a
// unit of which there are as many as its Per has nanoseconds. It goes through all
// that has been taken, with what it is known by now to have cost: so a refund is
// a change of the past.
func (m *model) missing(e *quota.Entry, now time.Time) int64 {
	var missing int64
	var last time.Time
	pass := func(at time.Time) {
		if !last.IsZero() {
			missing = max(missing-int64(at.Sub(last))*e.Limit, 0)
		}
		last = at
	}
	for _, ev := range m.rolls[e.Counter] {
		pass(ev.at)
		switch ev.what {
		case "use":
			missing += ev.amount * int64(e.Per)
		case "top-up":
			missing = max(missing-ev.amount*int64(e.Per), 0)
		case "reset":
			missing = 0
		}
	}
	pass(now)
	return missing
}

// expire ends the calls whose time is up.
func (m *model) expire(now time.Time) {
	for _, c := range m.calls {
		if c.state == "open" && !now.Before(c.expires) {
			c.giveBack("expired", c.expires)
		}
	}
}

func (c *call) giveBack(state string, at time.Time) {
	if c.state == "open" {
		c.ended = at
	}
	c.state = state
	for i, e := range c.entries {
		if e.Rolling && e.Kind == quota.Hold {
			c.took[i].amount = 0
		}
	}
}

// reserve decides as the documentation says.
func (m *model) reserve(r quota.Reserve, now time.Time) quota.Reserved {
	if c := m.calls[r.ID]; c != nil {
		first := c.first
		first.Repeated = true
		return first
	}
	res := quota.Reserved{Denied: -1}
	for _, c := range m.calls {
		if r.Exclusive != "" && c.state == "open" && c.exclusive == r.Exclusive {
			res.Held, res.RetryAfter = true, c.expires.Sub(now)
			return res
		}
	}
	c := &call{id: r.ID, entries: r.Entries, exclusive: r.Exclusive, state: "open", expires: now.Add(r.TTL)}
	var retries []time.Duration
	skip := make([]bool, len(r.Entries))
	for i := range r.Entries {
		e := &r.Entries[i]
		need := e.Amount
		if e.Kind == quota.Check && need == 0 {
			need = 1
		}
		c.places = append(c.places, m.place(e, now))
		var no, never bool
		var retry time.Duration
		if e.Rolling {
			wait := func(missing int64) time.Duration {
				if need == 0 {
					return 0
				}
				lack := missing + (need-e.Burst)*int64(e.Per)
				return time.Duration((max(lack, 0) + e.Limit - 1) / e.Limit)
			}
			w := wait(m.missing(e, now))
			no, never, retry = w > e.MaxWait, wait(0) > e.MaxWait, w-e.MaxWait
			if !no && !e.Observe {
				res.Wait = max(res.Wait, w)
			}
			skip[i] = no || e.Kind == quota.Check
		} else {
			used := m.committed(c.places[i]) + m.reserved(c.places[i])
			fits := func(end int64) bool { return need == 0 || end < 0 || used+need <= end }
			hard := e.Limit
			if e.Soft {
				hard = e.Ceiling
			}
			no, never, retry = !fits(hard), hard >= 0 && need > hard, e.SpanAt(now).End.Sub(now)
			if e.Spans == [3]quota.Span{} {
				retry = math.MaxInt64
			}
			if !fits(e.Limit) && !no {
				res.Over = append(res.Over, i)
			}
		}
		switch {
		case no && e.Observe:
			res.Over = append(res.Over, i)
		case no:
			if res.Denied < 0 {
				res.Denied, res.Never = i, never
			}
			if never {
				retry = math.MaxInt64
			}
			retries = append(retries, retry)
		}
	}
	if res.Denied >= 0 {
		res.Wait = 0
		if res.RetryAfter = slices.Max(retries); res.RetryAfter == math.MaxInt64 {
			res.RetryAfter = 0
		}
		return res
	}
	c.took = make([]*event, len(r.Entries))
	for i, e := range r.Entries {
		switch {
		case e.Rolling:
			c.took[i] = &event{"use", c, now, e.Amount}
			if skip[i] {
				c.took[i].amount = 0
				c.took[i].what = "nothing"
			}
			m.rolls[e.Counter] = append(m.rolls[e.Counter], c.took[i])
		case e.Kind == quota.Count:
			m.logs[c.places[i]] = append(m.logs[c.places[i]], &event{"use", c, now, e.Amount})
		}
	}
	c.first = res
	m.calls[r.ID] = c
	return res
}

// settle books what was used.
func (m *model) settle(s quota.Settle, now time.Time) (res quota.Settled, known bool) {
	c := m.calls[s.ID]
	switch {
	case c == nil:
		return res, false
	case c.state == "released":
		return quota.Settled{Repeated: true}, true
	case c.state == "settled" && (!s.Adjust || s.Seq <= c.seq):
		res = c.last
		res.Repeated = true
		return res, true
	}
	c.late = c.late || c.state == "expired"
	for i, e := range c.entries {
		if e.Kind != quota.Hold {
			continue
		}
		used := s.Actual[e.Unit]
		if !e.Rolling {
			m.logs[c.places[i]] = append(m.logs[c.places[i]], &event{"use", c, now, used})
			continue
		}
		if c.took[i].what == "nothing" {
			continue
		}
		before := c.used[e.Unit]
		if c.state == "open" {
			before = e.Amount
			c.took[i].amount = min(used, before)
		}
		if used > before { // it is taken when it becomes known
			m.rolls[e.Counter] = append(m.rolls[e.Counter], &event{"use", c, now, used - before})
		}
	}
	if c.state == "open" {
		c.ended = now
	}
	c.state, c.seq, c.used = "settled", s.Seq, s.Actual
	for i := range c.entries {
		e := &c.entries[i]
		if e.Kind != quota.Hold {
			continue
		}
		st := quota.Status{Committed: m.committed(c.places[i]), Reserved: m.reserved(c.places[i])}
		limit := e.Limit
		if e.Rolling {
			st = m.rollingStatus(e, now)
			limit = e.Burst
		}
		res.Status = append(res.Status, st)
		res.Over = res.Over || limit >= 0 && st.Committed+st.Reserved > limit && !e.Rolling || e.Rolling && st.Committed > limit
	}
	res.Late = c.late
	c.last = res
	return res, true
}

func (m *model) rollingStatus(e *quota.Entry, now time.Time) quota.Status {
	st := quota.Status{Committed: (m.missing(e, now) + int64(e.Per) - 1) / int64(e.Per)}
	for _, c := range m.calls {
		for i, x := range c.entries {
			if c.state == "open" && x.Counter == e.Counter && x.Kind == quota.Hold && c.took[i].what == "use" {
				st.Reserved += x.Amount
			}
		}
	}
	return st
}

// change is a top-up or a reset.
func (m *model) change(e *quota.Entry, what string, amount int64, now time.Time) {
	ev := &event{what: what, at: now, amount: amount}
	if e.Rolling {
		m.rolls[e.Counter] = append(m.rolls[e.Counter], ev)
		return
	}
	p := m.place(e, now)
	m.logs[p] = append(m.logs[p], ev)
}
