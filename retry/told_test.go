package retry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/retry"
)

// adapted is an error of an adapter that knows what its SDK's errors mean.
type adapted struct {
	verdict retry.Verdict
	cause   error
}

func (e *adapted) Error() string               { return "adapted" }
func (e *adapted) Unwrap() error               { return e.cause }
func (e *adapted) RetryVerdict() retry.Verdict { return e.verdict }

type ownDenial struct{}

func (ownDenial) Error() string { return "denied" }
func (ownDenial) Denied() bool  { return true }

func TestAnErrorThatKnowsWhatItMeansIsBelieved(t *testing.T) {
	t.Parallel()
	throttled := retry.Verdict{Class: retry.Throttled, Hint: 3 * time.Second, HasHint: true, Resources: retry.Requests}
	served := genai.APIError{Code: 503, Status: "UNAVAILABLE"}
	for _, c := range []struct {
		name string
		err  error
		want retry.Verdict
	}{
		{"alone", &adapted{verdict: throttled}, throttled},
		{"wrapped", fmt.Errorf("call: %w", &adapted{verdict: throttled}), throttled},
		{"joined", errors.Join(errors.New("other"), &adapted{verdict: throttled}), throttled},
		{"before what it wraps", &adapted{throttled, served}, throttled},
		{"the outermost", &adapted{throttled, &adapted{verdict: retry.Verdict{Class: retry.Overloaded}}}, throttled},
		{"not before our own refusal", &adapted{throttled, ownDenial{}}, retry.Verdict{Class: retry.Denied}},
		{"not before the end of the context", &adapted{throttled, context.Canceled}, retry.Verdict{}},
		{"not a nil pointer", fmt.Errorf("%w", (*adapted)(nil)), retry.Verdict{}},
	} {
		if got := retry.Classify(c.err); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
