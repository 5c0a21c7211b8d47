package engine

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Kind describes a fault that an API's double knows how to commit.
type Kind struct {
	// Name is how the fault is written, "503" or "cut-json".
	Name string
	// Doc says in a few words what the client sees.
	Doc string
	// Options are the names of the options that it takes beside the
	// conditions, out of after, code, for, retry and x.
	Options []string
	// Refuses tells that the call is turned away before it is admitted, so
	// that it uses nothing.
	Refuses bool
}

func (k Kind) takes(option string) bool {
	for _, o := range k.Options {
		if o == option {
			return true
		}
	}
	return false
}

// Fault is a disturbance and the calls that it befalls: those that meet all of
// its conditions. A fault without conditions befalls every call.
//
// Its text form is the kind, optionally followed by @ and conditions and
// options, separated by commas:
//
//	503@p=0.01             one call in a hundred, by chance
//	hang@n=7               the seventh call
//	429@10s-20s            every call from the tenth to the twentieth second
//	cut@every=5,after=2    every fifth call, after two chunks
//
// Calls are counted from 1, in the order in which they pass the limits; a call
// that a limit refuses is not counted. Seconds count from the start, or the
// last reset, before the speed is applied.
type Fault struct {
	Kind Kind

	// P is the probability, above 0 and up to 1; 0 where it is not a condition.
	P float64
	// N is the number of the call; 0 where it is not a condition.
	N int64
	// Every is the distance of the calls; 0 where it is not a condition.
	Every int64
	// From and To bound the calls' instants, as a half-open interval. They are
	// a condition where To is above 0.
	From, To time.Duration

	// After is the number of chunks to be sent before the fault, or -1 where
	// that is left to the double.
	After int
	// Code is an HTTP status; 0 where it is left to the double.
	Code int
	// For bounds the fault's duration; 0 is no bound.
	For time.Duration
	// Retry is the delay that is advised; 0 where it is left to the double.
	Retry time.Duration
	// X is the factor of a slow call; 0 where it is left to the double.
	X float64
}

// forever stands for the end of an interval that was left open.
const forever = time.Duration(math.MaxInt64)

// String returns the text form, which parses to the same fault.
func (f Fault) String() string {
	var parts []string
	add := func(name, value string) { parts = append(parts, name+value) }
	if f.N > 0 {
		add("n=", strconv.FormatInt(f.N, 10))
	}
	if f.Every > 0 {
		add("every=", strconv.FormatInt(f.Every, 10))
	}
	switch {
	case f.To == forever:
		add(f.From.String(), "-")
	case f.To > 0:
		add(f.From.String(), "-"+f.To.String())
	}
	if f.P > 0 {
		add("p=", strconv.FormatFloat(f.P, 'g', -1, 64))
	}
	if f.After >= 0 {
		add("after=", strconv.Itoa(f.After))
	}
	if f.Code > 0 {
		add("code=", strconv.Itoa(f.Code))
	}
	if f.For > 0 {
		add("for=", f.For.String())
	}
	if f.Retry > 0 {
		add("retry=", f.Retry.String())
	}
	if f.X > 0 {
		add("x=", strconv.FormatFloat(f.X, 'g', -1, 64))
	}
	if len(parts) == 0 {
		return f.Kind.Name
	}
	return f.Kind.Name + "@" + strings.Join(parts, ",")
}

// befalls reports whether the call meets all conditions: n is its number,
// elapsed its instant and u a uniform random number.
func (f Fault) befalls(n int64, elapsed time.Duration, u float64) bool {
	return (f.N == 0 || n == f.N) &&
		(f.Every == 0 || n%f.Every == 0) &&
		(f.To == 0 || elapsed >= f.From && elapsed < f.To) &&
		(f.P == 0 || u < f.P)
}

// hint is how long a call that the fault refused should wait: what the fault
// says, else the rest of its interval; 0 where it has neither.
func (f Fault) hint(now time.Duration) time.Duration {
	if f.Retry == 0 && f.To > 0 && f.To < forever {
		return f.To - now
	}
	return f.Retry
}

// shorten applies the speed to the fault's durations.
func (f Fault) shorten(speed float64) Fault {
	f.From = shorten(f.From, speed)
	if f.To != forever {
		f.To = max(shorten(f.To, speed), min(f.To, 1)) // stays a condition
	}
	f.For = max(shorten(f.For, speed), min(f.For, 1))
	f.Retry = max(shorten(f.Retry, speed), min(f.Retry, 1))
	return f
}

