package quota_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// elsewhere is a ledger with another clock, which takes its time to answer.
type elsewhere struct {
	*store
	ahead, takes time.Duration
	repeated     bool
}

func (l *elsewhere) Reserve(ctx context.Context, r quota.Reserve) (quota.Reserved, error) {
	res, err := l.store.Reserve(ctx, r)
	res.Now = time.Now().Round(0).Add(l.ahead)
	res.Repeated = l.repeated
	time.Sleep(l.takes)
	return res, err
}

func TestClocksThatDifferAreToldOfOnceAnHour(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ledger elsewhere
		says   string // "" is nothing
	}{
		"a ledger that is ahead":                       {elsewhere{ahead: 61 * time.Second}, "ledger_ahead=1m1s"},
		"one that is behind":                           {elsewhere{ahead: -3 * time.Hour}, "ledger_ahead=-3h0m0s"},
		"one that is a little off":                     {elsewhere{ahead: 59 * time.Second}, ""},
		"one whose answer takes long":                  {elsewhere{ahead: -30 * time.Second, takes: 40 * time.Second}, ""},
		"one whose answer is the first to such an id":  {elsewhere{ahead: -3 * time.Hour, repeated: true}, ""},
		"one that is ahead by less than an answer was": {elsewhere{ahead: 80 * time.Second, takes: 40 * time.Second}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				w := newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{
					{Name: "turns", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Turns: 1000}},
				}}, func(cfg *quota.Config) {
					l := c.ledger
					l.store = newStore(t)
					l.over(&log)(cfg)
					cfg.Ledger, cfg.LedgerTimeout = &l, time.Minute
				})
				said := func() int { return strings.Count(log.String(), "the clocks of this process and of the ledger differ") }
				want := 0
				for range 2 {
					if c.says != "" {
						want++
					}
					for range 3 {
						w.admit(as("alice")).End()
					}
					if said() != want || want > 0 && !strings.Contains(log.String(), c.says) {
						t.Errorf("it was told of %d times, want %d with %q: %s", said(), want, c.says, log.String())
					}
					time.Sleep(time.Hour)
				}
			})
		})
	}
}
