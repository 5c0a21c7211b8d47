package gate

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"pgregory.net/rapid"
)

// setting is a kind of gate under which the Core is compared with the rules.
type setting struct {
	name     string
	cfg      Config
	limiters []func() budget.Limiter
	mixed    bool // requests have calls in several flows
	borrowed bool // the slots are lent
	search   []*Search
}

var settings = []setting{
	{name: "slots only", cfg: Config{Slots: 4, Classes: []Class{{Weight: 1}}}},
	{name: "a bucket and a window", cfg: Config{Slots: 6, Classes: []Class{{Weight: 1}}},
		limiters: []func() budget.Limiter{bucketOf(60, 20), windowOf(100)}},
	{name: "classes", cfg: Config{Slots: 5, Classes: []Class{{Weight: 4}, {Weight: 2}, {Weight: 0.3}}},
		limiters: []func() budget.Limiter{windowOf(80)}},
	{name: "caps and minimums",
		cfg:      Config{Slots: 6, Classes: []Class{{Weight: 2, MinSlots: 2}, {Weight: 1, MaxSlots: 2}, {Weight: 1, MinSlots: 1, MaxSlots: 3}}},
		limiters: []func() budget.Limiter{bucketOf(80, 80)}},
	{name: "minimums that take all",
		cfg: Config{Slots: 4, Classes: []Class{{Weight: 1, MinSlots: 3}, {Weight: 1, MinSlots: 1}, {Weight: 1}}}},
	{name: "ceilings on slots",
		cfg:      Config{Slots: 8, FlowSlots: 3, RequestSlots: 2, Classes: []Class{{Weight: 1}, {Weight: 2, MaxSlots: 4}}},
		limiters: []func() budget.Limiter{bucketOf(100, 50)}},
	{name: "ceilings on units",
		cfg:      Config{Slots: 8, FlowShare: 0.5, RequestShare: 0.25, RequestSlots: 3, Classes: []Class{{Weight: 1, MinSlots: 2}, {Weight: 2}}},
		limiters: []func() budget.Limiter{bucketOf(120, 120), windowOf(200)}},
	{name: "requests over several flows",
		cfg:      Config{Slots: 8, RequestSlots: 2, RequestShare: 0.3, Classes: []Class{{Weight: 1, MinSlots: 1}, {Weight: 2}}},
		limiters: []func() budget.Limiter{bucketOf(200, 100)}, mixed: true},
	{name: "first in, first out",
		cfg: Config{Slots: 4, FIFO: true, FlowSlots: 1, FlowShare: 0.1, RequestSlots: 2,
			Classes: []Class{{Weight: 1, MaxSlots: 1}, {Weight: 1, MinSlots: 3}}},
		limiters: []func() budget.Limiter{bucketOf(60, 60), windowOf(90)}},
	{name: "a short line", cfg: Config{Slots: 2, MaxWaiting: 3, Classes: []Class{{Weight: 1}, {Weight: 1}}},
		limiters: []func() budget.Limiter{windowOf(50), bucketOf(70, 20), bucketOf(40, 90)}},
	{name: "borrowed slots", cfg: Config{Slots: 7, Classes: []Class{{Weight: 1, MinSlots: 2}, {Weight: 2, MaxSlots: 5}}},
		limiters: []func() budget.Limiter{bucketOf(90, 60)}, borrowed: true},
	{name: "an unknown limit", cfg: Config{Slots: 8, Classes: []Class{{Weight: 1}}},
		limiters: []func() budget.Limiter{anyBucket, bucketOf(200, 200)}, search: []*Search{{Window: 10 * time.Second}}},
	{name: "unknown limits and slots", cfg: Config{Slots: 30, SearchSlots: true, Classes: []Class{{Weight: 1, MinSlots: 2}, {Weight: 3}}},
		limiters: []func() budget.Limiter{windowOf(150), anyBucket, anyBucket},
		search:   []*Search{nil, {Window: 10 * time.Second, Start: 80, Least: 60}, {Window: time.Second, Least: 20}}},
}

// Whatever happens, in whatever order: slots and units add up, nothing starts
// over a limit, the order is fair, nobody who could start waits, and in the end
// nothing is held or remembered.
func TestCoreKeepsTheRulesWhateverHappens(t *testing.T) {
	t.Parallel()
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				data := rapid.OneOf(rapid.SliceOf(rapid.Uint16()), rapid.SliceOfN(rapid.Uint16(), 600, 1200)).Draw(t, "data")
				run(t, data, s)
			})
		})
	}
}
