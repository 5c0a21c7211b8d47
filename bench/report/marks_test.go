package main

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/bench/internal/burst"
)

func TestMarksNameEveryFigureThatFallsShortAndNoOther(t *testing.T) {
	t.Parallel()
	ours := burst.Policy{Name: "headgate-fair", Title: "Headgate"}
	peer := burst.Policy{Name: "semaphore", Title: "Semaphore"}
	fine := burst.Metrics{Calls: 10, Completed: 10, Attempts: 10, Goodput: 0.97, Share: 0.95, MakespanRatio: 1.1, QuotaBinds: true, Jain: 0.99, Gap: 1, GapBound: 1, Idle: 0.01, MaxUse: 1}
	for name, c := range map[string]struct {
		shape  burst.Shape
		change func(*burst.Metrics)
		policy burst.Policy
		want   []string
	}{
		"all at their bounds":         {policy: ours, change: func(m *burst.Metrics) {}},
		"figures that do not apply":   {policy: ours, change: func(m *burst.Metrics) { m.Jain, m.GapBound, m.MakespanRatio = 0, 0, 0 }},
		"throttled":                   {policy: peer, change: func(m *burst.Metrics) { m.Throttled = 1 }, want: []string{"1 attempt throttled"}},
		"failed":                      {policy: ours, change: func(m *burst.Metrics) { m.Failed = 2 }, want: []string{"2 calls sent and not served"}},
		"goodput":                     {policy: ours, change: func(m *burst.Metrics) { m.Goodput = 0.969 }, want: []string{"goodput 0.969, below 0.97"}},
		"a quota by the second":       {policy: ours, shape: burst.Shape{Quantum: time.Second}, change: func(m *burst.Metrics) { m.Goodput = 0.95 }},
		"goodput by the second":       {policy: ours, shape: burst.Shape{Quantum: time.Second}, change: func(m *burst.Metrics) { m.Goodput = 0.9 }, want: []string{"goodput 0.900, below 0.95"}},
		"makespan":                    {policy: ours, change: func(m *burst.Metrics) { m.MakespanRatio = 1.2 }, want: []string{"1.200 times the shortest possible time, above 1.10"}},
		"makespan of slots":           {policy: ours, change: func(m *burst.Metrics) { m.MakespanRatio, m.QuotaBinds = 1.2, false }},
		"unfair":                      {policy: peer, change: func(m *burst.Metrics) { m.Jain = 0.6 }, want: []string{"unfair: Jain index 0.600, below 0.99"}},
		"gap":                         {policy: ours, change: func(m *burst.Metrics) { m.Gap = 2 }, want: []string{"a flow 2.0 quota-seconds behind another, above 1.0"}},
		"idle":                        {policy: ours, change: func(m *burst.Metrics) { m.Idle = 0.2 }, want: []string{"20 % of the slot time idle while calls could run"}},
		"overrun":                     {policy: ours, change: func(m *burst.Metrics) { m.MaxUse = 1.3 }, want: []string{"1.300 times the quota used"}},
		"below a peer":                {policy: ours, change: func(m *burst.Metrics) { m.Share = 0.92 }, want: []string{"share 0.920, more than 0.02 below the 0.950 of Semaphore"}},
		"a peer below":                {policy: peer, change: func(m *burst.Metrics) { m.Share = 0.1 }},
		"a provider that keeps less":  {policy: ours, shape: burst.Shape{Granted: 0.8}, change: func(m *burst.Metrics) { m.Throttled, m.Failed = 9, 1 }},
		"a provider that is out":      {policy: ours, shape: burst.Shape{OutageTo: time.Minute}, change: func(m *burst.Metrics) { m.Throttled, m.Failed = 9, 1 }},
		"two at once, in their order": {policy: ours, change: func(m *burst.Metrics) { m.Throttled, m.Jain = 3, 0.5 }, want: []string{"3 attempts throttled", "unfair: Jain index 0.500, below 0.99"}},
	} {
		c.shape.Name = "x"
		w := burst.Windows()[0]
		mine, other := fine, fine
		c.change(&mine)
		rival := peer
		if c.policy.Name == peer.Name {
			rival = ours
		}
		r := newReport(options{shapes: []burst.Shape{c.shape}, policies: []burst.Policy{ours, peer}, windows: []burst.Window{w}}, small(), []burst.Result{
			{Shape: "x", Policy: c.policy.Name, Window: w.String(), Metrics: mine},
			{Shape: "x", Policy: rival.Name, Window: w.String(), Metrics: other},
		})
		var got []string
		for _, m := range r.marks(c.shape, c.policy, w) {
			got = append(got, m.text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestInteractiveCallsAreComparedWithTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	s, w := burst.Shape{Name: "x"}, burst.Windows()[0]
	fair, fifo, peer := burst.Policy{Name: "headgate-fair"}, burst.Policy{Name: "headgate-fifo"}, burst.Policy{Name: "semaphore"}
	for _, c := range []struct {
		policy     burst.Policy
		first, now float64
		marked     bool
	}{
		{fair, 20, 4, false}, {fair, 20, 4.1, true},
		{fair, 0.5, 0.5, false}, // nobody waits
		{peer, 20, 20, false},   // it is no promise of theirs
	} {
		result := func(p burst.Policy, wait float64) burst.Result {
			return burst.Result{Shape: "x", Policy: p.Name, Window: w.String(), Metrics: burst.Metrics{Goodput: 1, Share: 1, WaitP99: map[string]float64{"interactive": wait, "batch": 99}}}
		}
		r := newReport(options{shapes: []burst.Shape{s}, policies: []burst.Policy{fifo, c.policy}, windows: []burst.Window{w}}, small(),
			[]burst.Result{result(fifo, c.first), result(c.policy, c.now)})
		if marks := r.marks(s, c.policy, w); (len(marks) > 0) != c.marked {
			t.Errorf("%s waits %v s, in order of arrival %v s: %v", c.policy.Name, c.now, c.first, marks)
		}
		if marks := r.marks(s, fifo, w); len(marks) > 0 {
			t.Errorf("the order of arrival is measured by itself: %v", marks)
		}
	}
}

func TestACellWithoutAResultHasNoMarks(t *testing.T) {
	t.Parallel()
	r := smallReport(t)
	if got := r.marks(r.shapes[0], r.policies[2], r.windows[0]); got != nil {
		t.Errorf("%v", got)
	}
}
