package quota

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"math"
	"slices"
	"time"
)

// snapshotVersion is the version of the format that Snapshot writes and Restore
// reads.
const snapshotVersion = 1

// A snapshot is JSON lines: a header, a line for each key, one for each
// reservation, and a last line that counts them, by which a torn file is known.
// The keys of a reservation come before it. Instants are Unix nanoseconds of the
// wall clock.
type snapshotLine struct {
	Version int   `json:"headgate_ledger,omitempty"`
	Taken   int64 `json:"taken,omitempty"`

	Account     *accountLine     `json:"account,omitempty"`
	Reservation *reservationLine `json:"reservation,omitempty"`

	End   bool `json:"end,omitempty"`
	Lines int  `json:"lines,omitempty"`
}

type accountLine struct {
	Tree      string         `json:"tree"`
	Key       string         `json:"key"`
	Calendars []calendarLine `json:"calendars,omitempty"`
	Buckets   []bucketLine   `json:"buckets,omitempty"`
}

type calendarLine struct {
	Window  string       `json:"window"`
	Unit    string       `json:"unit"`
	Periods []periodLine `json:"periods"` // the oldest first
}

type periodLine struct {
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	Committed int64  `json:"committed,omitempty"`
	Limit     int64  `json:"limit"`
	Crossed   int32  `json:"crossed,omitempty"`
	Epoch     uint32 `json:"epoch,omitempty"`
}

type bucketLine struct {
	Window  string       `json:"window"`
	Unit    string       `json:"unit"`
	Per     int64        `json:"per"`
	Missing [2]int64     `json:"missing"` // units, and parts of one
	At      int64        `json:"at"`
	Full    int64        `json:"full"`
	Mark    int64        `json:"mark,omitempty"`
	Charges []chargeLine `json:"charges,omitempty"`
}

type chargeLine struct {
	Missing [2]int64 `json:"missing"`
	Mark    int64    `json:"mark"`
}

type reservationLine struct {
	Tree      string     `json:"tree"`
	ID        string     `json:"id"`
	Exclusive string     `json:"exclusive,omitempty"`
	State     string     `json:"state"`
	Expires   int64      `json:"expires,omitempty"` // while it is open
	Ended     int64      `json:"ended,omitempty"`   // afterwards
	Seq       int64      `json:"seq,omitempty"`
	Entries   int        `json:"entries"` // the first of held; the others came with a Settle
	Held      []heldLine `json:"held"`

	// What a repeat is told.
	Now           int64          `json:"now"`
	Wait          time.Duration  `json:"wait,omitempty"`
	Over          []int          `json:"over,omitempty"`
	Crossed       []crossingLine `json:"crossed,omitempty"`
	SettledOver   bool           `json:"settled_over,omitempty"`
	SettledLate   bool           `json:"settled_late,omitempty"`
	SettleCrossed []crossingLine `json:"settled_crossed,omitempty"`
}

var entryKinds = []string{"hold", "count", "lease", "check"}

