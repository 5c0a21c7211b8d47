package sqlledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// postgres is a store in Postgres.
//
// Everything of a tree is locked by one advisory lock of its transaction, so that it can
// be read in one statement, also what is not there yet. Nobody waits for a second lock
// while having one, so that there are no deadlocks. Statements get their rows as arrays,
// and are the same however many rows there are, so that the server plans them once.
type postgres struct {
	db    *sql.DB
	space int64
	slow  bool   // what holds for transactions must be set first
	idle  string // how long the server waits for the next statement of a transaction

	names
	lockSQL, loadSQL, heldSQL, wholeSQL, saveSQL string
	clock                                        clock

	mu sync.Mutex
	// mu guards the ids of calls that are taken and not used yet.
	nextCall, lastCall int64
}

func randomSpace() int64 { return rand.Int64() }

// minPostgres is the oldest version whose SQL is enough.
const minPostgres = 120000

func openPostgres(ctx context.Context, c *Config) (store, error) {
	s := &postgres{db: c.DB, idle: milliseconds(max(c.Timeout, time.Second))}
	if err := s.open(ctx, c); err != nil {
		return nil, err
	}
	s.lockSQL, s.loadSQL, s.saveSQL = s.put(postgresLock), s.put(postgresLoad), s.put(postgresSave())
	s.heldSQL, s.wholeSQL = s.put(postgresHeld), s.put(postgresWhole)
	return s, nil
}

func (s *postgres) open(ctx context.Context, c *Config) error {
	var version int
	var encoding, durable, readOnly string
	var first sql.NullString
	err := s.db.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), current_schema(),
		current_setting('synchronous_commit'), current_setting('transaction_read_only')`).
		Scan(&version, &encoding, &first, &durable, &readOnly)
	switch {
	case err != nil:
		return err
	case version < minPostgres:
		return fmt.Errorf("sqlledger: Config.DB is Postgres %d, must be 12 at least", version/10000)
	case readOnly == "on": // each transaction would have to be told otherwise before all else, and a replica cannot be
		return errors.New("the database can only be read: it is a replica, or default_transaction_read_only is on for the user or the database (turn it off in the connection's parameters)")
	case encoding != "UTF8":
		return fmt.Errorf("sqlledger: Config.DB has the encoding %s, must have UTF8", encoding)
	}
	if c.Schema == "" && !first.Valid {
		return errors.New("sqlledger: Config.Schema is not set, and the connection's search_path names none that is there")
	}
	s.slow = durable == "off"
	in := c.Schema
	if in == "" {
		in = first.String
	}
	quoted := quote(in)
	s.names = names{
		table: quoted + "." + c.Prefix, index: c.Prefix, ref: "uuid", bytewise: ` COLLATE "C"`, skip: " FOR UPDATE SKIP LOCKED", row: "ctid",
		oldest: "SELECT ctid FROM {t} WHERE at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED",
		ids:    "(SELECT x.id::bigint FROM json_array_elements_text($1::text::json) AS x(id))",
	}
	// Not by to_regclass, which may answer out of a cache from before the lock.
	exists := fmt.Sprintf("SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = '%s' AND tablename = '%s')",
		quoteText(in), quoteText(c.Prefix+"schema"))
	is, err := readSchema(ctx, s.db, s.names, exists)
	if err != nil {
		return err
	}
	if done, err := c.current(is); err != nil || done {
		s.space = is.space
		return err
	}
	// Migrations are rare, so all of them wait for each other.
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(5207862953012466541)"); err != nil { // of no meaning
		return err
	}
	if c.Schema != "" {
		if _, err := tx.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+quoted); err != nil {
			return err
		}
	}
	if is, err = readSchema(ctx, tx, s.names, exists); err != nil {
		return err
	}
	if done, err := c.current(is); err != nil || done {
		s.space = is.space
		return err
	}
	if err := c.upgrade(ctx, tx, s.names, is, "(extract(epoch FROM now()) * 1e9)::bigint"); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if is, err = readSchema(ctx, tx, s.names, exists); err != nil {
		return err
	}
	s.space = is.space
	return tx.Commit()
}

func quote(name string) string { return `"` + doubled(name, '"') + `"` }

func quoteText(text string) string { return doubled(text, '\'') }

func doubled(s string, quote byte) string {
	var to []byte
	for i := range len(s) {
		if s[i] == quote {
			to = append(to, quote)
		}
		to = append(to, s[i])
	}
	return string(to)
}

