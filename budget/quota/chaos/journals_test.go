package chaos_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
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
		l := journal.New(ledger, j)
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
func (s *stack) audit(have sums) {
	s.Helper()
	var dirs []string
	for n := range s.callers {
		dirs = append(dirs, s.journalOf(n))
	}
	told, _ := s.books.acknowledged()
	s.books.mu.Lock()
	heard := sums{}
	for _, c := range s.books.calls {
		if c.took && !c.unheard {
			heard.charge(c, true, false)
		}
	}
	s.books.mu.Unlock()
	least := maps.Clone(told)
	for p := range least {
		if p.Unit == quota.Calls {
			least[p] = heard[p]
		}
	}
	chargesOf(s.T, dirs...).within(s.T, "in the journals", least, have)
}
