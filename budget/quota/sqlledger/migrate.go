package sqlledger

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"time"
)

// Each dialect has files of its own, with the same numbers. Once released, a file is never
// changed: what is new comes in a new one. {p} stands for what names of tables begin with,
// and {i} for the same in names of indexes, which Postgres keeps in the schema of their
// table.
//
//go:embed migrations
var migrations embed.FS

// migrationsOf are the files of a dialect; the first one makes version 1.
func migrationsOf(d Dialect) ([]string, error) {
	names, err := fs.Glob(migrations, "migrations/"+d.String()+"/*.sql")
	if err != nil {
		return nil, err
	}
	files := make([]string, len(names)) // rising by name
	for i, name := range names {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files[i] = string(text)
	}
	return files, nil
}

// Migrate makes the tables of a [Ledger], or brings those of an older version up to
// date. [New] does it, too, unless Config.NoMigrate is set; this is for programs that
// have other rights in the database than those that use it. Any number of processes may
// do it at once. It looks at DB, Dialect, Schema and Prefix, and at nothing else of the
// configuration.
func Migrate(ctx context.Context, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	cfg.NoMigrate = false
	s, err := cfg.open(ctx)
	if err != nil {
		return err
	}
	return s.close()
}

// openLimit is how long opening waits for others that open the database at the same time, at
// least.
const openLimit = 10 * time.Second

// open opens the store, with its tables as they must be. Who makes tables, or turns a file to
// WAL, is in the way of others, and not all of them are made to wait for that by the database.
func (c *Config) open(ctx context.Context) (store, error) {
	for begun := time.Now(); ; {
		s, err := c.openOnce(ctx)
		if err == nil || failureOf(err) != contended || time.Since(begun) > max(c.Timeout, openLimit) {
			return s, ours(err)
		}
		select {
		case <-time.After(longestPause/2 + rand.N(longestPause/2)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *Config) openOnce(ctx context.Context) (store, error) {
	if err := c.detect(ctx); err != nil {
		return nil, err
	}
	if c.Dialect == SQLite {
		return openSQLite(ctx, c)
	}
	return openPostgres(ctx, c)
}

// schema is what a database says about the tables.
type schema struct {
	version int   // 0: there are none
	space   int64 // a random number that tells these tables from all others
}

// session is what migrations need of a database: a transaction, or a connection in one.
type session interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// read reads which version there is. exists says whether there is a table of a name.
func readSchema(ctx context.Context, q session, n names, exists string) (s schema, err error) {
	var is bool
	if err := q.QueryRowContext(ctx, exists).Scan(&is); err != nil || !is {
		return s, err
	}
	err = q.QueryRowContext(ctx, n.put("SELECT coalesce(max(version), 0), coalesce(min(space), 0) FROM {p}schema")).Scan(&s.version, &s.space)
	return s, err
}

// current reports whether the tables are those of this version. Those of a later version
// are an error, and so are those of an earlier one if they may not be changed.
func (c *Config) current(s schema) (bool, error) {
	files, err := migrationsOf(c.Dialect)
	switch {
	case err != nil:
		return false, err
	case s.version > len(files):
		return false, fmt.Errorf("sqlledger: the tables are of version %d, and this program knows %d", s.version, len(files))
	case s.version < len(files) && c.NoMigrate:
		return false, fmt.Errorf("sqlledger: the tables are of version %d, and must be of %d: call Migrate", s.version, len(files))
	}
	return s.version == len(files), nil
}

// upgrade makes what is missing. Nobody else may do it at the same time.
func (c *Config) upgrade(ctx context.Context, q session, n names, from schema, now string) error {
	files, err := migrationsOf(c.Dialect)
	if err != nil {
		return err
	}
	if from.version == 0 {
		_, err := q.ExecContext(ctx, n.put("CREATE TABLE IF NOT EXISTS {p}schema (version integer PRIMARY KEY, at bigint NOT NULL, space bigint NOT NULL)"))
		if err != nil {
			return err
		}
		from.space = randomSpace()
	}
	for v := from.version + 1; v <= len(files); v++ {
		if _, err := q.ExecContext(ctx, n.put(files[v-1])); err != nil {
			return fmt.Errorf("version %d: %w", v, err)
		}
		insert := n.put(fmt.Sprintf("INSERT INTO {p}schema (version, at, space) SELECT %d, %s, %d", v, now, from.space))
		if _, err := q.ExecContext(ctx, insert); err != nil {
			return err
		}
	}
	return nil
}

// names are what databases do not have in common, by what stands for it in statements.
type names struct {
	table, index string // {p} and {i}: what the names of tables and of indexes begin with
	ref          string // {ref}: the type of references
	bytewise     string // {bytewise}: compares texts byte by byte
	skip         string // {skip}: locks rows that nobody else has locked
	ids          string // {ids}: the numbers of a list in JSON, the first parameter
	row          string // {row}: a row's own name
	oldest       string // {oldest audit}, {oldest calls}: of rows from before $1, $2 at most
}

func (n names) put(query string) string {
	query = strings.NewReplacer(
		"{oldest audit}", strings.ReplaceAll(n.oldest, "{t}", "{p}audit"),
		"{oldest calls}", strings.ReplaceAll(n.oldest, "{t}", "{p}calls"),
	).Replace(query)
	return strings.NewReplacer(
		"{p}", n.table, "{i}", n.index, "{ref}", n.ref, "{bytewise}", n.bytewise, "{skip}", n.skip, "{ids}", n.ids, "{row}", n.row,
	).Replace(query)
}

// ours tells errors of the configuration from those of the database.
func ours(err error) error {
	if err == nil || strings.HasPrefix(err.Error(), "sqlledger: ") || errors.Is(err, context.Canceled) {
		return err
	}
	return unavailable(err)
}
