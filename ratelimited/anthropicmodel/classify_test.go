package anthropicmodel_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/headgate-go/headgate/ratelimited/anthropicmodel"
	"github.com/headgate-go/headgate/retry"
)

// body is an error of the API; the code may be empty.
func body(kind, code string) string {
	details := "null"
	if code != "" {
		details = fmt.Sprintf(`{"error_code":%q}`, code)
	}
	return fmt.Sprintf(`{"type":"error","error":{"details":%s,"type":%q,"message":"m"},"request_id":"req_1"}`, details, kind)
}

func TestWhatErrorsOfTheAPIMean(t *testing.T) {
	t.Parallel()
	const limit = "Anthropic-Ratelimit-"
	hint := func(v retry.Verdict, d time.Duration) retry.Verdict {
		v.Hint, v.HasHint = d, true
		return v
	}
	throttled := retry.Verdict{Class: retry.Throttled}
	exhausted, overload := retry.Verdict{Class: retry.QuotaExhausted}, retry.Verdict{Class: retry.Overloaded}
	of := func(r retry.Resource) retry.Verdict { return retry.Verdict{Class: retry.Throttled, Resources: r} }
	for _, c := range []struct {
		name    string
		status  int
		body    string
		headers []string
		want    retry.Verdict
	}{
		{"a rate limit", 429, body("rate_limit_error", ""), nil, throttled},
		{"with a hint", 429, body("rate_limit_error", ""), []string{"Retry-After", "12"}, hint(throttled, 12*time.Second)},
		{"in milliseconds", 429, body("rate_limit_error", ""), []string{"Retry-After", "12", "Retry-After-Ms", "1500"}, hint(throttled, 1500*time.Millisecond)},
		{"that is no number", 429, body("rate_limit_error", ""), []string{"Retry-After", "soon"}, throttled},
		{"a proxy's 429", 429, "slow down", []string{"Retry-After", "1"}, hint(throttled, time.Second)},
		{"a code that nobody knows", 429, body("rate_limit_error", "full_moon"), nil, throttled},
		{"traffic that grows too fast", 429, body("rate_limit_error", "ramp_limit_exceeded"), []string{"Retry-After", "30"}, hint(throttled, 30*time.Second)},

		{"requests are used up", 429, body("rate_limit_error", ""), []string{limit + "Requests-Remaining", "0", limit + "Tokens-Remaining", "5000"}, of(retry.Requests)},
		{"input is", 429, body("rate_limit_error", ""), []string{limit + "Input-Tokens-Remaining", "0", limit + "Output-Tokens-Remaining", "1000", limit + "Tokens-Remaining", "0"}, of(retry.InputTokens)},
		{"output is", 429, body("rate_limit_error", ""), []string{limit + "Output-Tokens-Remaining", "0"}, of(retry.OutputTokens)},
		{"both are", 429, body("rate_limit_error", ""), []string{limit + "Output-Tokens-Remaining", "0", limit + "Input-Tokens-Remaining", " 0 "}, of(retry.InputTokens | retry.OutputTokens)},
		{"tokens of whatever kind are", 429, body("rate_limit_error", ""), []string{limit + "Tokens-Remaining", "0", limit + "Requests-Remaining", "0"}, of(retry.TotalTokens | retry.Requests)},
		{"headers that are malformed", 429, body("rate_limit_error", ""), []string{limit + "Requests-Remaining", "none", limit + "Tokens-Remaining", ""}, throttled},

		{"the month's spend limit", 429, body("rate_limit_error", "enforced_spend_limit_reached"), nil, exhausted},
		{"even if it says to retry", 429, body("rate_limit_error", "enforced_spend_limit_reached"), []string{"X-Should-Retry", "true"}, exhausted},
		{"the contract's", 429, body("rate_limit_error", "contract_spend_limit_reached"), []string{"Retry-After", "3"}, hint(exhausted, 3*time.Second)},
		{"a linked organization's", 402, body("billing_error", "linked_organization_spend_limit_reached"), nil, exhausted},
		{"a linked organization that cannot be billed", 429, body("rate_limit_error", "linked_organization_billing_unavailable"), nil, exhausted},
		{"input is, by the message", 429, `{"type":"error","error":{"type":"rate_limit_error","message":"rate limit of 50,000 input tokens per minute"}}`, nil, of(retry.InputTokens)},
		{"billing", 403, body("billing_error", ""), nil, exhausted},
		{"payment required", 402, "pay", nil, exhausted},
		{"a spend limit of one's own", 400, body("invalid_request_error", ""), nil, retry.Verdict{}},

		{"overloaded", 529, body("overloaded_error", ""), nil, overload},
		{"overloaded, with a hint", 529, body("overloaded_error", ""), []string{"Retry-After", "5"}, hint(overload, 5*time.Second)},
		{"unavailable", 503, "down", nil, overload},
		{"an internal error", 500, body("api_error", ""), []string{"Retry-After", "5"}, retry.Verdict{}},
		{"a time-out", 504, body("timeout_error", ""), nil, retry.Verdict{}},
		{"a bad gateway", 502, "<html>", nil, retry.Verdict{}},
		{"a refused key", 401, body("authentication_error", ""), nil, retry.Verdict{}},

		{"an internal error that is safe to retry", 500, body("api_error", ""), []string{"X-Should-Retry", "true", "Retry-After", "5"}, hint(overload, 5*time.Second)},
		{"a conflict that is", 409, body("conflict_error", ""), []string{"X-Should-Retry", "true"}, overload},
		{"a rate limit that is not", 429, body("rate_limit_error", ""), []string{"X-Should-Retry", "false"}, exhausted},
		{"an overload that is not", 529, body("overloaded_error", ""), []string{"X-Should-Retry", "false", "Retry-After", "5"}, retry.Verdict{}},
		{"advice that nobody knows", 429, body("rate_limit_error", ""), []string{"X-Should-Retry", "perhaps"}, throttled},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(t *testing.T, stream bool) {
				srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
					for i := 0; i+1 < len(c.headers); i += 2 {
						w.Header().Set(c.headers[i], c.headers[i+1])
					}
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(c.status)
					io.WriteString(w, c.body)
				})
				client := newClient(srv, option.WithMaxRetries(0))
				got := collect(newModel(t, client).GenerateContent(t.Context(), hello(), stream))
				if len(got.errs) != 1 {
					t.Fatalf("errors %v, want one", got.errs)
				}
				err := fmt.Errorf("agent: %w", got.errs[0])
				if v := retry.Classify(err); v != c.want {
					t.Errorf("the model's error: %+v, want %+v", v, c.want)
				}
				if s, ok := errors.AsType[interface {
					error
					StatusCode() int
				}](err); !ok || s.StatusCode() != c.status {
					t.Errorf("the status %d is lost in %v", c.status, err)
				}
				_, plain := client.Messages.New(t.Context(), hello().Params)
				policy := retry.Policy{Classifiers: []retry.Classifier{anthropicmodel.Classify}}
				if v := policy.Classify(plain); v != c.want {
					t.Errorf("the SDK's error: %+v, want %+v", v, c.want)
				}
			})
		})
	}
}

