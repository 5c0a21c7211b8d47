package quota

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// DefaultTTL is how long a reservation lives that names no TTL.
const DefaultTTL = 10 * time.Minute

// What one operation may bring with it. More is an error, so that a store can
// count on it.
const (
	// MaxEntries is the number of entries of a reservation, or of a settlement.
	MaxEntries = 64
	// MaxIDLen is the length of a reservation's id in bytes.
	MaxIDLen = 128
)

// ErrUnavailable is matched by the errors of a [Ledger] that could not be
// reached, did not answer in time, or could not do what it was asked for. What
// became of the operation is unknown; repeating it with the same id is safe.
var ErrUnavailable = errors.New("quota: the ledger is unavailable")

// ErrUnknownReservation is matched by the error for a reservation that the
// ledger does not know, or knows no more.
var ErrUnknownReservation = errors.New("quota: reservation is not known")

// Ledger keeps what was spent and what is reserved. It is the only part of this
// package with state that must survive, so its face is small and made for a
// script of a shared store or a transaction of a database: every method is one
// atomic step, and everything that it needs to know comes with the call.
//
// The ledger's own clock decides in which window something falls. Callers send
// the windows around their own time (see Entry.Spans), so that a caller whose
// clock is a little off is right all the same. What one asks for whose clock is off by more
// than a window counts in its own; an [Enforcer] logs that the clocks differ.
//
// A reservation has a random id. Each of Settle, Release and expiry takes effect
// once for an id, the first one; a repeat returns the first result. A Reserve
// with an id that is known returns the first result, too. A denied one leaves no
// trace, so that its id may be used again: it is decided anew.
//
// A refund to a rolling counter, by a Settle or a Release, leaves the counter as
// if the smaller amount had been taken in the first place. A store may give back
// less, and never more: what would have flowed over a full burst in the meantime
// does not come back with it.
//
// Counters end at math.MaxInt64: what does not fit below has no room, not even
// where there is no limit, and what is spent above is not counted.
//
// All methods are safe for concurrent use, end with ctx, and give back errors
// that match [ErrUnavailable] where the store is at fault.
type Ledger interface {
	// Reserve takes all entries, or none. A denial is a result and not an error.
	Reserve(ctx context.Context, r Reserve) (Reserved, error)
	// Settle replaces the holds of a reservation by what was used, in the windows
	// in which they were taken, and gives its leases back. More than was held is accepted: it is spent
	// already. After the holds have expired it is a debit to those windows, flagged
	// Late.
	Settle(ctx context.Context, s Settle) (Settled, error)
	// Release gives the holds and leases of a reservation back. What was counted
	// at once stays counted.
	Release(ctx context.Context, tree, id string) error
	// Renew has the holds and leases of reservations live for another ttl from
	// now, and returns the ids that are not held any more.
	Renew(ctx context.Context, tree string, ttl time.Duration, ids ...string) (lost []string, err error)
	// Status says how counters stand. A counter that was never used has zeros.
	Status(ctx context.Context, tree string, entries ...Entry) ([]Status, error)
	// TopUp lowers what is committed in a counter's current window by an amount,
	// never below 0 (raises what is there, if it is rolling, never above its
	// burst), and returns how it stands then.
	TopUp(ctx context.Context, tree string, e Entry, amount int64) (Status, error)
	// Reset makes what is committed in a counter's current window 0. What is
	// reserved stays reserved.
	Reset(ctx context.Context, tree string, e Entry) (Status, error)
	// History returns the windows of a counter that have passed, the latest first,
	// at most n, as far as they are kept.
	History(ctx context.Context, tree string, c Counter, n int) ([]Status, error)
	// Erase forgets everything about the keys of a scope: counters, reservations
	// and history.
	Erase(ctx context.Context, tree, key string) error
	// Healthy returns nil if the ledger can do its work now.
	Healthy(ctx context.Context) error
	// Flush waits until everything that was accepted is durable.
	Flush(ctx context.Context) error
	// Close ends the ledger's own work. Nothing may be called afterwards.
	Close(ctx context.Context) error
}

// Kind says what an entry does to its counter.
type Kind uint8