func milliseconds(d time.Duration) string {
	return strconv.FormatInt(max(d.Milliseconds(), 1), 10)
}

func (s *postgres) rebind(query string) string { return s.put(query) }

func (s *postgres) close() error { return nil }

func (s *postgres) reader(ctx context.Context) (*sql.Conn, func(), error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	return conn, func() { _ = conn.Close() }, nil
}

// begin begins a transaction that sees what others have committed up to each statement,
// whatever the database's default is: what is read after the lock must be what is there
// after the lock.
func (s *postgres) begin(ctx context.Context) (transaction, error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, err
	}
	return &postgresTx{s: s, tx: tx}, nil
}

type postgresTx struct {
	s  *postgres
	tx *sql.Tx
}

// postgresLock locks trees, and sets what holds for the transaction:
//
//   - A process that was stopped in the middle, or whose network is gone, loses its locks
//     when the server waits for it for too long.
//   - A commit waits for the disk, even where the database's default is not to. Whoever has
//     told it to wait for more than that, for a replica, is not overruled.
//   - What a statement is planned for must not depend on how full a table was when it was
//     planned first: all of them look up single rows.
const postgresLock = `
SELECT CASE WHEN $3::text = '' THEN pg_try_advisory_xact_lock(k.key)
		ELSE pg_advisory_xact_lock(k.key) IS NOT NULL END,
	(extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM (SELECT
	set_config('lock_timeout', $1, true),
	set_config('idle_in_transaction_session_timeout', $2, true),
	set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'local' ELSE current_setting('synchronous_commit') END, true),
	set_config('enable_seqscan', 'off', true),
	set_config('enable_hashjoin', 'off', true),
	set_config('enable_mergejoin', 'off', true),
	set_config('jit', 'off', true)
	OFFSET 0) AS settings
LEFT JOIN unnest($4::text::bigint[]) AS k(key) ON true`

func (t *postgresTx) lock(ctx context.Context, trees []int64) (locked []bool, now int64, err error) {
	keys := newArrays(1)
	for _, tree := range trees {
		keys.int(tree ^ t.s.space)
	}
	limit := time.Minute
	if end, ok := ctx.Deadline(); ok {
		// A little earlier than ctx, which would cost the connection.
		limit = time.Until(end) * 9 / 10
	}
	wait := ""
	if len(trees) == 1 {
		wait = "wait"
	}
	var clock int64
	args := keys.args([]any{milliseconds(limit), t.s.idle, wait})
	err = each(ctx, t.tx.QueryContext, t.s.lockSQL, args, func(scan func(...any) error) error {
		var is sql.NullBool
		err := scan(&is, &clock)
		locked = append(locked, is.Bool)
		return err
	})
	if len(trees) == 0 {
		locked = nil
	}
	now = clock * int64(time.Microsecond)
	t.s.clock.read(now)
	return locked, now, err
}

// postgresLoad reads everything that is known by name. Rows of several kinds have the same
// columns; what is asked for by its place in a list is answered so.
const postgresLoad = `
WITH r AS MATERIALIZED (
	SELECT r.* FROM unnest($1::text::uuid[]) AS x(ref) JOIN {p}reservations r ON r.ref = x.ref
	UNION ALL
	SELECT r.* FROM unnest($2::text::uuid[]) AS x(ref) JOIN {p}reservations r ON r.exclusive = x.ref AND r.state = 0
	UNION ALL
	(SELECT r.* FROM unnest($3::text::bigint[]) AS x(tree) CROSS JOIN LATERAL
		(SELECT * FROM {p}reservations r WHERE r.tree = x.tree AND r.state = 0 AND r.expires <= $4::bigint LIMIT $5::bigint) AS r LIMIT $5::bigint)
)
SELECT 1, r.tree, r.call, r.state::bigint, r.expires, r.ended, r.seq, NULL::bigint, NULL::bigint, r.ref::text, r.exclusive::text, r.body
FROM r
UNION ALL
SELECT 2, x.n - 1, c.id, w.ends, w.committed, w.reserved, w.max, w.crossed::bigint, w.resets, NULL, NULL, NULL
FROM unnest($6::text::uuid[], $7::text::bigint[]) WITH ORDINALITY AS x(name, starts, n) JOIN {p}counters c ON c.name = x.name
LEFT JOIN LATERAL (SELECT * FROM {p}windows w WHERE w.counter = c.id AND w.starts = x.starts OFFSET 0) AS w ON true
UNION ALL
SELECT 3, x.n - 1, c.id, b.units, b.part, b.at, b.full_at, b.reserved, b.mark, NULL, NULL, b.charges
FROM unnest($8::text::uuid[]) WITH ORDINALITY AS x(name, n) JOIN {p}counters c ON c.name = x.name
LEFT JOIN {p}buckets b ON b.counter = c.id
UNION ALL
SELECT 4, x.n - 1, t.version, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM unnest($9::text::bigint[]) WITH ORDINALITY AS x(tree, n) JOIN {p}trees t ON t.tree = x.tree
UNION ALL
SELECT 5, x.n - 1, (SELECT min(r.expires) FROM {p}reservations r WHERE r.tree = x.tree AND r.state = 0 AND r.expires > $4::bigint),
	NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM unnest($3::text::bigint[]) WITH ORDINALITY AS x(tree, n)
UNION ALL
SELECT 6, x.n - 1, w.seq, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM unnest($10::text::uuid[]) WITH ORDINALITY AS x(writer, n) JOIN {p}writers w ON w.writer = x.writer`

