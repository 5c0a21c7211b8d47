package chaos_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota/journal"
)

// tellAgain has the ledger told what callers that were killed have left unanswered in
// their journals, and then everything, and returns what was settled by the journals.
func (s *stack) tellAgain() (recorded map[string]bool) {
	s.Helper()
	recorded = map[string]bool{}
	for n := range s.callers {
		ledger, end, err := s.direct.open(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		j, err := journal.Open(s.journalOf(n), journalConfig)
		if err != nil {
			s.Fatal(err)
		}
		l := journaled(s, ledger, j)
		ctx, cancel := context.WithTimeout(s.Context(), 30*time.Second)
		if report, err := l.Recover(ctx); err != nil || report.Unknown+report.Doubtful+report.Failed > 0 {
			s.Errorf("Recover = %+v, %v", report, err)
		}
		// The store has lost nothing, so it knows all of it.
		if report, err := l.Replay(ctx, s.begun); err != nil || report != (journal.Report{Known: report.Known}) {
			s.Errorf("Replay = %+v, %v", report, err)
		}
		cancel()
		if err := errors.Join(l.Close(context.Background()), j.Close(), end()); err != nil {
			s.Error(err)
		}
		maps.Copy(recorded, settledIn(s.T, s.journalOf(n)))
	}
	return recorded
}

// settledIn are the reservations whose settlements are in a journal.
func settledIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for r, err := range journal.All(dir) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Settled {
			all[r.ID] = true
		}
	}
	return all
}

// chargesOf is what the counters have got, as journals say.
func chargesOf(t *testing.T, dirs ...string) sums {
	t.Helper()
	all := sums{}
	for _, dir := range dirs {
		for r, err := range journal.All(dir) {
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range r.Charges() {
				p := place{tree: r.Tree, Counter: c.Counter}
				if !c.Span.Start.IsZero() {
					p.minute = c.Span.Start.Unix()
				}
				all[p] += c.Amount
			}
		}
	}
	return all
}

// audit compares counters with the journals of all callers, which say what everything was spent for.
// Of what was counted when a reservation was made, a journal may lack what its caller did not live to
// hear of.
func (b *books) audit(t *testing.T, have sums, journals []string) {
	t.Helper()
	least := sums{}
	b.mu.Lock()
	for _, c := range b.calls {
		least.charge(c, c.took && !c.unheard, c.settled)
	}
	b.mu.Unlock()
	chargesOf(t, journals...).within(t, "in the journals", least, have)
}
