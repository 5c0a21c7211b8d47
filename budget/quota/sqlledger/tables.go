package sqlledger

import (
	"strconv"
	"strings"
)

// table is how rows of a table are written. Its columns are in the order in which a row
// writes its values.
type table struct {
	name    string
	key     []string
	columns []column
}

type column struct {
	name string
	kind kind
}

// kind is the type of a column.
type kind uint8

const (
	number kind = iota
	text
	reference
	// Columns that are written once, with a new row.
	once       = 0x80
	numberOnce = number | once
	textOnce   = text | once
	refOnce    = reference | once
)

var (
	countersTable = table{name: "counters", columns: []column{
		{"id", number}, {"name", reference}, {"owner", reference}, {"tree", text}, {"key", text}, {"window_id", text},
		{"unit", number}, {"per", number}, {"made", number},
	}}
	windowsTable = table{name: "windows", key: []string{"counter", "starts"}, columns: []column{
		{"counter", numberOnce}, {"starts", numberOnce}, {"ends", numberOnce}, {"committed", number}, {"reserved", number},
		{"max", number}, {"crossed", number}, {"resets", number},
	}}
	bucketsTable = table{name: "buckets", key: []string{"counter"}, columns: []column{
		{"counter", numberOnce}, {"units", number}, {"part", number}, {"at", number}, {"full_at", number},
		{"reserved", number}, {"mark", number}, {"charges", text},
	}}
	reservationsTable = table{name: "reservations", key: []string{"ref"}, columns: []column{
		{"ref", refOnce}, {"tree", numberOnce}, {"call", numberOnce}, {"state", number}, {"exclusive", refOnce},
		{"expires", number}, {"ended", number}, {"seq", number}, {"body", text},
	}}
	writersTable = table{name: "writers", key: []string{"writer"}, columns: []column{
		{"writer", refOnce}, {"seq", number}, {"at", number},
	}}
	callsTable = table{name: "calls", columns: []column{
		{"id", number}, {"at", number}, {"tree", text}, {"reservation", text}, {"subject", text}, {"turn", text},
		{"call", text}, {"model", text}, {"agent", text},
	}}
	auditTable = table{name: "audit", columns: []column{
		{"at", number}, {"what", number}, {"counter", number}, {"starts", number}, {"call", number}, {"amount", number},
		{"committed", number}, {"reserved", number}, {"part", number}, {"crossed", number}, {"flags", number},
	}}
)

// What is written, in this order.
const (
	newCounters = iota
	newWindows
	oldWindows
	newBuckets
	oldBuckets
	newReservations
	oldReservations
	anyWriters
	newCalls
	newAudit
	writesCount
)

// writes are how.
var writes = [writesCount]struct {
	table *table
	mode  mode
}{
	newCounters:     {&countersTable, inserting},
	newWindows:      {&windowsTable, inserting},
	oldWindows:      {&windowsTable, updating},
	newBuckets:      {&bucketsTable, inserting},
	oldBuckets:      {&bucketsTable, updating},
	newReservations: {&reservationsTable, inserting},
	oldReservations: {&reservationsTable, updating},
	anyWriters:      {&writersTable, raising},
	newCalls:        {&callsTable, inserting},
	newAudit:        {&auditTable, inserting},
}

// mode is what becomes of rows.
type mode uint8

const (
	inserting mode = iota // they are new
	updating              // they are there
	raising               // they are new, or have smaller numbers
)

// insert is the statement that writes rows, which come out of a source.
func (t *table) insert(source string) string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = c.name
	}
	return "INSERT INTO {p}" + t.name + " (" + strings.Join(names, ", ") + ") " + source
}

// conflict goes on after insert: rows that are there are written again, with what a format makes
// of a column.
func (t *table) conflict(format string) string {
	return " ON CONFLICT (" + strings.Join(t.key, ", ") + ") DO UPDATE SET " + t.set(format)
}

// set are the columns that are written again, each with what a format makes of it.
func (t *table) set(format string) string {
	var all []string
	for _, c := range t.columns {
		if c.kind&once == 0 {
			all = append(all, c.name+" = "+strings.NewReplacer("{t}", "{p}"+t.name, "{c}", c.name).Replace(format))
		}
	}
	return strings.Join(all, ", ")
}

// writer takes the rows of one table, value for value.
type writer interface {
	int(n int64)
	text(s string)
	ref(r ref)
	null()
}

// changes are the rows to be written: each function writes all rows of one of writes.
// Nothing is written for nil.
type changes [writesCount]func(w writer)