// Catalog is the list of faults that an API's double knows.
type Catalog []Kind

// Parse reads the text form of a fault. Its errors name the text and the part
// of it that is wrong.
func (c Catalog) Parse(text string) (Fault, error) {
	name, list, some := strings.Cut(text, "@")
	f := Fault{After: -1}
	for _, k := range c {
		if k.Name == name {
			f.Kind = k
		}
	}
	if f.Kind.Name == "" {
		return Fault{}, fmt.Errorf("fault %q: unknown kind %q: must be one of %s", text, name, c.names())
	}
	if !some {
		return f, nil
	}
	given := make(map[string]bool)
	for option := range strings.SplitSeq(list, ",") {
		name, value, named := strings.Cut(option, "=")
		if !named {
			name, value = unnamed, option
		}
		err := f.set(name, value)
		if given[name] {
			err = fmt.Errorf("given twice")
		}
		given[name] = true
		if err != nil {
			return Fault{}, fmt.Errorf("fault %q: %q: %w", text, option, err)
		}
	}
	return f, nil
}

func (c Catalog) names() string {
	names := make([]string, len(c))
	for i, k := range c {
		names[i] = k.Name
	}
	return strings.Join(names, ", ")
}

// unnamed stands for the name of the one condition that has none. No name has
// an equals sign in it.
const unnamed = "="

// set reads one condition or option.
func (f *Fault) set(name, value string) (err error) {
	switch name {
	case unnamed:
		f.From, f.To, err = parseInterval(value)
	case "n":
		f.N, err = parseCount(value, 1, math.MaxInt64)
	case "every":
		f.Every, err = parseCount(value, 1, math.MaxInt64)
	case "p":
		f.P, err = parseNumber(value, 1)
	case "after", "code", "for", "retry", "x":
		if !f.Kind.takes(name) {
			return fmt.Errorf("%s takes no %s", f.Kind.Name, name)
		}
		return f.setOption(name, value)
	default:
		return fmt.Errorf("must be n=, every=, p=, an interval like 10s-20s%s", optionList(f.Kind.Options))
	}
	return err
}

func (f *Fault) setOption(name, value string) (err error) {
	var n int64
	switch name {
	case "after":
		n, err = parseCount(value, 0, math.MaxInt32)
		f.After = int(n)
	case "code":
		n, err = parseCount(value, 400, 599)
		f.Code = int(n)
	case "for":
		f.For, err = parsePositive(value)
	case "retry":
		f.Retry, err = parsePositive(value)
	case "x":
		f.X, err = parseNumber(value, 1e6)
	}
	return err
}

func optionList(options []string) string {
	var b strings.Builder
	for _, o := range options {
		b.WriteString(", " + o + "=")
	}
	return b.String()
}

// parseInterval reads "10s-20s"; the first end may be left out for the start,
// the second one for ever.
func parseInterval(text string) (from, to time.Duration, err error) {
	first, second, ok := strings.Cut(text, "-")
	if !ok {
		return 0, 0, fmt.Errorf("must be name=value or an interval like 10s-20s")
	}
	to = forever
	if first != "" {
		if from, err = time.ParseDuration(first); err != nil {
			return 0, 0, fmt.Errorf("beginning of the interval: %w", err)
		}
	}
	if second != "" {
		if to, err = time.ParseDuration(second); err != nil {
			return 0, 0, fmt.Errorf("end of the interval: %w", err)
		}
	}
	if from < 0 || to <= from {
		return 0, 0, fmt.Errorf("must end after it begins")
	}
	return from, to, nil
}

func parseCount(text string, lowest, highest int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < lowest || n > highest {
		if highest >= math.MaxInt32 {
			return 0, fmt.Errorf("must be a whole number, at least %d", lowest)
		}
		return 0, fmt.Errorf("must be a whole number from %d to %d", lowest, highest)
	}
	return n, nil
}

func parseNumber(text string, highest float64) (float64, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x > 0 && x <= highest) {
		return 0, fmt.Errorf("must be a number above 0, at most %g", highest)
	}
	return x, nil
}

func parsePositive(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("must be a duration above 0, like 1.5s")
	}
	return d, nil
}
