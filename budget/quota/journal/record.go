package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// formatVersion is that of the files that this package writes. It reads no other.
const formatVersion = 1

// kind says what a record is about. The numbers are in the files.
type kind uint8

const (
	headerKind kind = iota // begins a file
	settleKind             // what a reservation was settled to
	countKind              // what a reservation has counted for good
	ackKind                // what the ledger has answered
	eraseKind              // a key that was erased
	gapKind                // how much could not be written, or was removed early
	kinds
)

// Outcome is what is known of a record that the ledger was told of, or not.
type Outcome uint8

const (
	// Unanswered is what the ledger has not answered yet, or nobody knows that it has.
	Unanswered Outcome = iota
	// Answered is what the ledger has taken.
	Answered
	// Void is what the ledger did not take, as the reservation had been released.
	Void
	// Unknown is what the ledger did not know and could not be booked anew: it belongs to
	// a reservation of another process, or to a key that was erased, or was booked before.
	Unknown
	// Doubtful is what the ledger does not know any more, so that it may have been charged
	// and forgotten, or never; see the documentation of the package.
	Doubtful

	outcomes
)

var outcomeNames = [outcomes]string{"unanswered", "answered", "void", "unknown", "doubtful"}

// String is the outcome's name: "unanswered", "answered", "void", "unknown" or
// "doubtful".
func (o Outcome) String() string {
	if o < outcomes {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Record is what the journal knows of a reservation: what it has counted for good when
// it was made, or what it was settled to. It holds ids and amounts, and never text of
// a call.
type Record struct {
	// Number tells the records of a directory apart. It rises.
	Number uint64
	// At is when it was written, and Taken when the reservation was made, by the clock
	// of this process. Taken is zero where that is not known.
	At, Taken time.Time
	// Tree and ID are those of the reservation, and Note says what it was for.
	Tree, ID string
	Note     quota.Note
	// Settled is false if the reservation was only made: then Entries have what it has
	// counted, and nothing else of what follows is set.
	Settled bool
	// Told is when the ledger was first told what the reservation was settled to: At, or
	// before that if it has got no answer and its caller has told it something else since.
	// It is zero where Taken is.
	Told time.Time
	// Actual is what was used, by unit; see [quota.Settle]. So are Adjust and Seq.
	Actual quota.Amounts
	Adjust bool
	Seq    int64
	// Entries are the calendar entries of the reservation of kind Hold and Count, in the
	// window in which they were taken, which is their Spans[1], such that they could be
	// booked anew: nothing denies them. They are missing where Taken is zero.
	Entries []quota.Entry
	// More are the further counters of the settlement, as far as they are no rolling
	// ones.
	More []quota.Entry
	// Outcome is what became of it, as far as whoever reads it can know.
	Outcome Outcome
}

// Charge is what a record charges to a counter.
type Charge struct {
	Counter quota.Counter
	Span    quota.Span
	Amount  int64
}

// Charges is what the record charges, in the order of its entries: what was used of
// those that held, what was counted at once, and further counters. Amounts of 0 are left
// out. Of several records of a reservation, a later one has what the whole of it charges;
// see [All].
func (r *Record) Charges() []Charge {
	var all []Charge
	add := func(e *quota.Entry, amount int64) {
		if amount > 0 {
			all = append(all, Charge{e.Counter, e.Spans[1], amount})
		}
	}
	for i := range r.Entries {
		if e := &r.Entries[i]; e.Kind == quota.Count {
			add(e, e.Amount)
		} else {
			add(e, r.Actual[e.Unit])
		}
	}
	for i := range r.More {
		e := &r.More[i]
		if !holds(r.Entries, &e.Counter) {
			add(e, e.Amount)
		}
	}
	return all
}

// holds reports whether one of the entries holds in a counter: what is settled of it is
// the actual use, and further counters do not count.
func holds(entries []quota.Entry, c *quota.Counter) bool {
	for i := range entries {
		if e := &entries[i]; e.Kind == quota.Hold && e.Counter == *c {
			return true
		}
	}
	return false
}

// settle is the record as the ledger is told of it.
func (r *Record) settle() quota.Settle {
	return quota.Settle{ID: r.ID, Tree: r.Tree, Actual: r.Actual, More: r.More, Adjust: r.Adjust, Seq: r.Seq}
}

// ack is what became of a record.
type ack struct {
	n       uint64
	outcome Outcome
}

// gap is how many records are missing, and from when they are.
type gap struct {
	from, to time.Time
	n        int64
}

// add counts one that is missing.
func (g *gap) add(from, to time.Time, n int64) {
	if g.n == 0 || from.Before(g.from) {
		g.from = from
	}
	if g.n == 0 || to.After(g.to) {
		g.to = to
	}
	g.n += n
}

// decoded is what a payload says.
type decoded struct {
	kind   kind
	n      uint64
	at     time.Time
	record Record // of settleKind and countKind; the rest of it is set, too
	acks   []ack
	again  bool   // the ledger was told before; see againFlag
	writer string // of headerKind
	key    string // of eraseKind, in record.Tree
	gap    gap
}

// The encoding of payloads: a kind, a number and an instant, and what is of that kind.
// Numbers are varints, texts are preceded by their length, and instants are Unix
// nanoseconds.

func appendPrefix(b []byte, k kind, n uint64, at time.Time) []byte {
	b = append(b, byte(k))
	b = binary.AppendUvarint(b, n)
	return binary.AppendVarint(b, nanos(at, math.MinInt64))
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

const (
	adjustFlag = 1 << iota
	knownFlag  // the entries are those of the reservation
	againFlag  // the ledger was told before, by another record or none
)

// known is what is known of the reservation that a record is about. The zero value is
// nothing.
type known struct {
	taken, told time.Time
	again       bool
	note        quota.Note
	entries     []byte // encoded, see appendEntries; nil if they are not known
}

// appendBody appends what follows the prefix of a settlement or a count.
func appendBody(b []byte, s *quota.Settle, of *known) []byte {
	flags := byte(0)
	if s.Adjust {
		flags |= adjustFlag
	}
	if of.entries != nil {
		flags |= knownFlag
	}
	if of.again {
		flags |= againFlag
	}
	note := &of.note
	b = append(b, flags)
	b = binary.AppendVarint(b, nanos(of.taken, math.MinInt64))
	b = binary.AppendVarint(b, nanos(of.told, math.MinInt64))
	for _, text := range [...]string{s.Tree, s.ID, note.Subject, note.Turn, note.Call, note.Model, note.Agent} {
		b = appendString(b, text)
	}
	b = binary.AppendVarint(b, s.Seq)
	for _, n := range s.Actual {
		b = binary.AppendUvarint(b, uint64(n))
	}
	if of.entries == nil {
		b = append(b, 0)
	} else {
		b = append(b, of.entries...)
	}
	now := time.Now()
	return appendEntries(b, s.More, isCalendar, func(i int) quota.Span { return s.More[i].SpanAt(now) })
}

func isCalendar(e *quota.Entry) bool { return !e.Rolling }

// appendEntries appends some of the entries, with their windows.
func appendEntries(b []byte, entries []quota.Entry, some func(*quota.Entry) bool, window func(int) quota.Span) []byte {
	n := 0
	for i := range entries {
		if some(&entries[i]) {
			n++
		}
	}
	b = binary.AppendUvarint(b, uint64(n))
	for i := range entries {
		e := &entries[i]
		if !some(e) {
			continue
		}
		span := window(i)
		b = append(b, byte(e.Kind), byte(e.Unit))
		b = appendString(b, e.Key)
		b = appendString(b, e.Window)
		b = binary.AppendUvarint(b, uint64(e.Amount))
		b = binary.AppendVarint(b, e.Limit)
		b = binary.AppendVarint(b, nanos(span.Start, math.MinInt64))
		b = binary.AppendVarint(b, nanos(span.End, math.MaxInt64))
		b = binary.AppendUvarint(b, uint64(len(e.Thresholds)))
		for _, p := range e.Thresholds {
			b = binary.AppendUvarint(b, uint64(p))
		}
	}
	return b
}

func appendAcks(b []byte, at time.Time, acks []ack) []byte {
	b = appendPrefix(b, ackKind, 0, at)
	b = binary.AppendUvarint(b, uint64(len(acks)))
	for _, a := range acks {
		b = binary.AppendUvarint(b, a.n)
		b = append(b, byte(a.outcome))
	}
	return b
}

func appendGap(b []byte, at time.Time, g gap) []byte {
	b = appendPrefix(b, gapKind, 0, at)
	b = binary.AppendVarint(b, nanos(g.from, math.MinInt64))
	b = binary.AppendVarint(b, nanos(g.to, math.MaxInt64))
	return binary.AppendUvarint(b, uint64(g.n))
}

func appendHeader(b []byte, n uint64, at time.Time, writer string) []byte {
	return appendString(binary.AppendUvarint(appendPrefix(b, headerKind, n, at), formatVersion), writer)
}

func appendErase(b []byte, n uint64, at time.Time, tree, key string) []byte {
	return appendString(appendString(appendPrefix(b, eraseKind, n, at), tree), key)
}

// nanos are Unix nanoseconds, or zero for the zero time; what is beyond their range is at
// its end.
func nanos(t time.Time, zero int64) int64 {
	switch s := t.Unix(); {
	case t.IsZero():
		return zero
	case s <= math.MinInt64/int64(time.Second):
		return math.MinInt64
	case s >= math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// instant is the time of Unix nanoseconds; those of zero are the zero time. At the ends of
// their range it is as exact as nanos.
func instant(n, zero int64) time.Time {
	if n != zero {
		n = nanos(time.Unix(0, n), zero)
	}
	if n == zero {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

var (
	errShort   = errors.New("it ends too early")
	errVersion = errors.New("it was written by another version of this package")
)

// decoder reads a payload. After the first error it reads nothing.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail(errShort)
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) uvarint() uint64 {
	n, used := binary.Uvarint(d.b)
	if used <= 0 {
		d.fail(errShort)
		return 0
	}
	d.b = d.b[used:]
	return n
}

func (d *decoder) varint() int64 {
	n, used := binary.Varint(d.b)
	if used <= 0 {
		d.fail(errShort)
		return 0
	}
	d.b = d.b[used:]
	return n
}

// amount is a number that is not negative.
func (d *decoder) amount() int64 {
	n := d.uvarint()
	if n > math.MaxInt64 {
		d.fail(fmt.Errorf("an amount is %d", n))
		return 0
	}
	return int64(n)
}

// count is a number of things, each of which takes a byte at least.
func (d *decoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.fail(errShort)
		return 0
	}
	return int(n)
}

func (d *decoder) string() string {
	n := d.count()
	if d.err != nil {
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) entries() []quota.Entry {
	n := d.count()
	if n > quota.MaxEntries {
		d.fail(fmt.Errorf("it has %d entries, at most %d are possible", n, quota.MaxEntries))
	}
	var all []quota.Entry
	for range n {
		if d.err != nil {
			return nil
		}
		e := quota.Entry{Observe: true, Ceiling: -1}
		e.Kind, e.Unit = quota.Kind(d.byte()), quota.Unit(d.byte())
		e.Key, e.Window = d.string(), d.string()
		e.Amount, e.Limit = d.amount(), d.varint()
		e.Spans[1].Start = instant(d.varint(), math.MinInt64)
		e.Spans[1].End = instant(d.varint(), math.MaxInt64)
		for range d.count() {
			if d.err != nil {
				return nil
			}
			e.Thresholds = append(e.Thresholds, int(min(d.uvarint(), math.MaxInt32)))
		}
		if d.err == nil {
			if err := e.Validate(); err != nil {
				d.fail(err)
			}
		}
		all = append(all, e)
	}
	return all
}

// decode reads a payload. The error says what is wrong with it.
func decode(payload []byte) (decoded, error) {
	d := decoder{b: payload}
	x := decoded{kind: kind(d.byte()), n: d.uvarint()}
	x.at = instant(d.varint(), math.MinInt64)
	switch x.kind {
	case headerKind:
		if d.uvarint() != formatVersion {
			d.fail(errVersion)
		}
		x.writer = d.string()
	case settleKind, countKind:
		x.body(&d)
	case ackKind:
		n := d.count()
		for range n {
			a := ack{d.uvarint(), Outcome(d.byte())}
			if a.outcome == Unanswered || a.outcome >= outcomes {
				d.fail(fmt.Errorf("an outcome is %d", a.outcome))
			}
			if d.err != nil {
				break
			}
			x.acks = append(x.acks, a)
		}
	case eraseKind:
		x.record.Tree, x.key = d.string(), d.string()
	case gapKind:
		x.gap = gap{instant(d.varint(), math.MinInt64), instant(d.varint(), math.MaxInt64), d.amount()}
	default:
		d.fail(fmt.Errorf("its kind is %d, there are %d", x.kind, kinds))
	}
	if x.n != 0 && (x.kind == ackKind || x.kind == gapKind) {
		d.fail(fmt.Errorf("its number is %d, and it is none of a record", x.n))
	}
	if d.err == nil && len(d.b) > 0 {
		d.fail(fmt.Errorf("%d bytes are left over", len(d.b)))
	}
	if d.err != nil {
		return decoded{}, d.err
	}
	return x, nil
}

func (x *decoded) body(d *decoder) {
	r := &x.record
	flags := d.byte()
	r.Number, r.At, r.Settled, r.Adjust = x.n, x.at, x.kind == settleKind, flags&adjustFlag != 0
	x.again = flags&againFlag != 0
	r.Taken, r.Told = instant(d.varint(), math.MinInt64), instant(d.varint(), math.MinInt64)
	for _, text := range [...]*string{&r.Tree, &r.ID, &r.Note.Subject, &r.Note.Turn, &r.Note.Call, &r.Note.Model, &r.Note.Agent} {
		*text = d.string()
	}
	r.Seq = d.varint()
	for u := range r.Actual {
		r.Actual[u] = d.amount()
	}
	r.Entries, r.More = d.entries(), d.entries()
	if d.err == nil && (r.ID == "" || len(r.ID) > quota.MaxIDLen) {
		d.fail(fmt.Errorf("its id has %d bytes", len(r.ID)))
	}
	if flags&knownFlag == 0 {
		r.Taken, r.Told, r.Entries = time.Time{}, time.Time{}, nil
	}
}
