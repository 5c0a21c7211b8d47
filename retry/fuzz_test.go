package retry_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/retry"
)

// sound checks what every verdict promises, and that it can be acted on.
func sound(t *testing.T, v retry.Verdict) {
	t.Helper()
	if v.Class > retry.NeverFits || v.Hint < 0 || !v.HasHint && v.Hint != 0 {
		t.Errorf("verdict %+v breaks the promises of its fields", v)
	}
	d, ok := (&retry.Policy{}).Delay(v, 1)
	if ok && (!v.Class.Retryable() || d < v.Hint || d > 66*time.Second) || !ok && d != 0 {
		t.Errorf("verdict %+v gives a wait of %v, %v", v, d, ok)
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, s := range []string{
		"30", "1800", "9999999999", "1.5", "0", "-5", "inf", "nan", "1e400", "", " 7 ", "0.0000000001",
		"9223372036.854775807", "9223372036854.775807", "Mon, 30 Nov 2026 12:00:02 GMT",
		"Monday, 30-Nov-26 12:00:02 GMT", "Mon Nov 30 12:00:02 2026", "Fri, 31 Dec 9999 23:59:59 GMT",
	} {
		f.Add(s, "")
		f.Add("30", s)
	}
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, seconds, millis string) {
		both := http.Header{"Retry-After": {seconds}, "Retry-After-Ms": {millis}}
		d, ok := retry.ParseRetryAfter(both, now)
		if d < 0 || !ok && d != 0 {
			t.Fatalf("%v, %v", d, ok)
		}
		ms, okMs := retry.ParseRetryAfter(http.Header{"Retry-After-Ms": {millis}}, now)
		s, okS := retry.ParseRetryAfter(http.Header{"Retry-After": {seconds}}, now)
		if okMs && (d != ms || !ok) || !okMs && (d != s || ok != okS) {
			t.Fatalf("together %v, %v; milliseconds alone %v, %v; seconds alone %v, %v", d, ok, ms, okMs, s, okS)
		}
		if decimal(strings.TrimSpace(seconds)) && (!okS || s != exactly(strings.TrimSpace(seconds), time.Second)) {
			t.Fatalf("%q: %v, %v", seconds, s, okS)
		}
	})
}

// decimal reports whether s is a plain decimal number: the grammar that the
// documentation promises to understand.
func decimal(s string) bool {
	whole, fraction, point := strings.Cut(s, ".")
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	return digits(whole) && (!point || digits(fraction))
}

func FuzzRetryInfo(f *testing.F) {
	for _, s := range []string{"45.837906927s", "26s", "-3s", "garbage", "", "s", "0s", "300000000000s", "1e3s", "0.0000000001s", "9223372036.854775808s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, delay string) {
		v := retry.Classify(withDelay(delay))
		sound(t, v)
		number, suffixed := strings.CutSuffix(delay, "s")
		if want := suffixed && decimal(number); v.HasHint != want {
			t.Fatalf("%q: hint %v, want %v", delay, v.HasHint, want)
		}
		if v.HasHint && v.Hint != exactly(number, time.Second) {
			t.Fatalf("%q: hint %d, want %d", delay, v.Hint, exactly(number, time.Second))
		}
		if v.Class != retry.Throttled {
			t.Fatalf("%q: %v, want throttled", delay, v.Class)
		}
	})
}

