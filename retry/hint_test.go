package retry_test

import (
	"fmt"
	"math"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"
	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/retry"
)

func TestRetryAfterHeadersAreReadWithoutTrust(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	const most = time.Duration(math.MaxInt64)
	cases := []struct {
		seconds, millis string // "-" for no header
		want            time.Duration
		ok              bool
	}{
		{"-", "-", 0, false},
		{"30", "-", 30 * time.Second, true},
		{"1800", "-", 1800 * time.Second, true},
		{"1.5", "-", 1500 * time.Millisecond, true},
		{" 7 ", "-", 7 * time.Second, true},
		{"007", "-", 7 * time.Second, true},
		{"0.0000000001", "-", 1, true},
		{"1.9999999999", "-", 2 * time.Second, true},
		{"0", "-", 0, true},
		{"0.0", "-", 0, true},
		{"9223372036.854775807", "-", most, true},
		{"9223372036.854775808", "-", most, true},
		{"9999999999", "-", most, true},
		{"1" + strings.Repeat("0", 400), "-", most, true},
		{"inf", "-", 0, false},
		{"Infinity", "-", 0, false},
		{"1e400", "-", 0, false},
		{"1e3", "-", 0, false},
		{"0x10", "-", 0, false},
		{"nan", "-", 0, false},
		{"-5", "-", 0, false},
		{"-0", "-", 0, false},
		{"+5", "-", 0, false},
		{"", "-", 0, false},
		{".", "-", 0, false},
		{"5.", "-", 0, false},
		{".5", "-", 0, false},
		{"1.2.3", "-", 0, false},
		{"1,5", "-", 0, false},
		{"5s", "-", 0, false},
		{"٥", "-", 0, false},
		{"Mon, 30 Nov 2026 12:00:02 GMT", "-", 2 * time.Second, true},
		{"Monday, 30-Nov-26 12:00:02 GMT", "-", 2 * time.Second, true},
		{"Mon Nov 30 12:00:02 2026", "-", 2 * time.Second, true},
		{"Mon, 30 Nov 2026 11:59:59 GMT", "-", 0, true},
		{"Thu, 01 Jan 1970 00:00:00 GMT", "-", 0, true},
		{"Fri, 31 Dec 9999 23:59:59 GMT", "-", most, true},
		{"Mon, 30 Nov 2026 12:00:02 CET", "-", 0, false},
		{"Mon, 31 Feb 2026 12:00:02 GMT", "-", 0, false},
		{"30", "250", 250 * time.Millisecond, true},
		{"30", "0", 0, true},
		{"30", "12.5", 12500 * time.Microsecond, true},
		{"30", "-250", 30 * time.Second, true},
		{"30", "nan", 30 * time.Second, true},
		{"30", "", 30 * time.Second, true},
		{"-", "9999999999999999", most, true},
		{"-", "0.0000001", 1, true},
		{"junk", "junk", 0, false},
	}
	for _, c := range cases {
		h := http.Header{}
		if c.seconds != "-" {
			h.Set("Retry-After", c.seconds)
		}
		if c.millis != "-" {
			h.Set("Retry-After-Ms", c.millis)
		}
		got, ok := retry.ParseRetryAfter(h, now)
		if got != c.want || ok != c.ok {
			t.Errorf("Retry-After %.40q, retry-after-ms %q: %v, %v; want %v, %v", c.seconds, c.millis, got, ok, c.want, c.ok)
		}
	}
	if got, ok := retry.ParseRetryAfter(nil, now); ok {
		t.Errorf("no headers at all: %v, want no hint", got)
	}
	twice := http.Header{"Retry-After": {"soon", "3", "9"}}
	if got, ok := retry.ParseRetryAfter(twice, now); !ok || got != 3*time.Second {
		t.Errorf("header sent three times: %v, %v; want the first usable value, 3s", got, ok)
	}
}

// exactly is s, a decimal number, as a multiple of unit, rounded up and at most
// the largest Duration: the same in rational arithmetic.
func exactly(s string, unit time.Duration) time.Duration {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		panic(s)
	}
	r.Mul(r, new(big.Rat).SetInt64(int64(unit)))
	n, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return time.Duration(n.Int64())
}

func TestDecimalHintsAreExactToTheNanosecond(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[0-9]{1,14}(\.[0-9]{1,14})?`).Draw(t, "number")
		for header, unit := range map[string]time.Duration{"Retry-After": time.Second, "Retry-After-Ms": time.Millisecond} {
			got, ok := retry.ParseRetryAfter(http.Header{header: {s}}, time.Time{})
			if want := exactly(s, unit); !ok || got != want {
				t.Fatalf("%s %q: %d, %v; want %d", header, s, got, ok, want)
			}
		}
		if got, want := retry.Classify(withDelay(s+"s")), exactly(s, time.Second); !got.HasHint || got.Hint != want {
			t.Fatalf("retryDelay %q: %d, %v; want %d", s+"s", got.Hint, got.HasHint, want)
		}
	})
}

// withDelay is a 429 with that retryDelay.
func withDelay(delay any) error {
	return genai.APIError{Code: 429, Details: []map[string]any{
		{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay},
	}}
}

func TestRetryInfoTakesOnlyTheProtobufForm(t *testing.T) {
	t.Parallel()
	for _, delay := range []any{"", "s", "5", "5S", "5 s", "5ms", "1m", "1m0s", "-3s", "+3s", "1e3s", "infs", "NaNs", ".5s", "5.s", "garbage", 5, 5.5, nil, []any{"5s"}, map[string]any{"seconds": 5}} {
		if got := retry.Classify(withDelay(delay)); got != (retry.Verdict{Class: retry.Throttled}) {
			t.Errorf("retryDelay %#v: verdict %+v, want throttled without a hint", delay, got)
		}
	}
}

func TestWaitingForRetryAfterIsNeverTooEarly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		wait time.Duration
		want int64
	}{
		{time.Millisecond, 1},
		{200 * time.Millisecond, 1},
		{time.Second, 1},
		{time.Second + 1, 2},
		{1200 * time.Millisecond, 2},
		{59999 * time.Millisecond, 60},
		{time.Minute, 60},
		{31 * 24 * time.Hour, 2678400},
		{0, 1},
		{-1, 1},
		{-time.Hour, 1},
		{math.MinInt64, 1},
		{math.MaxInt64, 9223372037},
	} {
		if got := retry.AfterSeconds(c.wait); got != c.want {
			t.Errorf("wait %v: Retry-After %d, want %d", c.wait, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		wait := time.Duration(rapid.Int64().Draw(t, "wait"))
		seconds := retry.AfterSeconds(wait)
		heard, ok := retry.ParseRetryAfter(http.Header{"Retry-After": {fmt.Sprint(seconds)}}, time.Time{})
		if !ok || heard < wait || heard-max(wait, 0) > time.Second {
			t.Fatalf("wait %v became Retry-After %d, heard as %v", wait, seconds, heard)
		}
	})
}
