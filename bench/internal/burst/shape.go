package burst

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A Shape is a burst of calls and the provider that it meets.
type Shape struct {
	// Name is short, for flags; Title tells what happens.
	Name, Title string
	// TokensPerMinute and RequestsPerMinute are the quota as the provider
	// publishes it. It counts a call as it arrives.
	TokensPerMinute   int64
	RequestsPerMinute int64
	// Slots is the width that a program would choose for this traffic, by
	// Little's law with room for bursts.
	Slots int
	// Concurrency is the largest number of calls at the provider, which refuses
	// more; 0 is no limit.
	Concurrency int
	// Stream is how long calls keep coming; 0 is a burst that ends by itself.
	Stream time.Duration
	// MaxWait bounds how long a call waits for its admission; 0 is no bound.
	MaxWait time.Duration
	// Granted is the part of the published quota that the provider lets
	// through; 0 is all.
	Granted float64
	// Quantum is the time over which the provider checks the quota besides the
	// minute; 0 is no such check.
	Quantum time.Duration
	// Delay is the time from sending a call until the provider sees it; up to
	// Jitter, uniform from 0, comes on top.
	Delay, Jitter time.Duration
	// OutageFrom and OutageTo bound a time in which the provider answers 503.
	OutageFrom, OutageTo time.Duration

	script func(*rand.Rand) []job
}

// validate returns an error that names the field that is wrong and its value.
func (s *Shape) validate() error {
	switch {
	case s.script == nil:
		return fmt.Errorf("burst: shape %q is none of Shapes", s.Name)
	case s.TokensPerMinute < 1:
		return fmt.Errorf("burst: shape %q: TokensPerMinute is %d, must be positive", s.Name, s.TokensPerMinute)
	case s.RequestsPerMinute < 1:
		return fmt.Errorf("burst: shape %q: RequestsPerMinute is %d, must be positive", s.Name, s.RequestsPerMinute)
	case s.Slots < 1:
		return fmt.Errorf("burst: shape %q: Slots is %d, must be positive", s.Name, s.Slots)
	case !(s.Granted >= 0 && s.Granted <= 1):
		return fmt.Errorf("burst: shape %q: Granted is %v, must lie in [0, 1]", s.Name, s.Granted)
	case s.MaxWait < 0:
		return fmt.Errorf("burst: shape %q: MaxWait is %v, must not be negative", s.Name, s.MaxWait)
	}
	return nil
}

// minute is the length of the provider's window.
const minute = time.Minute

// call is one call to the model.
type call struct {
	id int
	// flow is whom the call is for, group the class that its wait is reported
	// under, class the one that it has in a policy with classes, request the
	// click that it belongs to.
	flow, group, class, request string
	// tokens is what the provider counts, estimate what the program believes.
	tokens, estimate int64
	// takes is the time from the call's admission to its last token.
	takes time.Duration
	// reads is how long the consumer keeps the first item before it asks for
	// more.
	reads time.Duration
}

// firstShare is the part of a call's time that passes before its first item.
const firstShare = 0.05

// first is the time from the call's admission to its first item.
func (c *call) first() time.Duration { return time.Duration(firstShare * float64(c.takes)) }

// holds is the time from the call's admission to its end.
func (c *call) holds() time.Duration { return max(c.takes, c.first()+c.reads) }

// plan is a piece of work: a call, a pause, pieces one after the other, or
// pieces at once.
type plan struct {
	call     *call
	pause    time.Duration
	first    []plan
	together []plan
}

// job is a piece of work that begins at an instant.
type job struct {
	at time.Duration
	plan
}

func one(c call) plan                { return plan{call: &c} }
func pause(d time.Duration) plan     { return plan{pause: d} }
func inOrder(parts ...plan) plan     { return plan{first: parts} }
func together(parts ...plan) plan    { return plan{together: parts} }
func at(d time.Duration, p plan) job { return job{d, p} }

// jobs makes the work of a shape from a seed, and numbers its calls.
func (s *Shape) jobs(seed uint64) []job {
	jobs := s.script(rand.New(rand.NewPCG(seed, 0x6865616467617465)))
	n := 0
	for i := range jobs {
		jobs[i].each(func(c *call) {
			n++
			c.id = n
		})
	}
	return jobs
}

// each calls f for every call of the plan.
func (p *plan) each(f func(*call)) {
	if p.call != nil {
		f(p.call)
	}
	for i := range p.first {
		p.first[i].each(f)
	}
	for i := range p.together {
		p.together[i].each(f)
	}
}

// release is a call and the earliest instant at which it can be asked for.
type release struct {
	at time.Duration
	*call
}

// releases lists the calls as they would be asked for if nothing ever waited,
// and when the last would end then: the critical path. No policy can ask for a
// call earlier.
func (s *Shape) releases(jobs []job) (list []release, end time.Duration) {
	for i := range jobs {
		end = max(end, s.walk(&jobs[i].plan, jobs[i].at, &list))
	}
	return list, end
}

// walk returns when the plan ends that begins at an instant.
func (s *Shape) walk(p *plan, now time.Duration, list *[]release) time.Duration {
	if s.ended(now) {
		return now
	}
	if p.call != nil {
		*list = append(*list, release{now, p.call})
		return now + s.Delay + p.call.holds()
	}
	now += p.pause
	for i := range p.first {
		now = s.walk(&p.first[i], now, list)
	}
	end := now
	for i := range p.together {
		end = max(end, s.walk(&p.together[i], now, list))
	}
	return end
}

// ended reports whether nothing new begins any more at an instant.
func (s *Shape) ended(now time.Duration) bool { return s.Stream > 0 && now >= s.Stream }

// granted is what the provider lets through of a published amount.
func (s *Shape) granted(published int64) int64 {
	if s.Granted == 0 {
		return published
	}
	return int64(float64(published) * s.Granted)
}

// Kept reports whether the provider keeps what it has published: its quota is
// what it says and it serves all the time.
func (s *Shape) Kept() bool { return s.Granted == 0 && s.OutageTo == 0 }
