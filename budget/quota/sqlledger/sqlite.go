package sqlledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// sqlite is a store in SQLite. There is one transaction at a time, which takes the
// database's lock for writers when it begins, and a connection that is only for it.
//
// The clock is that of the process: the file is on the same machine. What is done within a
// transaction does not end with a context, as it waits for nothing but the disk.
type sqlite struct {
	cfg *Config
	names
	statements [liteStatements]string

	mu sync.Mutex
	// mu guards the connection, and is held by whoever has a transaction.
	conn   *sql.Conn // nil if there is none
	stmts  [liteStatements]*sql.Stmt
	memory bool // other connections would be to other databases

	// version is another one after others have written; dataVersion is SQLite's own
	// number for that, which is different for each connection.
	version, dataVersion int64
}

// The statements that are prepared.
const (
	liteVersion = iota
	liteRefs
	liteExclusive
	liteDue
	liteNextDue
	litePeriods
	liteBuckets
	liteHeldPeriods
	liteHeldBuckets
	liteWhole
	liteWriters
	liteCallID
	liteWrite      // and one for each of writes
	liteStatements = liteWrite + writesCount
)

// liteSQL are the statements. Most of them get a list in JSON, and answer with places in it.
var liteSQL = func() (all [liteStatements]string) {
	const (
		record  = "SELECT r.tree, r.call, r.state, r.expires, r.ended, r.seq, r.ref, coalesce(r.exclusive, ''), r.body "
		counter = "SELECT x.key, c.id, c.name, c.key, c.window_id, c.unit, c.per, "
		window  = "w.ends, w.committed, w.reserved, w.max, w.crossed, w.resets"
		bucket  = "b.units, b.part, b.at, b.full_at, b.reserved, b.mark"
	)
	all = [liteStatements]string{
		liteVersion:   "PRAGMA data_version",
		liteRefs:      record + "FROM json_each(?1) x JOIN {p}reservations r ON r.ref = x.value",
		liteExclusive: record + "FROM json_each(?1) x JOIN {p}reservations r ON r.exclusive = x.value AND r.state = 0",
		liteDue:       record + "FROM json_each(?1) x JOIN {p}reservations r ON r.tree = x.value AND r.state = 0 AND r.expires <= ?2 LIMIT ?3",
		liteNextDue: `SELECT x.key, (SELECT min(r.expires) FROM {p}reservations r WHERE r.tree = x.value AND r.state = 0 AND r.expires > ?2)
			FROM json_each(?1) x`,
		litePeriods: "SELECT x.key, c.id, " + window + ` FROM json_each(?1) x JOIN {p}counters c ON c.name = x.value->>0
			LEFT JOIN {p}windows w ON w.counter = c.id AND w.starts = x.value->>1`,
		liteBuckets: "SELECT x.key, c.id, " + bucket + `, b.charges FROM json_each(?1) x JOIN {p}counters c ON c.name = x.value
			LEFT JOIN {p}buckets b ON b.counter = c.id`,
		liteHeldPeriods: counter + window + `, NULL FROM json_each(?1) x JOIN {p}counters c ON c.id = x.value->>0
			LEFT JOIN {p}windows w ON w.counter = c.id AND w.starts = x.value->>1 WHERE c.per = 0`,
		liteHeldBuckets: counter + bucket + `, b.charges FROM json_each(?1) x JOIN {p}counters c ON c.id = x.value->>0
			LEFT JOIN {p}buckets b ON b.counter = c.id WHERE c.per <> 0`,
		liteWhole: "SELECT x.key, c.id, w.starts, " + window + ` FROM json_each(?1) x JOIN {p}counters c ON c.name = x.value
			JOIN {p}windows w ON w.counter = c.id`,
		liteWriters: "SELECT x.key, w.seq FROM json_each(?1) x JOIN {p}writers w ON w.writer = x.value",
		liteCallID:  "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = '{i}calls'",
	}
	for i := range writes {
		all[liteWrite+i] = sqliteWrite(i)
	}
	return all
}()

