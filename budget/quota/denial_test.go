package quota_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
)

func TestADenialSaysWhatAndHowMuchAndWhen(t *testing.T) {
	t.Parallel()
	reset := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	cause := errors.New("no price for model \"m.1\"")
	for _, c := range []struct {
		denial quota.Denial
		want   string
	}{
		{
			quota.Denial{Reason: quota.ReasonExhausted, Limit: "user/day", Unit: quota.Tokens, Max: 1000, Used: 900, Requested: 200, ResetsAt: reset, RetryAfter: time.Hour},
			`quota: limit "user/day": 900 of 1000 tokens used, 200 more asked for, retry after 1h0m0s, resets at 2026-12-01T00:00:00Z`,
		},
		{
			quota.Denial{Reason: quota.ReasonNoSubject},
			"quota: it is not known for whom this is",
		},
		{
			quota.Denial{Reason: quota.ReasonRate, Limit: "rate", Unit: quota.Turns, Max: 5, Used: 5, Requested: 1, RetryAfter: 2500 * time.Millisecond},
			`quota: limit "rate": 5 of 5 turns used, 1 more asked for, retry after 2.5s`,
		},
		{
			quota.Denial{Reason: quota.ReasonNeverFits, Limit: "rate", Unit: quota.Tokens, Max: 5, Requested: 9, Never: true},
			`quota: limit "rate": 0 of 5 tokens used, 9 more asked for, which can never pass`,
		},
		{
			quota.Denial{Reason: quota.ReasonConcurrency, Limit: "at-once", Unit: quota.ConcurrentTurns, Max: 2, Used: 2, Requested: 1},
			`quota: limit "at-once": 2 of 2 concurrent_turns used, 1 more asked for`,
		},
		{
			quota.Denial{Reason: quota.ReasonTurnCalls, Unit: quota.Calls, Max: 500, Used: 500, Requested: 1},
			`quota: the turn has used 500 of 500 calls and asks for 1 more`,
		},
		{
			quota.Denial{Reason: quota.ReasonNoSubject, Limit: "user/day", Scope: quota.User},
			`quota: limit "user/day" needs to know the user`,
		},
		{
			quota.Denial{Reason: quota.ReasonUnpriced, Limit: "user/day", Unit: quota.Money, Err: cause},
			`quota: limit "user/day" counts money, and what the call costs is not known: no price for model "m.1"`,
		},
		{
			quota.Denial{Reason: quota.ReasonUnpriced, Unit: quota.Money, Err: cause},
			`quota: the cost of the turn is limited, and what the call costs is not known: no price for model "m.1"`,
		},
		{
			quota.Denial{Reason: quota.ReasonUnavailable, Limit: "user/day", RetryAfter: time.Second, Err: quota.ErrUnavailable},
			`quota: limits cannot be checked now, which limit "user/day" demands, retry after 1s: quota: the ledger is unavailable`,
		},
		{quota.Denial{Reason: quota.ReasonClosed}, `quota: the enforcer is closed`},
	} {
		d := &c.denial
		if got := d.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		if !errors.Is(d, budget.ErrDenied) || !d.Denied() || d.NeverFits() != d.Never {
			t.Errorf("%s is no denial", d.Reason)
		}
		if errors.Is(d, quota.ErrUnavailable) != (d.Reason == quota.ReasonUnavailable) {
			t.Errorf("%s: the ledger is at fault: %v", d.Reason, errors.Is(d, quota.ErrUnavailable))
		}
		if d.Err != nil && !errors.Is(d, d.Err) {
			t.Errorf("%s hides its cause", d.Reason)
		}
	}
}

func TestADenialKnowsHowLongToWait(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name   string
		denial quota.Denial
		want   time.Duration
		ok     bool
	}{
		{"told", quota.Denial{RetryAfter: time.Second, ResetsAt: now.Add(time.Hour)}, time.Second, true},
		{"the reset", quota.Denial{ResetsAt: now.Add(time.Hour)}, time.Hour, true},
		{"a reset that has passed", quota.Denial{ResetsAt: now.Add(-time.Hour)}, 0, true},
		{"not known", quota.Denial{}, 0, false},
		{"never", quota.Denial{Never: true, RetryAfter: time.Second}, 0, false},
	} {
		if got, ok := c.denial.RetryDelay(now); got != c.want || ok != c.ok {
			t.Errorf("%s: %v, %v, want %v, %v", c.name, got, ok, c.want, c.ok)
		}
	}
	if left := (&quota.Denial{Max: 50, Used: 180}).Left(); left != 0 {
		t.Errorf("%d are left, want 0", left)
	}
}

func TestADenialInALogIsItsFacts(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, nil))
	d := &quota.Denial{
		Reason: quota.ReasonExhausted, Stage: quota.MidTurn, Limit: "day", Scope: quota.User, Unit: quota.Tokens,
		Max: 10, Used: 9, Requested: 2, RetryAfter: time.Second, Observed: true, Err: errors.New("cause"),
		ResetsAt: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
	}
	log.Info("denied", slog.Any("denial", d))
	for _, want := range []string{
		"denial.reason=exhausted", "denial.stage=mid_turn", "denial.limit=day", "denial.scope=user", "denial.unit=tokens",
		"denial.max=10", "denial.used=9", "denial.requested=2", "denial.retry_after=1s", "denial.observed=true",
		"denial.error=cause", "denial.resets_at=2026-12-01T00:00:00.000Z",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in %s", want, b.String())
		}
	}
	if got := fmt.Sprint(quota.Admission, quota.Stage(9)); got != "admission stage(9)" {
		t.Error(got)
	}
}
