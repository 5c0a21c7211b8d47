package quota

import (
	"fmt"
	"slices"
	"strings"
)

// Mode says whether a limit denies. The mode in effect is the first that is set
// of the limit's, the plan's and that of all limits; see [Limits.For].
type Mode uint8

const (
	// ModeUnset takes the mode of what is around: the plan, then all limits.
	ModeUnset Mode = iota
	// Off neither checks nor counts. What passes meanwhile is not known
	// afterwards.
	Off
	// Observe counts, and reports what would have been denied, but denies nothing.
	Observe
	// Enforce denies.
	Enforce
)

// Missing says what becomes of a call whose subject has no id of a limit's scope.
type Missing uint8

const (
	// Deny refuses the call: nobody known is nobody allowed. It is the zero value.
	Deny Missing = iota
	// Skip does not apply the limit to the call.
	Skip
)

// FailurePolicy says what becomes of a call while the ledger cannot be reached. A
// limit that only observes lets calls pass then, too, whatever its policy is.
type FailurePolicy uint8

const (
	// Auto is Closed for limits that are enforced, and Open for those that are
	// only observed. It is the zero value.
	Auto FailurePolicy = iota
	// Open lets the call pass.
	Open
	// Closed refuses the call.
	Closed
)

// HoldPolicy says how much is reserved for a call whose use is not known before.
type HoldPolicy uint8

const (
	// P95 reserves what 95 % of such calls stay below. It is the zero value.
	P95 HoldPolicy = iota
	// Mean reserves what such calls use on average. Many calls at once are held
	// about right in sum, but each second one is settled to more than was held.
	Mean
	// Worst reserves the most that the call can use. It never overruns, and locks
	// up a multiple of what is used.
	Worst
)

var (
	modeNames    = []string{"unset", "off", "observe", "enforce"}
	missingNames = []string{"deny", "skip"}
	failureNames = []string{"auto", "open", "closed"}
	holdNames    = []string{"p95", "mean", "worst"}
)

// policyName is the name of a value, or what stands in for one.
func policyName(kind string, names []string, value uint8) string {
	if int(value) < len(names) {
		return names[value]
	}
	return fmt.Sprintf("%s(%d)", kind, value)
}

// marshalPolicy is the name of a value; a value without a name is an error.
func marshalPolicy(kind string, names []string, value uint8) ([]byte, error) {
	if int(value) >= len(names) {
		return nil, fmt.Errorf("quota: %s %d is none of %s", kind, value, strings.Join(names, ", "))
	}
	return []byte(names[value]), nil
}

// unmarshalPolicy is the value of a name.
func unmarshalPolicy[T ~uint8](to *T, kind string, names []string, text []byte) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fmt.Errorf("quota: %s %q is none of %s", kind, clipText(string(text)), strings.Join(names, ", "))
	}
	*to = T(i)
	return nil
}

// clipText bounds a text that goes into an error.
func clipText(s string) string {
	const most = 64
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// String is "unset", "off", "observe" or "enforce".
func (m Mode) String() string { return policyName("mode", modeNames, uint8(m)) }

// MarshalText is the mode's name.
func (m Mode) MarshalText() ([]byte, error) { return marshalPolicy("mode", modeNames, uint8(m)) }

// UnmarshalText reads what MarshalText wrote, and nothing else.
func (m *Mode) UnmarshalText(text []byte) error { return unmarshalPolicy(m, "mode", modeNames, text) }

// String is "deny" or "skip".
func (m Missing) String() string { return policyName("missing", missingNames, uint8(m)) }

// MarshalText is the name.
func (m Missing) MarshalText() ([]byte, error) {
	return marshalPolicy("missing", missingNames, uint8(m))
}

// UnmarshalText reads what MarshalText wrote, and nothing else.
func (m *Missing) UnmarshalText(text []byte) error {
	return unmarshalPolicy(m, "missing", missingNames, text)
}

// String is "auto", "open" or "closed".
func (p FailurePolicy) String() string { return policyName("failure policy", failureNames, uint8(p)) }

// MarshalText is the policy's name.
func (p FailurePolicy) MarshalText() ([]byte, error) {
	return marshalPolicy("failure policy", failureNames, uint8(p))
}

// UnmarshalText reads what MarshalText wrote, and nothing else.
func (p *FailurePolicy) UnmarshalText(text []byte) error {
	return unmarshalPolicy(p, "failure policy", failureNames, text)
}

// String is "p95", "mean" or "worst".
func (p HoldPolicy) String() string { return policyName("hold policy", holdNames, uint8(p)) }

// MarshalText is the policy's name.
func (p HoldPolicy) MarshalText() ([]byte, error) {
	return marshalPolicy("hold policy", holdNames, uint8(p))
}

// UnmarshalText reads what MarshalText wrote, and nothing else.
func (p *HoldPolicy) UnmarshalText(text []byte) error {
	return unmarshalPolicy(p, "hold policy", holdNames, text)
}
