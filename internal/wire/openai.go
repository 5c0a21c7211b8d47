package wire

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/retry"
)

// OpenAI is what an error of OpenAI's API means, and of those that speak like it,
// Azure OpenAI among them: by OpenAI's error codes guide, what its SDK's own
// retries look at, and x-should-retry (see [Advised]). The documentation of
// openaimodel.Classify has the table. now is the time that a date is compared with.
func (f Fault) OpenAI(now time.Time) retry.Verdict {
	v := f.verdict(f.openaiClass(), f.openaiLimits, now)
	if !v.HasHint && !v.PerDay {
		v.Hint, v.HasHint = roomAfter(f.Header, v.Resources)
	}
	return v
}

// openaiClass is what status and code say.
func (f Fault) openaiClass() retry.Class {
	if openaiSpent(f.Code) || openaiSpent(f.Type) {
		return retry.QuotaExhausted
	}
	status := f.Status
	if n, err := strconv.Atoi(f.Code); status == 0 && err == nil {
		status = n // within an answer, some servers send it as the code
	}
	if status == http.StatusTooManyRequests && strings.HasPrefix(f.Message, "Request too large for ") {
		return retry.NotRetryable // it is larger than the whole limit
	}
	class := retry.ClassOf(status)
	if class != retry.NotRetryable || status != 0 && status < 500 {
		return class
	}
	switch {
	case status == 0 && openaiThrottled(f.Code, f.Type):
		return retry.Throttled
	case f.overloaded():
		return retry.Overloaded
	}
	return retry.NotRetryable
}

// openaiSpent reports whether a code or type means that waiting does not help.
// They are those of OpenAI's error codes guide; insufficient_quota is also the
// type of the newer ones.
func openaiSpent(code string) bool {
	switch code {
	case "insufficient_quota", "credit_balance_exhausted":
		return true
	}
	return strings.HasPrefix(code, "billing_") ||
		strings.HasSuffix(code, "_spend_limit_exceeded") || strings.HasSuffix(code, "_usage_limit_exceeded")
}

// openaiThrottled reports whether code or type, in an error without a status,
// mean a refusal for the moment.
func openaiThrottled(code, kind string) bool {
	switch code {
	case "rate_limit_exceeded", "slow_down", "too_many_requests":
		return true
	}
	return kind == "rate_limit_error" || kind == "too_many_requests" || code == "" && (kind == "tokens" || kind == "requests")
}

var openaiPhrases = []phrase{
	{"tokens per ", retry.TotalTokens},      // OpenAI: "tokens per min (TPM)"
	{"token rate limit", retry.TotalTokens}, // Azure
	{"requests per ", retry.Requests},
	{"call rate limit", retry.Requests},
}

// openaiLimits tells which limits a refusal was about.
func (f Fault) openaiLimits() retry.Resource {
	switch f.Type {
	case "tokens":
		return retry.TotalTokens
	case "requests":
		return retry.Requests
	}
	if r := f.named(openaiPhrases); r != 0 {
		return r
	}
	return openaiWithout(f.Header)
}