const (
	// Hold takes the amount until it is settled or released.
	Hold Kind = iota
	// Count takes the amount for good: a turn that was begun stays counted.
	Count
	// Lease takes the amount while the reservation lives; it is never spent.
	Lease
	// Check takes nothing, and is denied if the amount has no room; with an amount
	// of 0, if nothing is left at all.
	Check
)

// Counter names a counter. Plans do not matter to it: what was spent stays spent
// when the plan changes.
type Counter struct {
	// Key says whose it is: the path of ids of a scope, as Subject.Key makes it.
	Key string
	// Window is the ID of the limit's window.
	Window string
	// Unit is what it counts.
	Unit Unit
}

// Span is a window in time: Start is part of it, End is not. The zero Span is
// all time.
type Span struct{ Start, End time.Time }

// Contains reports whether t lies in the span.
func (s Span) Contains(t time.Time) bool {
	return (s.Start.IsZero() || !t.Before(s.Start)) && (s.End.IsZero() || t.Before(s.End))
}

// Entry is one counter that an operation touches, and how its limit stands.
type Entry struct {
	Counter
	Kind Kind
	// Amount is what is taken, or what there must be room for. Never negative. An
	// amount of 0 always has room, unless the entry is a Check.
	Amount int64
	// Limit is how much may be committed and reserved together; below 0 there is
	// no limit, and the counter only counts. For a rolling limit it is the number
	// of units per Per.
	Limit int64
	// Soft entries are taken even above Limit, and flagged, up to Ceiling. They
	// cannot be rolling.
	Soft bool
	// Ceiling is the hard end of a soft entry; below 0 there is none.
	Ceiling int64
	// Observe entries are taken whatever their limit says; what it would have said
	// is in the result. Nobody waits for them. A rolling one without room takes
	// nothing, as it would if it were enforced: otherwise who is always above the
	// limit would sink ever deeper, and pay for it once it is enforced.
	Observe bool

	// Spans are the windows before, at and after the caller's time, of a calendar
	// limit. The ledger takes the one in which its own time lies, or the middle one
	// if that is none of them.
	Spans [3]Span

	// Rolling entries refill at Limit units per Per, up to Burst, and may go into
	// debt as long as it is repaid within MaxWait: the caller waits that long, then
	// goes on.
	Rolling bool
	Per     time.Duration
	Burst   int64
	MaxWait time.Duration

	// Thresholds are percents of Limit, in rising order; Settle and Count report
	// the highest one that committed spend has crossed, once for each window.
	// Rolling entries have no windows, and cross nothing.
	Thresholds []int
}

// SpanAt is the window in which an entry falls at the ledger's time: the one of
// Spans that contains it, or the middle one if none does. It is the zero Span for
// a rolling entry.
func (e *Entry) SpanAt(now time.Time) Span {
	if e.Rolling {
		return Span{}
	}
	return *e.spanAt(now)
}

func (e *Entry) spanAt(now time.Time) *Span {
	switch before, mid, after := &e.Spans[0], &e.Spans[1], &e.Spans[2]; {
	case mid.Contains(now):
		return mid
	case *after != Span{} && after.Contains(now):
		return after
	case *before != Span{} && before.Contains(now):
		return before
	default:
		return mid
	}
}

// Validate returns an error that names the field that is wrong, and its value.
func (e *Entry) Validate() error { return e.validate("Entry", -1) }