// bodies are seeds for what a provider, or a proxy in front of it, may answer.
var bodies = []string{
	"", "slow down", "null", "[]", "{}", "7", `"x"`, "\x00\xff", `{"error":null}`, `{"error":"busy"}`, `{"error":[]}`, `{"error":{}}`,
	errorBody(429, "RESOURCE_EXHAUSTED", overQuota, helpOnly, quotaFailure(requestsPerMinute, inputPerDay), retryInfo("45.837906927s")),
	"[" + errorBody(429, "RESOURCE_EXHAUSTED", vertexShared, retryInfo("4s")) + "]",
	`[{"error":{"code":"429","details":[{"@type":"google.rpc.RetryInfo","retryDelay":5},"x",7,null]}}]`,
	`{"error":{"code":1e30,"message":7,"details":{"a":1}}}`,
	`{"error":{"details":[{"@type":"a/google.rpc.QuotaFailure","violations":[{"quotaValue":0,"quotaId":"PerDay"},null,3]}]}}`,
	`{"error":{"details":[{"@type":"google.rpc.ErrorInfo","metadata":{"quota_limit":"x","quota_limit_value":"0"}}]}}`,
	`{"Error":{"code":503},"error":{"DETAILS":[{}],"details":[]}}`,
	strings.Repeat(`[`, 200), strings.Repeat(`{"error":`, 50),
}

func FuzzClassifyBody(f *testing.F) {
	for _, body := range bodies {
		f.Add(uint16(429), body)
		f.Add(uint16(503), body)
		f.Add(uint16(400), body)
	}
	f.Fuzz(func(t *testing.T, status uint16, body string) {
		code := 400 + int(status)%200
		err := unary(t.Context(), newGemini(t, "http://gemini.invalid", answer(code, nil, body)))
		if err == nil {
			t.Fatalf("status %d gave no error", code)
		}
		v := retry.Classify(err)
		sound(t, v)
		if v.Class == retry.NotSent || v.Class == retry.Denied || v.Class == retry.NeverFits {
			t.Fatalf("the provider answered, but the verdict is %+v", v)
		}
		// The same body as an event of a stream.
		line := strings.NewReplacer("\n", " ", "\r", " ").Replace(body)
		if _, err := stream(t.Context(), newGemini(t, "http://gemini.invalid", answer(200, nil, "data: "+line+"\n\n"))); err != nil {
			sound(t, retry.Classify(err))
		}
	})
}

func FuzzTransportBody(f *testing.F) {
	for _, body := range bodies {
		f.Add(uint16(429), "7", []byte(body))
		f.Add(uint16(503), "0.25", []byte(body))
	}
	f.Add(uint16(429), "soon", []byte("slow down"))
	f.Add(uint16(429), "7", bytes.Repeat([]byte("é"), 5000))
	f.Fuzz(func(t *testing.T, status uint16, after string, body []byte) {
		code := 400 + int(status)%200
		header := http.Header{"Retry-After": {after}}
		hint, usable := retry.ParseRetryAfter(header, time.Now())
		resp := roundTrip(t, answer(code, header, string(body)), http.MethodPost)
		got, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.ContentLength != int64(len(got)) {
			t.Fatalf("ContentLength %d for %d bytes", resp.ContentLength, len(got))
		}
		if bytes.Equal(got, body) {
			if usable && !keeps(body) {
				t.Fatalf("body %q was left without a hint", body)
			}
			return
		}
		if !usable {
			t.Fatalf("body %q became %q without a hint to add", body, got)
		}
		// Whatever was made of it reads as an error with a hint, also for the
		// SDK.
		err = unary(t.Context(), newGemini(t, "http://gemini.invalid", answer(code, nil, string(got))))
		v := retry.Classify(err)
		sound(t, v)
		date := strings.Contains(after, ":") // those move with the clock
		if !v.HasHint || !date && v.Hint < hint && !bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
			t.Fatalf("header %q, body %q became %q: verdict %+v", after, body, got, v)
		}
	})
}

// keeps reports whether a body is one that a Transport leaves alone although
// there is a hint: it has one, or details that are no list.
func keeps(body []byte) bool {
	var top struct {
		Error map[string]json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &top) != nil || top.Error["details"] == nil {
		return false
	}
	var list []json.RawMessage
	if json.Unmarshal(top.Error["details"], &list) != nil {
		return true
	}
	for _, raw := range list {
		var d map[string]any
		if json.Unmarshal(raw, &d) == nil {
			if v := retry.Classify(genai.APIError{Code: 429, Details: []map[string]any{d}}); v.HasHint {
				return true
			}
		}
	}
	return false
}
