package budget_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
)

func TestADenialSaysWhichLimitHowMuchAndWhenToTryAgain(t *testing.T) {
	t.Parallel()
	resets := time.Date(2026, 4, 1, 0, 0, 0, 0, time.FixedZone("", 9*60*60))
	for _, c := range []struct {
		err  budget.DeniedError
		want string
	}{
		{
			budget.DeniedError{Budget: "team", Unit: "tokens", Limit: 1000, Used: 900, Requested: 200},
			`budget "team" denied 200 tokens: 900 of 1000 used`,
		},
		{
			budget.DeniedError{Budget: "team", Unit: "tokens", Limit: 1000, Used: 900, Requested: 200, RetryAfter: 90 * time.Second, ResetsAt: resets},
			`budget "team" denied 200 tokens: 900 of 1000 used, retry after 1m30s`,
		},
		{
			budget.DeniedError{Budget: "team", Unit: "tokens", Limit: 1000, Used: 900, Requested: 200, ResetsAt: resets},
			`budget "team" denied 200 tokens: 900 of 1000 used, resets at 2026-04-01T00:00:00+09:00`,
		},
		{
			budget.DeniedError{Budget: "team", Unit: "tokens", Limit: 1000, Requested: 2000, Never: true, RetryAfter: time.Second, ResetsAt: resets},
			`budget "team" denied 2000 tokens: 0 of 1000 used, it can never fit`,
		},
		{
			budget.DeniedError{Budget: `a"b`, Unit: "micro-dollars", Err: errors.New("ledger unreachable")},
			`budget "a\"b" denied 0 micro-dollars: 0 of 0 used: ledger unreachable`,
		},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("Error() = %s\nwant      %s", got, c.want)
		}
	}
}

func TestADenialIsFoundHoweverDeepItIsWrapped(t *testing.T) {
	t.Parallel()
	denied := &budget.DeniedError{Budget: "team", Limit: 10, Err: fmt.Errorf("reading: %w", fs.ErrPermission)}
	for _, err := range []error{
		denied,
		fmt.Errorf("call 7: %w", denied),
		errors.Join(errors.New("other"), fmt.Errorf("call 7: %w", denied)),
	} {
		if !errors.Is(err, budget.ErrDenied) {
			t.Errorf("%v does not match ErrDenied", err)
		}
		if got, ok := errors.AsType[*budget.DeniedError](err); !ok || got != denied {
			t.Errorf("%v is not the DeniedError", err)
		}
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("the cause of %v is lost", err)
		}
		if errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v matches a cause that it has not", err)
		}
	}
	if errors.Is(errors.New("denied by budget"), budget.ErrDenied) {
		t.Error("an error that only reads alike matches ErrDenied")
	}
}

// Retry layers ask for these methods without importing this package.
func TestADenialTellsRetryLayersWhatItIs(t *testing.T) {
	t.Parallel()
	for _, never := range []bool{false, true} {
		err := fmt.Errorf("call: %w", &budget.DeniedError{Never: never})
		var own interface{ Denied() bool }
		if !errors.As(err, &own) || !own.Denied() {
			t.Errorf("never %v: not an own denial", never)
		}
		var fit interface{ NeverFits() bool }
		if !errors.As(err, &fit) || fit.NeverFits() != never {
			t.Errorf("never %v: NeverFits says otherwise", never)
		}
	}
}

func TestCallIDsAreLongRandomAndDifferent(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		id := budget.NewID()
		if len(id) != 26 || seen[id] {
			t.Fatalf("id %q after %d others: want 26 new characters", id, len(seen))
		}
		seen[id] = true
	}
}
