package journal_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
)

func TestMetricsTellHowTheJournalDoes(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		reg := prometheus.NewPedanticRegistry()
		if err := reg.Register(w.j); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a", "b", "c", "d"} {
			w.reserve(id, w.day(id, quota.Hold, 10)) // as many users as there are
		}
		w.reserve("turn", w.turns("ann"))
		w.settle("a", 1)
		time.Sleep(time.Second)
		w.store.failOver(nil)
		w.settle("b", 1)
		w.store.set(down)
		w.unsettled("c", 1, quota.ErrUnavailable)
		if err := w.j.Flush(w.Context()); err != nil {
			t.Fatal(err)
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.Metric {
				name := strings.TrimPrefix(f.GetName(), "headgate_journal_")
				for _, l := range m.Label {
					name += "{" + l.GetName() + "=" + l.GetValue() + "}"
				}
				got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		st := w.l.Stats()
		if st.Open != 2 || st.Size < 300 || st.Bytes > st.Size || st.Segments != 1 {
			t.Errorf("stats are %+v", st)
		}
		want := map[string]float64{
			"records_total": 4, "written_bytes_total": float64(st.Bytes), "size_bytes": float64(st.Size), "syncs_total": float64(st.Syncs),
			"unanswered": 1, "unrecorded_total": 0, "write_errors_total": 0, "stalled_total": 0, "failing": 0, "shortened_total": 0, "damaged_total": 0,
			"told_total{outcome=known}": 0, "told_total{outcome=settled}": 0, "told_total{outcome=booked}": 1, "told_total{outcome=held}": 0,
			"told_total{outcome=unknown}": 0, "told_total{outcome=doubtful}": 0, "told_total{outcome=failed}": 0,
		}
		if !maps.Equal(got, want) {
			t.Errorf("the metrics are\n%v, want\n%v", got, want)
		}
	})
}
