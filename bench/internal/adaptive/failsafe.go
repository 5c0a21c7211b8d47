package adaptive

import (
	"math/rand/v2"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
)

// failsafe is a program with failsafe-go's adaptive limiter at its documented
// defaults (limits 1, 200 and 20; p90 of windows of 1 to 30 s with 50 samples) inside
// a retry policy (five attempts, a second doubled up to a minute, jitter factor 0.25:
// the examples of its documentation). Callers wait for a permit as long as it takes.
// As its executor does, a permit records whatever came of the call, a refusal too.
type failsafe struct {
	dice    *rand.Rand
	send    func(*call)
	limiter adaptivelimiter.AdaptiveLimiter[any]
	retries
	idle int // callers that want to send a new call
}

const (
	failsafeAttempts = 5
	failsafeDelay    = time.Second
	failsafeCap      = time.Minute
	failsafeJitter   = 0.25
)

func newFailsafe(callers int, dice *rand.Rand, send func(*call)) *failsafe {
	return &failsafe{dice: dice, send: send, idle: callers, limiter: adaptivelimiter.NewBuilder[any]().Build()}
}

func (f *failsafe) poll(now time.Duration) (next time.Duration) {
	for f.retries.due(now) || f.idle > 0 {
		permit, ok := f.limiter.TryAcquirePermit()
		if !ok {
			return never // until one comes back
		}
		k := f.retries.pop(now)
		if k == nil {
			f.idle--
			k = &call{}
		}
		k.held = permit
		k.attempts++
		f.send(k)
	}
	return f.retries.next()
}

func (f *failsafe) refused(now time.Duration, k *call, _ time.Duration) {
	k.held.(adaptivelimiter.Permit).Record()
	if k.attempts == failsafeAttempts {
		f.idle++
		return
	}
	delay := min(failsafeDelay<<(k.attempts-1), failsafeCap)
	f.retries.push(now+time.Duration(float64(delay)*(1+failsafeJitter*(2*f.dice.Float64()-1))), k)
}

func (f *failsafe) begun(time.Duration, *call) {}

func (f *failsafe) ended(_ time.Duration, k *call) {
	k.held.(adaptivelimiter.Permit).Record()
	f.idle++
}

// retries are calls that wait to be sent again.
type retries []retry

type retry struct {
	at   time.Duration
	call *call
}

// push adds a call; the first to be sent stays first.
func (r *retries) push(at time.Duration, k *call) {
	i := len(*r)
	*r = append(*r, retry{})
	for ; i > 0 && (*r)[i-1].at > at; i-- {
		(*r)[i] = (*r)[i-1]
	}
	(*r)[i] = retry{at, k}
}

// due reports whether a call may be sent again.
func (r *retries) due(now time.Duration) bool { return len(*r) > 0 && (*r)[0].at <= now }

// pop takes the first call that may be sent again, or nil.
func (r *retries) pop(now time.Duration) *call {
	if !r.due(now) {
		return nil
	}
	k := (*r)[0].call
	*r = (*r)[1:]
	return k
}

// next is when the first call may be sent again.
func (r *retries) next() time.Duration {
	if len(*r) == 0 {
		return never
	}
	return (*r)[0].at
}
