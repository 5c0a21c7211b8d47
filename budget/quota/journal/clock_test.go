package journal_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
)

// The clock is set back by more than it may be while the process is away, so that nobody
// knows for how long it was.
func TestWhatIsOfTheFutureIsDoubtful(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begin := func(t *testing.T) *world {
		w := &world{T: t, store: newStore(t), dir: dir, cfg: journal.Config{Logger: silent}, log: &record{}}
		w.start()
		t.Cleanup(w.stop)
		return w
	}
	synctest.Test(t, func(t *testing.T) {
		w := begin(t)
		time.Sleep(3 * time.Hour)
		w.reserve("a", w.day("ann", quota.Hold, 100))
		w.store.set(lost) // it is charged
		w.unsettled("a", 60, quota.ErrUnavailable)
		w.store.set(down)
	})
	synctest.Test(t, func(t *testing.T) { // its clock begins at midnight again
		w := begin(t)
		w.recovered(journal.Report{Doubtful: 1}) // by a store that has charged it, and forgotten it since
		w.tokens("ann", 0)
	})
}

// What was answered after since is told, though a clock that was set back says that it was
// before.
func TestReplayGoesByTheOrderWhereAClockWasSetBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begin := func(t *testing.T) *world {
		w := &world{T: t, store: newStore(t), dir: dir, cfg: journal.Config{Logger: silent}, log: &record{}}
		w.start()
		t.Cleanup(w.stop)
		return w
	}
	var since time.Time
	synctest.Test(t, func(t *testing.T) {
		w := begin(t)
		time.Sleep(time.Hour / 2)
		since = time.Now().Round(0).Add(-time.Second)
		w.reserve("a", w.day("ann", quota.Hold, 100))
		w.settle("a", 60)
	})
	synctest.Test(t, func(t *testing.T) { // its clock begins at midnight again
		w := begin(t)
		time.Sleep(time.Minute)
		w.reserve("b", w.day("ann", quota.Hold, 100), w.turns("ann"))
		w.settle("b", 70)
		time.Sleep(time.Second)
		w.store.failOver(nil)
		_, _ = w.l.Replay(w.Context(), since) // of "a" nobody knows how long ago it was
		w.tokens("ann", 70)
		w.stands(w.turns("ann"), 1, 0)
	})
}
