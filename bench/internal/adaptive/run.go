package adaptive

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/headgate-go/headgate/bench/internal/virtual"
)

// client is a program: a way to decide when its calls are sent.
type client interface {
	// poll sends every call that may be sent now, and tells when the client wants to
	// be polled again if nothing happens; never if it does not.
	poll(now time.Duration) (next time.Duration)
	// refused, begun and ended tell what became of a call.
	refused(now time.Duration, k *call, hint time.Duration)
	begun(now time.Duration, k *call)
	ended(now time.Duration, k *call)
}

// never is an instant that does not come.
const never = time.Duration(math.MaxInt64)

// call is one call of a client, with all its attempts.
type call struct {
	attempts int
	held     any // what the client knows it by
}

// Run plays a setting. The error names what is wrong with it.
func Run(s Setting) (Result, error) {
	s = s.withDefaults()
	if err := s.Validate(); err != nil {
		return Result{}, err
	}
	if s.Policy != Failsafe {
		return newRun(&s).play(), nil
	}
	var result Result
	err := virtual.Run(func() { // it reads the clock
		start := time.Now()
		r := newRun(&s)
		r.pass = func(now time.Duration) { time.Sleep(time.Until(start.Add(now))) }
		result = r.play()
	})
	if err != nil {
		return Result{}, fmt.Errorf("adaptive: %w", err)
	}
	return result, nil
}

// what an event is.
type what uint8

const (
	polls   what = iota // a client wants to be polled
	arrives             // a call reaches the provider
	refused             // a client learns that a call was refused
	begins              // a client has the first item
	ends                // a client has the last one
	changes             // the quota does
	begun               // the measured time has begun
)

// event is something that will happen.
type event struct {
	at     time.Duration
	seq    int // of two events at one instant the first is the one that was foreseen first
	what   what
	client int
	call   *call
	hint   time.Duration // of a refusal
	poll   int           // the number of the poll that asked for this one
	rate   float64       // of a change
}

// agenda is a heap of events.
type agenda []event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(event)) }
func (a *agenda) Pop() any {
	old := *a
	e := old[len(old)-1]
	*a = old[:len(old)-1]
	return e
}

// run is a setting that is played.
type run struct {
	setting  *Setting
	rng      *rand.Rand
	pass     func(now time.Duration) // lets time pass for those who read the clock; or nil
	now      time.Duration
	todo     agenda
	seq      int
	provider *provider
	clients  []client
	polls    []int // per client
	served   []int // per client, in the measured time
	refused  int
	measured bool
}

func newRun(s *Setting) *run {
	r := &run{
		setting: s, rng: rand.New(rand.NewPCG(s.Seed, 1)), provider: newProvider(s),
		polls: make([]int, s.Clients), served: make([]int, s.Clients),
	}
	for i := range s.Clients {
		callers := s.Callers / s.Clients
		if i < s.Callers%s.Clients {
			callers++
		}
		dice := rand.New(rand.NewPCG(s.Seed, uint64(i)+2))
		send := func(k *call) { r.send(i, k) }
		switch s.Policy {
		case Headgate:
			r.clients = append(r.clients, newHeadgate(s, callers, dice, send))
		case Failsafe:
			r.clients = append(r.clients, newFailsafe(callers, dice, send))
		case AWS:
			r.clients = append(r.clients, newAWS(callers, dice, send))
		}
		r.expect(event{what: polls, client: i})
	}
	for _, step := range s.Steps {
		r.expect(event{at: step.At, what: changes, rate: step.Rate})
	}
	r.expect(event{at: s.WarmUp, what: begun})
	return r
}

func (r *run) expect(e event) {
	r.seq++
	e.seq = r.seq
	heap.Push(&r.todo, e)
}

// after is an instant after now, log-normal with σ = 0.3.
func (r *run) after(median time.Duration) time.Duration {
	return r.now + time.Duration(float64(median)*math.Exp(0.3*r.rng.NormFloat64()))
}

// way is how long a call, or its answer, is on its way.
const way = 50 * time.Millisecond

func (r *run) send(client int, k *call) {
	r.expect(event{at: r.after(way), what: arrives, client: client, call: k})
}

// play lets everything happen.
func (r *run) play() Result {
	end := r.setting.WarmUp + r.setting.Span
	for len(r.todo) > 0 && r.todo[0].at <= end {
		e := heap.Pop(&r.todo).(event)
		r.now = e.at
		if r.pass != nil {
			r.pass(r.now)
		}
		r.happens(&e)
	}
	r.now = end
	r.provider.tally(end)
	return r.result()
}

// happens lets one event happen. Whatever a client is told, it is polled after it.
func (r *run) happens(e *event) {
	switch c := r.clients[e.client]; e.what {
	case begun:
		r.measured = true
		r.provider.reset(r.now)
		return
	case changes:
		r.provider.setRate(r.now, e.rate)
		return
	case arrives:
		r.decide(e)
		return
	case polls:
		if e.poll != r.polls[e.client] {
			return // it has been polled since
		}
	case refused:
		c.refused(r.now, e.call, e.hint)
	case begins:
		c.begun(r.now, e.call)
	case ends:
		r.provider.end(r.now)
		c.ended(r.now, e.call)
	}
	next := r.clients[e.client].poll(r.now)
	r.polls[e.client]++
	if next != never {
		r.expect(event{at: max(next, r.now), what: polls, client: e.client, poll: r.polls[e.client]})
	}
}

// decide lets the provider decide about a call.
func (r *run) decide(e *event) {
	ok, hint := r.provider.arrive(r.now)
	switch {
	case !ok:
		if r.measured {
			r.refused++
		}
		if !r.setting.Hints {
			hint = 0
		}
		r.expect(event{at: r.after(way), what: refused, client: e.client, call: e.call, hint: hint})
	default:
		if r.measured {
			r.served[e.client]++
		}
		over := r.after(r.setting.Latency)
		r.expect(event{at: r.now + (over-r.now)/3, what: begins, client: e.client, call: e.call})
		r.expect(event{at: over, what: ends, client: e.client, call: e.call})
	}
}

func (r *run) result() Result {
	res := Result{Refused: r.refused, Jain: 1}
	squares := 0.0
	for _, n := range r.served {
		res.Served += n
		squares += float64(n) * float64(n)
	}
	if squares > 0 {
		res.Jain = float64(res.Served) * float64(res.Served) / (float64(len(r.served)) * squares)
	}
	if decided := res.Served + res.Refused; decided > 0 {
		res.Throttled = float64(res.Refused) / float64(decided)
	}
	if r.setting.Rate > 0 {
		res.Goodput = float64(res.Served) / r.provider.offered
	} else {
		res.Goodput = r.provider.busy / (float64(r.setting.Places) * r.setting.Span.Seconds())
	}
	return res
}
