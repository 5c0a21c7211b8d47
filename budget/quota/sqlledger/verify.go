package sqlledger

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"math/big"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// Difference is what does not agree in a ledger. There is none unless somebody has
// changed its tables.
type Difference struct {
	Tree    string
	Counter quota.Counter
	// Span is the window, of a calendar counter.
	Span quota.Span
	// What is "committed" or "reserved", where Want is what the audit adds up to, or
	// "held", where it is what open reservations hold.
	What string
	// Want is what the counter must be, and Have what it is.
	Want, Have int64
}

// String is the difference in one line.
func (d Difference) String() string {
	return fmt.Sprintf("%s of %s of %q in %q, window %q from %s: %d, want %d",
		d.What, d.Counter.Unit, d.Counter.Key, d.Tree, d.Counter.Window, d.Span.Start.Format(time.RFC3339), d.Have, d.Want)
}

// maxDifferences is how many Verify returns at most.
const maxDifferences = 1000

// Verify compares all counters with the audit, of which each must be the sum, and with what
// open reservations hold. It returns what does not agree, at most 1,000 differences. It looks at
// everything as it was at one moment, and at everything there is, which takes long; nobody
// waits for it but who writes to an SQLite database of one connection.
func (l *Ledger) Verify(ctx context.Context) (all []Difference, err error) {
	conn, done, err := l.store.reader(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	defer done()
	o := &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}
	if l.cfg.Dialect == SQLite { // where each transaction is that
		o = nil
	}
	tx, err := conn.BeginTx(ctx, o)
	if err != nil {
		return nil, unavailable(err)
	}
	defer tx.Rollback()
	v := verifier{tx: tx, rebind: l.store.rebind}
	if err := v.sums(ctx); err != nil {
		return nil, unavailable(err)
	}
	if err := v.holds(ctx); err != nil {
		return nil, unavailable(err)
	}
	return v.all, nil
}

type verifier struct {
	tx     *sql.Tx
	rebind func(string) string
	all    []Difference
}

// sums compares counters with the audit.
func (v *verifier) sums(ctx context.Context) error {
	zero := func(column string) string {
		return "sum(" + column + " % 4294967296) % 4294967296 = 0 AND sum(" + column + " / 4294967296) + sum(" + column + " % 4294967296) / 4294967296 = 0"
	}
	rows, err := v.tx.QueryContext(ctx, v.rebind(`
		SELECT c.tree, c.key, c.window_id, c.unit, d.starts, d.ends, d.committed, d.reserved, d.part, d.c1, d.c2, d.r1, d.r2, d.p1, d.p2
		FROM (
			SELECT counter, starts, max(ends) AS ends, CAST(sum(is_c) AS bigint) AS committed, CAST(sum(is_r) AS bigint) AS reserved, CAST(sum(is_p) AS bigint) AS part,
				CAST(sum(c / 4294967296) AS bigint) AS c1, CAST(sum(c % 4294967296) AS bigint) AS c2,
				CAST(sum(r / 4294967296) AS bigint) AS r1, CAST(sum(r % 4294967296) AS bigint) AS r2,
				CAST(sum(p / 4294967296) AS bigint) AS p1, CAST(sum(p % 4294967296) AS bigint) AS p2
			FROM (
				SELECT counter, starts, NULL AS ends, 0 AS is_c, 0 AS is_r, 0 AS is_p, -committed AS c, -reserved AS r, -part AS p FROM {p}audit
				UNION ALL
				SELECT counter, starts, ends, committed, reserved, 0, committed, reserved, 0 FROM {p}windows
				UNION ALL
				SELECT counter, 0, 0, units, reserved, part, units, reserved, part FROM {p}buckets
			) AS x
			GROUP BY counter, starts
			HAVING NOT (`+zero("c")+` AND `+zero("r")+` AND `+zero("p")+`)
			LIMIT $1
		) AS d JOIN {p}counters c ON c.id = d.counter`), maxDifferences)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var d Difference
		var unit, start, part int64
		var end sql.NullInt64
		var have [2]int64
		var more [6]int64
		err := rows.Scan(&d.Tree, &d.Counter.Key, &d.Counter.Window, &unit, &start, &end, &have[0], &have[1], &part,
			&more[0], &more[1], &more[2], &more[3], &more[4], &more[5])
		if err != nil {
			return err
		}
		d.Tree, d.Counter.Key, d.Counter.Window = fromText(d.Tree), fromText(d.Counter.Key), fromText(d.Counter.Window)
		d.Counter.Unit = quota.Unit(unit)
		if end.Valid && end.Int64 != 0 || start != 0 {
			d.Span = spanOf(start, end.Int64)
		}
		for i, what := range [...]string{"committed", "reserved"} {
			if by := wide(more[2*i], more[2*i+1]); by.Sign() != 0 || i == 0 && more[4]|more[5] != 0 {
				d.What, d.Have = what, have[i]
				d.Want = narrow(by.Sub(big.NewInt(have[i]), by))
				v.add(d)
			}
		}
	}
	return rows.Err()
}

func (v *verifier) add(d Difference) {
	if len(v.all) < maxDifferences {
		v.all = append(v.all, d)
	}
}

// wide is a number of two halves.
func wide(high, low int64) *big.Int {
	n := big.NewInt(high)
	return n.Add(n.Lsh(n, 32), big.NewInt(low))
}

