package quota

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/budget/quota/internal/rolling"
)

// maxMark leaves more marks than a ledger ever makes.
const maxMark = math.MaxInt64 / 2

// maxSnapshotLine bounds a line of a snapshot in bytes.
const maxSnapshotLine = 16 << 20

// Restore reads what Snapshot has written into a ledger that has not been used:
// the time in between has passed for it. An error names the line and what is wrong
// with it, and the ledger is empty then.
func (m *Memory) Restore(r io.Reader) error {
	fresh, err := NewMemory(m.cfg)
	if err != nil {
		return err
	}
	fresh.base, fresh.seed = m.base, m.seed
	fresh.skew.Store(m.skew.Load())
	if err := fresh.read(r); err != nil {
		return err
	}
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.accounts) > 0 || len(s.records) > 0 {
			return errors.New("quota: Restore into a ledger that has been used")
		}
	}
	for i := range m.shards {
		s, from := &m.shards[i], &fresh.shards[i]
		s.accounts, s.records, s.exclusive = from.accounts, from.records, from.exclusive
		s.expiring, s.ended, s.names, s.sets, s.mark = from.expiring, from.ended, from.names, from.sets, from.mark
		s.subjects.Store(int64(len(s.accounts)))
		s.opened.Store(int64(len(s.expiring)))
		s.remembered.Store(int64(s.ended.len))
	}
	return nil
}

func (m *Memory) read(r io.Reader) error {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxSnapshotLine)
	now := m.now()
	n, ended := 0, false
	for ; in.Scan(); n++ {
		var l snapshotLine
		dec := json.NewDecoder(bytes.NewReader(in.Bytes()))
		dec.DisallowUnknownFields()
		err := dec.Decode(&l)
		switch {
		case err != nil:
		case ended:
			err = errors.New("comes after the end")
		case n == 0 && l.Version != snapshotVersion:
			err = fmt.Errorf("headgate_ledger is %d, this program reads %d", l.Version, snapshotVersion)
		case n == 0:
		case l.Account != nil:
			err = m.shard(l.Account.Tree).readAccount(l.Account, now)
		case l.Reservation != nil:
			err = m.shard(l.Reservation.Tree).readReservation(l.Reservation, now)
		case !l.End:
			err = errors.New("has nothing that is known")
		case l.Lines != n:
			err = fmt.Errorf("lines is %d, there are %d", l.Lines, n)
		default:
			ended = true
		}
		if err != nil {
			return fmt.Errorf("quota: snapshot: line %d: %w", n+1, err)
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("quota: snapshot: line %d: %w", n+1, err)
	}
	if !ended {
		return fmt.Errorf("quota: snapshot: it ends after line %d, without its last line", n)
	}
	for i := range m.shards {
		if err := m.shards[i].complete(); err != nil {
			return fmt.Errorf("quota: snapshot: %w", err)
		}
	}
	return nil
}

// complete puts the reservations that have ended in their order, and refuses
// charges that none holds.
func (s *shard) complete() error {
	var ended []*record
	for r := s.ended.first; r != nil; r = r.next {
		ended = append(ended, r)
	}
	slices.SortStableFunc(ended, func(a, b *record) int { return cmp.Compare(a.ended, b.ended) })
	s.ended = fifo{}
	for _, r := range ended {
		r.next = nil
		s.ended.push(r)
	}
	for _, a := range s.accounts {
		for i := range a.buckets {
			if b := &a.buckets[i]; b.Open != nil && b.Open.Holds == 0 {
				return fmt.Errorf("account %q: buckets[%d] has charges, and no reservation holds them", a.key, i)
			}
		}
	}
	return nil
}

var unitsByName = func() map[string]Unit {
	units := make(map[string]Unit, Units)
	for u := range Unit(Units) {
		units[u.String()] = u
	}
	return units
}()

func unitNamed(name string) (Unit, error) {
	u, ok := unitsByName[name]
	if !ok {
		return 0, fmt.Errorf("unit is %q, which is not known", name)
	}
	return u, nil
}

func (s *shard) readAccount(l *accountLine, now reading) error {
	if s.accounts[accountKey{l.Tree, l.Key}] != nil {
		return errors.New("account is there twice")
	}
	a := s.account(l.Tree, l.Key)
	for i := range l.Calendars {
		if err := s.readCalendar(a, &l.Calendars[i], now); err != nil {
			return fmt.Errorf("calendars[%d]: %w", i, err)
		}
	}
	for i := range l.Buckets {
		if err := s.readBucket(a, &l.Buckets[i], now); err != nil {
			return fmt.Errorf("buckets[%d]: %w", i, err)
		}
	}
	return nil
}

