package route

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
)

// sdkError is the error of an SDK that gives its status by a method.
type sdkError int

func (e sdkError) Error() string   { return fmt.Sprint("status ", int(e)) }
func (e sdkError) StatusCode() int { return int(e) }

// ours is a refusal of a layer that this package does not know.
type ours struct{}

func (ours) Error() string { return "not today" }
func (ours) Denied() bool  { return true }

func TestOnlyWhatWasNotServedGoesToAnotherRoute(t *testing.T) {
	t.Parallel()
	api := func(code int) error { return genai.APIError{Code: code} }
	custom := errors.New("pool exhausted")
	policy := &retry.Policy{Classifiers: []retry.Classifier{func(err error) (retry.Verdict, bool) {
		return retry.Verdict{Class: retry.Throttled, HasHint: true, Hint: time.Minute}, errors.Is(err, custom)
	}}}
	for _, c := range []struct {
		name   string
		err    error
		reason string // "" passes it on
		o      string
		blow   blow
	}{
		{"throttled", api(429), "throttled", "throttled", refused},
		{"by the program's own classifier", custom, "throttled", "throttled", refused},
		{"out of credits", api(402), "quota_exhausted", "quota_exhausted", exhausted},
		{"overloaded", api(503), "overloaded", "overloaded", failed},
		{"overloaded, of another SDK", sdkError(529), "", "failed", failed}, // its adapter gives a verdict
		{"not sent", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, "not_sent", "not_sent", failed},
		{"bounded in its wait", &ratelimited.WaitError{}, "max_wait", "not_admitted", neutral},
		{"a deadline that cannot be met", &ratelimited.WaitError{Err: context.DeadlineExceeded}, "max_wait", "not_admitted", neutral},
		{"bounded after a refusal", &ratelimited.WaitError{Throttled: api(429)}, "max_wait", "not_admitted", neutral},
		{"full line", &ratelimited.WaitError{Err: ratelimited.ErrLineFull}, "line_full", "not_admitted", neutral},
		{"closed gate", fmt.Errorf("wrapped: %w", &ratelimited.WaitError{Err: ratelimited.ErrClosed}), "closed", "not_admitted", neutral},
		{"left the line", &ratelimited.WaitError{Err: ratelimited.ErrDiverted}, "line", "diverted", neutral},
		{"larger than a limit", &ratelimited.NeverFitsError{}, "never_fits", "not_admitted", neutral},

		{"a person's budget", &budget.DeniedError{}, "", "denied", neutral},
		{"a person's budget, which the call exceeds", &budget.DeniedError{Never: true}, "", "denied", neutral},
		{"a person's budget behind a refusal", errors.Join(&budget.DeniedError{}, api(429)), "", "denied", neutral},
		{"a budget that says no more, behind a refusal", errors.Join(budget.ErrDenied, api(429)), "", "denied", neutral},
		{"something else of ours that refuses", ours{}, "", "denied", neutral},
		{"a wrong request", api(400), "", "failed", answered},
		{"a wrong request, of another SDK", sdkError(422), "", "failed", answered},
		{"a wrong key", api(401), "", "failed", failed},
		{"a key without the right", &genai.APIError{Code: 403}, "", "failed", failed},
		{"a model that is gone", sdkError(404), "", "failed", failed},
		{"may have been executed", api(500), "", "failed", failed},
		{"may still be executed", api(408), "", "failed", failed},
		{"the client's own time limit", fmt.Errorf("http: %w", context.DeadlineExceeded), "", "failed", failed},
		{"a broken connection", &net.OpError{Op: "read", Err: syscall.ECONNRESET}, "", "failed", failed},
		{"an answer that was cut", fmt.Errorf("reading: %w", io.ErrUnexpectedEOF), "", "failed", failed},
		{"who knows", errors.New("nil content"), "", "failed", neutral},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := judge(policy, c.err)
			if v.reason != c.reason || v.outcome.String() != c.o || v.blow != c.blow {
				t.Errorf("%v: reason %q, outcome %v, blow %d; want %q, %s, %d", c.err, v.reason, v.outcome, v.blow, c.reason, c.o, c.blow)
			}
		})
	}
}
