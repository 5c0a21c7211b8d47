package fleet

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/internal/gate"
)

// sim is a run.
type sim struct {
	queue
	cfg   Config
	start time.Time
	now   int64 // ns since the start
	log   *Log
	net   *rand.Rand
	names []string // of users

	homes    []*home
	replicas []*replica
	live     []*replica
	provider *provider
	calls    []call // by number
	free     []int32

	coordinator *share.Coordinator // nil if nothing is shared
	messages    map[int64]*message
	sent        int64
}

// lead is how long before the first call the fleet is started: static replicas have
// their parts only when all know of each other, and windows have forgotten what was
// before.
const lead = 75 * time.Second

// call is a call that has not ended.
type call struct {
	job
	id      gate.ID
	replica *replica // nil if it has died
	record  int
	used    bool
	flying  bool
	over    [dims]bool // what its last refusal was for
}

// Run plays a fleet. The same Config gives the same Log. The error names the field of the
// Config that is wrong.
func Run(cfg Config) (*Log, error) {
	cfg, err := cfg.WithDefaults()
	if err != nil {
		return nil, err
	}
	s := &sim{
		cfg: cfg, start: time.Unix(1_700_000_000, 0), homes: cfg.homes(), messages: make(map[int64]*message),
		net: rand.New(rand.NewPCG(cfg.Seed, networkStream)),
		log: &Log{Config: cfg, Trips: make([]int32, cfg.seconds()), Refusals: make([]int32, cfg.seconds())},
	}
	if s.provider, err = newProvider(&cfg); err != nil {
		return nil, err
	}
	there := cfg.Replicas - cfg.absent()
	if cfg.Mode != Alone {
		s.coordinator, err = share.NewCoordinator(share.CoordinatorConfig{
			Dims: cfg.sharedDims(), DebitAtGrant: cfg.NoGuard, Replicas: cfg.fewest(),
		})
		if err != nil {
			return nil, err
		}
	}
	for i := range cfg.Users {
		s.names = append(s.names, strconv.Itoa(i))
	}
	for i := range cfg.Replicas {
		s.replicas = append(s.replicas, &replica{n: int32(i)})
	}
	s.now = -int64(lead)
	for _, r := range s.replicas[:there] {
		if err := s.boot(r); err != nil {
			return nil, err
		}
	}
	s.countLive()
	for i, h := range s.homes {
		s.push(h.next(), arrives, int32(i), 0)
	}
	for i, ch := range cfg.Changes {
		s.push(int64(ch.At), fleetChange, int32(i), 0)
	}
	s.push(0, second, 0, 0)
	for {
		e, ok := s.pop()
		if !ok || e.at >= int64(cfg.Length) {
			break
		}
		s.now = e.at
		s.log.Events++
		if err := s.happen(&e); err != nil {
			return nil, err
		}
	}
	s.log.Use = s.provider.use
	return s.log, nil
}

func (s *sim) time() time.Time { return s.start.Add(time.Duration(s.now)) }

func (s *sim) passed() time.Duration { return time.Duration(s.now) }

func (s *sim) happen(e *event) error {
	switch e.what {
	case arrives:
		s.arrive(int(e.who))
		s.push(s.homes[e.who].next(), arrives, e.who, 0)
	case reaches:
		s.reach(e.who)
	case begins:
		s.begin(e.who)
	case ends:
		s.end(e.who)
	case refused:
		s.refuse(e.who, time.Duration(e.nth))
	case reachStore:
		s.atStore(e.nth)
	case answered:
		s.hears(e.nth)
	case timedOut:
		if r := s.replicas[e.who]; r.alive && r.asked == e.nth {
			s.waitsInVain(r)
		}
	case pollDue:
		if r := s.replicas[e.who]; r.alive && r.life == e.nth && r.pollAt == e.at {
			s.touch(r)
		}
	case lookDue:
		if r := s.replicas[e.who]; r.alive && r.life == e.nth && r.lookAt == e.at {
			r.wake = true
			s.touch(r)
		}
	case fleetChange:
		return s.change(s.cfg.Changes[e.who])
	case second:
		if s.cfg.Progress != nil {
			s.cfg.Progress(s.passed())
		}
		s.push(s.now+int64(time.Second), second, 0, 0)
	}
	return nil
}

// change lets replicas die and join.
func (s *sim) change(ch Change) error {
	for i := range ch.Kill {
		s.die(s.live[i])
	}
	join := ch.Join
	for _, died := range []bool{true, false} { // those that have died come first
		for _, r := range s.replicas {
			if join > 0 && !r.alive && (r.life > 0) == died {
				join--
				if err := s.boot(r); err != nil {
					return err
				}
			}
		}
	}
	s.countLive()
	return nil
}

func (s *sim) countLive() {
	s.live = s.live[:0]
	for _, r := range s.replicas {
		if r.alive {
			s.live = append(s.live, r)
		}
	}
}

// serves is the replica that serves a home now.
func (s *sim) serves(n int) *replica {
	if r := s.replicas[n]; r.alive {
		return r
	}
	return s.live[n%len(s.live)]
}

func (s *sim) record(k *call) *Record { return &s.log.Calls[k.record] }
