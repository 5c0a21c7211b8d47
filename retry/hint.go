package retry

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ParseRetryAfter reads from the headers of a response how long its sender asks
// to wait. It reports false where no header holds a usable value; then one's own
// backoff applies.
//
// The header retry-after-ms (milliseconds, as OpenAI and Azure send it) comes
// first, then Retry-After (RFC 9110, section 10.2.3) in seconds or as an HTTP
// date in any of the three forms. Numbers are decimals, with a fraction or
// without: "30", "1.5". A header that is sent more than once counts with its
// first usable value.
//
// now is the local time that a date is compared with; a date in the past, like
// the number 0, is a usable hint of 0. Fractions of a nanosecond are rounded up.
// What is too large for a Duration becomes the largest Duration, about 292
// years. Unusable are values that are empty, negative, not finite, in exponent
// notation or otherwise malformed.
//
// h may be nil. Its keys must be in canonical form, as they are in a response.
func ParseRetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	for _, value := range h.Values("Retry-After-Ms") {
		if d, ok := parseDecimal(strings.TrimSpace(value), time.Millisecond); ok {
			return d, true
		}
	}
	for _, value := range h.Values("Retry-After") {
		value = strings.TrimSpace(value)
		if d, ok := parseDecimal(value, time.Second); ok {
			return d, true
		}
		if at, err := http.ParseTime(value); err == nil {
			return max(0, at.Sub(now)), true
		}
	}
	return 0, false
}

// AfterSeconds is the number of whole seconds to put into a Retry-After header
// for a wait of d: rounded up, so that whoever waits that long does not come too
// early, and at least 1, because 0 invites to return at once. A wait that is
// zero or negative, such as that to a reset which has just passed, gives 1; any
// d has a result, so nothing overflows.
func AfterSeconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return max(1, seconds)
}

// parseProtoDuration parses the JSON form of google.protobuf.Duration: decimal
// seconds with the suffix "s". Negative values are not usable as a delay.
func parseProtoDuration(s string) (time.Duration, bool) {
	number, ok := strings.CutSuffix(s, "s")
	if !ok {
		return 0, false
	}
	return parseDecimal(number, time.Second)
}

// formatProtoDuration is the inverse of parseProtoDuration for d ≥ 0: no more
// digits than needed.
func formatProtoDuration(d time.Duration) string {
	s := strconv.FormatInt(int64(d/time.Second), 10)
	if fraction := d % time.Second; fraction > 0 {
		s += "." + strings.TrimRight(fmt.Sprintf("%09d", fraction), "0")
	}
	return s + "s"
}

// parseDecimal parses digits, or digits "." digits, as a multiple of unit,
// which must be a power of ten of nanoseconds. The result is exact, rounded up
// to a whole nanosecond, and at most the largest Duration.
//
// A floating-point number would be neither exact nor safe here: converting one
// that is too large, or infinite, gives a negative Duration, and that reads as
// "now".
func parseDecimal(s string, unit time.Duration) (time.Duration, bool) {
	whole, fraction, hasFraction := strings.Cut(s, ".")
	if !isDigits(whole) || hasFraction && !isDigits(fraction) {
		return 0, false
	}
	const most = time.Duration(math.MaxInt64)
	total := time.Duration(0)
	for _, c := range []byte(whole) {
		digit := time.Duration(c - '0')
		if total > (most/unit-digit)/10 {
			return most, true
		}
		total = total*10 + digit
	}
	total *= unit
	place := unit
	for _, c := range []byte(fraction) {
		place /= 10
		part := time.Duration(c-'0') * place
		if place == 0 && c != '0' {
			part = 1 // less than a nanosecond, but not nothing
		}
		if total > most-part {
			return most, true
		}
		total += part
		if place == 0 && part == 1 {
			break
		}
	}
	return total, true
}

// isDigits reports whether s is one or more ASCII digits.
func isDigits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}
