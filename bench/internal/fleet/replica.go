package fleet

import (
	"fmt"
	"math"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/internal/gate"
)

// replica is one process: a gate's core, and its part of the shared quota.
type replica struct {
	n      int32
	life   int64 // how often it was started; 0 is never
	alive  bool
	core   *gate.Core
	lessee *share.Lessee // nil if nothing is shared
	calls  map[gate.ID]int32

	pollAt  int64         // when it is polled next; not after now if nobody waits for that
	lookAt  int64         // the same for its lessee
	wake    bool          // the lessee has something to do
	asked   int64         // the message whose answer it waits for; 0 is none
	request share.Request // in it
	demand  budget.Demand
}

// sharedDims are the dimensions of the quota as the lessees and the coordinator name
// them.
func (c *Config) sharedDims() []share.Dim {
	shape := share.Window
	if c.Window == engine.Bucket {
		shape = share.Bucket
	}
	return []share.Dim{
		{Shape: shape, Limit: c.TokensPerMinute()},
		{Shape: shape, Limit: c.RequestsPerMinute()},
		{Shape: share.Slots, Limit: c.Slots},
	}
}

// limiter is a limit that is the replica's own.
func (c *Config) limiter(limit int64) (budget.Limiter, error) {
	if c.Window == engine.Bucket {
		return budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: limit, Window: minute})
	}
	return budget.NewWindowBudget(budget.WindowBudgetConfig{Limit: limit, Window: minute})
}

// boot starts a replica.
func (s *sim) boot(r *replica) error {
	c := &s.cfg
	r.life++
	r.alive, r.pollAt, r.lookAt, r.asked = true, math.MinInt64, math.MinInt64, 0
	r.calls = make(map[gate.ID]int32)
	cfg := gate.Config{Classes: []gate.Class{{Weight: 1}}, Slots: c.Slots}
	limits := []int64{c.TokensPerMinute(), c.RequestsPerMinute()}
	if c.Mode == Alone {
		for _, limit := range limits {
			l, err := c.limiter(limit)
			if err != nil {
				return err
			}
			cfg.Dims = append(cfg.Dims, gate.Dim{Limiter: l, Window: minute})
		}
		r.core = gate.New(cfg)
		return nil
	}
	lessee, err := share.NewLessee(share.LesseeConfig{
		Dims: c.sharedDims(), Epoch: r.life, Mode: c.Mode.shared(), Replica: fmt.Sprintf("replica-%d", r.n),
		Wake: func() { r.wake = true },
	})
	if err != nil {
		return err
	}
	for i := range limits {
		cfg.Dims = append(cfg.Dims, gate.Dim{Limiter: lessee.Limiter(i), Window: minute})
	}
	cfg.Lender = lessee.Slots()
	r.lessee, r.core, r.wake = lessee, gate.New(cfg), true
	s.touch(r)
	return nil
}

// die ends a replica at once: nobody hears of it any more, and its calls are lost. What
// was sent still reaches the provider.
func (s *sim) die(r *replica) {
	r.alive, r.core, r.lessee, r.calls = false, nil, nil, nil
	for i := range s.calls {
		k := &s.calls[i]
		if k.used && k.replica == r {
			rec := s.record(k)
			rec.Outcome, rec.Ended = Lost, s.passed()
			k.replica = nil
			if !k.flying {
				s.drop(int32(i))
			}
		}
	}
}

// touch does what a replica's shell does after anything has happened there: it starts
// the calls that can start, and looks after the lessee if that has woken it.
func (s *sim) touch(r *replica) {
	s.poll(r)
	for r.wake && r.asked == 0 {
		r.wake = false
		s.look(r)
	}
}

// poll starts the calls that can start, and ends those that wait no more.
func (s *sim) poll(r *replica) {
	if r.core.Waiting() == 0 {
		return
	}
	grants, failed, next := r.core.Poll(s.time())
	for _, id := range grants {
		s.launch(r, id, r.calls[id])
	}
	for _, f := range failed {
		n := r.calls[f.ID]
		rec := s.record(&s.calls[n])
		rec.Outcome, rec.Ended = Expired, s.passed()
		s.over(r, f.ID, n, nil)
	}
	if at := int64(next.Sub(s.start)); !next.IsZero() && (r.pollAt <= s.now || at < r.pollAt) {
		r.pollAt = max(at, s.now+1)
		s.push(r.pollAt, pollDue, r.n, r.life)
	}
}

// look lets the lessee ask the store what is due, or tells when it wants to be looked
// after next.
func (s *sim) look(r *replica) {
	now := s.time()
	r.core.Demand(now, &r.demand)
	req, ok := r.lessee.Request(now, &r.demand)
	if ok {
		s.send(r, req)
	} else if due := r.lessee.Due(now); !due.IsZero() {
		if at := int64(due.Sub(s.start)); r.lookAt <= s.now || at < r.lookAt {
			r.lookAt = max(at, s.now+1)
			s.push(r.lookAt, lookDue, r.n, r.life)
		}
	}
	s.poll(r)
}

// message is a request on its way to the store, and then the reply to it.
type message struct {
	from  *replica
	life  int64
	req   share.Request
	reply share.Reply
}

// timeout is how long the store is waited for.
const timeout = time.Second

func (s *sim) send(r *replica, req share.Request) {
	s.sent++
	r.asked, r.request = s.sent, req
	s.messages[s.sent] = &message{from: r, life: r.life, req: req}
	s.push(s.now+s.cfg.ToStore.draw(s.net), reachStore, r.n, s.sent)
	if s.cfg.DownTo > 0 {
		s.push(s.now+int64(timeout), timedOut, r.n, s.sent)
	}
}

// atStore takes in a request.
func (s *sim) atStore(nth int64) {
	m := s.messages[nth]
	if s.now >= int64(s.cfg.DownFrom) && s.now < int64(s.cfg.DownTo) {
		delete(s.messages, nth)
		return
	}
	if s.now >= 0 {
		s.log.Trips[s.now/int64(time.Second)]++
	}
	m.reply = s.coordinator.Do(s.time(), m.req)
	s.push(s.now+s.cfg.ToStore.draw(s.net), answered, m.from.n, nth)
}

// hears takes in a reply.
func (s *sim) hears(nth int64) {
	m := s.messages[nth]
	delete(s.messages, nth)
	r := m.from
	if !r.alive || r.life != m.life || r.asked != nth {
		return
	}
	r.asked = 0
	r.lessee.Reply(s.time(), m.req, m.reply)
	r.wake = true
	s.touch(r)
}

// waitsInVain tells the lessee that a request had no answer.
func (s *sim) waitsInVain(r *replica) {
	r.asked = 0
	r.lessee.Failed(s.time(), r.request)
	r.wake = true
	s.touch(r)
}