type crossingLine struct {
	Key       string `json:"key"`
	Window    string `json:"window"`
	Unit      string `json:"unit"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	Percent   int    `json:"percent"`
	Committed int64  `json:"committed"`
	Limit     int64  `json:"limit"`
}

type heldLine struct {
	Erased     bool     `json:"erased,omitempty"` // the key was, and only kind and unit are there
	Key        string   `json:"key,omitempty"`
	Window     string   `json:"window,omitempty"`
	Unit       string   `json:"unit"`
	Per        int64    `json:"per,omitempty"` // of a rolling one
	Kind       string   `json:"kind"`
	Passed     bool     `json:"passed,omitempty"`
	Limit      int64    `json:"limit"`
	Thresholds []int    `json:"thresholds,omitempty"`
	Amount     int64    `json:"amount"`
	Used       int64    `json:"used,omitempty"`
	Kept       int64    `json:"kept,omitempty"`
	Epoch      uint32   `json:"epoch,omitempty"`
	Start      int64    `json:"start,omitempty"`
	End        int64    `json:"end,omitempty"`
	Burst      int64    `json:"burst,omitempty"`
	Mark       int64    `json:"mark,omitempty"`
	First      [3]int64 `json:"first"` // committed, reserved, and when a bucket is full
	Last       [3]int64 `json:"last"`
}

// Snapshot writes all that is in the ledger, for Restore: counters with their past
// windows, and reservations, also those that have ended and are remembered.
//
// It takes one shard after the other and keeps none locked while it writes. So
// each tree is written as it was at one moment; for all to be of the same one,
// close the ledger first.
func (m *Memory) Snapshot(w io.Writer) error {
	out := bufio.NewWriter(w)
	taken := m.now()
	lines := 0
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	write := func(l snapshotLine) error {
		lines++
		return enc.Encode(l)
	}
	if err := write(snapshotLine{Version: snapshotVersion, Taken: taken.wall.UnixNano()}); err != nil {
		return err
	}
	for i := range m.shards {
		if err := m.shards[i].snapshot(m.now(), write); err != nil {
			return err
		}
		if _, err := buf.WriteTo(out); err != nil {
			return err
		}
	}
	if err := enc.Encode(snapshotLine{End: true, Lines: lines}); err != nil {
		return err
	}
	if _, err := buf.WriteTo(out); err != nil {
		return err
	}
	return out.Flush()
}

func (s *shard) snapshot(now reading, write func(snapshotLine) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now.mono)
	for rec := s.ended.first; rec != nil; rec = rec.next {
		for i := range rec.held {
			if h := &rec.held[i]; h.account != nil {
				s.current(rec.key.tree, h, now) // so that all keys are there
			}
		}
	}
	for k, a := range s.accounts {
		if err := write(snapshotLine{Account: a.line(k.tree, now)}); err != nil {
			return err
		}
	}
	for _, rec := range s.expiring {
		if err := write(snapshotLine{Reservation: rec.line(now)}); err != nil {
			return err
		}
	}
	for rec := s.ended.first; rec != nil; rec = rec.next {
		if err := write(snapshotLine{Reservation: rec.line(now)}); err != nil {
			return err
		}
	}
	return nil
}

// toWall is an instant of the monotonic clock in Unix nanoseconds, and toMono the
// other way round.
func (r reading) toWall(mono int64) int64 { return shift(mono, r.wall.UnixNano()-r.mono) }
func (r reading) toMono(wall int64) int64 { return shift(wall, r.mono-r.wall.UnixNano()) }

// shift is a + b, but never leaves int64.
func shift(a, b int64) int64 {
	switch n := a + b; {
	case a > 0 && b > 0 && n < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && n >= 0:
		return math.MinInt64
	default:
		return n
	}
}

func (a *account) line(tree string, now reading) *accountLine {
	l := &accountLine{Tree: tree, Key: a.key}
	for i := range a.calendars {
		c := &a.calendars[i]
		cl := calendarLine{Window: c.window, Unit: c.unit.String()}
		periods := []period{c.cur}
		if c.past != nil {
			periods = append(slices.Clone(*c.past), periods...)
		}
		for _, p := range periods {
			cl.Periods = append(cl.Periods, periodLine{p.start, p.end, p.committed, p.limit, p.crossed, p.epoch})
		}
		l.Calendars = append(l.Calendars, cl)
	}
	for i := range a.buckets {
		b := &a.buckets[i]
		bl := bucketLine{
			Window: b.window, Unit: b.unit.String(), Per: b.per, Mark: b.Mark,
			Missing: [2]int64{b.Missing.Units, b.Missing.Part}, At: now.toWall(b.At), Full: now.toWall(b.Full),
		}
		if b.Open != nil {
			for _, c := range b.Open.List {
				bl.Charges = append(bl.Charges, chargeLine{[2]int64{c.Units, c.Part}, c.Mark})
			}
		}
		l.Buckets = append(l.Buckets, bl)
	}
	return l
}

func (r *record) line(now reading) *reservationLine {
	l := &reservationLine{
		Tree: r.key.tree, ID: r.key.id, Exclusive: r.exclusive, State: recordStates[r.state], Seq: r.seq,
		Entries: r.entries, Held: make([]heldLine, len(r.held)),
		Now: r.reserved.now, Wait: r.reserved.wait, Over: r.reserved.over, Crossed: crossingLines(r.reserved.crossed),
		SettledOver: r.settled.over, SettledLate: r.settled.late, SettleCrossed: crossingLines(r.settled.crossed),
	}
	if r.state == open {
		l.Expires = now.toWall(r.expires)
	} else {
		l.Ended = now.toWall(r.ended)
	}
	for i := range r.held {
		l.Held[i] = r.held[i].line()
	}
	return l
}

func (h *held) line() heldLine {
	if h.account == nil {
		return heldLine{Erased: true, Unit: h.unit.String(), Kind: entryKinds[h.kind]}
	}
	l := heldLine{
		Key: h.account.key, Unit: h.unit.String(), Kind: entryKinds[h.kind], Passed: h.passed, Limit: h.limit,
		Thresholds: h.thresholds, Amount: h.amount, Used: h.used, Kept: h.kept, Epoch: h.epoch,
		Burst: h.burst, Mark: h.mark,
		First: [3]int64{h.first.committed, h.first.reserved, h.first.full},
		Last:  [3]int64{h.last.committed, h.last.reserved, h.last.full},
	}
	if h.rolling {
		b := &h.account.buckets[h.counter]
		l.Window, l.Per = b.window, b.per
	} else {
		l.Window, l.Start, l.End = h.account.calendars[h.counter].window, h.start, h.end
	}
	return l
}

func crossingLines(crossed []Crossing) (lines []crossingLine) {
	for _, c := range crossed {
		start, end := bounds(&c.Span)
		lines = append(lines, crossingLine{
			c.Counter.Key, c.Counter.Window, c.Counter.Unit.String(), start, end, c.Percent, c.Committed, c.Limit,
		})
	}
	return lines
}
