package adaptive

import (
	"fmt"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// Window is the way in which the provider's quota renews itself.
type Window = engine.WindowModel

// minute is the length of the provider's window.
const minute = time.Minute

// Policies are the names of the clients: Headgate and its opponents.
func Policies() []string { return []string{Headgate, Failsafe, AWS} }

// The names of the policies.
const (
	Headgate = "headgate"
	Failsafe = "failsafe-adaptive"
	AWS      = "aws-adaptive"
)

// Setting is a quota that nobody was told, and those who share it.
type Setting struct {
	// Policy is one of Policies.
	Policy string
	// Clients is the number of programs that share the quota, none of which knows of
	// the others; at least 1.
	Clients int
	// Callers is the number of callers that all clients have together; at least one
	// each. Each always has a call in line or on its way. Defaults to 200.
	Callers int
	// Rate is the quota in calls per second. 0 is no such quota.
	Rate float64
	// Depth is what a bucket holds, as the time in which Rate fills it. Defaults to a
	// minute.
	Depth time.Duration
	// Places is the number of calls that the provider takes at a time; 0 is no bound.
	Places int
	// Window of the quota: a bucket, a sliding minute or a fixed one.
	Window Window
	// Hints tells that a refusal says how long to wait.
	Hints bool
	// FailuresCount tells that refused calls count, too: those of a bucket lower its
	// level, down to one whole bucket below nothing, a harsh reading of "unsuccessful
	// requests contribute to your limit" (OpenAI's guide to rate limits).
	FailuresCount bool
	// Latency is the median time of a call, of which the first item takes a third; log-
	// normal, σ = 0.3. Defaults to 3 s. On its way a call is for about 50 ms, and its
	// answer for as long.
	Latency time.Duration
	// Steps change the quota.
	Steps []Step
	// WarmUp is not measured, and Span is.
	WarmUp, Span time.Duration
	// Seed of everything.
	Seed uint64
}

// Step is a change of the quota.
type Step struct {
	At   time.Duration
	Rate float64
}

// Result is what became of a setting, in its Span.
type Result struct {
	// Served and Refused are calls as the provider decided about them.
	Served, Refused int
	// Goodput is Served over the quota; where only the places are bounded, their mean
	// use.
	Goodput float64
	// Throttled is the share of refusals.
	Throttled float64
	// Jain is the Jain index of what the clients got.
	Jain float64
}

// mostRate bounds Setting.Rate: every call is an event.
const mostRate = 1_000_000

func (s Setting) withDefaults() Setting {
	if s.Callers == 0 {
		s.Callers = 200
	}
	if s.Depth == 0 {
		s.Depth = minute
	}
	if s.Latency == 0 {
		s.Latency = 3 * time.Second
	}
	return s
}

// Validate returns an error that names the field that is wrong, and its value.
func (s Setting) Validate() error {
	s = s.withDefaults()
	switch {
	case s.Policy != Headgate && s.Policy != Failsafe && s.Policy != AWS:
		return fmt.Errorf("adaptive: Setting.Policy is %q, want one of %v", s.Policy, Policies())
	case s.Clients < 1:
		return fmt.Errorf("adaptive: Setting.Clients is %d, must be at least 1", s.Clients)
	case s.Callers < s.Clients:
		return fmt.Errorf("adaptive: Setting.Callers is %d, must be at least one for each of %d clients", s.Callers, s.Clients)
	case s.Places < 0:
		return fmt.Errorf("adaptive: Setting.Places is %d, must not be negative", s.Places)
	case s.Rate > mostRate:
		return fmt.Errorf("adaptive: Setting.Rate is %v, must be at most %d", s.Rate, mostRate)
	case !(s.Rate >= 0) || s.Rate == 0 && s.Places <= 0:
		return fmt.Errorf("adaptive: Setting.Rate is %v, must be positive where Places is %d", s.Rate, s.Places)
	case s.Depth < 0:
		return fmt.Errorf("adaptive: Setting.Depth is %v, must not be negative", s.Depth)
	case s.Window > engine.Bucket:
		return fmt.Errorf("adaptive: Setting.Window is %v, must be fixed, sliding or bucket", s.Window)
	case s.WarmUp < 0 || s.Span <= 0:
		return fmt.Errorf("adaptive: Setting.WarmUp is %v and Span %v, must not be negative, and Span above 0", s.WarmUp, s.Span)
	case s.Latency < 0:
		return fmt.Errorf("adaptive: Setting.Latency is %v, must not be negative", s.Latency)
	}
	for i, step := range s.Steps {
		if step.Rate <= 0 || s.Rate == 0 || step.At < 0 {
			return fmt.Errorf("adaptive: Setting.Steps[%d] is %+v, needs a positive Rate, and one before it", i, step)
		}
	}
	return nil
}
