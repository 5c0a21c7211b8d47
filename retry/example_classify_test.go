package retry_test

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/retry"
)

// Two refusals with the same status code: one is worth waiting for, the other
// is not, although it comes with a delay as well.
func ExampleClassify() {
	refusal := func(quota string) error {
		return genai.APIError{Code: 429, Status: "RESOURCE_EXHAUSTED", Details: []map[string]any{
			{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []any{
				map[string]any{"quotaId": quota}}},
			{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "26.5s"},
		}}
	}
	for _, quota := range []string{
		"GenerateRequestsPerMinutePerProjectPerModel",
		"GenerateRequestsPerDayPerProjectPerModel",
	} {
		v := retry.Classify(fmt.Errorf("agent: %w", refusal(quota)))
		fmt.Println(v.Class, v.Hint, v.Resources, v.PerDay, v.Class.Retryable())
	}
	// Output:
	// throttled 26.5s requests false true
	// quota_exhausted 26.5s requests true false
}

// exampleSDKError stands for the error type of an SDK that keeps the response.
type exampleSDKError struct {
	StatusCode int
	Header     http.Header
}

func (e *exampleSDKError) Error() string { return http.StatusText(e.StatusCode) }

// A classifier teaches a policy the errors of another SDK.
func ExampleClassifier() {
	policy := retry.Policy{Classifiers: []retry.Classifier{
		func(err error) (retry.Verdict, bool) {
			e, ok := errors.AsType[*exampleSDKError](err)
			if !ok {
				return retry.Verdict{}, false
			}
			v := retry.Verdict{Class: retry.ClassOf(e.StatusCode)}
			v.Hint, v.HasHint = retry.ParseRetryAfter(e.Header, time.Now())
			return v, true
		},
	}}
	err := &exampleSDKError{StatusCode: 529, Header: http.Header{"Retry-After": {"3"}}}
	v := policy.Classify(err)
	fmt.Println(v.Class, v.Hint)
	// Output: overloaded 3s
}