// An error that interrupts a stream has the status of the stream's response.
func TestWhatErrorsInAStreamMean(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]retry.Class{
		"overloaded_error": retry.Overloaded, "rate_limit_error": retry.Throttled, "billing_error": retry.QuotaExhausted,
		"api_error": retry.NotRetryable, "timeout_error": retry.NotRetryable, "something_else": retry.NotRetryable,
	} {
		for name, first := range map[string]string{"first": "", "later": events(started)} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Retry-After", "7") // of whatever was meant, not of this
					w.Header().Set("X-Should-Retry", "true")
					io.WriteString(w, first+events(body(kind, "")))
				})
				got := collect(newModel(t, newClient(srv)).GenerateContent(t.Context(), hello(), true))
				if len(got.errs) != 1 {
					t.Fatalf("errors %v, want one", got.errs)
				}
				if v := retry.Classify(got.errs[0]); v != (retry.Verdict{Class: want}) {
					t.Errorf("%+v, want %v", v, want)
				}
			})
		}
	}
}

func TestClassifyKnowsOnlyTheSDKsErrors(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, io.ErrUnexpectedEOF, (*anthropic.Error)(nil), fmt.Errorf("call: %w", (*anthropic.Error)(nil))} {
		if v, ok := anthropicmodel.Classify(err); ok || v != (retry.Verdict{}) {
			t.Errorf("%#v: %+v, %v; want nothing", err, v, ok)
		}
	}
	made := &anthropic.Error{StatusCode: 529} // without a response
	if v, ok := anthropicmodel.Classify(errors.Join(io.EOF, made)); !ok || v.Class != retry.Overloaded {
		t.Errorf("an error that was made by hand: %+v, %v", v, ok)
	}
}
