package wire

import (
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
)

func TestResetsAreReadInEveryForm(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]time.Duration{
		"1s": time.Second, "6m0s": 6 * time.Minute, "12ms": 12 * time.Millisecond, "7m12s": 432 * time.Second,
		"1h30m": 90 * time.Minute, "59.999s": 59999 * time.Millisecond, "0s": 0, " 20s ": 20 * time.Second,
		"1d2h": 26 * time.Hour, "10": 10 * time.Second, "1.5": 1500 * time.Millisecond, "250µs": 250 * time.Microsecond,
		"100000000000000000000": math.MaxInt64, "200000d200000d": math.MaxInt64, "0.0000000001s": 1,
	} {
		if got, ok := parseReset(s); !ok || got != want {
			t.Errorf("%q: %v, %v; want %v", s, got, ok, want)
		}
	}
	for _, s := range []string{"", " ", "s", "-5s", "+5s", "5x", "5s6", "1.2.3s", "1e3s", "inf", "nan", ".5s", "5 s", "2026-11-30T12:00:00Z"} {
		if got, ok := parseReset(s); ok {
			t.Errorf("%q is taken for %v", s, got)
		}
	}
}

// headers makes a header of pairs.
func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i+1 < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func TestOpenAIHeadersSayWhatIsLeft(t *testing.T) {
	t.Parallel()
	sent := time.Now()
	report := func(dimension string, remaining int64, reset time.Duration) ratelimited.LimitReport {
		return ratelimited.LimitReport{Dimension: dimension, Remaining: remaining, Reset: reset, Sent: sent}
	}
	for name, c := range map[string]struct {
		h    http.Header
		want []ratelimited.LimitReport
	}{
		"none": {nil, nil},
		"both": {
			headers("x-ratelimit-remaining-requests", "59", "x-ratelimit-reset-requests", "1s",
				"x-ratelimit-remaining-tokens", "149984", "x-ratelimit-reset-tokens", "6m0s"),
			[]ratelimited.LimitReport{report("requests", 59, time.Second), report("tokens", 149984, 6*time.Minute)},
		},
		"Azure tells no reset":        {headers("x-ratelimit-remaining-tokens", "0"), []ratelimited.LimitReport{report("tokens", 0, 0)}},
		"a reset alone says nothing":  {headers("x-ratelimit-reset-tokens", "1s"), nil},
		"malformed":                   {headers("x-ratelimit-remaining-tokens", "many", "x-ratelimit-remaining-requests", "-1"), nil},
		"too large":                   {headers("x-ratelimit-remaining-tokens", "99999999999999999999", "x-ratelimit-remaining-requests", "9000000000000000000"), nil},
		"a malformed reset is none":   {headers("x-ratelimit-remaining-tokens", "5", "x-ratelimit-reset-tokens", "soon"), []ratelimited.LimitReport{report("tokens", 5, 0)}},
		"the project has less":        {headers("x-ratelimit-remaining-tokens", "500", "x-ratelimit-remaining-project-tokens", "20", "x-ratelimit-reset-project-tokens", "2s"), []ratelimited.LimitReport{report("tokens", 20, 2*time.Second)}},
		"the project has more":        {headers("x-ratelimit-remaining-tokens", "10", "x-ratelimit-remaining-project-tokens", "20"), []ratelimited.LimitReport{report("tokens", 10, 0)}},
		"the project's limit only":    {headers("x-ratelimit-remaining-project-tokens", "20"), []ratelimited.LimitReport{report("tokens", 20, 0)}},
		"remaining-requests is first": {headers("x-ratelimit-remaining-requests", "0"), []ratelimited.LimitReport{report("requests", 0, 0)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := OpenAILimits(c.h, sent); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// Headers of foreign make give reports that a gate can use, or none, and verdicts
// that hold together.
func FuzzOpenAIHeaders(f *testing.F) {
	f.Add("59", "60", "1s", "149984", "150000", "6m0s", "20", "19500", "true", "tokens per min")
	f.Add("0", "0", "0s", "-1", "", "12ms", "inf", "1e9", "false", "requests per day")
	f.Add("9223372036854775807", "1", "106751d", "0", "1", "9e99h", "Mon, 30 Nov 2026 12:00:02 GMT", "", "", "")
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, requests, mostRequests, resetRequests, tokens, mostTokens, resetTokens, after, afterMs, again, message string) {
		h := http.Header{
			"X-Ratelimit-Remaining-Requests": {requests}, "X-Ratelimit-Limit-Requests": {mostRequests}, "X-Ratelimit-Reset-Requests": {resetRequests},
			"X-Ratelimit-Remaining-Tokens": {tokens}, "X-Ratelimit-Limit-Tokens": {mostTokens}, "X-Ratelimit-Reset-Tokens": {resetTokens},
			"Retry-After": {after}, "Retry-After-Ms": {afterMs}, "X-Should-Retry": {again},
		}
		if got, ok := parseReset(resetRequests); ok {
			if got < 0 {
				t.Fatalf("%q is %v", resetRequests, got)
			}
			// Where both read it, they agree but for a rounded nanosecond.
			if want, err := time.ParseDuration(strings.TrimSpace(resetRequests)); err == nil && want >= 0 {
				if diff := float64(got - want); math.Abs(diff) > 1+1e-12*float64(want) {
					t.Fatalf("%q is %v, want %v", resetRequests, got, want)
				}
			}
		}
		for _, r := range OpenAILimits(h, now) {
			if r.Remaining < 0 || r.Reset < 0 || r.Dimension == "" || r.Sent != now {
				t.Fatalf("report %+v", r)
			}
		}
		for _, status := range []int{429, 503, 500, 0} {
			v := Fault{Status: status, Message: message, Header: h}.OpenAI(now)
			if v.Hint < 0 || v.Hint != 0 && !v.HasHint || v.Class > retry.Overloaded {
				t.Fatalf("%d: verdict %+v", status, v)
			}
			if again == "false" && v.Class.Retryable() {
				t.Fatalf("%d: retried against x-should-retry: %+v", status, v)
			}
			if status == 429 && again != "false" && !strings.Contains(strings.ToLower(message), "per day") && !strings.HasPrefix(message, "Request too large") && v.Class != retry.Throttled {
				t.Fatalf("429: verdict %+v", v)
			}
		}
	})
}
