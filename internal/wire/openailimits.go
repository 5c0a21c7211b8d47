package wire

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
)

// limit is what the x-ratelimit headers say of one limit (OpenAI docs, rate
// limits guide).
type limit struct {
	known     bool // whether remaining is told
	remaining int64
	most      int64         // the limit itself; 0 if not told
	reset     time.Duration // until remaining is most again; 0 if not told
	hasReset  bool
}

// limitOf reads the headers of "requests" or "tokens". Those whose values are
// malformed or negative say nothing.
func limitOf(h http.Header, resource string) (l limit) {
	l.remaining, l.known = parseCount(h.Get("X-Ratelimit-Remaining-" + resource))
	l.most, _ = parseCount(h.Get("X-Ratelimit-Limit-" + resource))
	l.reset, l.hasReset = parseReset(h.Get("X-Ratelimit-Reset-" + resource))
	return l
}

// OpenAILimits is what the headers of a response say is left, for a request that
// was sent at sent: of the dimensions "requests" and "tokens" of the profiles for
// OpenAI and Azure. A number that is none, negative or beyond belief is left out; a
// reset that cannot be read is not known. Tokens are also limited per project at OpenAI:
// of the two limits the one with less room counts.
func OpenAILimits(h http.Header, sent time.Time) []ratelimited.LimitReport {
	var reports []ratelimited.LimitReport
	add := func(dimension string, l limit) {
		if l.known {
			reports = append(reports, ratelimited.LimitReport{
				Dimension: dimension, Remaining: l.remaining, Reset: l.reset, Sent: sent,
			})
		}
	}
	add("requests", limitOf(h, "Requests"))
	tokens := limitOf(h, "Tokens")
	if project := limitOf(h, "Project-Tokens"); project.known && (!tokens.known || project.remaining < tokens.remaining) {
		tokens = project
	}
	add("tokens", tokens)
	return reports
}

// openaiWithout tells which limit has no room for a call that was refused: the one
// with nothing left. Where the room for requests is known not to be it, it is
// that for tokens.
func openaiWithout(h http.Header) (r retry.Resource) {
	requests, tokens := limitOf(h, "Requests"), limitOf(h, "Tokens")
	if requests.known && requests.remaining == 0 {
		r |= retry.Requests
	}
	if tokens.known && tokens.remaining == 0 || r == 0 && requests.known && tokens.known {
		r |= retry.TotalTokens
	}
	return r
}

// fullAfter is the longest that a limit per minute takes to be whole again.
const fullAfter = time.Minute

// roomAfter is after what time a limit that refused a call has room again, by
// its headers. A reset is the time until the limit is whole again, which is more
// than the call needs:
//
//   - one request needs its share of that, reset ÷ (limit − remaining);
//   - how many tokens were missing is not told, so that the whole reset is the
//     hint, but no more than what a limit per minute can take.
func roomAfter(h http.Header, r retry.Resource) (hint time.Duration, ok bool) {
	if l := limitOf(h, "Requests"); r&retry.Requests != 0 && l.hasReset && l.known && l.remaining == 0 {
		hint, ok = l.reset, true
		if l.most > 1 {
			most := time.Duration(l.most)
			hint = hint/most + min(hint%most, 1)
		}
	}
	if l := limitOf(h, "Tokens"); r&retry.TotalTokens != 0 && l.hasReset {
		hint, ok = max(hint, min(l.reset, fullAfter)), true
	}
	return max(hint, 0), ok
}

// maxRemaining bounds what is believed to remain, far above every limit.
const maxRemaining = 1 << 50

// parseCount reads a number that is not negative and can be believed.
func parseCount(s string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || n < 0 || n > maxRemaining {
		return 0, false
	}
	return n, true
}

// units are those of a reset, longest first where one begins like another.
var units = [...]struct {
	name string
	unit time.Duration
}{
	{"ms", time.Millisecond}, {"us", time.Microsecond}, {"\u00b5s", time.Microsecond}, {"\u03bcs", time.Microsecond}, {"ns", time.Nanosecond},
	{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second},
}

// parseReset reads the value of an x-ratelimit-reset header: numbers with units,
// such as "12ms", "1s", "6m0s" or "1d2h", or seconds without a unit, as some
// servers send it. What is too long for a Duration is the longest Duration. It
// reports false for what is empty, negative or malformed.
func parseReset(s string) (time.Duration, bool) {
	s = strings.TrimSpace(s)
	if seconds, ok := parseNumber(s); ok {
		return times(seconds, time.Second), true
	}
	total, parts := time.Duration(0), 0
	for ; s != ""; parts++ {
		end := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
		if end <= 0 {
			return 0, false
		}
		n, ok := parseNumber(s[:end])
		if !ok {
			return 0, false
		}
		s = s[end:]
		part := time.Duration(-1)
		for _, u := range units {
			if rest, ok := strings.CutPrefix(s, u.name); ok {
				part, s = times(n, u.unit), rest
				break
			}
		}
		if part < 0 {
			return 0, false
		}
		if total > math.MaxInt64-part {
			total = math.MaxInt64
			continue
		}
		total += part
	}
	return total, parts > 0
}

// parseNumber reads digits with at most one point between or behind them.
func parseNumber(s string) (float64, bool) {
	digits, points := 0, 0
	for _, c := range []byte(s) {
		switch {
		case '0' <= c && c <= '9':
			digits++
		case c == '.' && digits > 0:
			points++
		default:
			return 0, false
		}
	}
	if digits == 0 || points > 1 {
		return 0, false
	}
	n, err := strconv.ParseFloat(s, 64)
	return n, err == nil || math.IsInf(n, 1)
}

// times is n units, rounded up, at most the longest Duration.
func times(n float64, unit time.Duration) time.Duration {
	d := math.Ceil(n * float64(unit))
	if !(d < math.MaxInt64) {
		return math.MaxInt64
	}
	return time.Duration(d)
}
