package adaptive

import (
	"math"
	"math/rand/v2"
	"time"
)

// aws is a program with the adaptive retry mode of the AWS SDKs: the client-side
// rate limiter of the mode "adaptive" in the AWS SDKs and Tools Reference Guide,
// "Retry behavior", with the formulas and constants of its implementations
// (aws-sdk-go-v2, aws/retry/adaptive_ratelimit.go; botocore, retries/throttling.py
// and adaptive.py): CUBIC with β = 0.7 and a scale of 0.4, a rate that is measured in
// half seconds and smoothed by 0.8, at most twice of which is sent, at least half a
// call per second, and no limit at all before the first refusal. Around it is the
// mode's retry: three attempts, b·2ⁱ seconds of backoff with b random, at most 20 s.
// Its retry quota is left out, which ends calls early and sends no fewer.
type aws struct {
	dice *rand.Rand
	send func(*call)
	cubic
	retries
	idle int
}

const (
	awsAttempts = 3
	awsCap      = 20 * time.Second
)

// cubic is the rate limiter. Instants are seconds.
type cubic struct {
	on       bool    // something was refused
	fill     float64 // calls per second
	measured float64 // calls per second that were answered
	counted  float64 // the end of the last half second that was measured
	answers  float64 // since then

	lastMax   float64 // the rate at the last refusal
	throttled float64 // when that was

	tokens, capacity, filled float64
}

const (
	cubicBeta   = 0.7
	cubicScale  = 0.4
	cubicSmooth = 0.8
	cubicLeast  = 0.5
)

func newAWS(callers int, dice *rand.Rand, send func(*call)) *aws {
	return &aws{dice: dice, send: send, idle: callers}
}

func (a *aws) poll(now time.Duration) (next time.Duration) {
	for a.retries.due(now) || a.idle > 0 {
		if wait := a.cubic.take(now.Seconds()); wait > 0 {
			return now + time.Duration(math.Ceil(wait*float64(time.Second)))
		}
		k := a.retries.pop(now)
		if k == nil {
			a.idle--
			k = &call{}
		}
		k.attempts++
		a.send(k)
	}
	return a.retries.next()
}

func (a *aws) refused(now time.Duration, k *call, _ time.Duration) {
	a.cubic.answered(now.Seconds(), true)
	if k.attempts == awsAttempts {
		a.idle++
		return
	}
	delay := a.dice.Float64() * math.Exp2(float64(k.attempts-1))
	a.retries.push(now+min(time.Duration(delay*float64(time.Second)), awsCap), k)
}

func (a *aws) begun(time.Duration, *call) {}

func (a *aws) ended(now time.Duration, _ *call) {
	a.cubic.answered(now.Seconds(), false)
	a.idle++
}

// take takes a token, or tells how long to wait for one.
func (c *cubic) take(now float64) (wait float64) {
	if !c.on {
		return 0
	}
	c.refill(now)
	if c.tokens < 1 {
		return max((1-c.tokens)/c.fill, 1e-9)
	}
	c.tokens--
	return 0
}

func (c *cubic) refill(now float64) {
	c.tokens = min(c.capacity, c.tokens+(now-c.filled)*c.fill)
	c.filled = now
}

// answered updates the rate.
func (c *cubic) answered(now float64, throttled bool) {
	c.measure(now)
	rate := 0.0
	if throttled {
		c.lastMax = c.measured
		if c.on {
			c.lastMax = min(c.lastMax, c.fill)
		}
		c.throttled, c.on = now, true
		rate = c.lastMax * cubicBeta
	} else {
		k := math.Cbrt(c.lastMax * (1 - cubicBeta) / cubicScale)
		rate = cubicScale*math.Pow(now-c.throttled-k, 3) + c.lastMax
	}
	rate = min(rate, 2*c.measured)
	c.refill(now)
	c.fill, c.capacity = max(rate, cubicLeast), max(rate, 1)
	c.tokens = min(c.tokens, c.capacity)
}

// measure counts an answer.
func (c *cubic) measure(now float64) {
	half := math.Floor(2*now) / 2
	c.answers++
	if half > c.counted {
		c.measured = cubicSmooth*c.answers/(half-c.counted) + (1-cubicSmooth)*c.measured
		c.answers, c.counted = 0, half
	}
}
