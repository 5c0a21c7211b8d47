package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
)

// retold is what the store is told again, at the most: a little less than the time for which it
// knows what it was told before.
const retold = quota.DefaultRemember - 5*time.Minute

const (
	// lag is longer than a replica is behind the store that it takes over from.
	lag = time.Minute
	// telling is how long the store is told at the most.
	telling = time.Minute
)

// keepJournal puts a journal before the store: files of this server that say what everything was
// spent for. What the store has lost since, as one that fails over may, or did not hear before the
// last server here died, it is told now, and by the listener that is returned whenever an outage of
// the store has ended. It knows the rest, and counts nothing twice.
func (s *store) keepJournal(dir string, logger *slog.Logger) (*journal.Journal, quota.Listener, error) {
	j, err := journal.Open(dir, journal.Config{Logger: logger})
	if err != nil {
		return nil, nil, err
	}
	ledger, closeStore := journal.New(s.Ledger, j), s.close
	s.Ledger = ledger
	s.close = func() error { return errors.Join(j.Close(), closeStore()) }
	retell := func(since time.Time) {
		ctx, cancel := context.WithTimeout(context.Background(), telling)
		defer cancel()
		if earliest := time.Now().Add(-retold); since.Before(earliest) {
			since = earliest
		}
		report, err := ledger.Replay(ctx, since)
		if err != nil {
			logger.Warn("support: the store could not be told everything again", slog.Any("error", err), slog.Any("report", report))
		} else if report != (journal.Report{Known: report.Known}) {
			logger.Info("support: the store had lost something, and was told again", slog.Any("report", report))
		}
	}
	retell(time.Time{}) // nobody knows since when
	return j, func(e quota.Event) {
		if o, ok := e.(quota.OutageEnded); ok { // what is lost is what came last, and from before it began
			retell(o.At.Add(-o.Lasted - lag))
		}
	}, nil
}
