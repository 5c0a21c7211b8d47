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
	retell := func() {
		ctx, cancel := context.WithTimeout(context.Background(), opening)
		defer cancel()
		report, err := ledger.Replay(ctx, time.Now().Add(-retold))
		if err != nil {
			logger.Warn("support: the store could not be told everything again", slog.Any("error", err), slog.Any("report", report))
		} else if report != (journal.Report{Known: report.Known}) {
			logger.Info("support: the store had lost something, and was told again", slog.Any("report", report))
		}
	}
	retell()
	return j, func(e quota.Event) {
		if _, ok := e.(quota.OutageEnded); ok {
			retell()
		}
	}, nil
}