// postgresHeld reads the counters of what reservations hold.
const postgresHeld = `
SELECT x.n - 1, c.id, c.name::text, c.key, c.window_id, c.unit::bigint, c.per,
	CASE c.per WHEN 0 THEN w.ends ELSE b.units END, CASE c.per WHEN 0 THEN w.committed ELSE b.part END,
	CASE c.per WHEN 0 THEN w.reserved ELSE b.at END, CASE c.per WHEN 0 THEN w.max ELSE b.full_at END,
	CASE c.per WHEN 0 THEN w.crossed ELSE b.reserved END, CASE c.per WHEN 0 THEN w.resets ELSE b.mark END, b.charges
FROM unnest($1::text::bigint[], $2::text::bigint[]) WITH ORDINALITY AS x(id, starts, n) JOIN {p}counters c ON c.id = x.id
LEFT JOIN LATERAL (SELECT * FROM {p}windows w WHERE c.per = 0 AND w.counter = c.id AND w.starts = x.starts OFFSET 0) AS w ON true
LEFT JOIN LATERAL (SELECT * FROM {p}buckets b WHERE c.per <> 0 AND b.counter = c.id OFFSET 0) AS b ON true`

// postgresWhole reads all windows of counters.
const postgresWhole = `
SELECT x.n - 1, c.id, w.starts, w.ends, w.committed, w.reserved, w.max, w.crossed::bigint, w.resets
FROM unnest($1::text::uuid[]) WITH ORDINALITY AS x(name, n) JOIN {p}counters c ON c.name = x.name JOIN {p}windows w ON w.counter = c.id`

