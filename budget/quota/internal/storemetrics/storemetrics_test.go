package storemetrics_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/internal/storemetrics"
)

func TestAnErrorSaysWhoseFaultItIs(t *testing.T) {
	t.Parallel()
	unavailable := func(err error) error { return fmt.Errorf("%w: reserve: %w", quota.ErrUnavailable, err) }
	for _, c := range []struct {
		err  error
		want storemetrics.Outcome
	}{
		{nil, storemetrics.OK},
		{fmt.Errorf("%w: x", quota.ErrUnknownReservation), storemetrics.Unknown},
		{context.Canceled, storemetrics.Cancelled},
		{context.DeadlineExceeded, storemetrics.Timeout},
		{unavailable(&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}), storemetrics.Timeout},
		{unavailable(&net.OpError{Op: "dial", Err: errors.New("refused")}), storemetrics.Unreachable},
		{quota.ErrUnavailable, storemetrics.Unreachable},
		{errors.New("something else"), storemetrics.Refused},
	} {
		if got := storemetrics.OutcomeOf(c.err); got != c.want {
			t.Errorf("%v is %v, want %v", c.err, got, c.want)
		}
	}
}

// Ledgers in stores of different kinds have the same metrics in one registry, with series
// of their own; and of what never happened there is none.
func TestLedgersShareMetricsAndNoSeries(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	for _, name := range []string{"redis", "postgres"} {
		m := storemetrics.New(name)
		if err := reg.Register(m); err != nil {
			t.Fatal(err)
		}
		m.Ended(storemetrics.Reserve, time.Now(), storemetrics.OK)
		m.Ended(storemetrics.Reserve, time.Now(), storemetrics.Timeout)
	}
	(*storemetrics.Metrics)(nil).Ended(storemetrics.Reserve, time.Now(), storemetrics.OK)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) != 2 || len(families[0].Metric) != 2 || len(families[1].Metric) != 4 {
		t.Fatalf("the registry has %v", families)
	}
	for _, m := range families[0].Metric {
		if n := m.Histogram.GetSampleCount(); n != 2 {
			t.Errorf("%v has %d samples, want both", m.Label, n)
		}
	}
}

// A registry that nobody has made is none, whatever it is dressed up as.
func TestANilRegistryIsNotGiven(t *testing.T) {
	t.Parallel()
	if storemetrics.Given(nil) || storemetrics.Given((*prometheus.Registry)(nil)) || !storemetrics.Given(prometheus.NewRegistry()) {
		t.Error("a registry is taken for what it is not")
	}
}

func BenchmarkEnded(b *testing.B) {
	m := storemetrics.New("redis")
	now := time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.Ended(storemetrics.Reserve, now, storemetrics.OK)
		}
	})
}