// sqliteWrite is a statement that writes rows, in a list in JSON, as one of writes says.
func sqliteWrite(what int) string {
	t := writes[what].table
	values := make([]string, len(t.columns))
	for i := range values {
		values[i] = "value->>" + strconv.Itoa(i)
	}
	query := t.insert("SELECT " + strings.Join(values, ", ") + " FROM json_each(?1) WHERE true")
	switch writes[what].mode {
	case updating:
		query += t.conflict("excluded.{c}")
	case raising:
		query += t.conflict("max({t}.{c}, excluded.{c})")
	}
	return query
}

// liteList is a list in JSON: of values, or of lists of some values each.
type liteList struct {
	buf           []byte
	columns, next int
}

func newLiteList(columns int) *liteList { return &liteList{columns: columns} }

func (l *liteList) begin() {
	switch {
	case len(l.buf) == 0:
		l.buf = append(l.buf, '[')
	default:
		l.buf = append(l.buf, ',')
	}
	if l.columns > 1 && l.next == 0 {
		l.buf = append(l.buf, '[')
	}
}

func (l *liteList) end() {
	if l.next++; l.next == l.columns {
		l.next = 0
		if l.columns > 1 {
			l.buf = append(l.buf, ']')
		}
	}
}

func (l *liteList) int(n int64) {
	l.begin()
	l.buf = strconv.AppendInt(l.buf, n, 10)
	l.end()
}

func (l *liteList) text(s string) {
	l.begin()
	text, err := json.Marshal(s)
	if err != nil { // there is none for a text
		text = []byte(`""`)
	}
	l.buf = append(l.buf, text...)
	l.end()
}

func (l *liteList) ref(r ref) {
	l.begin()
	l.buf = append(r.append(append(l.buf, '"')), '"')
	l.end()
}

func (l *liteList) null() {
	l.begin()
	l.buf = append(l.buf, "null"...)
	l.end()
}

func (l *liteList) empty() bool { return len(l.buf) == 0 }

func (l *liteList) String() string {
	if l.empty() {
		return "[]"
	}
	return string(append(l.buf, ']'))
}

func openSQLite(ctx context.Context, c *Config) (store, error) {
	s := &sqlite{cfg: c, names: names{
		table: c.Prefix, index: c.Prefix, ref: "text", ids: "(SELECT value FROM json_each($1))", row: "rowid",
		oldest: "SELECT rowid FROM (SELECT rowid, at FROM {t} ORDER BY rowid LIMIT $2) WHERE at < $1",
	}}
	for i, query := range liteSQL {
		s.statements[i] = s.put(query)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.connect(ctx, func(ctx context.Context) error { return s.migrate(ctx) }); err != nil {
		s.disconnect(err)
		return nil, err
	}
	return s, nil
}

// liteWait is how long SQLite itself waits for another process. It sleeps for up to 100 ms at a
// time, which is long next to a transaction, and so another process with many of them may get
// all turns; the ledger's own pauses are shorter.
const liteWait = 8 * time.Millisecond

// connect makes the connection. mu is held.
func (s *sqlite) connect(ctx context.Context, first func(context.Context) error) (err error) {
	if s.conn, err = s.cfg.DB.Conn(ctx); err != nil {
		return err
	}
	for _, query := range [...]string{
		"PRAGMA busy_timeout = " + milliseconds(liteWait),
		"PRAGMA journal_mode = WAL",
		"PRAGMA fullfsync = 1", // of macOS, where fsync alone leaves it to the disk
	} {
		if err := s.run(ctx, query); err != nil {
			return err
		}
	}
	var synchronous int
	if err := s.conn.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&synchronous); err != nil {
		return err
	}
	if synchronous < 2 { // FULL: with less a commit does not wait for the disk
		if err := s.run(ctx, "PRAGMA synchronous = FULL"); err != nil {
			return err
		}
	}
	var file sql.NullString
	if err := s.conn.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&file); err != nil {
		return err
	}
	s.memory = file.String == ""
	s.version++
	if first != nil {
		if err := first(ctx); err != nil {
			return err
		}
	}
	for i, query := range s.statements {
		if s.stmts[i], err = s.conn.PrepareContext(ctx, query); err != nil {
			return err
		}
	}
	return nil
}