func (s *shard) readCalendar(a *account, l *calendarLine, now reading) error {
	unit, err := unitNamed(l.Unit)
	if err != nil {
		return err
	}
	e := Entry{Counter: Counter{Window: l.Window, Unit: unit}}
	if a.find(&e) >= 0 {
		return errors.New("counter is there twice")
	}
	if len(l.Periods) == 0 {
		return errors.New("periods is empty")
	}
	c := &a.calendars[s.counter(a, &e, 0, 0, now)]
	var past []period
	for i, p := range l.Periods {
		switch {
		case p.Start >= p.End || i > 0 && p.Start <= l.Periods[i-1].Start:
			return fmt.Errorf("periods[%d] is from %d to %d, must end after it starts and start after the one before", i, p.Start, p.End)
		case p.Committed < 0:
			return fmt.Errorf("periods[%d].committed is %d, must not be negative", i, p.Committed)
		case p.Crossed < 0 || p.Crossed > MaxPercent:
			return fmt.Errorf("periods[%d].crossed is %d, must be from 0 to %d", i, p.Crossed, MaxPercent)
		}
		past = append(past, period{p.Start, p.End, p.Committed, 0, p.Limit, p.Crossed, p.Epoch})
	}
	last := len(past) - 1
	if c.cur = past[last]; last > 0 {
		past = past[:last]
		c.past = &past
	}
	return nil
}

func (s *shard) readBucket(a *account, l *bucketLine, now reading) error {
	unit, err := unitNamed(l.Unit)
	switch {
	case err != nil:
		return err
	case l.Per <= 0:
		return fmt.Errorf("per is %d, must be positive", l.Per)
	case l.Mark < 0 || l.Mark > maxMark:
		return fmt.Errorf("mark is %d, must be from 0 to %d", l.Mark, int64(maxMark))
	}
	e := Entry{Counter: Counter{Window: l.Window, Unit: unit}, Rolling: true, Per: time.Duration(l.Per)}
	if a.find(&e) >= 0 {
		return errors.New("counter is there twice")
	}
	b := &a.buckets[s.counter(a, &e, 0, 0, now)]
	if b.Missing, err = readQuantity(l.Missing, l.Per); err != nil {
		return err
	}
	// The wall clock may have been set back, which must not stop the refill.
	b.At, b.Full, b.Mark = min(now.toMono(l.At), now.mono), now.toMono(l.Full), l.Mark
	s.mark = max(s.mark, l.Mark)
	if len(l.Charges) == 0 {
		return nil
	}
	b.Open = new(rolling.Charges)
	var total rolling.Quantity
	for i, c := range l.Charges {
		q, err := readQuantity(c.Missing, l.Per)
		switch {
		case err != nil:
			return fmt.Errorf("charges[%d].%w", i, err)
		case c.Mark <= 0 || i > 0 && c.Mark <= l.Charges[i-1].Mark || c.Mark > l.Mark:
			return fmt.Errorf("charges[%d].mark is %d, must rise up to %d", i, c.Mark, l.Mark)
		case q.Units > b.Missing.Units-total.Units:
			return fmt.Errorf("charges[%d].missing is %d, more than what is missing", i, q.Units)
		}
		total = total.Plus(q, l.Per)
		b.Open.List = append(b.Open.List, rolling.Charge{Quantity: q, Mark: c.Mark})
		s.mark = max(s.mark, c.Mark)
	}
	if total != b.Missing {
		return fmt.Errorf("charges are %d units and %d parts, and missing is %d and %d", total.Units, total.Part, b.Missing.Units, b.Missing.Part)
	}
	return nil
}

func readQuantity(v [2]int64, per int64) (rolling.Quantity, error) {
	if v[0] < 0 || v[0] == math.MaxInt64 || v[1] < 0 || v[1] >= per {
		return rolling.Quantity{}, fmt.Errorf("missing is %d units and %d of %d parts", v[0], v[1], per)
	}
	return rolling.Quantity{Units: v[0], Part: v[1]}, nil
}

