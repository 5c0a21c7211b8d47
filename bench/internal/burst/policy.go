package burst

import (
	"time"
)

// A Policy is a way to admit calls.
type Policy struct {
	// Name is short, for flags; Title tells what it is.
	Name, Title string
	// Settings is what it is configured with, and where that recommendation
	// comes from.
	Settings string

	// unbounded tells that it lets any number of calls be under way.
	unbounded bool
	// mirror tells how the policy mirrors the provider's window; nil if it does
	// not.
	mirror func(Window) Window
	// applies says why the policy has no result for a shape, or nothing.
	applies func(*Shape) string
	make    func(setting) (admission, error)
}

// Policies lists the policies: what people do without a gate, the peers,
// Headgate, and what nobody can beat.
func Policies() []Policy {
	return []Policy{
		none(), sdkRetries(), semaphoreOnly(), semaphoreRate(), failsafeLimits(), failsafeAdaptive(),
		headgateFIFO(), headgateFair(), headgateWindow(), oracle(),
	}
}

// patience is how long a policy lets a call wait that needs a number.
func (s *Shape) patience() time.Duration {
	if s.MaxWait > 0 {
		return s.MaxWait
	}
	return 24 * time.Hour
}