// validate names an entry by the field that it is in, and its index there.
func (e *Entry) validate(in string, at int) error {
	wrong := func(format string, args ...any) error {
		if at >= 0 {
			in = fmt.Sprintf("%s[%d]", in, at)
		}
		return fmt.Errorf("quota: %s.%s", in, fmt.Sprintf(format, args...))
	}
	mid := &e.Spans[1]
	switch {
	case int(e.Unit) >= Units:
		return wrong("Unit is %d, there are %d", e.Unit, Units)
	case e.Kind > Check:
		return wrong("Kind is %d, there are %d", e.Kind, Check+1)
	case e.Amount < 0:
		return wrong("Amount is %d, must not be negative", e.Amount)
	case e.Rolling && e.Kind == Lease:
		return wrong("Kind is Lease, which a rolling entry cannot be")
	case e.Rolling && e.Soft:
		return wrong("Soft is true, which a rolling entry cannot be")
	case e.Rolling && e.Per <= 0:
		return wrong("Per is %v, must be positive", e.Per)
	case e.Rolling && e.Burst < 0:
		return wrong("Burst is %d, must not be negative", e.Burst)
	case e.Rolling && e.MaxWait < 0:
		return wrong("MaxWait is %v, must not be negative", e.MaxWait)
	case !e.Rolling && !mid.Start.IsZero() && !mid.End.IsZero() && !mid.Start.Before(mid.End):
		return wrong("Spans[1] is from %v to %v, must end after it starts", mid.Start, mid.End)
	}
	for i, p := range e.Thresholds {
		if p <= 0 || i > 0 && p <= e.Thresholds[i-1] || p > MaxPercent {
			return wrong("Thresholds[%d] is %d, must rise from 1 to %d", i, p, MaxPercent)
		}
	}
	return nil
}

func validateEntries(field string, entries []Entry) error {
	if len(entries) > MaxEntries {
		return fmt.Errorf("quota: %s has %d entries, at most %d are allowed", field, len(entries), MaxEntries)
	}
	for i := range entries {
		e := &entries[i]
		if err := e.validate(field, i); err != nil {
			return err
		}
		for j := range i {
			if o := &entries[j]; e.Unit == o.Unit && e.Window == o.Window && e.Key == o.Key {
				return fmt.Errorf("quota: %s[%d].Counter is the same as that of %s[%d]", field, i, field, j)
			}
		}
	}
	return nil
}

func validateReservationID(id string) error {
	if id == "" || len(id) > MaxIDLen {
		return fmt.Errorf("quota: ID has %d bytes, must have 1 to %d", len(id), MaxIDLen)
	}
	return nil
}

// Reserve asks for room in some counters.
type Reserve struct {
	// ID is random and names the reservation; see budget.NewID.
	ID string
	// Tree names what must be kept together: the counters of one tree are in one
	// place of a store. See Subject.Tree.
	Tree string
	// Entries are taken together or not at all. The counters are all different.
	Entries []Entry
	// TTL is how long holds and leases live unless they are renewed. 0 is
	// [DefaultTTL].
	TTL time.Duration
	// Exclusive reservations are denied while another one of their tree with the
	// same value holds; "" is none.
	Exclusive string
	// Note is kept with the reservation for the audit; never text of a call.
	Note Note
	// Room may be used for the Status of the result, as far as its capacity goes,
	// so that a caller that makes many calls need not leave that many slices to the
	// garbage collector. nil is fine.
	Room []Status
}

// Validate returns an error that names the field that is wrong, and its value.
func (r *Reserve) Validate() error {
	if err := validateReservationID(r.ID); err != nil {
		return err
	}
	if r.TTL < 0 {
		return fmt.Errorf("quota: TTL is %v, must not be negative", r.TTL)
	}
	return validateEntries("Entries", r.Entries)
}

// Note says what a reservation was for.
type Note struct {
	// Subject, Turn, Call, Model and Agent are ids and labels; any may be empty.
	Subject, Turn, Call, Model, Agent string
}

// Reserved is the result of a Reserve.
type Reserved struct {
	// Denied is the index of the first entry that has no room, or −1.
	Denied int
	// Held is true if an Exclusive reservation was denied because of another one.
	// Denied is −1 then.
	Held bool
	// Wait is how long to wait before going on, for rolling entries in debt.
	Wait time.Duration
	// RetryAfter is when a denied reservation could pass, as far as time alone
	// decides; 0 if that is not known or never. For Held it is when the other
	// one expires unless it is renewed.
	RetryAfter time.Duration
	// Never is true if the denied entry is larger than its limit can ever hold.
	Never bool
	// Over are the indices of soft and observed entries that are above their limit.
	Over []int
	// Status says how each entry's counter stands after the operation.
	Status []Status
	// Crossed are thresholds that Count entries have crossed.
	Crossed []Crossing
	// Now is the ledger's time.
	Now time.Time
	// Repeated is true if the id was known: this is the first result.
	Repeated bool
}

