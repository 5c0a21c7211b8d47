package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
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
	// telling is how long the store is told at the most before the server serves.
	telling = time.Minute
	// again is when the store is told again what it gave no answer to.
	again = 10 * time.Second
)

// keepJournal puts a journal before the store: files of this server that say what everything was
// spent for. What the store has lost since, as one that fails over may, or did not hear before the
// last server here died, it is told now, and by the reteller that is returned whenever an outage of
// the store has ended. It knows the rest, and counts nothing twice.
func (s *store) keepJournal(dir string, logger *slog.Logger) (*journal.Journal, *reteller, error) {
	j, err := journal.Open(dir, journal.Config{Logger: logger})
	if err != nil {
		return nil, nil, err
	}
	ledger, closeStore := journal.New(s.Ledger, j), s.close
	s.Ledger = ledger
	s.close = func() error { return errors.Join(j.Close(), closeStore()) }
	tell := func(ctx context.Context, since time.Time) bool {
		if earliest := time.Now().Add(-retold); since.Before(earliest) {
			since = earliest
		}
		report, err := ledger.Replay(ctx, since)
		if err != nil {
			logger.Warn("support: the store could not be told everything again", slog.Any("error", err), slog.Any("report", report))
		} else if report != (journal.Report{Known: report.Known}) {
			logger.Info("support: the store had lost something, and was told again", slog.Any("report", report))
		}
		return report.Failed == 0 && ctx.Err() == nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), telling)
	defer cancel()
	whole := tell(ctx, time.Time{}) // nobody knows since when
	r := beginReteller(tell)
	if !whole {
		r.ask(time.Time{})
	}
	return j, r, nil
}

// A reteller tells the store again, in a goroutine of its own: it takes longer than a listener may,
// whose events are dropped when too many wait for it.
type reteller struct {
	tell  func(ctx context.Context, since time.Time) (whole bool)
	asked chan struct{} // has something if there is something to do
	stop  context.CancelFunc
	ended chan struct{} // closed when it has ended

	mu sync.Mutex
	// mu guards since: the earliest instant that was asked for and not told yet, if one was.
	since *time.Time
}

func beginReteller(tell func(context.Context, time.Time) (whole bool)) *reteller {
	ctx, stop := context.WithCancel(context.Background())
	r := &reteller{tell: tell, asked: make(chan struct{}, 1), stop: stop, ended: make(chan struct{})}
	go r.run(ctx)
	return r
}

// listen is told of events.
func (r *reteller) listen(e quota.Event) {
	if o, ok := e.(quota.OutageEnded); ok { // what is lost is what came last, and from before it began
		r.ask(o.At.Add(-o.Lasted - lag))
	}
}

// ask has the store be told everything since an instant, and does not wait for it.
func (r *reteller) ask(since time.Time) {
	r.mu.Lock()
	if r.since == nil || since.Before(*r.since) {
		r.since = &since
	}
	r.mu.Unlock()
	select {
	case r.asked <- struct{}{}:
	default:
	}
}

func (r *reteller) run(ctx context.Context) {
	defer close(r.ended)
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.asked:
		}
		r.mu.Lock()
		since := r.since
		r.since = nil
		r.mu.Unlock()
		if since == nil || r.tell(ctx, *since) {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
			r.ask(*since)
		}
	}
}

// end ends it, and waits until it has.
func (r *reteller) end(ctx context.Context) error {
	r.stop()
	select {
	case <-r.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