// readReservation takes a reservation up again. What counters have reserved is not
// read: it is what their reservations hold.
func (s *shard) readReservation(l *reservationLine, now reading) error {
	key := recordKey{strings.Clone(l.Tree), l.ID}
	if err := validateReservationID(l.ID); err != nil {
		return err
	}
	at := slices.Index(recordStates, l.State)
	switch {
	case s.records[key] != nil:
		return errors.New("reservation is there twice")
	case at < 0:
		return fmt.Errorf("state is %q, which is not known", l.State)
	case l.Entries < 0 || l.Entries > min(len(l.Held), MaxEntries):
		return fmt.Errorf("entries is %d of %d held, at most %d", l.Entries, len(l.Held), MaxEntries)
	case l.Wait < 0:
		return fmt.Errorf("wait is %v, must not be negative", l.Wait)
	case slices.ContainsFunc(l.Over, func(i int) bool { return i < 0 || i >= l.Entries }):
		return fmt.Errorf("over is %v, of %d entries", l.Over, l.Entries)
	case l.Exclusive != "" && at == int(open) && s.exclusive[recordKey{l.Tree, l.Exclusive}] != nil:
		return fmt.Errorf("exclusive is %q, which another one has", l.Exclusive)
	}
	rec := s.newRecord(len(l.Held))
	rec.key, rec.entries, rec.exclusive, rec.state, rec.seq = key, l.Entries, l.Exclusive, state(at), l.Seq
	rec.reserved = reservedResult{now: l.Now, wait: l.Wait, over: l.Over}
	rec.settled = settledResult{over: l.SettledOver, late: l.SettledLate}
	var err error
	if rec.reserved.crossed, err = readCrossings(l.Crossed); err != nil {
		return fmt.Errorf("crossed%w", err)
	}
	if rec.settled.crossed, err = readCrossings(l.SettleCrossed); err != nil {
		return fmt.Errorf("settled_crossed%w", err)
	}
	for i := range l.Held {
		h, err := s.readHeld(rec, &l.Held[i])
		if err != nil {
			return fmt.Errorf("held[%d]: %w", i, err)
		}
		rec.held = append(rec.held, h)
	}
	if rec.state == open {
		rec.expires = now.toMono(l.Expires)
		s.start(rec)
		return nil
	}
	rec.ended = min(now.toMono(l.Ended), now.mono)
	s.records[key] = rec
	s.ended.push(rec)
	return nil
}

func readCrossings(lines []crossingLine) (crossed []Crossing, err error) {
	for i, l := range lines {
		unit, err := unitNamed(l.Unit)
		if err != nil {
			return nil, fmt.Errorf("[%d].%w", i, err)
		}
		crossed = append(crossed, Crossing{
			Counter: Counter{l.Key, l.Window, unit}, Span: spanOf(l.Start, l.End),
			Percent: l.Percent, Committed: l.Committed, Limit: l.Limit,
		})
	}
	return crossed, nil
}

func (s *shard) readHeld(r *record, l *heldLine) (h held, err error) {
	unit, err := unitNamed(l.Unit)
	if err != nil {
		return h, err
	}
	kind := slices.Index(entryKinds, l.Kind)
	if kind < 0 {
		return h, fmt.Errorf("kind is %q, which is not known", l.Kind)
	}
	e := Entry{
		Counter: Counter{Key: l.Key, Window: l.Window, Unit: unit}, Kind: Kind(kind), Amount: l.Amount,
		Rolling: l.Per != 0, Per: time.Duration(l.Per), Burst: l.Burst, Thresholds: l.Thresholds,
	}
	if err := e.Validate(); err != nil {
		return h, err
	}
	h = held{
		kind: e.Kind, unit: unit, rolling: e.Rolling, passed: l.Passed, limit: l.Limit,
		amount: l.Amount, used: l.Used, kept: l.Kept, epoch: l.Epoch, burst: l.Burst, mark: l.Mark,
		first: standing{l.First[0], l.First[1], l.First[2]}, last: standing{l.Last[0], l.Last[1], l.Last[2]},
	}
	if l.Erased {
		return h, nil
	}
	h.account = s.accounts[accountKey{r.key.tree, l.Key}]
	h.counter = h.account.find(&e)
	switch {
	case h.counter < 0:
		return h, errors.New("its counter is not there")
	case l.Used < 0 || l.Kept < 0 || l.Kept > l.Used:
		return h, fmt.Errorf("used is %d, and kept %d", l.Used, l.Kept)
	case !h.rolling && l.Start >= l.End:
		return h, fmt.Errorf("start is %d, and end %d", l.Start, l.End)
	}
	holds := r.state == open && !h.passed && (h.kind == Hold || h.kind == Lease)
	if h.rolling {
		if holds {
			return h, s.readRollingHold(&h)
		}
		return h, nil
	}
	h.start, h.end, h.thresholds = l.Start, l.End, s.thresholds(l.Thresholds)
	if holds {
		p := h.account.calendars[h.counter].at(h.start)
		if p == nil && h.amount == 0 { // its window is past, and nothing is held there
			return h, nil
		}
		if p == nil || h.amount > math.MaxInt64-p.used() {
			return h, fmt.Errorf("start is %d and amount %d, for which its counter has no window or no room", h.start, h.amount)
		}
		p.reserved += h.amount
	}
	return h, nil
}

func (s *shard) readRollingHold(h *held) error {
	b := &h.account.buckets[h.counter]
	if h.amount > math.MaxInt64-b.Reserved || h.mark <= 0 || h.mark > b.Mark {
		return fmt.Errorf("amount is %d with mark %d, which its counter has not", h.amount, h.mark)
	}
	b.Reserved += h.amount
	if b.Open == nil {
		b.Open = new(rolling.Charges)
	}
	b.Open.Holds++
	if i := b.Open.Find(h.mark); i >= 0 {
		b.Open.List[i].Holds++
	}
	return nil
}
