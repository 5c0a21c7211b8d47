package quota_test

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// deniedByRate is a denial by a rate that passes after d.
func deniedByRate(d time.Duration) *quota.Denial {
	return &quota.Denial{
		Reason: quota.ReasonRate, Limit: "user/rolling:1m", Scope: quota.User, Unit: quota.Turns,
		Max: 5, Used: 5, Requested: 1, RetryAfter: d,
	}
}

// deniedUntil is a denial by a calendar limit that starts afresh after d.
func deniedUntil(d time.Duration) *quota.Denial {
	return &quota.Denial{
		Reason: quota.ReasonExhausted, Limit: "user/day", Scope: quota.User, Unit: quota.Tokens,
		Max: 1000, Used: 1000, ResetsAt: noon.Add(d),
	}
}

func TestRetryAfterIsRoundedUpAndNeverBelowOne(t *testing.T) {
	t.Parallel()
	never := deniedByRate(0)
	never.Never = true
	tests := []struct {
		name   string
		denial *quota.Denial
		want   string // "" is no header field
	}{
		{"1 ms", deniedByRate(time.Millisecond), "1"},
		{"200 ms", deniedByRate(200 * time.Millisecond), "1"},
		{"1 s", deniedByRate(time.Second), "1"},
		{"1.2 s", deniedByRate(1200 * time.Millisecond), "2"},
		{"59.999 s", deniedByRate(59_999 * time.Millisecond), "60"},
		{"exactly 0", deniedByRate(0), "1"},
		{"the longest there is", deniedByRate(1<<63 - 1), "9223372037"},
		{"a reset now", deniedUntil(0), "1"},
		{"a reset already past", deniedUntil(-3 * time.Second), "1"},
		{"a reset a nanosecond ahead", deniedUntil(1), "1"},
		{"a monthly reset", deniedUntil(31 * 24 * time.Hour), "2678400"},
		{"too much at a time, and nobody knows how long", &quota.Denial{Reason: quota.ReasonConcurrency, Limit: "c"}, "1"},
		{"what never passes", never, ""},
		{"a cap of the turn, which no waiting helps", &quota.Denial{Reason: quota.ReasonTurnCalls, Stage: quota.MidTurn, Unit: quota.Calls, Max: 2, Used: 2}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			tt.denial.Problem(noon).ServeHTTP(w, nil)
			if got := w.Header().Get("Retry-After"); got != tt.want {
				t.Errorf("Retry-After is %q, want %q", got, tt.want)
			}
			var body struct {
				RetryAfter json.Number `json:"retryAfter"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Fatal(err)
			}
			if body.RetryAfter.String() != tt.want {
				t.Errorf("retryAfter is %q, want %q", body.RetryAfter, tt.want)
			}
		})
	}
}

func TestAProblemSaysWhichLimitHowMuchAndUntilWhen(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	d := &quota.Denial{
		Reason: quota.ReasonExhausted, Limit: "user-daily", Scope: quota.User, Unit: quota.Money,
		Max: 1_000_000, Used: 800_000, Requested: 300_000, ResetsAt: noon.Add(12 * time.Hour).In(berlin),
		Err: errors.New("dial tcp 10.0.0.7:6379"),
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Set("Content-Length", "7")
	d.Problem(noon).ServeHTTP(w, nil)
	const want = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,` +
		`"detail":"The limit is used up, or less is left than this needs. Used: $0.80 of $1.00.",` +
		`"violated-policies":["user-daily"],"reason":"exhausted","stage":"admission","scope":"user","unit":"money",` +
		`"limit":1000000,"used":800000,"remaining":200000,"resetsAt":"2026-12-01T00:00:00Z","retryAfter":43200}`
	if got := strings.TrimSuffix(w.Body.String(), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if w.Code != 429 {
		t.Errorf("status is %d", w.Code)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/problem+json", "Cache-Control": "no-store", "Retry-After": "43200",
		"Content-Encoding": "", "Content-Length": "",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestRemainingIsNeverNegative(t *testing.T) {
	t.Parallel()
	for _, used := range []int64{-7, 0, 999, 1000, 1001, 1<<63 - 1} {
		d := deniedUntil(time.Hour)
		d.Used = used
		p := d.Problem(noon)
		if *p.Remaining < 0 || *p.Remaining > 1000 || *p.Used < 0 {
			t.Errorf("with %d used, the problem says %d used and %d left", used, *p.Used, *p.Remaining)
		}
	}
}

func TestAProblemTellsNothingOfStrangers(t *testing.T) {
	t.Parallel()
	for _, scope := range []quota.Scope{quota.Global, "region"} {
		d := deniedUntil(time.Hour)
		d.Scope, d.Max, d.Used, d.Requested = scope, 777_001, 776_002, 555_003
		body, err := json.Marshal(d.Problem(noon))
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"777001", "776002", "555003", "999", `"limit":`, `"used":`, `"remaining":`} {
			if strings.Contains(string(body), secret) {
				t.Errorf("the report for %q has %s in it: %s", scope, secret, body)
			}
		}
		if !strings.Contains(string(body), `"resetsAt"`) {
			t.Errorf("the report for %q does not say when it passes: %s", scope, body)
		}
	}
}

func TestTheStatusSaysWhoseFaultItIs(t *testing.T) {
	t.Parallel()
	cause := errors.New("dial tcp 10.0.0.7:6379: refused")
	stoodIn := deniedByRate(time.Second)
	stoodIn.Err = quota.ErrUnavailable
	tests := []struct {
		denial *quota.Denial
		status int
		reason quota.Reason
	}{
		{deniedUntil(time.Hour), 429, quota.ReasonExhausted},
		{deniedByRate(time.Hour), 429, quota.ReasonRate},
		{&quota.Denial{Reason: quota.ReasonBusy, RetryAfter: time.Second}, 429, quota.ReasonBusy},
		{&quota.Denial{Reason: quota.ReasonNeverFits, Limit: "l", Never: true}, 429, quota.ReasonNeverFits},
		{&quota.Denial{Reason: quota.ReasonTurnCost, Stage: quota.MidTurn, Unit: quota.Money, Max: 5, Used: 5}, 429, quota.ReasonTurnCost},
		{&quota.Denial{Reason: quota.ReasonNoSubject, Limit: "l", Scope: quota.User}, 401, quota.ReasonNoSubject},
		{&quota.Denial{Reason: quota.ReasonUnpriced, Limit: "l", Unit: quota.Money, Err: cause}, 500, quota.ReasonUnpriced},
		{&quota.Denial{Reason: quota.ReasonUnavailable, Limit: "l", Scope: quota.User, Err: cause, RetryAfter: time.Second}, 503, quota.ReasonUnavailable},
		{&quota.Denial{Reason: quota.ReasonClosed}, 503, quota.ReasonClosed},
		{stoodIn, 503, quota.ReasonUnavailable}, // its numbers are not the customer's
	}
	for _, tt := range tests {
		p := tt.denial.Problem(noon)
		if p.Status != tt.status || p.Reason != tt.reason {
			t.Errorf("%v is %d %s, want %d %s", tt.denial.Reason, p.Status, p.Reason, tt.status, tt.reason)
		}
		if p.Type == "" || p.Title == "" || p.Detail == "" {
			t.Errorf("%v: type %q, title %q, detail %q: something is missing", tt.denial.Reason, p.Type, p.Title, p.Detail)
		}
		body, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(body), "10.0.0.7") {
			t.Errorf("%v tells how the server is built: %s", tt.denial.Reason, body)
		}
		if tt.status != 429 && (p.Limit != nil || p.Used != nil || p.Remaining != nil) {
			t.Errorf("%v has numbers that were not the reason: %s", tt.denial.Reason, body)
		}
	}
}

func TestAnEventIsOneMessageWhateverWasBrokenOff(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"", "data: hel", "data: hello\n", "data: hello\n\n", ": comment"} {
		var b strings.Builder
		b.WriteString(before)
		if err := deniedUntil(time.Hour).Problem(noon).WriteEvent(&b); err != nil {
			t.Fatal(err)
		}
		events := parseEvents(b.String())
		if len(events) == 0 {
			t.Fatalf("after %q there is no event in %q", before, b.String())
		}
		last := events[len(events)-1]
		var p quota.Problem
		if err := json.Unmarshal([]byte(last.data), &p); last.name != "error" || err != nil || p.Status != 429 {
			t.Errorf("after %q the last event is %q with %q (%v)", before, last.name, last.data, err)
		}
	}
}

type serverEvent struct{ name, data string }

// parseEvents reads server-sent events as the HTML standard has it, as far as it
// matters here.
func parseEvents(s string) (events []serverEvent) {
	var name string
	var data []string
	for line := range strings.SplitSeq(s, "\n") {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data != nil {
				events = append(events, serverEvent{name, strings.Join(data, "\n")})
			}
			name, data = "", nil
		case field == "event":
			name = value
		case field == "data":
			data = append(data, value)
		}
	}
	return events
}
