package engine

import (
	"fmt"
	"math"
	"time"
)

// maxSigma bounds the spread of log-normal numbers. At 3, one call in a hundred
// takes more than a thousand times the median: no model is like that.
const maxSigma = 3

// Latency says how long calls take, before the speed is applied. Its zero
// value answers at once. There are two ways to say it:
//
//   - First and PerSecond: a call takes the time to its first token, and then
//     as long as its tokens need.
//   - Total: a call takes Total, whatever its length; FirstShare of it passes
//     before the first token.
//
// Durations are log-normal around their medians.
type Latency struct {
	// First is the median time to the first token.
	First time.Duration
	// FirstShare is the part of Total that passes before the first token, from
	// 0 to 1. It is used with Total only.
	FirstShare float64
	// PerSecond is the number of tokens, thoughts inside, generated in a
	// second after the first; 0 is no limit: all are there at once.
	PerSecond float64
	// Sigma is the standard deviation of the logarithm of First, or of Total
	// where that is set; 0 is no spread, every call takes the median.
	Sigma float64
	// Total is the median time of a whole call. Above 0 it replaces First and
	// PerSecond.
	Total time.Duration
}

func (l Latency) validate() error {
	switch {
	case l.First < 0:
		return fmt.Errorf("time to the first token %v: must not be negative", l.First)
	case l.Total < 0:
		return fmt.Errorf("latency %v: must not be negative", l.Total)
	case !(l.Sigma >= 0 && l.Sigma <= maxSigma):
		return fmt.Errorf("latency sigma %v: must be from 0 to %d", l.Sigma, maxSigma)
	case !(l.FirstShare >= 0 && l.FirstShare <= 1):
		return fmt.Errorf("share of the latency before the first token %v: must be from 0 to 1", l.FirstShare)
	case !(l.PerSecond >= 0) || math.IsInf(l.PerSecond, 0):
		return fmt.Errorf("tokens per second %v: must be a number, not negative", l.PerSecond)
	case l.Total > 0 && (l.First > 0 || l.PerSecond > 0):
		return fmt.Errorf("latency %v beside time to the first token %v and %v tokens per second: give the total or its parts",
			l.Total, l.First, l.PerSecond)
	}
	return nil
}

// Pace is the plan of one call: when its tokens come, counted from its
// admission.
type Pace struct {
	// First is the time to the first token.
	First time.Duration
	// Total is the time to the last one, at least First.
	Total time.Duration

	tokens int
}

// At returns when the first n tokens of the call have been generated. At(0) is
// First.
func (p Pace) At(n int) time.Duration {
	if n >= p.tokens {
		return p.Total
	}
	return p.First + saturate(float64(p.Total-p.First)*float64(n)/float64(p.tokens))
}

// By returns how many tokens have been generated after d, the inverse of At.
func (p Pace) By(d time.Duration) int {
	switch {
	case d >= p.Total:
		return p.tokens
	case d <= p.First:
		return 0
	}
	n := int(float64(p.tokens) * float64(d-p.First) / float64(p.Total-p.First))
	for n > 0 && p.At(n) > d { // the division may round up
		n--
	}
	return n
}

// plan draws the pace of a call of so many tokens.
func (l Latency) plan(d Draw, tokens int) Pace {
	tokens = max(tokens, 0)
	if l.Total > 0 {
		return l.split(d.duration("latency", l.Total, l.Sigma), tokens)
	}
	first := d.duration("latency", l.First, l.Sigma)
	total := first
	if l.PerSecond > 0 {
		rest := saturate(float64(tokens) / l.PerSecond * float64(time.Second))
		total = saturate(float64(first) + float64(rest))
		if float64(first)+float64(rest) < 1<<53 {
			total = first + rest // exact
		}
	}
	return Pace{First: first, Total: total, tokens: tokens}
}

// split makes the pace of a call whose total time is known.
func (l Latency) split(total time.Duration, tokens int) Pace {
	return Pace{First: saturate(l.FirstShare * float64(total)), Total: total, tokens: max(tokens, 0)}
}

// stretch makes a pace slower by a factor, or quicker where it is below 1.
func (p Pace) stretch(factor float64) Pace {
	return Pace{
		First:  saturate(float64(p.First) * factor),
		Total:  saturate(float64(p.Total) * factor),
		tokens: p.tokens,
	}
}
