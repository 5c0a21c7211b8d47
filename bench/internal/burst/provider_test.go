package burst

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/bench/internal/engine"
	"github.com/headgate-go/headgate/retry"
)

func TestARefusalIsTheErrorThatTheSDKGives(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		refusal engine.Refusal
		want    retry.Verdict
	}{
		{"tokens", engine.Refusal{Violations: []engine.Violation{{Name: limitTokens, Limit: 100}}, Retry: 1500 * time.Millisecond},
			retry.Verdict{Class: retry.Throttled, Hint: 1500 * time.Millisecond, HasHint: true, Resources: retry.InputTokens}},
		{"requests", engine.Refusal{Violations: []engine.Violation{{Name: limitRequests, Limit: 100}}, Retry: time.Minute},
			retry.Verdict{Class: retry.Throttled, Hint: time.Minute, HasHint: true, Resources: retry.Requests}},
		{"nobody knows when", engine.Refusal{Violations: []engine.Violation{{Name: limitTokens, Limit: 100}}},
			retry.Verdict{Class: retry.Throttled, Resources: retry.InputTokens}},
		{"outage", engine.Refusal{Fault: engine.Fault{Kind: engine.Kind{Name: outage}}, Retry: time.Minute},
			retry.Verdict{Class: retry.Overloaded}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := apiError(&c.refusal)
			if got := retry.Classify(err); got != c.want {
				t.Errorf("the error means %+v, want %+v", got, c.want)
			}
			if !errors.As(err, &genai.APIError{}) || !temporary(err) {
				t.Errorf("%v is no error of the SDK that it retries", err)
			}
		})
	}
}

func TestTheLogSaysWhenACallWasSentDecidedAndOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := plain(1)
		s.Delay = time.Second
		p, err := newProvider(s, slidingWindow, 1)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		for _, c := range []struct {
			name string
			call call
			want attempt
		}{
			{"served", call{id: 1, tokens: 5000, takes: 10 * time.Second},
				attempt{sent: 2 * time.Second, decided: 3 * time.Second, ended: 13 * time.Second, admitted: true, served: true}},
			{"refused", call{id: 2, tokens: 2000, takes: 10 * time.Second},
				attempt{sent: 13 * time.Second, decided: 14 * time.Second, ended: 14 * time.Second, throttled: true}},
			{"slowly read", call{id: 3, tokens: 10, takes: 10 * time.Second, reads: 20 * time.Second},
				attempt{sent: 14 * time.Second, decided: 15 * time.Second, ended: 35*time.Second + 500*time.Millisecond, admitted: true, served: true}},
		} {
			r := &record{call: &c.call}
			var moments []moment
			_ = p.send(t.Context(), r, func(m moment) bool {
				moments = append(moments, m)
				return true
			})
			if *r.attempts[0] != c.want {
				t.Errorf("%s: logged %+v, want %+v", c.name, *r.attempts[0], c.want)
			}
			if served := len(moments) == 3; served != c.want.served {
				t.Errorf("%s: told of %v", c.name, moments)
			}
		}
	})
}

func TestTheSDKsRetriesComeAfterDoublingDelays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var sent []time.Duration
		err := withRetries(t.Context(), func(context.Context, func(moment) bool) error {
			sent = append(sent, time.Since(start))
			return genai.APIError{Code: 429}
		})
		if err == nil || len(sent) != 5 {
			t.Fatalf("sent %d times, error %v; want 5 and one", len(sent), err)
		}
		for i, least := range []time.Duration{1, 2, 4, 8} {
			least *= time.Second
			if d := sent[i+1] - sent[i]; d < least || d >= least+time.Second {
				t.Errorf("delay %d is %v, want at least %v and less than a second more", i+1, d, least)
			}
		}
	})
	calls := 0
	_ = withRetries(t.Context(), func(context.Context, func(moment) bool) error {
		calls++
		return genai.APIError{Code: 400}
	})
	if calls != 1 {
		t.Errorf("a call that is wrong was sent %d times", calls)
	}
}
