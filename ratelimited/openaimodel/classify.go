package openaimodel

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/retry"
)

// fault is what an error of the API says. What it does not say is zero.
type fault struct {
	status  int
	code    string
	kind    string // its type
	message string
	header  http.Header
}

// verdict is what the error means. now is the time that a date is compared with.
func (f fault) verdict(now time.Time) retry.Verdict {
	v := retry.Verdict{Class: f.class()}
	v.Hint, v.HasHint = retry.ParseRetryAfter(f.header, now)
	if v.Class == retry.Throttled {
		v.Resources, v.PerDay = f.limits()
		if v.PerDay {
			v.Class = retry.QuotaExhausted
		} else if !v.HasHint {
			v.Hint, v.HasHint = roomAfter(f.header, v.Resources)
		}
	}
	switch f.header.Get("X-Should-Retry") {
	case "false":
		switch v.Class {
		case retry.Throttled:
			v.Class = retry.QuotaExhausted
		case retry.Overloaded:
			v.Class = retry.NotRetryable
		}
	case "true":
		if v.Class == retry.NotRetryable {
			v.Class = retry.Overloaded
		}
	}
	return v
}

// class is what status and code say.
func (f fault) class() retry.Class {
	if exhausted(f.code) || exhausted(f.kind) {
		return retry.QuotaExhausted
	}
	status := f.status
	if n, err := strconv.Atoi(f.code); status == 0 && err == nil {
		status = n // within an answer, some servers send it as the code
	}
	if status == http.StatusTooManyRequests && strings.HasPrefix(f.message, "Request too large for ") {
		return retry.NotRetryable // it is larger than the whole limit
	}
	class := retry.ClassOf(status)
	if class != retry.NotRetryable || status != 0 && status < 500 {
		return class
	}
	switch {
	case status == 0 && throttled(f.code, f.kind):
		return retry.Throttled
	case strings.Contains(strings.ToLower(f.code+" "+f.kind+" "+f.message), "overloaded"):
		return retry.Overloaded
	}
	return retry.NotRetryable
}

// exhausted reports whether a code or type means that waiting does not help.
// They are those of OpenAI's error codes guide; insufficient_quota is also the
// type of the newer ones.
func exhausted(code string) bool {
	switch code {
	case "insufficient_quota", "credit_balance_exhausted":
		return true
	}
	return strings.HasPrefix(code, "billing_") ||
		strings.HasSuffix(code, "_spend_limit_exceeded") || strings.HasSuffix(code, "_usage_limit_exceeded")
}

// throttled reports whether code or type, in an error without a status, mean a
// refusal for the moment.
func throttled(code, kind string) bool {
	switch code {
	case "rate_limit_exceeded", "slow_down", "too_many_requests":
		return true
	}
	return kind == "rate_limit_error" || kind == "too_many_requests" || code == "" && (kind == "tokens" || kind == "requests")
}

// limits tells which limits a refusal was about.
func (f fault) limits() (r retry.Resource, perDay bool) {
	text := strings.ToLower(f.message)
	perDay = strings.Contains(text, "per day")
	switch f.kind {
	case "tokens":
		return retry.TotalTokens, perDay
	case "requests":
		return retry.Requests, perDay
	}
	for _, phrase := range [...]struct {
		text string
		r    retry.Resource
	}{
		{"tokens per ", retry.TotalTokens},      // OpenAI: "tokens per min (TPM)"
		{"token rate limit", retry.TotalTokens}, // Azure
		{"requests per ", retry.Requests},
		{"call rate limit", retry.Requests},
	} {
		if strings.Contains(text, phrase.text) {
			r |= phrase.r
		}
	}
	if r == 0 {
		r = without(f.header)
	}
	return r, perDay
}
