package retry_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/headgate-go/headgate/retry"
)

// The loop that owns a call asks the policy after every failure. The wait is
// random within its bounds, so that callers which failed together do not come
// back together.
func ExamplePolicy_Delay() {
	policy := retry.Policy{MaxAttempts: 3}
	throttled := retry.Verdict{Class: retry.Throttled, Hint: 2 * time.Second, HasHint: true}
	for attempt := 1; ; attempt++ {
		wait, ok := policy.Delay(throttled, attempt)
		if !ok {
			fmt.Println("gave up after attempt", attempt)
			break
		}
		fmt.Println("waits for the hint:", wait >= throttled.Hint, "and little more:", wait < 2200*time.Millisecond)
	}

	// A hint that is too long to sleep ends the call at once; it stays readable.
	tomorrow := retry.Verdict{Class: retry.Throttled, Hint: 24 * time.Hour, HasHint: true}
	_, ok := policy.Delay(tomorrow, 1)
	fmt.Println(ok, tomorrow.Hint)
	// Output:
	// waits for the hint: true and little more: true
	// waits for the hint: true and little more: true
	// gave up after attempt 3
	// false 24h0m0s
}

// While a provider is in trouble, the calls of a whole program share a budget
// of retries.
func ExampleBudget() {
	var budget retry.Budget // a fifth of the calls of the last 10 s, at least 3
	now := time.Now()
	for range 100 {
		budget.Call(now)
	}
	retries := 0
	for range 100 { // and every call fails
		if budget.TryRetry(now) {
			retries++
		}
	}
	fmt.Println(retries)
	// Output: 20
}

func ExampleParseRetryAfter() {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, value := range []string{"1.5", "Mon, 30 Nov 2026 12:00:20 GMT", "0", "9999999999", "inf", "-5"} {
		hint, ok := retry.ParseRetryAfter(http.Header{"Retry-After": {value}}, now)
		fmt.Println(hint, ok)
	}
	// Output:
	// 1.5s true
	// 20s true
	// 0s true
	// 2562047h47m16.854775807s true
	// 0s false
	// 0s false
}

func ExampleAfterSeconds() {
	for _, wait := range []time.Duration{200 * time.Millisecond, 1200 * time.Millisecond, 0} {
		fmt.Println(retry.AfterSeconds(wait))
	}
	// Output:
	// 1
	// 2
	// 1
}
