package ratelimited

import (
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

// Window is the shape in which a provider enforces a limit.
type Window uint8

const (
	// Sliding counts what happened in the last window's length. It is the
	// safe reading of a limit "per minute" too: a provider that counts in
	// fixed minutes, of whatever phase, never sees more than the limit either.
	Sliding Window = iota
	// Bucket refills continuously up to one window's worth, as Anthropic does.
	Bucket
)

// Profile says what a provider limits and how a call counts there. The zero
// Profile limits nothing, so that only the gate's slots bind. [GeminiAPI] and
// [Vertex] make the profiles of these services.
type Profile struct {
	// Dimensions are the limits, at most 15 including those that have a Burst,
	// which count twice.
	Dimensions []Dimension
	// Name of the provider, for metrics and logs.
	Name string
}

// Dimension is one limit of a provider.
type Dimension struct {
	// Burst is the time over which the provider checks the limit besides its
	// window: a limit of 600 a minute that is checked per second (Burst =
	// time.Second) is at most 10 in any second. Calls are then paced, at 96 % of
	// the rate, with the remaining part of a burst or one call at a time. 0
	// is no such check.
	Burst time.Duration
	// Cell is the grain in which a sliding window is mirrored. Defaults to
	// Window/60.
	Cell time.Duration
	// Count is what a call takes at admission, in units, from its estimate.
	// Never negative.
	Count func(estimate usage.Usage) int64
	// FailuresCount is true if the provider counts a call that it refused or
	// failed (4xx, 429, 5xx) as if it had been served. Then a refused attempt is
	// settled at Refused units.
	FailuresCount bool
	// KeepsLimit is true if the provider counts the limit that a request sets on
	// its output when it admits the call, and gives nothing back for a shorter
	// answer. Count then gets the estimate with that limit for its Output, 0 where
	// the request sets none, whatever was learned about answers; see Meter. The
	// call stays counted so until its end, which may raise it to Settle of what was
	// used.
	KeepsLimit bool
	// Least is the number of units per Window that the provider is known to give to
	// all programs that share an Unknown limit: no cut takes it lower, nor that of one
	// of several replicas lower than its part of it (see Config.Replicas). 0 if nothing
	// is known. Only for a limit that is Unknown.
	Least int64
	// Limit is the number of units per Window, as the provider publishes it; or
	// Unknown.
	Limit int64
	// Name of the dimension, for errors, metrics and SetLimit: "requests",
	// "input_tokens", …
	Name string
	// Resource tells which limit of a provider's refusal means this one.
	Resource retry.Resource
	// Settle is what the call took, from its actual usage. Defaults to Count.
	Settle func(actual usage.Usage) int64
	// Shape of the provider's window. Defaults to Sliding. It does not matter where
	// Limit is Unknown: calls then come at an even rate, which suits every window. It
	// does when Gate.SetLimit has told it.
	Shape Window
	// Start is the number of units per Window with which the search for an Unknown
	// limit begins. Defaults to ten calls of the size of the first one.
	Start int64
	// Window of the limit. Defaults to a minute.
	Window time.Duration
}

// Unknown is the Limit of a [Dimension] that nobody has told. The gate then finds it:
// the limit grows while it is used and nothing is refused, and is cut where something
// is. One program finds 99 % of a quota of ten calls a second at fewer than one
// refused call in a hundred, ten that do not know of each other as much together at
// one in a hundred; bench/adaptive measures it, beside others. A refusal costs a
// retry, so a limit that is known should be told. [Gate.SetLimit] tells it later.
const Unknown int64 = math.MinInt64

// A limit that is searched for is counted in unknownWindows windows of the provider, so
// that less than a call per window can be found, too; unknownMost units per window are
// the most that are looked for.
const (
	unknownWindows = 60
	unknownMost    = 1 << 40
)

func (d Dimension) validate(i int) error {
	field := fmt.Sprintf("Profile.Dimensions[%d]", i)
	switch {
	case d.Name == "":
		return fmt.Errorf("ratelimited: %s.Name is empty", field)
	case !utf8.ValidString(d.Name):
		return fmt.Errorf("ratelimited: %s.Name is %q, must be valid UTF-8", field, d.Name)
	case d.Count == nil:
		return fmt.Errorf("ratelimited: %s.Count is nil (dimension %q)", field, d.Name)
	case d.Limit != Unknown && (d.Start != 0 || d.Least != 0):
		return fmt.Errorf("ratelimited: %s.Start is %d and Least %d (dimension %q), must be 0 where Limit is not Unknown", field, d.Start, d.Least, d.Name)
	case d.Start < 0:
		return fmt.Errorf("ratelimited: %s.Start is %d (dimension %q), must not be negative", field, d.Start, d.Name)
	case d.Least < 0:
		return fmt.Errorf("ratelimited: %s.Least is %d (dimension %q), must not be negative", field, d.Least, d.Name)
	case d.Limit == Unknown && d.Burst != 0:
		return fmt.Errorf("ratelimited: %s.Burst is %v (dimension %q), must be 0 where Limit is Unknown", field, d.Burst, d.Name)
	case d.Limit == Unknown && d.window() > maxClosed:
		return fmt.Errorf("ratelimited: %s.Window is %v (dimension %q), must be at most %v where Limit is Unknown", field, d.Window, d.Name, time.Duration(maxClosed))
	case d.Limit != Unknown && d.Limit < 0:
		return fmt.Errorf("ratelimited: %s.Limit is %d (dimension %q), must not be negative", field, d.Limit, d.Name)
	case d.Window < 0:
		return fmt.Errorf("ratelimited: %s.Window is %v (dimension %q), must not be negative", field, d.Window, d.Name)
	case d.Burst < 0 || d.Burst > d.window():
		return fmt.Errorf("ratelimited: %s.Burst is %v (dimension %q), must lie between 0 and Window", field, d.Burst, d.Name)
	case d.Shape > Bucket:
		return fmt.Errorf("ratelimited: %s.Shape is %d (dimension %q), want Sliding or Bucket", field, d.Shape, d.Name)
	}
	return nil
}

func (d Dimension) window() time.Duration {
	if d.Window == 0 {
		return budget.DefaultWindow
	}
	return d.Window
}

// paceGuard is the part of a burst that a pace keeps back. In any time of a
// burst's length no more than the pace's rate over it passes and what the bucket
// holds, so that the two must be one burst together. A call that is larger than
// what the bucket holds waits until it is full, and goes into debt: then the
// pace has one call at a time, and one that is no larger than the guard, or one
// of many of the same size, keeps within the burst.
const paceGuard = 1.0 / 25

// pace is how many calls or tokens the bucket holds that paces them.
func (d Dimension) pace() int64 {
	return max(int64(paceGuard*float64(d.Limit)*min(1, float64(d.Burst)/float64(d.window()))), 1)
}

// limiters are what mirrors the dimension: its window and, where the limit is
// checked in bursts, a bucket that paces. Of the rate of each, part is used.
func (d Dimension) limiters() (list []budget.Limiter, part []float64, err error) {
	if d.Limit == Unknown {
		b, err := budget.NewTokenBudget(budget.TokenBudgetConfig{
			Limit: unknownWindows * unknownMost, Burst: unknownMost, Window: unknownWindows * d.window(),
		})
		return []budget.Limiter{b}, []float64{1}, err
	}
	if d.Shape == Bucket {
		b, err := budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: d.Limit, Window: d.window()})
		if err != nil {
			return nil, nil, err
		}
		list, part = append(list, b), append(part, 1)
	} else {
		w, err := budget.NewWindowBudget(budget.WindowBudgetConfig{Limit: d.Limit, Window: d.window(), Cell: d.Cell})
		if err != nil {
			return nil, nil, err
		}
		list, part = append(list, w), append(part, 1)
	}
	if d.Burst > 0 {
		b, err := budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: d.Limit, Window: d.window(), Burst: d.pace()})
		if err != nil {
			return nil, nil, err
		}
		list, part = append(list, b), append(part, 1-paceGuard)
	}
	return list, part, nil
}