func (t *postgresTx) load(ctx context.Context, b *book) error {
	w := &b.want
	refs, exclusive, due, windows, buckets, trees, writers :=
		newArrays(1), newArrays(1), newArrays(1), newArrays(2), newArrays(1), newArrays(1), newArrays(1)
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
	for _, p := range b.pages {
		trees.int(p.tree)
	}
	for _, r := range w.writers {
		writers.ref(r)
	}
	args := due.args(exclusive.args(refs.args(make([]any, 0, 10))))
	args = append(args, b.now, maxDue)
	args = writers.args(trees.args(buckets.args(windows.args(args))))
	versions := make([]int64, len(b.pages))
	err := each(ctx, t.tx.QueryContext, t.s.loadSQL, args, func(scan func(...any) error) error {
		var kind int
		var n [8]sql.NullInt64
		var s [3]sql.NullString
		if err := scan(&kind, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &n[7], &s[0], &s[1], &s[2]); err != nil {
			return err
		}
		v := func(i int) int64 { return n[i].Int64 }
		switch kind {
		case 1:
			return b.readRecord(&recordRow{s[0].String, s[1].String, v(0), v(1), v(2), v(3), v(4), v(5), s[2].String})
		case 2:
			x := w.periods[v(0)]
			if x.counter.foundID(v(1)); n[2].Valid {
				x.found(v(2), v(3), v(4), v(5), v(6), v(7))
			}
		case 3:
			c := w.buckets[v(0)]
			if c.foundID(v(1)); n[2].Valid {
				return c.bucket.found(v(2), v(3), v(4), v(5), v(6), v(7), s[2].String)
			}
		case 4:
			versions[v(0)] = v(1)
		case 5:
			w.due[v(0)].foundDue(n[1])
		case 6:
			b.foundMark(w.writers[v(0)], v(1))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, p := range b.pages {
		if err := b.foundPage(p, versions[i]); err != nil {
			return err
		}
	}
	b.readNamed()
	if list := b.unread(); len(list) > 0 {
		held := newArrays(2)
		for _, x := range list {
			held.int(x.id)
			held.int(x.start)
		}
		err := each(ctx, t.tx.QueryContext, t.s.heldSQL, held.args(nil), func(scan func(...any) error) error { return b.readHeld(list, scan) })
		if err != nil {
			return err
		}
	}
	if len(w.whole) == 0 {
		return nil
	}
	whole := newArrays(1)
	for _, c := range w.whole {
		whole.ref(c.name)
	}
	return each(ctx, t.tx.QueryContext, t.s.wholeSQL, whole.args(nil), b.readWhole)
}

func (t *postgresTx) counterIDs(ctx context.Context, n int) ([]int64, error) {
	return numbers(ctx, t.query, "SELECT nextval('{p}counter_ids') FROM generate_series(1, $1::bigint)", n)
}

// callBlock is how many ids of calls are taken at once. The sequence steps so far.
const callBlock = 1024

func (t *postgresTx) callIDs(ctx context.Context, n int) ([]int64, error) {
	return t.s.callIDs(ctx, t.tx.QueryContext, n)
}

func (s *postgres) callIDs(ctx context.Context, ask asker, n int) (ids []int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(ids) < n {
		if s.nextCall == s.lastCall {
			block, err := numbers(ctx, ask, s.put("SELECT nextval('{p}call_ids')"))
			if err != nil || len(block) != 1 {
				return nil, errors.Join(err, ctx.Err())
			}
			s.nextCall, s.lastCall = block[0], block[0]+callBlock
		}
		ids = append(ids, s.nextCall)
		s.nextCall++
	}
	return ids, nil
}

// postgresWrite is a statement that writes rows as one of writes says, out of parameters from
// first on, one for each column.
func postgresWrite(what, first int, where string) (statement string, parameters int) {
	types := [...]string{number: "bigint", text: "text", reference: "uuid"}
	t := writes[what].table
	arrays := make([]string, len(t.columns))
	for i, c := range t.columns {
		arrays[i] = "$" + strconv.Itoa(first+i) + "::text::" + types[c.kind&^once] + "[]"
	}
	statement = t.insert("SELECT * FROM unnest(" + strings.Join(arrays, ", ") + ") AS x" + where)
	switch writes[what].mode {
	case updating:
		statement += t.conflict("excluded.{c}")
	case raising:
		statement += t.conflict("greatest({t}.{c}, excluded.{c})")
	}
	return statement, len(arrays)
}

// postgresSave writes everything in one statement, if as many trees as must be are of the versions
// that they must be, and the time is about what it must be. Trees come first, and rise, so that
// statements of two processes wait for each other there, and not for each other's rows.
//
// Rows that are there already are written with ON CONFLICT, which looks them up in an index whatever
// the planner thinks of the table.
func postgresSave() string {
	query := `WITH bumped AS (
	INSERT INTO {p}trees AS t (tree, version, before)
	SELECT * FROM unnest($1::text::bigint[], $2::text::bigint[], $3::text::bigint[])
	ON CONFLICT (tree) DO UPDATE SET version = excluded.version, before = excluded.before WHERE t.version = excluded.before
	RETURNING t.tree
), clock AS MATERIALIZED (
	SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now
), verdict AS MATERIALIZED (
	SELECT (SELECT count(*) FROM bumped) = $4::bigint AND abs((SELECT now FROM clock) - $5::bigint) <= $6::bigint AS ok
)
`
	first := 7
	for i := range writes {
		statement, n := postgresWrite(i, first, " WHERE (SELECT ok FROM verdict)")
		query += fmt.Sprintf(", w%d AS (%s)\n", i, statement)
		first += n
	}
	return query + "SELECT ok, (SELECT now FROM clock), CASE WHEN NOT ok THEN (SELECT string_agg(tree::text, ',') FROM bumped) END FROM verdict"
}

func (t *postgresTx) save(ctx context.Context, b *book, ch *changes) error {
	// The transaction has read the clock itself, and then waited for nothing.
	return t.s.save(ctx, t.tx.QueryContext, b, ch, time.Hour)
}

// save saves changes. near is how far the store's time may be from the book's.
func (s *postgres) save(ctx context.Context, ask asker, b *book, ch *changes, near time.Duration) error {
	trees := newArrays(3)
	bumped := 0
	for _, p := range b.pages {
		if !p.changed && b.sure {
			continue // its version was read after it was locked
		}
		p.next = rand.Int64N(math.MaxInt64) + 1 // never the same again
		trees.int(p.tree)
		trees.int(p.next)
		trees.int(p.version)
		bumped++
	}
	args := append(trees.args(make([]any, 0, 96)), bumped, b.clock/int64(time.Microsecond), near.Microseconds())
	for i, write := range ch {
		list := newArrays(len(writes[i].table.columns))
		if write != nil {
			write(list)
		}
		args = list.args(args)
	}
	var ok bool
	var clock int64
	var fresh sql.NullString
	err := each(ctx, ask, s.saveSQL, args, func(scan func(...any) error) error { return scan(&ok, &clock, &fresh) })
	if failureOf(err) == duplicate {
		s.mu.Lock()
		s.lastCall = s.nextCall // the database may have forgotten that it gave these out
		s.mu.Unlock()
	}
	if err != nil {
		return err
	}
	if !ok {
		s.clock.forget()
		is := strings.Split(fresh.String, ",")
		for _, p := range b.pages {
			p.stale = !slices.Contains(is, strconv.FormatInt(p.tree, 10))
		}
		return errStale
	}
	s.clock.read(clock * int64(time.Microsecond))
	for _, p := range b.pages {
		if p.changed || !b.sure {
			p.version = p.next
		}
	}
	return nil
}

// nearby is how far the time of the database may be from what was taken for it: a process that was
// stopped meanwhile does not write what was true before.
const nearby = time.Second

// guess is the time of the database, without asking it.
func (s *postgres) guess() (now int64, ok bool) {
	now, ok = s.clock.guess()
	return now, ok && !s.slow
}

// saveAtOnce saves changes in a transaction of one statement.
func (s *postgres) saveAtOnce(ctx context.Context, b *book, ch *changes) error {
	ids, err := s.callIDs(ctx, s.db.QueryContext, len(b.calls))
	if err != nil {
		return err
	}
	for i := range b.calls {
		b.calls[i].record.call = ids[i]
	}
	err = s.save(ctx, s.db.QueryContext, b, ch, nearby)
	if err != nil && !errors.Is(err, errStale) && !answered(err) {
		return &unsureError{err}
	}
	return err
}

func (t *postgresTx) check(ctx context.Context, b *book) error {
	if b.sure || len(b.pages) == 0 {
		return nil
	}
	trees := newArrays(2)
	for _, p := range b.pages {
		trees.int(p.tree)
		trees.int(p.version)
	}
	same, err := numbers(ctx, t.query, postgresCheck, trees.args(nil)...)
	if err != nil {
		return err
	}
	for _, p := range b.pages {
		if !slices.Contains(same, p.tree) {
			p.stale, err = true, errStale
		}
	}
	return err
}

// fresh is told by load, save and check.
func (t *postgresTx) fresh(*page) bool { return true }

const postgresCheck = `
SELECT t.tree FROM unnest($1::text::bigint[], $2::text::bigint[]) AS x(tree, version)
JOIN {p}trees t ON t.tree = x.tree AND t.version = x.version`

func (t *postgresTx) touch(ctx context.Context, tree int64) error {
	_, err := t.exec(ctx, "UPDATE {p}trees SET version = $2 WHERE tree = $1", tree, rand.Int64N(math.MaxInt64)+1)
	return err
}

func (t *postgresTx) insert(ctx context.Context, what int, rows func(w writer)) error {
	statement, n := postgresWrite(what, 1, "")
	list := newArrays(n)
	rows(list)
	_, err := t.exec(ctx, statement, list.args(nil)...)
	return err
}

func (t *postgresTx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	res, err := t.tx.ExecContext(ctx, t.s.put(query), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (t *postgresTx) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return t.tx.QueryContext(ctx, t.s.put(query), args...)
}

func (t *postgresTx) commit(context.Context) error { return t.tx.Commit() }

func (t *postgresTx) rollback() { _ = t.tx.Rollback() }
