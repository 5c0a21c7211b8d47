package sqlledger

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/internal/rolling"
)

// change says what a row of the audit is about. The numbers are in the database.
type change int

const (
	changeHold change = iota + 1
	changeCount
	changeLease
	changeSettle
	changeAdjust
	changeRelease
	changeExpire
	changeTopUp
	changeReset
	changeCarried
	changeForgotten
)

var changeNames = []string{
	"", "hold", "count", "lease", "settle", "adjust", "release", "expire", "top-up", "reset", "carried", "forgotten",
}

func (c change) String() string {
	if c > 0 && int(c) < len(changeNames) {
		return changeNames[c]
	}
	return fmt.Sprintf("change(%d)", int(c))
}

// changeOf is the change that an entry makes; Check makes none.
var changeOf = [...]change{quota.Hold: changeHold, quota.Count: changeCount, quota.Lease: changeLease, quota.Check: 0}

// Flags of a row of the audit.
const (
	flagLate = 1 << iota
	flagOver
)

func flagsOf(late, over bool) (flags int) {
	if late {
		flags |= flagLate
	}
	if over {
		flags |= flagOver
	}
	return flags
}

// auditRow is a row of the audit: a change, and by how much the counter is another
// since.
type auditRow struct {
	counter *counter

	id, call      int64 // of the counter and the reservation, once they have one
	at            int64
	what          change
	start         int64
	record        *record // or nil
	amount        int64
	by            audited
	crossed, bits int
}

// noteHeld writes down what was done to the counter of what is held.
func (b *book) noteHeld(h *held, what change, rec *record, amount int64, crossed, flags int) {
	var p *period
	if !h.rolling {
		p = h.period()
	}
	b.note(h.counter, p, what, rec, amount, crossed, flags)
}

// note writes down what was done to a counter: in a period, or to its bucket.
func (b *book) note(c *counter, p *period, what change, rec *record, amount int64, crossed, flags int) {
	row := auditRow{counter: c, at: b.now + int64(len(b.audit)), what: what, record: rec, amount: amount, crossed: crossed, bits: flags}
	var before *audited
	var now audited
	if p != nil {
		row.start = p.start
		before = &p.audited
		now = audited{sumCommitted: p.committed, sumReserved: p.reserved}
	} else {
		x := c.bucket
		before = &x.audited
		now = audited{x.Missing.Units, x.Reserved, x.Missing.Part}
	}
	row.by = audited{now.sumCommitted - before.sumCommitted, now.sumReserved - before.sumReserved, now.sumPart - before.sumPart}
	*before = now
	b.audit = append(b.audit, row)
}

// maxSubject is the longest subject that is kept, in bytes as it is written: databases do
// not index longer ones, and what is not found by its subject could not be erased.
const maxSubject = 2000

// callRow is a row of the audit: for whom a reservation was made.
type callRow struct {
	record            *record
	at                int64
	tree, reservation string
	note              quota.Note
}

func newCallRow(rec *record, at int64, r *quota.Reserve) callRow {
	row := callRow{rec, at, r.Tree, r.ID, r.Note}
	if len(toText(row.note.Subject)) > maxSubject {
		row.note.Subject = ""
	}
	return row
}

// maxCharges is how many charges of a bucket are kept apart; see Bucket.Merge.
const maxCharges = 256

// formatCharges writes the charges of a bucket: the number of holds, and then units,
// part, mark and holds of each.
func formatCharges(c *rolling.Charges) string {
	if c == nil {
		return ""
	}
	buf := strconv.AppendInt(make([]byte, 0, 16+40*len(c.List)), int64(c.Holds), 10)
	for _, x := range c.List {
		for i, n := range [...]int64{x.Units, x.Part, x.Mark, x.Holds} {
			buf = append(buf, ";,,,"[i])
			buf = strconv.AppendInt(buf, n, 10)
		}
	}
	return string(buf)
}

var errCharges = errors.New("they are not as they are written")

func parseCharges(text string) (*rolling.Charges, error) {
	if text == "" {
		return nil, nil
	}
	first, rest, more := strings.Cut(text, ";")
	n, err := strconv.Atoi(first)
	if err != nil || n < 1 {
		return nil, errCharges
	}
	c := &rolling.Charges{Holds: n}
	for more {
		var item string
		item, rest, more = strings.Cut(rest, ";")
		var numbers [4]int64
		for i := range numbers {
			var digits string
			digits, item, _ = strings.Cut(item, ",")
			if numbers[i], err = strconv.ParseInt(digits, 10, 64); err != nil || numbers[i] < 0 {
				return nil, errCharges
			}
		}
		if item != "" || len(c.List) > 0 && c.List[len(c.List)-1].Mark >= numbers[2] {
			return nil, errCharges
		}
		c.List = append(c.List, rolling.Charge{
			Quantity: rolling.Quantity{Units: numbers[0], Part: numbers[1]}, Mark: numbers[2], Holds: numbers[3],
		})
	}
	return c, nil
}

// recordRow is the row of a reservation as it is read.
type recordRow struct {
	ref, exclusive                         string
	tree, call, state, expires, ended, seq int64
	body                                   string
}

// readRecord notes what the row of a reservation says.
func (b *book) readRecord(row *recordRow) error {
	r, err := parseRef(row.ref)
	if err != nil {
		return err
	}
	p := b.byTree[row.tree]
	if p == nil || p.records[r] != nil {
		return nil
	}
	rec := &record{
		ref: r, call: row.call, state: state(row.state), expires: row.expires, ended: row.ended, seq: row.seq, exists: true,
	}
	if row.exclusive != "" {
		if rec.exclusive, err = parseRef(row.exclusive); err != nil {
			return err
		}
	}
	if err := rec.readBody(row.body); err != nil {
		return fmt.Errorf("the body of reservation %v: %w", r, err)
	}
	p.addRecord(rec)
	b.read = append(b.read, rec)
	return nil
}
