package wire

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
)

func TestAnthropicHeadersSayWhatIsLeftAndForHowLong(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	sent := now.Add(-3 * time.Second)
	report := func(dimension string, remaining int64, reset time.Duration) ratelimited.LimitReport {
		return ratelimited.LimitReport{Dimension: dimension, Remaining: remaining, Reset: reset, Sent: sent}
	}
	one := func(dimension string, remaining int64, reset time.Duration) []ratelimited.LimitReport {
		return []ratelimited.LimitReport{report(dimension, remaining, reset)}
	}
	for _, c := range []struct {
		name    string
		headers map[string]string // without their common beginning; "Date" is whole
		want    []ratelimited.LimitReport
	}{
		{"none", nil, nil},
		{
			"all four", map[string]string{
				"Requests-Limit": "50", "Requests-Remaining": "49", "Requests-Reset": "2026-11-24T12:00:02Z",
				"Input-Tokens-Limit": "30000", "Input-Tokens-Remaining": "28000", "Input-Tokens-Reset": "2026-11-24T12:00:04Z",
				"Output-Tokens-Limit": "8000", "Output-Tokens-Remaining": "8000", "Output-Tokens-Reset": "2026-11-24T12:00:00Z",
				"Tokens-Limit": "38000", "Tokens-Remaining": "36000", "Tokens-Reset": "2026-11-24T12:00:04Z",
			},
			[]ratelimited.LimitReport{
				report("requests", 49, 2*time.Second), report("input_tokens", 28_000, 4*time.Second),
				report("output_tokens", 8000, 0), report("tokens", 36_000, 4*time.Second),
			},
		},
		{"without a reset", map[string]string{"Requests-Remaining": "2000"}, one("requests", 2000, 0)},
		{"nothing is left", map[string]string{"Output-Tokens-Remaining": "0"}, one("output_tokens", 0, 0)},
		{"a reset in another zone", map[string]string{"Requests-Remaining": "1", "Requests-Reset": "2026-11-24T13:00:30+01:00"}, one("requests", 1, 30*time.Second)},
		{"with a fraction", map[string]string{"Requests-Remaining": "1", "Requests-Reset": "2026-11-24T12:00:30.25Z"}, one("requests", 1, 30*time.Second+250*time.Millisecond)},
		{
			"on the clock of the API", map[string]string{
				"Date": "Tue, 24 Nov 2026 11:50:00 GMT", "Requests-Remaining": "1", "Requests-Reset": "2026-11-24T11:50:20Z",
			},
			one("requests", 1, 20*time.Second),
		},
		{
			"a date that is none", map[string]string{"Date": "today", "Requests-Remaining": "1", "Requests-Reset": "2026-11-24T12:00:02Z"},
			one("requests", 1, 2*time.Second),
		},

		{"a limit alone says nothing", map[string]string{"Requests-Limit": "50", "Requests-Reset": "2026-11-24T12:00:02Z"}, nil},
		{"stale", map[string]string{"Requests-Remaining": "1", "Requests-Reset": "2026-11-24T11:59:59Z"}, nil},
		{"too far away", map[string]string{"Requests-Remaining": "1", "Requests-Reset": "2026-11-25T12:00:00Z"}, nil},
		{"a reset that is a duration", map[string]string{"Requests-Remaining": "1", "Requests-Reset": "6m0s"}, nil},
		{"negative", map[string]string{"Requests-Remaining": "-1"}, nil},
		{"no number", map[string]string{"Requests-Remaining": "many"}, nil},
		{"no whole number", map[string]string{"Requests-Remaining": "1.5"}, nil},
		{"beyond an integer", map[string]string{"Requests-Remaining": "99999999999999999999"}, nil},
		{"one of two", map[string]string{"Requests-Remaining": "?", "Input-Tokens-Remaining": "1001"}, one("input_tokens", 1001, 0)},
		{"other quotas", map[string]string{"Priority-Input-Tokens-Remaining": "0", "Fast-Requests-Remaining": "0"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			for name, value := range c.headers {
				if name != "Date" {
					name = "anthropic-ratelimit-" + name
				}
				h.Set(strings.ToLower(name), value)
			}
			if got := AnthropicLimits(h, sent, now); !slices.Equal(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// What is left of all tokens together concerns a profile that has such a limit,
// as for a workspace with one of its own; the profile for Anthropic has none, and
// loses nothing by it.
func TestTokensOfBothKindsConcernAProfileOfOnesOwn(t *testing.T) {
	t.Parallel()
	h := http.Header{"Anthropic-Ratelimit-Tokens-Remaining": {"2000"}, "Anthropic-Ratelimit-Input-Tokens-Remaining": {"9000"}}
	profile := ratelimited.Anthropic(ratelimited.AnthropicQuota{InputTokensPerMinute: 10_000, OutputTokensPerMinute: 10_000})
	for name, c := range map[string]struct {
		own  []ratelimited.Dimension
		want map[string]int64
	}{
		"of the provider": {nil, map[string]int64{"input_tokens": 9000, "output_tokens": 10_000}},
		"of a workspace": {
			[]ratelimited.Dimension{{Name: "tokens", Limit: 5000, Shape: ratelimited.Bucket, Count: ratelimited.TotalTokens}},
			map[string]int64{"input_tokens": 9000, "output_tokens": 10_000, "tokens": 2000},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // nothing refills meanwhile
				p := profile
				p.Dimensions = append(slices.Clone(p.Dimensions), c.own...)
				g, err := ratelimited.NewGate(ratelimited.Config{Slots: 1, Headroom: 1, Profile: p})
				if err != nil {
					t.Fatal(err)
				}
				g.Report(AnthropicLimits(h, time.Now(), time.Now())...)
				left := map[string]int64{}
				for _, d := range g.Stats().Dimensions {
					left[d.Name] = d.Level
				}
				if !maps.Equal(left, c.want) {
					t.Errorf("left %v, want %v", left, c.want)
				}
			})
		})
	}
}

// Headers of foreign make give reports that a gate can use, or none.
func FuzzAnthropicHeaders(f *testing.F) {
	f.Add("49", "50", "2026-11-24T12:00:02Z", "Tue, 24 Nov 2026 11:50:00 GMT")
	f.Add("1000", "300", "", "")
	f.Add("-1", "x", "6m0s", "now")
	f.Add("9223372036854775807", "9223372036854775807", "9999-12-31T23:59:59+23:59", "Mon, 01 Jan 0001 00:00:00 GMT")
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, remaining, limit, reset, date string) {
		h := http.Header{"Date": {date}}
		for _, l := range anthropicHeaders {
			h[l.header+"-Remaining"], h[l.header+"-Limit"], h[l.header+"-Reset"] = []string{remaining}, []string{limit}, []string{reset}
		}
		for _, r := range AnthropicLimits(h, now, now) {
			if r.Remaining < 0 || r.Remaining > maxRemaining || r.Reset < 0 || r.Reset > maxReset || !r.Sent.Equal(now) {
				t.Fatalf("%+v", r)
			}
		}
	})
}