// Settle says what a reservation has really used.
type Settle struct {
	// ID and Tree are those of the reservation.
	ID, Tree string
	// Actual is what was used, by unit. Only the units of Hold entries matter.
	Actual Amounts
	// More are further counters that the call turned out to count against. They
	// are taken whatever their limits say. A counter that the reservation holds
	// already is passed over: Actual settles it. With Adjust an amount is that of
	// the whole call, too.
	More []Entry
	// Adjust corrects an earlier Settle of the same id: Actual is the usage of the
	// whole call. Without it a second Settle changes nothing.
	Adjust bool
	// Seq orders the adjustments of an id: one that is not above the last is a
	// repeat.
	Seq int64
	// Writer and WriterSeq are for settlements that are sent again long after, out of
	// a queue or an audit that has survived: when the ledger may have forgotten the
	// reservation. Writer names the process, or its queue, and WriterSeq numbers its
	// settlements from 1, in the order in which they are first sent; one may overtake
	// another by less than the time for which reservations are remembered. Both are
	// optional.
	//
	// A store keeps the highest number that it has taken from each writer in each tree,
	// for a day after reservations are forgotten. Of a reservation that it does not
	// know, a settlement with a number up to that one was taken before: it is Repeated,
	// and the rest of its result is empty. One with a higher number never was, and gets
	// [ErrUnknownReservation]: what it has used is not counted yet. A store that forgets
	// all at once, like [Memory], may ignore both.
	Writer    string
	WriterSeq int64
	// Room may be used for the Status of the result; see Reserve.Room.
	Room []Status
}

// Validate returns an error that names the field that is wrong, and its value.
func (s *Settle) Validate() error {
	if err := validateReservationID(s.ID); err != nil {
		return err
	}
	if len(s.Writer) > MaxIDLen {
		return fmt.Errorf("quota: Writer has %d bytes, at most %d are allowed", len(s.Writer), MaxIDLen)
	}
	if s.WriterSeq < 0 || (s.Writer == "") != (s.WriterSeq == 0) {
		return fmt.Errorf("quota: WriterSeq is %d, must be positive if there is a Writer, and 0 if there is none", s.WriterSeq)
	}
	for u, n := range s.Actual {
		if n < 0 {
			return fmt.Errorf("quota: Actual[%v] is %d, must not be negative", Unit(u), n)
		}
	}
	return validateEntries("More", s.More)
}

// Settled is the result of a Settle.
type Settled struct {
	// Status says how the counter of each Hold entry stands now, in the window in
	// which it was taken, and after these those of the entries of More.
	Status []Status
	// Over is true if a counter is above its limit now.
	Over bool
	// Late is true if the holds had expired.
	Late bool
	// Repeated is true if the reservation was settled or released before: nothing
	// was changed. This is the result of what took effect last; the one of a
	// released reservation says nothing but that.
	Repeated bool
	// Crossed are the thresholds that were crossed.
	Crossed []Crossing
}

// Crossing says that committed spend has reached a part of a limit, for the
// first time in this window.
type Crossing struct {
	Counter Counter
	Span    Span
	Percent int
	// Committed and Limit are in units.
	Committed, Limit int64
}

// Status says how a counter stands.
type Status struct {
	Counter Counter
	// Span is the window; ResetsAt is its end. A rolling counter has none.
	Span Span
	// Limit as given with the entry.
	Limit int64
	// Committed was spent, Reserved is held. For a rolling counter, Committed is
	// what is missing from a full burst, debt and what is held included, rounded
	// up; Reserved is for information.
	Committed, Reserved int64
	// Rolling and Burst as given with the entry.
	Rolling bool
	Burst   int64
	// FullAt is when a rolling counter is full again; zero if it is full now, or
	// never will be.
	FullAt time.Time
}

// Left is what is left under the limit, never below 0, and never above it; −1 if
// there is no limit. Of a rolling counter it is what is left of the burst.
func (s Status) Left() int64 {
	switch {
	case s.Limit < 0:
		return -1
	case s.Limit == 0:
		return 0
	case s.Rolling:
		return max(s.Burst-s.Committed, 0)
	}
	used := s.Committed + s.Reserved
	if used < s.Committed || used > s.Limit { // or it overflows
		return 0
	}
	return min(s.Limit-used, s.Limit)
}
