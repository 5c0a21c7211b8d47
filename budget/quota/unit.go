package quota

import "fmt"

// Unit is what a limit counts.
type Unit uint8

const (
	// Turns are runs of an agent: one message of a user, whatever it sets off.
	Turns Unit = iota
	// ConcurrentTurns are turns that are under way at a time.
	ConcurrentTurns
	// Calls are model calls.
	Calls
	// Tokens are input and output tokens together.
	Tokens
	// Credits are tokens weighted by kind; see usage.Credits.
	Credits
	// Money is in micro-dollars; see usage.Micros.
	Money

	// Units is the number of units.
	Units = int(iota)
)

var unitNames = [Units]string{"turns", "concurrent_turns", "calls", "tokens", "credits", "money"}

// String is the unit's name in configuration, errors, metrics and events:
// "turns", "concurrent_turns", "calls", "tokens", "credits" or "money".
func (u Unit) String() string {
	if int(u) < Units {
		return unitNames[u]
	}
	return fmt.Sprintf("unit(%d)", uint8(u))
}

// Amounts is a number of each unit; which of them matter is for its user to say.
// It is indexed by [Unit]. The zero value is nothing of everything.
type Amounts [Units]int64
