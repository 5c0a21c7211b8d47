package sqlledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/budget/quota"
)

// Defaults of a [Config].
const (
	// DefaultAuditRetention is how long rows of the audit are kept.
	DefaultAuditRetention = 90 * 24 * time.Hour
	// DefaultHistoryRetention is how long the last windows of a counter are kept that
	// nobody uses any more.
	DefaultHistoryRetention = 400 * 24 * time.Hour
	// DefaultPrefix is what the names of tables begin with.
	DefaultPrefix = "headgate_"
	// DefaultSweepEvery is how often expired reservations and old rows are looked for.
	DefaultSweepEvery = time.Minute
	// DefaultTimeout is how long an operation may take.
	DefaultTimeout = 500 * time.Millisecond
	// DefaultTransactions is how many transactions there are at a time, in Postgres: as many as
	// connections that database/sql keeps open by itself.
	DefaultTransactions = 2
)

// Dialect is a kind of database.
type Dialect uint8

const (
	// DetectDialect asks the database what it is.
	DetectDialect Dialect = iota
	// Postgres is PostgreSQL, from version 12 on. Tests run on 15.
	Postgres
	// SQLite is SQLite, from version 3.38 on.
	SQLite
)

// String is "postgres" or "sqlite".
func (d Dialect) String() string {
	switch d {
	case DetectDialect:
		return "not known"
	case Postgres:
		return "postgres"
	case SQLite:
		return "sqlite"
	}
	return fmt.Sprintf("dialect(%d)", uint8(d))
}

// Config describes a [Ledger]. DB must be set.
type Config struct {
	// AuditRetention is how long rows of the audit are kept. What the rows of a counter
	// add up to is carried forward, so that the others still reproduce it. Defaults to
	// [DefaultAuditRetention].
	AuditRetention time.Duration
	// DB is the database. It stays the caller's, who closes it after the ledger. Of
	// SQLite, one of its connections belongs to the ledger until then. Of Postgres,
	// default_transaction_read_only must be off.
	DB *sql.DB
	// Dialect is what kind of database it is. Defaults to what the database says.
	Dialect Dialect
	// HistoryRetention is how long windows that have passed are kept, and counters that
	// nobody has used since; at least Remember. Defaults to [DefaultHistoryRetention].
	HistoryRetention time.Duration
	// KeepWindows is how many past windows of a counter are kept at most, besides those
	// in which something is held. Defaults to [quota.DefaultKeepWindows].
	KeepWindows int
	// Logger is told when old rows cannot be removed. Defaults to [slog.Default].
	Logger *slog.Logger
	// Name is the label ledger of the metrics, to tell several ledgers of a program apart.
	// Defaults to what kind of database it is, postgres or sqlite.
	Name string
	// NoMigrate leaves the tables as they are: New returns an error unless they are
	// those of this version. For programs that may not change tables; see [Migrate].
	NoMigrate bool
	// Prefix is what the names of tables begin with: up to 32 lower-case letters,
	// digits and underscores. Ledgers with different ones have nothing to do with each
	// other. Defaults to [DefaultPrefix].
	Prefix string
	// Registerer for the Prometheus metrics, which stay registered after Close. Defaults to
	// none.
	Registerer prometheus.Registerer
	// Remember is how long reservations that have ended are remembered, for repeats,
	// adjustments and late settlements, at least an hour. Defaults to [quota.DefaultRemember].
	Remember time.Duration
	// Schema is where the tables are in Postgres. Defaults to the first schema of the
	// connection's search_path.
	Schema string
	// SweepEvery is how often the ledger looks for reservations that have expired and
	// rows that are too old. What has expired counts for nothing before it is swept,
	// too. Negative is never: another process does it. Defaults to [DefaultSweepEvery].
	SweepEvery time.Duration
	// Timeout is how long an operation may take, unless its context ends earlier.
	// Defaults to [DefaultTimeout].
	Timeout time.Duration
	// Transactions is how many transactions the ledger has at a time, and so how many
	// connections it uses, in Postgres. DB must keep as many open while they are idle
	// (SetMaxIdleConns), or else each is made anew for a few calls. Defaults to
	// [DefaultTransactions]. In SQLite there is one.
	Transactions int
}

var sqlName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,31}$`)

func (c Config) withDefaults() (Config, error) {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("sqlledger: Config."+format, args...))
	}
	lasting := func(field string, d *time.Duration, value time.Duration) {
		if *d < 0 {
			wrong("%s is %v, must not be negative", field, *d)
		}
		if *d == 0 {
			*d = value
		}
	}
	if c.DB == nil {
		wrong("DB is not set")
	}
	if c.Dialect > SQLite {
		wrong("Dialect is %d, there are %d", c.Dialect, SQLite)
	}
	lasting("AuditRetention", &c.AuditRetention, DefaultAuditRetention)
	lasting("HistoryRetention", &c.HistoryRetention, DefaultHistoryRetention)
	lasting("Remember", &c.Remember, quota.DefaultRemember)
	lasting("Timeout", &c.Timeout, DefaultTimeout)
	if c.Remember >= 0 && c.Remember < time.Hour {
		wrong("Remember is %v, must be at least %v", c.Remember, time.Hour)
	}
	if c.HistoryRetention >= 0 && c.HistoryRetention < c.Remember {
		wrong("HistoryRetention is %v, must be at least Remember, %v", c.HistoryRetention, c.Remember)
	}
	if c.KeepWindows < 0 {
		wrong("KeepWindows is %d, must not be negative", c.KeepWindows)
	}
	if c.KeepWindows == 0 {
		c.KeepWindows = quota.DefaultKeepWindows
	}
	if c.Transactions < 0 {
		wrong("Transactions is %d, must not be negative", c.Transactions)
	}
	if c.Transactions == 0 {
		c.Transactions = DefaultTransactions
	}
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if !sqlName.MatchString(c.Prefix) {
		wrong("Prefix is %.40q, must be up to 32 lower-case letters, digits and underscores", c.Prefix)
	}
	if c.Schema != "" && !sqlName.MatchString(c.Schema) {
		wrong("Schema is %.40q, must be up to 32 lower-case letters, digits and underscores", c.Schema)
	}
	if c.Schema != "" && c.Dialect == SQLite {
		wrong("Schema is %q, which SQLite does not have", c.Schema)
	}
	if c.SweepEvery == 0 {
		c.SweepEvery = DefaultSweepEvery
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}

// detect asks the database what it is.
func (c *Config) detect(ctx context.Context) error {
	if c.Dialect != DetectDialect {
		return nil
	}
	var version string
	err := c.DB.QueryRowContext(ctx, "SELECT version()").Scan(&version)
	switch {
	case err == nil && strings.HasPrefix(version, "PostgreSQL "):
		c.Dialect = Postgres
		return nil
	case err == nil:
		return fmt.Errorf("sqlledger: Config.DB is %.40q, which is neither Postgres nor SQLite", version)
	}
	if lite := c.DB.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); failureOf(lite) == contended {
		return lite
	} else if lite != nil {
		return err
	}
	if c.Dialect = SQLite; c.Schema != "" {
		return fmt.Errorf("sqlledger: Config.Schema is %q, which SQLite does not have", c.Schema)
	}
	return nil
}
