package chaos_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	_ "modernc.org/sqlite"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/redisledger"
	"github.com/headgate-go/headgate/budget/quota/sqlledger"
)

// storeAt says where a store is.
type storeAt struct {
	// Kind is redis, cluster, sqlite or postgres.
	Kind string
	// At is an address, several with commas between, a file or a DSN.
	At string
}

// open opens a ledger of the store, and returns what is to be closed after it.
func (s storeAt) open(ctx context.Context) (ledger quota.Ledger, end func() error, err error) {
	noNotifications := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled} // of Redis Enterprise
	var client redis.UniversalClient
	switch s.Kind {
	case "redis":
		client = redis.NewClient(&redis.Options{Addr: s.At, ContextTimeoutEnabled: true, MaintNotificationsConfig: noNotifications})
	case "cluster":
		client = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: strings.Split(s.At, ","), ContextTimeoutEnabled: true, MaintNotificationsConfig: noNotifications,
		})
	case "sqlite":
		return openSQL(ctx, "sqlite", "file:"+s.At+"?_pragma=busy_timeout(400)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	case "postgres":
		return openSQL(ctx, "pgx", s.At)
	default:
		return nil, nil, fmt.Errorf("there is no store %q", s.Kind)
	}
	l, err := redisledger.New(ctx, redisledger.Config{Client: client, Timeout: timeout, KeepWindows: keepWindows})
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return l, client.Close, nil
}

func openSQL(ctx context.Context, driver, dsn string) (quota.Ledger, func() error, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, nil, err
	}
	l, err := sqlledger.New(ctx, sqlledger.Config{
		DB: db, Timeout: timeout, KeepWindows: keepWindows, SweepEvery: time.Second, Logger: silent,
	})
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return l, db.Close, nil
}