// Quota holds the published numbers of a Google project for one model. 0 means
// that this dimension is not limited.
type Quota struct {
	// InputTokensPerMinute is the limit on prompt tokens ("TPM"). Output does
	// not count, cached tokens do (Gemini API docs, rate limits and caching).
	InputTokensPerMinute int64
	// RequestsPerDay is the limit on requests per day ("RPD"). It is mirrored
	// as any 24 hours, which is never more than a day of the provider's holds,
	// wherever its midnight lies.
	RequestsPerDay int64
	// RequestsPerMinute is the limit on requests ("RPM"). Requests that fail
	// with a 4xx or 5xx status count (Gemini API docs, billing).
	RequestsPerMinute int64
}

// GeminiAPI is the profile of the Gemini API: limits per project and model on
// requests, prompt tokens and requests per day. A negative number is reported
// by [NewGate].
func GeminiAPI(q Quota) Profile { return google("gemini", q) }

// Vertex is the profile of Gemini on Vertex AI. Pay-as-you-go has no fixed quota
// there but a throughput threshold on tokens; give the threshold of your tier.
// The limits are the same kinds as at the Gemini API.
func Vertex(q Quota) Profile { return google("vertex", q) }

func google(name string, q Quota) Profile {
	p := Profile{Name: name}
	if q.RequestsPerMinute != 0 {
		p.Dimensions = append(p.Dimensions, Dimension{
			Name: "requests", Limit: q.RequestsPerMinute, Resource: retry.Requests,
			Count: OneRequest, FailuresCount: true,
		})
	}
	if q.InputTokensPerMinute != 0 {
		p.Dimensions = append(p.Dimensions, Dimension{
			Name: "input_tokens", Limit: q.InputTokensPerMinute, Resource: retry.InputTokens,
			Count: InputTokens,
		})
	}
	if q.RequestsPerDay != 0 {
		p.Dimensions = append(p.Dimensions, Dimension{
			Name: "requests_per_day", Limit: q.RequestsPerDay, Resource: retry.Requests,
			Count: OneRequest, FailuresCount: true, Window: 24 * time.Hour, Cell: 15 * time.Minute,
		})
	}
	return p
}

// OneRequest counts a call as one request; it is a value for Dimension.Count.
func OneRequest(usage.Usage) int64 { return 1 }

// InputTokens counts all prompt tokens; it is a value for Dimension.Count.
func InputTokens(u usage.Usage) int64 { return max(u.Input, 0) }

// OutputTokens counts all generated tokens; it is a value for Dimension.Count.
func OutputTokens(u usage.Usage) int64 { return max(u.Output, 0) }

// TotalTokens counts prompt and generated tokens; it is a value for
// Dimension.Count.
func TotalTokens(u usage.Usage) int64 { return max(u.Total(), 0) }
