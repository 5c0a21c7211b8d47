package sqlledger

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"
)

// sqliteTx is a transaction; it holds the store's mu.
type sqliteTx struct {
	s     *sqlite
	ended bool
}

func (t *sqliteTx) lock(_ context.Context, trees []int64) (locked []bool, now int64, err error) {
	locked = make([]bool, len(trees))
	for i := range locked {
		locked[i] = true
	}
	// It changes when others have written, and not when this connection has.
	var version int64
	if err := t.s.stmts[liteVersion].QueryRowContext(context.Background()).Scan(&version); err != nil {
		return nil, 0, err
	}
	if version != t.s.dataVersion {
		t.s.dataVersion = version
		t.s.version++
	}
	return locked, time.Now().UnixNano(), nil
}

func (t *sqliteTx) load(_ context.Context, b *book) error {
	for _, p := range b.pages {
		if err := b.foundPage(p, t.s.version); err != nil {
			return err
		}
	}
	w := &b.want
	refs, exclusive, due, windows, buckets, writers :=
		newLiteList(1), newLiteList(1), newLiteList(1), newLiteList(2), newLiteList(1), newLiteList(1)
	for _, x := range w.refs {
		refs.ref(x.ref)
	}
	for _, x := range w.exclusive {
		exclusive.ref(x.ref)
	}
	for _, p := range w.due {
		due.int(p.tree)
	}
	for _, x := range w.periods {
		windows.ref(x.counter.name)
		windows.int(x.start)
	}
	for _, c := range w.buckets {
		buckets.ref(c.name)
	}
	for _, r := range w.writers {
		writers.ref(r)
	}
	readRecord := func(scan func(...any) error) error {
		var x recordRow
		if err := scan(&x.tree, &x.call, &x.state, &x.expires, &x.ended, &x.seq, &x.ref, &x.exclusive, &x.body); err != nil {
			return err
		}
		return b.readRecord(&x)
	}
	err := errors.Join(
		t.ask(liteRefs, refs, readRecord),
		t.ask(liteExclusive, exclusive, readRecord),
		t.ask(liteDue, due, readRecord, b.now, maxDue),
		t.ask(liteNextDue, due, func(scan func(...any) error) error {
			var i int
			var expires sql.NullInt64
			err := scan(&i, &expires)
			w.due[i].foundDue(expires)
			return err
		}, b.now),
		t.ask(litePeriods, windows, func(scan func(...any) error) error {
			var i, id int64
			var n [6]sql.NullInt64
			if err := scan(&i, &id, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5]); err != nil {
				return err
			}
			x := w.periods[i]
			if x.counter.foundID(id); n[0].Valid {
				x.found(n[0].Int64, n[1].Int64, n[2].Int64, n[3].Int64, n[4].Int64, n[5].Int64)
			}
			return nil
		}),
		t.ask(liteBuckets, buckets, func(scan func(...any) error) error {
			var i, id int64
			var n [6]sql.NullInt64
			var charges sql.NullString
			if err := scan(&i, &id, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &charges); err != nil {
				return err
			}
			c := w.buckets[i]
			if c.foundID(id); n[0].Valid {
				return c.bucket.found(n[0].Int64, n[1].Int64, n[2].Int64, n[3].Int64, n[4].Int64, n[5].Int64, charges.String)
			}
			return nil
		}),
		t.ask(liteWriters, writers, func(scan func(...any) error) error {
			var i, seq int64
			err := scan(&i, &seq)
			b.foundMark(w.writers[i], seq)
			return err
		}),
	)
	if err != nil {
		return err
	}
	b.readNamed()
	list, held, whole := b.unread(), newLiteList(2), newLiteList(1)
	for _, x := range list {
		held.int(x.id)
		held.int(x.start)
	}
	for _, c := range w.whole {
		whole.ref(c.name)
	}
	readHeld := func(scan func(...any) error) error { return b.readHeld(list, scan) }
	return errors.Join(
		t.ask(liteHeldPeriods, held, readHeld),
		t.ask(liteHeldBuckets, held, readHeld),
		t.ask(liteWhole, whole, b.readWhole),
	)
}

// ask asks about what is in a list, if there is anything, and calls read for each row with
// what scans it.
func (t *sqliteTx) ask(statement int, list *liteList, read func(scan func(...any) error) error, more ...any) error {
	if list.empty() {
		return nil
	}
	rows, err := t.s.stmts[statement].QueryContext(context.Background(), append([]any{list.String()}, more...)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// fresh compares the version of a page with the one of the whole database.
func (t *sqliteTx) fresh(p *page) bool { return p.version == t.s.version }

// check is fresh for all pages, which they are.
func (t *sqliteTx) check(context.Context, *book) error { return nil }

// touch does nothing: other processes notice any change, and the page is forgotten.
func (t *sqliteTx) touch(context.Context, int64) error { return nil }

func (t *sqliteTx) callIDs(_ context.Context, n int) ([]int64, error) {
	var last int64
	if err := t.s.stmts[liteCallID].QueryRowContext(context.Background()).Scan(&last); err != nil {
		return nil, err
	}
	return following(last, n), nil
}

func following(last int64, n int) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = last + 1 + int64(i)
	}
	return ids
}

func (t *sqliteTx) counterIDs(_ context.Context, n int) ([]int64, error) {
	var last int64
	query := t.s.put("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = '{i}counters'")
	if err := t.s.conn.QueryRowContext(context.Background(), query).Scan(&last); err != nil {
		return nil, err
	}
	return following(last, n), nil
}

func (t *sqliteTx) save(ctx context.Context, _ *book, ch *changes) error {
	for i, write := range ch {
		if write == nil {
			continue
		}
		if err := t.insert(ctx, i, write); err != nil {
			return err
		}
	}
	return nil
}

func (t *sqliteTx) insert(_ context.Context, what int, rows func(w writer)) error {
	list := newLiteList(len(writes[what].table.columns))
	rows(list)
	if list.empty() {
		return nil
	}
	_, err := t.s.stmts[liteWrite+what].ExecContext(context.Background(), list.String())
	return err
}

func (t *sqliteTx) exec(_ context.Context, query string, args ...any) (int64, error) {
	res, err := t.s.conn.ExecContext(context.Background(), t.s.rebind(query), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (t *sqliteTx) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return t.s.conn.QueryContext(ctx, t.s.rebind(query), args...)
}

func (t *sqliteTx) commit(context.Context) error {
	_, err := t.s.conn.ExecContext(context.Background(), "COMMIT")
	if err == nil {
		t.end(nil)
	}
	return err
}

func (t *sqliteTx) rollback() {
	if t.ended {
		return
	}
	_, err := t.s.conn.ExecContext(context.Background(), "ROLLBACK")
	if err != nil && strings.Contains(err.Error(), "no transaction is active") {
		err = nil // what went wrong has rolled it back already
	}
	t.end(err)
}

// end lets the next transaction begin.
func (t *sqliteTx) end(err error) {
	t.ended = true
	if err != nil {
		t.s.disconnect(err)
	}
	t.s.mu.Unlock()
}
