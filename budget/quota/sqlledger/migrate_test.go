package sqlledger_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/sqlledger"
)

func TestTablesAreMadeOnceHoweverManyMakeThem(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		const programs = 8
		ledgers := make([]*sqlledger.Ledger, programs)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i := range programs {
			db := d.open(t)
			wg.Go(func() {
				<-start
				if i%2 == 0 {
					if err := sqlledger.Migrate(context.Background(), sqlledger.Config{DB: db}); err != nil {
						t.Errorf("Migrate: %v", err)
					}
				}
				var err error
				if ledgers[i], err = sqlledger.New(context.Background(), sqlledger.Config{DB: db, SweepEvery: -1}); err != nil {
					t.Errorf("New: %v", err)
				}
			})
		}
		close(start)
		wg.Wait()
		for _, l := range ledgers {
			if l == nil {
				continue
			}
			spend(t, l, "acme", 1, held("acme", 1, -1))
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
		if err := sqlledger.Migrate(t.Context(), sqlledger.Config{DB: d.open(t)}); err != nil {
			t.Errorf("Migrate when everything is there: %v", err)
		}
		l := d.ledger(t)
		stands(t, l, "acme", held("acme", 0, -1), programs, 0)
		if n := number(t, d.open(t), "SELECT count(*) FROM headgate_schema"); n != 1 {
			t.Errorf("version 1 was made %d times", n)
		}
	})
}

func TestTablesOfOtherVersionsAreNotUsed(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		refused := func(cfg sqlledger.Config, want string) {
			t.Helper()
			if l, err := sqlledger.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, quota.ErrUnavailable) {
				t.Errorf("New = %v, %v, want an error that says %q", l, err, want)
			}
		}
		refused(sqlledger.Config{DB: db, NoMigrate: true}, "call Migrate")
		if err := sqlledger.Migrate(t.Context(), sqlledger.Config{DB: db, NoMigrate: true}); err != nil {
			t.Fatal(err)
		}
		spend(t, newLedger(t, sqlledger.Config{DB: db, NoMigrate: true}), "acme", 1, held("acme", 1, -1))
		run(t, db, "INSERT INTO headgate_schema (version, at, space) VALUES (99, 0, 0)")
		refused(sqlledger.Config{DB: db}, "version 99")
	})
}
