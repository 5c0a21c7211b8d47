package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/retry"
)

// errorBody is a Gemini API error body with these details.
func errorBody(code int, status, message string, details ...string) string {
	return fmt.Sprintf(`{"error":{"code":%d,"message":%q,"status":%q,"details":[%s]}}`,
		code, message, status, strings.Join(details, ","))
}

func retryInfo(delay string) string {
	return fmt.Sprintf(`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":%q}`, delay)
}

func quotaFailure(violations ...string) string {
	return fmt.Sprintf(`{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[%s]}`,
		strings.Join(violations, ","))
}

func violation(id, metric string) string {
	return fmt.Sprintf(`{"quotaMetric":"generativelanguage.googleapis.com/%s","quotaId":%q,"quotaDimensions":{"location":"global","model":"gemini-2.5-pro"},"quotaValue":"50"}`,
		metric, id)
}

var (
	requestsPerMinute = violation("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "generate_content_free_tier_requests")
	requestsPerDay    = violation("GenerateRequestsPerDayPerProjectPerModel-FreeTier", "generate_content_free_tier_requests")
	inputPerMinute    = violation("GenerateContentInputTokensPerModelPerMinute-FreeTier", "generate_content_free_tier_input_token_count")
	inputPerDay       = violation("GenerateContentInputTokensPerModelPerDay-FreeTier", "generate_content_free_tier_input_token_count")
	paidInput         = violation("GenerateContentPaidTierInputTokensPerModelPerMinute", "generate_content_paid_tier_input_token_count")
)

const (
	helpOnly     = `{"@type":"type.googleapis.com/google.rpc.Help","links":[{"description":"quotas","url":"https://ai.google.dev"}]}`
	overQuota    = "You exceeded your current quota, please check your plan and billing details."
	vertexShared = "Resource exhausted, please try again later."
)

func hinted(class retry.Class, hint time.Duration, r retry.Resource) retry.Verdict {
	return retry.Verdict{Class: class, Hint: hint, HasHint: true, Resources: r}
}

// Every case is a response that passes through the real SDK.
func TestGeminiResponsesMeanWhatTheProviderMeant(t *testing.T) {
	t.Parallel()
	const (
		throttled = retry.Throttled
		exhausted = retry.QuotaExhausted
	)
	cases := []struct {
		name   string
		status int
		body   string
		want   retry.Verdict
	}{
		{"per minute, requests, fractional delay", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", overQuota, quotaFailure(requestsPerMinute), retryInfo("45.837906927s")),
			hinted(throttled, 45837906927, retry.Requests)},
		{"per minute, input tokens, whole seconds", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", overQuota, quotaFailure(inputPerMinute), retryInfo("26s")),
			hinted(throttled, 26*time.Second, retry.InputTokens)},
		{"paid tier", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", overQuota, quotaFailure(paidInput), retryInfo("3s")),
			hinted(throttled, 3*time.Second, retry.InputTokens)},
		{"requests and tokens together", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", overQuota, quotaFailure(requestsPerMinute, inputPerMinute), retryInfo("9s")),
			hinted(throttled, 9*time.Second, retry.Requests|retry.InputTokens)},
		{"per day, without a delay", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", overQuota, quotaFailure(requestsPerDay)),
			retry.Verdict{Class: exhausted, Resources: retry.Requests, PerDay: true}},
		{"per day and per minute together", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", overQuota, quotaFailure(inputPerDay, requestsPerMinute), retryInfo("47s")),
			retry.Verdict{Class: exhausted, Hint: 47 * time.Second, HasHint: true,
				Resources: retry.Requests | retry.InputTokens, PerDay: true}},
		{"period only in the metric", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", overQuota, quotaFailure(`{"quotaMetric":"generativelanguage.googleapis.com/generate_requests_per_model_per_day"}`)),
			retry.Verdict{Class: exhausted, Resources: retry.Requests, PerDay: true}},
		{"not in this tier, by the text", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", overQuota+"\n* Quota exceeded for metric: generate_content_free_tier_requests, limit: 0, model: gemini-2.5-pro\n", quotaFailure(requestsPerMinute), retryInfo("38.8s")),
			hinted(exhausted, 38800*time.Millisecond, retry.Requests)},
		{"not in this tier, at the end of the text", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", "metric requests, limit: 05, metric tokens, limit: 0"),
			retry.Verdict{Class: exhausted}},
		{"not in this tier, by the value", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", overQuota, quotaFailure(`{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel","quotaValue":"0"}`)),
			retry.Verdict{Class: exhausted, Resources: retry.Requests}},
		{"not in this tier, by a value that is a number", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", overQuota, quotaFailure(`{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel","quotaValue":0}`)),
			retry.Verdict{Class: exhausted, Resources: retry.Requests}},
		{"a small limit is not a limit of 0", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", "metric a, limit: 05, metric b, limit: 0.5, metric c, limit: 10"),
			retry.Verdict{Class: throttled}},
		{"quota named in ErrorInfo", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", "Quota exceeded", `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"RATE_LIMIT_EXCEEDED","domain":"googleapis.com","metadata":{"quota_limit":"GenerateContentRequestsPerMinutePerProjectPerRegion","quota_metric":"aiplatform.googleapis.com/generate_content_requests","quota_limit_value":"60"}}`),
			retry.Verdict{Class: throttled, Resources: retry.Requests}},
		{"quota of 0 named in ErrorInfo", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", "Quota exceeded", `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","metadata":{"quota_limit":"GenerateContentRequestsPerMinutePerProjectPerRegion","quota_limit_value":"0"}}`),
			retry.Verdict{Class: exhausted, Resources: retry.Requests}},
		{"other limits", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", "", quotaFailure(
				`{"quotaId":"OnlinePredictionConcurrentRequestsPerBaseModel"}`,
				`{"quotaMetric":"aiplatform.googleapis.com/output_tokens_per_minute_per_base_model"}`,
				`{"quotaId":"TokensPerMinutePerProject"}`,
				`{"quotaId":"SomethingElsePerMinute"}`)),
			retry.Verdict{Class: throttled, Resources: retry.Concurrency | retry.OutputTokens | retry.TotalTokens}},
		{"the longest of several delays", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", "", retryInfo("2s"), retryInfo("7s"), retryInfo("garbage"), retryInfo("3s")),
			hinted(throttled, 7*time.Second, 0)},
		{"only a help link", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", overQuota, helpOnly), retry.Verdict{Class: throttled}},
		{"the delay only in the text", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", overQuota+" Please retry in 45.8s."), retry.Verdict{Class: throttled}},
		{"negative delay", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", overQuota, retryInfo("-3s")), retry.Verdict{Class: throttled}},
		{"garbage delay", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", overQuota, retryInfo("garbage")), retry.Verdict{Class: throttled}},
		{"delay of another type", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", overQuota, `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":26}`),
			retry.Verdict{Class: throttled}},
		{"delay missing", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", overQuota, `{"@type":"type.googleapis.com/google.rpc.RetryInfo"}`),
			retry.Verdict{Class: throttled}},
		{"delay of zero", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", overQuota, retryInfo("0s")), hinted(throttled, 0, 0)},
		{"delay beyond all bounds", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", overQuota, retryInfo("300000000000s")), hinted(throttled, math.MaxInt64, 0)},
		{"violations of unexpected types", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", overQuota, `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":["x",{"quotaId":7}]}`),
			retry.Verdict{Class: throttled}},
		{"Vertex AI, shared pool", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", vertexShared), retry.Verdict{Class: throttled}},
		{"Vertex AI, array body", 429,
			"[" + errorBody(429, "RESOURCE_EXHAUSTED", vertexShared, retryInfo("4s"), quotaFailure(requestsPerMinute)) + "\n]",
			hinted(throttled, 4*time.Second, retry.Requests)},
		{"Vertex AI, provisioned throughput", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", "Too many requests. Exceeded the Provisioned Throughput."),
			retry.Verdict{Class: throttled}},
		{"a field that the SDK cannot decode", 429,
			`{"error":{"code":"429","message":"slow down","details":[` + retryInfo("5s") + `,"noise"]}}`,
			hinted(throttled, 5*time.Second, 0)},
		{"a code that the SDK cannot decode wins over the status line", 500,
			`[{"error":{"code":"429"}}]`, retry.Verdict{Class: throttled}},
		{"prepaid credits used up", 402,
			errorBody(402, "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted."), retry.Verdict{Class: exhausted}},
		{"prepaid credits used up, older form", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted."), retry.Verdict{Class: exhausted}},
		{"spending cap reached", 429,
			errorBody(429, "RESOURCE_EXHAUSTED", "Your project has exceeded its monthly spending cap."), retry.Verdict{Class: exhausted}},
		{"payment required, no body", 402, "", retry.Verdict{Class: exhausted}},
		{"throttled, plain text", 429, "slow down", retry.Verdict{Class: throttled}},
		{"throttled, no body", 429, "", retry.Verdict{Class: throttled}},
		{"overloaded", 503, errorBody(503, "UNAVAILABLE", "The model is overloaded."), retry.Verdict{Class: retry.Overloaded}},
		{"overloaded, with a delay", 503, errorBody(503, "UNAVAILABLE", "busy", retryInfo("2s")), hinted(retry.Overloaded, 2*time.Second, 0)},
		{"overloaded, proxy", 503, "<html>Service Unavailable</html>", retry.Verdict{Class: retry.Overloaded}},
		{"overloaded, 529", 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, retry.Verdict{Class: retry.Overloaded}},
		{"overloaded, said by a 500", 500, errorBody(500, "INTERNAL", "The model is overloaded."), retry.Verdict{Class: retry.Overloaded}},
		{"internal error: may have been executed", 500, errorBody(500, "INTERNAL", "An internal error has occurred."), retry.Verdict{}},
		{"gateway timeout: may have been executed", 504, errorBody(504, "DEADLINE_EXCEEDED", "Deadline expired."), retry.Verdict{}},
		{"bad gateway: may have been executed", 502, "bad gateway", retry.Verdict{}},
		{"request timeout: may have been executed", 408, "", retry.Verdict{}},
		{"bad request that quotes an overload", 400, errorBody(400, "INVALID_ARGUMENT", "bad part: the model is overloaded"), retry.Verdict{}},
		{"refused key", 403, errorBody(403, "PERMISSION_DENIED", "key"), retry.Verdict{}},
		{"unknown model", 404, errorBody(404, "NOT_FOUND", "model"), retry.Verdict{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := retry.Classify(sdkError(t, c.status, c.body)); got != c.want {
				t.Errorf("verdict %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestErrorInsideAStreamIsJudgedByItsOwnCode(t *testing.T) {
	t.Parallel()
	chunk := "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"ab\"}],\"role\":\"model\"}}]}\n\n"
	refusal := errorBody(429, "RESOURCE_EXHAUSTED", overQuota, quotaFailure(requestsPerMinute), retryInfo("1.5s"))
	for name, event := range map[string]string{"event": "data: " + refusal + "\n\n", "bare line": refusal + "\n\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			items, err := stream(t.Context(), newGemini(t, "http://gemini.invalid", answer(200, nil, chunk+event)))
			if items != 1 {
				t.Fatalf("%d items before the error %v, want 1", items, err)
			}
			want := hinted(retry.Throttled, 1500*time.Millisecond, retry.Requests)
			if got := retry.Classify(err); got != want {
				t.Errorf("verdict %+v, want %+v", got, want)
			}
		})
	}
}

func TestAPIErrorIsFoundHoweverItComes(t *testing.T) {
	t.Parallel()
	e := genai.APIError{Code: 429, Status: "RESOURCE_EXHAUSTED", Details: []map[string]any{
		{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"},
		{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []map[string]any{
			{"quotaId": "GenerateContentInputTokensPerModelPerMinute"}}},
	}}
	want := hinted(retry.Throttled, 2*time.Second, retry.InputTokens)
	for name, err := range map[string]error{
		"value":            e,
		"pointer":          &e,
		"wrapped":          fmt.Errorf("agent: %w", fmt.Errorf("model: %w", e)),
		"wrapped pointer":  fmt.Errorf("agent: %w", &e),
		"joined":           errors.Join(errors.New("clean-up failed"), e),
		"the first of two": errors.Join(e, genai.APIError{Code: 503}),
		"joined, wrapped":  fmt.Errorf("turn: %w", errors.Join(errors.New("x"), fmt.Errorf("y: %w", e))),
	} {
		if got := retry.Classify(err); got != want {
			t.Errorf("%s: verdict %+v, want %+v", name, got, want)
		}
	}
}

func TestStatusDecidesWhereTheCodeIsNoHTTPError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code            int
		status, message string
		want            retry.Class
	}{
		{0, "RESOURCE_EXHAUSTED", "", retry.Throttled},
		{8, "RESOURCE_EXHAUSTED", "", retry.Throttled},
		{200, "UNAVAILABLE", "", retry.Overloaded},
		{0, "overloaded_error", "", retry.Overloaded},
		{0, "", "The model is overloaded.", retry.Overloaded},
		{500, "UNAVAILABLE", "", retry.Overloaded},
		{402, "RESOURCE_EXHAUSTED", "", retry.QuotaExhausted},
		{403, "RESOURCE_EXHAUSTED", "", retry.NotRetryable},
		{400, "UNAVAILABLE", "", retry.NotRetryable},
		{0, "INTERNAL", "", retry.NotRetryable},
		{0, "", "", retry.NotRetryable},
		{-429, "", "", retry.NotRetryable},
	} {
		e := genai.APIError{Code: c.code, Status: c.status, Message: c.message}
		if got := retry.Classify(e).Class; got != c.want {
			t.Errorf("code %d, status %q, message %q: %v, want %v", c.code, c.status, c.message, got, c.want)
		}
	}
}

// refusal is a refusal of our own that wraps a cause.
type refusal struct {
	denied, neverFits bool
	cause             error
}

func (r refusal) Error() string   { return "over budget" }
func (r refusal) Denied() bool    { return r.denied }
func (r refusal) NeverFits() bool { return r.neverFits }
func (r refusal) Unwrap() error   { return r.cause }

func TestOwnRefusalWinsOverEverything(t *testing.T) {
	t.Parallel()
	throttle := genai.APIError{Code: 429, Details: []map[string]any{
		{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"}}}
	greedy := &retry.Policy{Classifiers: []retry.Classifier{
		func(error) (retry.Verdict, bool) { return retry.Verdict{Class: retry.Throttled}, true },
	}}
	for name, c := range map[string]struct {
		err  error
		want retry.Class
	}{
		"denial":                         {refusal{denied: true}, retry.Denied},
		"denial around a provider's 429": {refusal{denied: true, cause: throttle}, retry.Denied},
		"denial inside of another error": {fmt.Errorf("turn: %w", refusal{denied: true}), retry.Denied},
		"denial joined behind a 429":     {errors.Join(throttle, refusal{denied: true}), retry.Denied},
		"denial around a cancellation":   {refusal{denied: true, cause: context.Canceled}, retry.Denied},
		"never fits":                     {refusal{neverFits: true, cause: throttle}, retry.NeverFits},
		"never fits, which is a denial":  {refusal{neverFits: true, denied: true}, retry.NeverFits},
		"denial around never fits":       {refusal{denied: true, cause: refusal{neverFits: true}}, retry.NeverFits},
		"denial behind one that is none": {refusal{cause: refusal{denied: true}}, retry.Denied},
	} {
		want := retry.Verdict{Class: c.want}
		if got := retry.Classify(c.err); got != want {
			t.Errorf("%s: verdict %+v, want %+v", name, got, want)
		}
		if got := greedy.Classify(c.err); got != want {
			t.Errorf("%s: a classifier reinterpreted it: %+v, want %+v", name, got, want)
		}
	}
	if got := retry.Classify(refusal{cause: throttle}).Class; got != retry.Throttled {
		t.Errorf("an error that denies being a denial: %v, want throttled", got)
	}
}

func TestEndOfTheCallersContextIsNeverRetried(t *testing.T) {
	t.Parallel()
	dial := func(cause error) error {
		return &url.Error{Op: "Post", URL: "https://x.invalid", Err: &net.OpError{Op: "dial", Net: "tcp", Err: cause}}
	}
	for name, err := range map[string]error{
		"cancelled":                context.Canceled,
		"deadline":                 context.DeadlineExceeded,
		"wrapped":                  fmt.Errorf("doRequest: %w", &url.Error{Op: "Post", Err: context.Canceled}),
		"cancelled in a dial":      dial(context.Canceled),
		"deadline in a dial":       dial(context.DeadlineExceeded),
		"cancelled in a lookup":    dial(&net.DNSError{Err: "operation was canceled", UnwrapErr: context.Canceled}),
		"deadline in a lookup":     &net.DNSError{Err: "i/o timeout", UnwrapErr: context.DeadlineExceeded},
		"joined with a 429":        errors.Join(genai.APIError{Code: 429}, context.Canceled),
		"says that it is the same": sameAs{context.DeadlineExceeded},
	} {
		if got := retry.Classify(err); got != (retry.Verdict{}) {
			t.Errorf("%s: verdict %+v, want not retryable", name, got)
		}
	}
}

// sameAs is an error that calls itself equal to another, as the one does that
// http.Client.Timeout makes.
type sameAs struct{ target error }

func (s sameAs) Error() string        { return "timeout" }
func (s sameAs) Is(target error) bool { return target == s.target }

func TestUnknownErrorsAreNotRetried(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"nil":                 nil,
		"plain":               errors.New("429 RESOURCE_EXHAUSTED"),
		"broken stream":       io.ErrUnexpectedEOF,
		"nil API error":       (*genai.APIError)(nil),
		"nil operation error": (*net.OpError)(nil),
		"nil lookup error":    (*net.DNSError)(nil),
		"reset while reading": &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET},
		"reset while writing": &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE},
		"refused, but while reading": &url.Error{Op: "Post",
			Err: &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNREFUSED}},
		"a dial after a broken connection": errors.Join(
			&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, &net.OpError{Op: "read", Err: syscall.ECONNRESET}),
	} {
		if got := retry.Classify(err); got != (retry.Verdict{}) {
			t.Errorf("%s: verdict %+v, want not retryable", name, got)
		}
	}
}

// otherSDK is the error of an SDK that keeps the response.
type otherSDK struct {
	code   int
	header http.Header
}

func (e *otherSDK) Error() string { return http.StatusText(e.code) }

func TestClassifiersComeBeforeTheBuiltInRules(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := &retry.Policy{Classifiers: []retry.Classifier{
		func(err error) (retry.Verdict, bool) {
			e, ok := errors.AsType[*otherSDK](err)
			if !ok {
				return retry.Verdict{}, false
			}
			v := retry.Verdict{Class: retry.ClassOf(e.code)}
			v.Hint, v.HasHint = retry.ParseRetryAfter(e.header, now)
			return v, true
		},
		nil, // a defect that Validate reports and Classify survives
		func(err error) (retry.Verdict, bool) {
			return retry.Verdict{Class: retry.QuotaExhausted}, errors.Is(err, io.ErrNoProgress)
		},
		func(err error) (retry.Verdict, bool) {
			return retry.Verdict{Class: retry.Class(77), Hint: -time.Second, HasHint: true}, errors.Is(err, io.ErrShortWrite)
		},
		func(err error) (retry.Verdict, bool) {
			return retry.Verdict{Class: retry.Throttled, Hint: time.Second}, errors.Is(err, io.ErrShortBuffer)
		},
	}}
	for name, c := range map[string]struct {
		err  error
		want retry.Verdict
	}{
		"its own error": {
			fmt.Errorf("x: %w", &otherSDK{429, http.Header{"Retry-After": {"2"}}}),
			hinted(retry.Throttled, 2*time.Second, 0)},
		"the second that knows":   {io.ErrNoProgress, retry.Verdict{Class: retry.QuotaExhausted}},
		"unusable class and hint": {io.ErrShortWrite, retry.Verdict{}},
		"hint that is not set":    {io.ErrShortBuffer, retry.Verdict{Class: retry.Throttled}},
		"built-in for the rest":   {genai.APIError{Code: 503}, retry.Verdict{Class: retry.Overloaded}},
		"nil":                     {nil, retry.Verdict{}},
	} {
		if got := p.Classify(c.err); got != c.want {
			t.Errorf("%s: verdict %+v, want %+v", name, got, c.want)
		}
	}
	var none *retry.Policy
	if got := none.Classify(genai.APIError{Code: 429}).Class; got != retry.Throttled {
		t.Errorf("a nil policy says %v, want the built-in verdict", got)
	}
}

func TestClassesSayWhatMayBeRetried(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		class             retry.Class
		name              string
		retryable, budget bool
	}{
		{retry.NotRetryable, "not_retryable", false, false},
		{retry.Throttled, "throttled", true, false},
		{retry.QuotaExhausted, "quota_exhausted", false, false},
		{retry.Overloaded, "overloaded", true, true},
		{retry.NotSent, "not_sent", true, true},
		{retry.Denied, "denied", false, false},
		{retry.NeverFits, "never_fits", false, false},
		{retry.Class(99), "unknown", false, false},
	} {
		if c.class.String() != c.name || c.class.Retryable() != c.retryable || c.class.UsesBudget() != c.budget {
			t.Errorf("class %d: %q, retryable %v, budget %v; want %q, %v, %v", c.class,
				c.class, c.class.Retryable(), c.class.UsesBudget(), c.name, c.retryable, c.budget)
		}
	}
	for r, want := range map[retry.Resource]string{
		0:                                  "none",
		retry.Requests:                     "requests",
		retry.Requests | retry.Concurrency: "requests+concurrency",
		retry.InputTokens | retry.OutputTokens | retry.TotalTokens: "input_tokens+output_tokens+total_tokens",
		1 << 7: "none",
	} {
		if got := r.String(); got != want {
			t.Errorf("resource %b: %q, want %q", r, got, want)
		}
	}
}