// run runs a statement whose rows do not matter.
func (s *sqlite) run(ctx context.Context, query string) error {
	rows, err := s.conn.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	for rows.Next() {
	}
	return errors.Join(rows.Err(), rows.Close())
}

// disconnect gives the connection back; after an error, to be closed. mu is held.
func (s *sqlite) disconnect(err error) {
	if s.conn == nil {
		return
	}
	for i, stmt := range s.stmts {
		if stmt != nil {
			_ = stmt.Close()
			s.stmts[i] = nil
		}
	}
	if err != nil {
		_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	_ = s.conn.Close()
	s.conn = nil
}

func (s *sqlite) migrate(ctx context.Context) error {
	const minVersion = 3038000 // has ->>
	var number int
	var version string
	err := s.conn.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version)
	if err != nil {
		return err
	}
	if m := versionNumber.FindStringSubmatch(version); m != nil {
		for _, part := range m[1:] {
			n := 0
			_, _ = fmt.Sscan(part, &n)
			number = number*1000 + n
		}
	}
	if number < minVersion {
		return fmt.Errorf("sqlledger: Config.DB is SQLite %s, must be 3.38 at least", version)
	}
	exists := s.put("SELECT count(*) > 0 FROM sqlite_master WHERE type = 'table' AND name = '{i}schema'")
	is, err := readSchema(ctx, s.conn, s.names, exists)
	if err != nil {
		return err
	}
	if done, err := s.cfg.current(is); err != nil || done {
		return err
	}
	// Writers wait for each other, and whoever comes second finds it done.
	if _, err := s.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err = s.upgrade(ctx, exists)
	if err != nil {
		_, _ = s.conn.ExecContext(context.Background(), "ROLLBACK")
		return err
	}
	_, err = s.conn.ExecContext(ctx, "COMMIT")
	return err
}

// upgrade makes what is missing, unless somebody else was faster. Nobody else may write.
func (s *sqlite) upgrade(ctx context.Context, exists string) error {
	is, err := readSchema(ctx, s.conn, s.names, exists)
	if err != nil {
		return err
	}
	if done, err := s.cfg.current(is); err != nil || done {
		return err
	}
	if err := s.cfg.upgrade(ctx, s.conn, s.names, is, "unixepoch() * 1000000000"); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

var versionNumber = regexp.MustCompile(`^(\d+)\.(\d+)\.(\d+)`)

// placeholder is how Postgres writes the parameters of a statement.
var placeholder = regexp.MustCompile(`\$(\d)`)

func (s *sqlite) rebind(query string) string {
	return placeholder.ReplaceAllString(s.put(query), "?$1")
}

func (s *sqlite) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disconnect(nil)
	return nil
}

func (s *sqlite) reader(ctx context.Context) (*sql.Conn, func(), error) {
	s.mu.Lock()
	if s.conn != nil && (s.memory || s.cfg.DB.Stats().MaxOpenConnections == 1) {
		return s.conn, s.mu.Unlock, nil // nobody writes meanwhile
	}
	s.mu.Unlock()
	conn, err := s.cfg.DB.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	return conn, func() { _ = conn.Close() }, nil
}

// guess is for stores that are far away.
func (s *sqlite) guess() (now int64, ok bool) { return 0, false }

func (s *sqlite) saveAtOnce(context.Context, *book, *changes) error { return errors.ErrUnsupported }

func (s *sqlite) begin(ctx context.Context) (transaction, error) {
	s.mu.Lock()
	err := s.ready(ctx)
	if err == nil {
		_, err = s.conn.ExecContext(ctx, "BEGIN IMMEDIATE")
	}
	if err != nil {
		if failureOf(err) == disconnected {
			s.disconnect(err)
		}
		s.mu.Unlock()
		return nil, err
	}
	return &sqliteTx{s: s}, nil
}

// ready makes a connection if there is none. mu is held.
func (s *sqlite) ready(ctx context.Context) error {
	if s.conn != nil {
		return nil
	}
	err := s.connect(ctx, nil)
	if err != nil {
		s.disconnect(err)
	}
	return err
}
