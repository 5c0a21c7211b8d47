package journal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
)

func TestRecordsHaveIdsAndAmountsOnly(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		at := time.Now().UTC()
		counted := w.turns("ann")
		counted.Thresholds = []int{50, 100}
		note := quota.Note{Subject: "user:ann", Turn: "turn-1", Call: "call-1", Model: "m", Agent: "writer"}
		res, err := w.l.Reserve(w.Context(), quota.Reserve{
			ID: "a", Tree: tree, Note: note,
			Entries: []quota.Entry{w.rolling("ann", 5), w.day("ann", quota.Hold, 70), counted, w.lease("ann"), w.day("bob", quota.Check, 1)},
		})
		if err != nil || res.Denied >= 0 {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		s := used("a", 60)
		s.Actual[quota.Money] = 9
		s.More = []quota.Entry{w.day("agent", quota.Count, 3), w.day("ann", quota.Count, 4), w.rolling("agent", 3)}
		if _, err := w.l.Settle(w.Context(), s); err != nil {
			t.Fatal(err)
		}
		var got []journal.Record
		for r, err := range journal.Read(w.dir) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r)
		}
		entry := func(e quota.Entry) quota.Entry { // as it would be booked anew
			e.Observe, e.Spans = true, [3]quota.Span{1: e.Spans[1]}
			return e
		}
		entries := []quota.Entry{entry(w.day("ann", quota.Hold, 70)), entry(counted)}
		want := []journal.Record{
			{Number: 1, At: at, Taken: at, Tree: tree, ID: "a", Note: note, Entries: entries},
			{
				Number: 2, At: at.Add(time.Second), Taken: at, Told: at.Add(time.Second), Tree: tree, ID: "a", Note: note, Settled: true, Entries: entries,
				Actual: s.Actual, More: []quota.Entry{entry(s.More[0]), entry(s.More[1])},
			},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("Read has\n%+v, want\n%+v", got, want)
		}
		charges := want[1].Charges()
		today := w.day("", quota.Hold, 0).Spans[1]
		if want := []journal.Charge{
			{w.day("ann", 0, 0).Counter, today, 60}, {counted.Counter, today, 1}, {w.day("agent", 0, 0).Counter, today, 3},
		}; !reflect.DeepEqual(charges, want) {
			t.Errorf("the charges are\n%+v, want\n%+v", charges, want)
		}
	})
}

func TestAllHasEachReservationOnceAsItStandsInTheEnd(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		settle := func(s quota.Settle) {
			t.Helper()
			if _, err := w.l.Settle(w.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		adjust := func(seq, tokens int64, more ...quota.Entry) {
			t.Helper()
			s := used("corrected", tokens)
			s.Adjust, s.Seq, s.More = true, seq, more
			settle(s)
		}
		w.reserve("corrected", w.day("ann", quota.Hold, 10), w.turns("ann"))
		w.reserve("plain", w.day("ann", quota.Hold, 10))
		w.reserve("counted", w.turns("ann"), w.lease("ann"))
		first := used("corrected", 10)
		first.More = []quota.Entry{w.day("x", quota.Count, 1), w.day("y", quota.Count, 2)}
		settle(first)
		w.settle("plain", 3)
		adjust(2, 30, w.day("y", quota.Count, 20), w.day("z", quota.Count, 5))
		adjust(1, 20)
		w.settle("plain", 4) // it is settled
		w.restart()
		w.store.set(down)
		w.unsettled("late", 6, quota.ErrUnavailable)
		if err := w.l.Flush(w.Context()); err != nil {
			t.Fatal(err)
		}
		got := ""
		for r, err := range journal.All(w.dir) {
			if err != nil {
				t.Fatal(err)
			}
			got += fmt.Sprintf("%s %v %v:", r.ID, r.Settled, r.Outcome)
			for _, c := range r.Charges() {
				got += fmt.Sprintf(" %s %v %d", c.Counter.Key, c.Counter.Unit, c.Amount)
			}
			got += "\n"
		}
		if want := `counted false unanswered: ann turns 1
corrected true answered: ann tokens 30 ann turns 1 y tokens 20 z tokens 5 x tokens 1
plain true answered: ann tokens 3
late true unanswered:
`; got != want {
			t.Errorf("All has\n%s, want\n%s", got, want)
		}
	})
}

func TestReadingGoesOnAfterWhatIsDamaged(t *testing.T) {
	t.Parallel()
	w := write(t, 3)
	dir := t.TempDir()
	text := append([]byte(nil), w.text...)
	text[w.ends[0]+20] ^= 1
	if err := os.WriteFile(filepath.Join(dir, "segment-0000000001.journal"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func() (ids string, errs []error){
		"Read": func() (ids string, errs []error) {
			for r, err := range journal.Read(dir) {
				ids, errs = ids+" "+r.ID, append(errs, err)
			}
			return ids, errs
		},
		"All": func() (ids string, errs []error) {
			for r, err := range journal.All(dir) {
				ids, errs = ids+" "+r.ID, append(errs, err)
			}
			return ids, errs
		},
	} {
		ids, errs := read()
		if ids != " call-0  call-2" || len(errs) != 3 || errs[0] != nil || errs[2] != nil {
			t.Fatalf("%s has %q and %v", name, ids, errs)
		}
		var damage *journal.DamageError
		if !errors.As(errs[1], &damage) || damage.From != int64(w.ends[0]) || damage.To != int64(w.ends[1]) || !strings.Contains(damage.Error(), damage.File) {
			t.Errorf("%s: the error is %v", name, errs[1])
		}
	}
	for range journal.Read(dir) {
		break // whoever has seen enough may stop
	}
	for range journal.All(dir) {
		break
	}
	for _, err := range journal.Read(filepath.Join(dir, "nowhere")) {
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("of a directory that is not there: %v", err)
		}
	}
}