// narrow is the number that is nearest to n.
func narrow(n *big.Int) int64 {
	switch {
	case n.IsInt64():
		return n.Int64()
	case n.Sign() < 0:
		return -1 << 63
	}
	return 1<<63 - 1
}

// holds compares what is reserved with what open reservations hold.
func (v *verifier) holds(ctx context.Context) error {
	type place struct{ counter, start int64 }
	want := make(map[place]int64)
	rows, err := v.tx.QueryContext(ctx, v.rebind("SELECT body FROM {p}reservations WHERE state = 0"))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var body string
		var r record
		if err := rows.Scan(&body); err != nil {
			return err
		}
		if err := r.readBody(body); err != nil {
			return err
		}
		for i := range r.held {
			if h := &r.held[i]; !h.passed && (h.kind == quota.Hold || h.kind == quota.Lease) {
				want[place{h.id, h.start}] += h.amount
			}
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	rows.Close()
	rows, err = v.tx.QueryContext(ctx, v.rebind(`
		SELECT c.id, c.tree, c.key, c.window_id, c.unit, w.starts, w.ends, w.reserved FROM {p}windows w JOIN {p}counters c ON c.id = w.counter
		UNION ALL
		SELECT c.id, c.tree, c.key, c.window_id, c.unit, 0, NULL, b.reserved FROM {p}buckets b JOIN {p}counters c ON c.id = b.counter`))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		d := Difference{What: "held"}
		var id, unit, start int64
		var end sql.NullInt64
		if err := rows.Scan(&id, &d.Tree, &d.Counter.Key, &d.Counter.Window, &unit, &start, &end, &d.Have); err != nil {
			return err
		}
		if d.Want = want[place{id, start}]; d.Want == d.Have {
			continue
		}
		d.Tree, d.Counter.Key, d.Counter.Window = fromText(d.Tree), fromText(d.Counter.Key), fromText(d.Counter.Window)
		d.Counter.Unit = quota.Unit(unit)
		if end.Valid {
			d.Span = spanOf(start, end.Int64)
		}
		v.add(d)
	}
	return rows.Err()
}

// Change is a row of the audit: what was done to a counter, and by how much it was
// another then.
type Change struct {
	At time.Time
	// What is "hold", "count", "lease", "settle", "adjust", "release", "expire",
	// "top-up" or "reset"; "carried" for the sum of rows that were too old, and
	// "forgotten" for what was removed as too old itself.
	What string
	// Span is the window, of a calendar counter.
	Span quota.Span
	// Amount is what was taken, given back or settled to.
	Amount int64
	// Committed and Reserved are by how much the counter has changed. Of a rolling
	// counter, Committed is what is missing from a full burst.
	Committed, Reserved int64
	// Crossed is the threshold that was crossed with it, in percent, or 0.
	Crossed int
	// Late is true for what was settled after the holds had expired, Over if the counter
	// was above its limit then.
	Late, Over bool
	// Reservation is its id, and Note says for whom it was made. Both are empty where
	// nobody made one, and where somebody was erased.
	Reservation string
	Note        quota.Note
}

// Changes are the rows of the audit about a counter, the oldest first, of all its windows.
// They answer what has used it up, and who. per is the Per of a rolling counter, and 0 of
// one with calendar windows. An error is the last thing that is yielded.
func (l *Ledger) Changes(ctx context.Context, tree string, c quota.Counter, per time.Duration) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		conn, done, err := l.store.reader(ctx)
		if err != nil {
			yield(Change{}, unavailable(err))
			return
		}
		defer done()
		rows, err := conn.QueryContext(ctx, l.store.rebind(`
			SELECT a.at, a.what, a.starts, w.ends, a.amount, a.committed, a.reserved, a.crossed, a.flags,
				k.reservation, k.subject, k.turn, k.call, k.model, k.agent
			FROM {p}counters c JOIN {p}audit a ON a.counter = c.id
			LEFT JOIN {p}windows w ON w.counter = c.id AND w.starts = a.starts
			LEFT JOIN {p}calls k ON k.id = a.call
			WHERE c.name = CAST($1 AS {ref}) ORDER BY CASE a.what WHEN 10 THEN 0 ELSE 1 END, a.at`), refToCounter(tree, c, int64(per)).String())
		if err != nil {
			yield(Change{}, unavailable(err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			x, err := scanChange(rows, per != 0)
			if err != nil {
				yield(Change{}, unavailable(err))
				return
			}
			if !yield(x, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(Change{}, unavailable(err))
		}
	}
}

func scanChange(rows *sql.Rows, rolling bool) (x Change, err error) {
	var at, start int64
	var end sql.NullInt64
	var what, flags int
	var names [6]sql.NullString
	err = rows.Scan(&at, &what, &start, &end, &x.Amount, &x.Committed, &x.Reserved, &x.Crossed, &flags,
		&names[0], &names[1], &names[2], &names[3], &names[4], &names[5])
	if err != nil {
		return x, err
	}
	x.At, x.What, x.Late, x.Over = instant(at), change(what).String(), flags&flagLate != 0, flags&flagOver != 0
	if !rolling {
		x.Span = spanOf(start, 1<<63-1)
		if end.Valid {
			x.Span = spanOf(start, end.Int64)
		}
	}
	name := func(i int) string { return fromText(names[i].String) }
	x.Reservation = name(0)
	x.Note = quota.Note{Subject: name(1), Turn: name(2), Call: name(3), Model: name(4), Agent: name(5)}
	return x, nil
}
