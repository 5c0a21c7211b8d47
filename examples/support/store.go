package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of Postgres
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // and that of SQLite

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
	"github.com/headgate-go/headgate/budget/quota/redisledger"
	"github.com/headgate-go/headgate/budget/quota/sqlledger"
)

// storeKind is where spend is kept.
type storeKind struct {
	open func(context.Context, storeOptions) (*store, error)
	// at is where it is unless the command line says otherwise.
	at string
}

// storeOptions is how a store is opened.
type storeOptions struct {
	at      string // where it is
	metrics prometheus.Registerer
	// replaced, if it is not nil, is told when another server of Redis has taken the place of one
	// that was seen last since.
	replaced func(since time.Time)
	// failOpen is to open a store that is away later.
	failOpen bool
	logger   *slog.Logger
}

var stores = map[string]storeKind{
	"memory":   {openMemory, ""},
	"sqlite":   {openSQLite, "support.db"},
	"postgres": {openPostgres, "postgres://127.0.0.1:5432/postgres"},
	"redis":    {openRedis, "redis://127.0.0.1:6379/0"},
}

// store is a ledger and what it stands on.
type store struct {
	quota.Ledger
	memory *quota.Memory // nil if it is another one; for metrics
	close  func() error
}

// opening is how long the store may take to be there at the start.
const opening = 10 * time.Second

// openStore opens the ledger that the command line asks for, at once or, if it is away and calls
// are to go on without, later. All but that in memory register their metrics.
func openStore(kind string, o storeOptions) (*store, error) {
	k, ok := stores[kind]
	if !ok {
		return nil, fmt.Errorf("there is no store %q", kind)
	}
	o.at = cmp.Or(o.at, k.at)
	open := func(ctx context.Context) (*store, error) {
		ctx, cancel := context.WithTimeout(ctx, opening)
		defer cancel()
		s, err := k.open(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("store %s: %w", kind, err)
		}
		return s, nil
	}
	s, err := open(context.Background())
	if err != nil && o.failOpen && away(err) {
		return openLate(open, err, o.logger), nil
	}
	return s, err
}

// kept is the ledger itself: an enforcer knows one in memory when it sees it.
func kept(s *store) quota.Ledger {
	if s.memory != nil {
		return s.memory
	}
	return s.Ledger
}

// leaseBlocks has this server lease blocks of what everybody shares, so that not every call of
// every server meets in one place of the store. It stands before a journal, if there is one.
func (s *store) leaseBlocks(logger *slog.Logger, metrics prometheus.Registerer) error {
	l, err := blocks.New(s.Ledger, blocks.Config{Logger: logger, Registerer: metrics})
	if err != nil {
		return err
	}
	s.Ledger = l
	return nil
}

// end closes the ledger, and then what it stands on.
func (s *store) end(ctx context.Context) error { return errors.Join(s.Ledger.Close(ctx), s.close()) }

func openMemory(context.Context, storeOptions) (*store, error) {
	m, err := quota.NewMemory(quota.MemoryConfig{})
	return &store{Ledger: m, memory: m, close: func() error { return nil }}, err
}

func openSQLite(ctx context.Context, o storeOptions) (*store, error) {
	// Two programs may have the file open: each waits a while for the other's lock.
	dsn := "file:" + (&url.URL{Path: o.at}).EscapedPath() + "?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(400)"
	return openSQL(ctx, "sqlite", dsn, o.metrics)
}

func openPostgres(ctx context.Context, o storeOptions) (*store, error) {
	return openSQL(ctx, "pgx", o.at, o.metrics)
}

func openSQL(ctx context.Context, driver, dsn string, metrics prometheus.Registerer) (*store, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	l, err := sqlledger.New(ctx, sqlledger.Config{DB: db, Registerer: metrics})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &store{Ledger: l, close: db.Close}, nil
}

func openRedis(ctx context.Context, o storeOptions) (*store, error) {
	options, err := redis.ParseURL(o.at)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "redis: "))
	}
	options.ContextTimeoutEnabled = true // a connection that hangs costs no more than its operation may take
	client := redis.NewClient(options)
	l, err := redisledger.New(ctx, redisledger.Config{Client: client, Registerer: o.metrics, Replaced: o.replaced})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &store{Ledger: l, close: client.Close}, nil
}
