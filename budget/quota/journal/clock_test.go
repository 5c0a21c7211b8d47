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
