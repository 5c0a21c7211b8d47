package sqlledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/headgate-go/headgate/budget/quota"
)

// store is a database as the ledger works with it.
type store interface {
	// guess is the time of the store, without asking it; ok is false if that is not known.
	guess() (now int64, ok bool)
	// saveAtOnce saves changes in a transaction of one statement; see transaction.save.
	saveAtOnce(ctx context.Context, b *book, ch *changes) error
	// begin begins a transaction in which nobody else sees or changes what it locks.
	begin(ctx context.Context) (transaction, error)
	// reader is a connection for a question that may take long. It is given back by
	// calling close.
	reader(ctx context.Context) (conn *sql.Conn, close func(), err error)
	// rebind puts the names of tables and the database's own placeholders into a
	// statement.
	rebind(query string) string
	// close gives back what the store has taken of the database.
	close() error
}

// transaction is one. Each step may fail, and then nothing has happened, but for commit,
// after which nobody knows, unless the error is an answer of the database.
type transaction interface {
	// lock locks trees for the rest of the transaction: one, waiting for it, or
	// of several those that nobody else has locked. It returns which are locked, and
	// the time of the store, of after the last lock. Trees rise.
	lock(ctx context.Context, trees []int64) (locked []bool, now int64, err error)
	// fresh reports whether a page is as it is in the database, if that is known before
	// anything is read.
	fresh(p *page) bool
	// load reads what the book wants, and the versions of its pages. Of what has
	// expired it reads a bounded number of reservations.
	load(ctx context.Context, b *book) error
	// check returns errStale unless the pages are of the versions that they say.
	check(ctx context.Context, b *book) error
	// save writes changes. It returns errStale unless the pages are of the versions that
	// they say; what has changed gets another one.
	save(ctx context.Context, b *book, ch *changes) error
	// touch gives a tree another version.
	touch(ctx context.Context, tree int64) error
	// counterIDs and callIDs are n new ids.
	counterIDs(ctx context.Context, n int) ([]int64, error)
	callIDs(ctx context.Context, n int) ([]int64, error)
	// insert writes rows of one of writes. exec and query do something else.
	insert(ctx context.Context, what int, rows func(w writer)) error
	exec(ctx context.Context, query string, args ...any) (rows int64, err error)
	query(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	commit(ctx context.Context) error
	rollback()
}

// asker asks a database, or a transaction.
type asker func(ctx context.Context, query string, args ...any) (*sql.Rows, error)

// each asks, and calls read for each row with what scans it.
func each(ctx context.Context, ask asker, query string, args []any, read func(scan func(...any) error) error) error {
	rows, err := ask(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows.Scan); err != nil {
			return err
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// numbers are those that a query returns.
func numbers(ctx context.Context, ask asker, query string, args ...any) (all []int64, err error) {
	err = each(ctx, ask, query, args, func(scan func(...any) error) error {
		var n int64
		err := scan(&n)
		all = append(all, n)
		return err
	})
	return all, err
}

// maxDue is how many expired reservations one transaction ends at most. If there are
// more, it does nothing else, and another one follows.
const maxDue = 256

// failure is what an error of a database means.
type failure uint8

const (
	// failed errors come again.
	failed failure = iota
	// contended are those of transactions that were in each other's way. Nothing has
	// happened, and it may work at once.
	contended
	// disconnected are those of a connection that is no more. Another one may work.
	disconnected
	// stale is that of a transaction that relied on what others have changed since.
	stale
	// duplicate is that of a row that is there already.
	duplicate
)

var errStale = errors.New("somebody else has changed the tree")

// failureOf tells errors apart without knowing the driver. Drivers for Postgres have
// the code in a method, drivers for SQLite, too, or in their text.
func failureOf(err error) failure {
	var (
		postgres interface{ SQLState() string }
		lite     interface{ Code() int }
	)
	switch {
	case errors.Is(err, errStale):
		return stale
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return failed
	case errors.Is(err, errBody), errors.Is(err, errCharges): // of another version, or broken
		return failed
	case errors.As(err, &postgres):
		return failureOfState(postgres.SQLState())
	case errors.As(err, &lite):
		switch lite.Code() & 0xff {
		case liteBusy, liteLocked:
			return contended
		case liteConstraint:
			return duplicate
		}
		return failed
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone):
		return disconnected
	}
	if err != nil && err.Error() == "database is locked" { // of a driver without codes
		return contended
	}
	return disconnected
}

// Codes of SQLite.
const (
	liteBusy       = 5
	liteLocked     = 6
	liteIOErr      = 10
	liteConstraint = 19
)

func failureOfState(state string) failure {
	if len(state) != 5 {
		return failed
	}
	switch state[:2] {
	case "40": // serialization failures and deadlocks
		return contended
	case "08": // lost connections
		return disconnected
	}
	switch state {
	case "55P03": // a lock was not to be had in time
		return contended
	case "23505": // a key that is there already
		return duplicate
	case "25P03", "57P01", "57P02", "57P03": // idle in transaction, or the server goes down or comes up
		return disconnected
	}
	return failed
}

// answered reports whether an error is an answer of the database, which then knows what
// has happened: nothing.
func answered(err error) bool {
	var (
		postgres interface{ SQLState() string }
		lite     interface{ Code() int }
	)
	if errors.As(err, &postgres) {
		return failureOf(err) != disconnected
	}
	return errors.As(err, &lite) && lite.Code()&0xff != liteIOErr
}

// unavailable is the error for what the store could not do.
func unavailable(err error) error { return fmt.Errorf("%w: %w", quota.ErrUnavailable, err) }

var (
	errTimeout = errors.New("the database did not answer in time")
	errClosed  = errors.New("it is closed")
	errNotNow  = errors.New("nothing was done in time")
)
