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
	// looking is how often it is looked whether another server has taken the store's place.
	looking = 5 * time.Second
)

// keepJournal puts a journal before the store: files of this server that say what everything was
// spent for. What the store has lost since, as one that fails over may, or did not hear before the
// last server here died, it is told now, and by r, which begins here, whenever an outage of the
// store has ended or another server has taken its place. It knows the rest, and counts nothing
// twice.
func (s *store) keepJournal(dir string, r *reteller, logger *slog.Logger) (*journal.Journal, error) {
	j, err := journal.Open(dir, journal.Config{Logger: logger})
	if err != nil {
		return nil, err
	}
	ledger, err := journal.New(s.Ledger, j)
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	closeStore := s.close
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
	if !tell(ctx, time.Time{}) { // nobody knows since when
		r.ask(time.Time{})
	}
	r.begin(tell, ledger.Healthy)
	return j, nil
}

// A reteller tells the store again, in a goroutine of its own: it takes longer than a listener may,
// whose events are dropped when too many wait for it.
type reteller struct {
	asked chan struct{} // has something if there is something to do
	stop  context.CancelFunc
	ended chan struct{} // closed when it has ended

	mu sync.Mutex
	// mu guards since: the earliest instant that was asked for and not told yet, if one was.
	since *time.Time
}

func newReteller() *reteller {
	return &reteller{asked: make(chan struct{}, 1), ended: make(chan struct{})}
}

// begin begins telling by tell what is asked for, and calling look now and then: a server that is
// idle while the store fails over has no operation that fails.
func (r *reteller) begin(tell func(ctx context.Context, since time.Time) (whole bool), look func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go r.run(ctx, tell, look)
}

// replaced is told when another server has taken the place of one that was seen last since.
func (r *reteller) replaced(since time.Time) { r.ask(since.Add(-lag)) }

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

func (r *reteller) run(ctx context.Context, tell func(context.Context, time.Time) bool, look func(context.Context) error) {
	defer close(r.ended)
	tick := time.NewTicker(looking)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = look(ctx) // whoever wants to know that the store is away asks by himself
			continue
		case <-r.asked:
		}
		r.mu.Lock()
		since := r.since
		r.since = nil
		r.mu.Unlock()
		if since == nil || tell(ctx, *since) {
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