// changes are what must be written. Everything that needs an id has one.
func (b *book) changes(fresh []*counter) *changes {
	windows := func(exists bool) func(w writer) {
		return func(w writer) {
			for _, x := range b.periods {
				if x.exists == exists {
					x.period.write(w, x.counter.id)
				}
			}
		}
	}
	buckets := func(exists bool) func(w writer) {
		return func(w writer) {
			for _, c := range b.buckets {
				if c.bucket.exists == exists {
					c.bucket.Merge(maxCharges, c.per)
					c.bucket.write(w, c.id)
				}
			}
		}
	}
	reservations := func(exists bool) func(w writer) {
		return func(w writer) {
			for _, r := range b.records {
				if r.exists == exists {
					r.write(w)
				}
			}
		}
	}
	return &changes{
		newCounters: func(w writer) {
			for _, c := range fresh {
				c.write(w, b.now)
			}
		},
		newWindows: windows(false), oldWindows: windows(true),
		newBuckets: buckets(false), oldBuckets: buckets(true),
		newReservations: reservations(false), oldReservations: reservations(true),
		anyWriters: func(w writer) {
			for key, n := range b.raised {
				w.ref(key)
				w.int(n)
				w.int(b.now)
			}
		},
		newCalls: func(w writer) {
			for i := range b.calls {
				b.calls[i].write(w)
			}
		},
		newAudit: func(w writer) {
			for i := range b.audit {
				row := &b.audit[i]
				if row.id = row.counter.id; row.record != nil {
					row.call = row.record.call
				}
				row.write(w)
			}
		},
	}
}

func (c *counter) write(w writer, made int64) {
	w.int(c.id)
	w.ref(c.name)
	w.ref(refToOwner(c.tree, c.Key))
	w.text(toText(c.tree))
	w.text(toText(c.Key))
	w.text(toText(c.Window))
	w.int(int64(c.Unit))
	w.int(c.per)
	w.int(made)
}

func (p *period) write(w writer, counter int64) {
	for _, n := range [...]int64{counter, p.start, p.end, p.committed, p.reserved, p.limit, int64(p.crossed), p.resets} {
		w.int(n)
	}
}

func (x *bucket) write(w writer, counter int64) {
	for _, n := range [...]int64{counter, x.Missing.Units, x.Missing.Part, x.At, x.Full, x.Reserved, x.Mark} {
		w.int(n)
	}
	w.text(formatCharges(x.Open))
}

func (r *record) write(w writer) {
	w.ref(r.ref)
	w.int(r.page.tree)
	w.int(r.call)
	w.int(int64(r.state))
	if r.exclusive == (ref{}) {
		w.null()
	} else {
		w.ref(r.exclusive)
	}
	w.int(r.expires)
	w.int(r.ended)
	w.int(r.seq)
	w.text(r.body())
}

func (r *callRow) write(w writer) {
	w.int(r.record.call)
	w.int(r.at)
	n := &r.note
	for _, s := range [...]string{r.tree, r.reservation, n.Subject, n.Turn, n.Call, n.Model, n.Agent} {
		w.text(toText(s))
	}
}

func (r *auditRow) write(w writer) {
	for _, n := range [...]int64{
		r.at, int64(r.what), r.id, r.start, r.call, r.amount,
		r.by.sumCommitted, r.by.sumReserved, r.by.sumPart, int64(r.crossed), int64(r.bits),
	} {
		w.int(n)
	}
}

// arrays are rows as Postgres reads them fastest: an array for each column, in its
// written form, which every driver passes on.
type arrays struct {
	columns [][]byte
	next    int
}

func newArrays(columns int) *arrays { return &arrays{columns: make([][]byte, columns)} }

func (a *arrays) begin() []byte {
	buf := a.columns[a.next]
	if len(buf) == 0 {
		return append(make([]byte, 0, 512), '{')
	}
	return append(buf, ',')
}

func (a *arrays) end(buf []byte) {
	a.columns[a.next] = buf
	if a.next++; a.next == len(a.columns) {
		a.next = 0
	}
}

func (a *arrays) int(n int64) { a.end(strconv.AppendInt(a.begin(), n, 10)) }

func (a *arrays) text(s string) {
	buf := append(a.begin(), '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			buf = append(buf, '\\')
		}
		buf = append(buf, s[i])
	}
	a.end(append(buf, '"'))
}

func (a *arrays) ref(r ref) { a.end(r.append(a.begin())) }

func (a *arrays) null() { a.end(append(a.begin(), "NULL"...)) }

// args adds the arrays to parameters.
func (a *arrays) args(to []any) []any {
	for _, buf := range a.columns {
		if len(buf) == 0 {
			to = append(to, "{}")
			continue
		}
		to = append(to, string(append(buf, '}')))
	}
	return to
}
