package gate

import (
	stdheap "container/heap"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// soak sends a great many calls through a Core and lets most things happen to
// them that can.
type soak struct {
	t       *testing.T
	core    *Core
	rng     *rand.Rand
	now     time.Time
	todo    events
	next    time.Time // when the Core wants to be polled
	waiting []ID
	ended   int
	settled int64 // units of the last limit, as told to the Core
	tally   map[string]int
}

// The last limit of a soak never refills, so that its level tells every unit
// that was ever settled.
const soakUnits = 1 << 60

func newSoak(t *testing.T, cfg Config) *soak {
	audit, err := budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: 1, Burst: soakUnits, Window: 1e6 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Dims = append(cfg.Dims, Dim{Limiter: audit, Window: time.Nanosecond})
	return &soak{t: t, core: New(cfg), rng: rand.New(rand.NewPCG(7, 7)), now: time.Unix(1_700_000_000, 0), tally: make(map[string]int)}
}

func (s *soak) later(d time.Duration, do func()) {
	s.todo.seq++
	stdheap.Push(&s.todo, event{s.now.Add(d), s.todo.seq, do})
}

func (s *soak) chance(percent int) bool { return s.rng.IntN(100) < percent }

func (s *soak) ask() {
	tokens := 1 + s.rng.Int64N(4000)
	spec := Spec{
		Class: s.rng.IntN(3), Flow: strconv.Itoa(s.rng.IntN(60)), Slots: 1,
		Costs: []int64{1, tokens, tokens},
	}
	if s.chance(1) {
		spec.Slots = int32(1 + s.rng.IntN(40)) // up to more than there are
	}
	if s.chance(30) {
		spec.Request = spec.Flow + "/" + strconv.Itoa(s.rng.IntN(9))
	}
	if s.chance(10) {
		spec.Deadline = s.now.Add(time.Duration(s.rng.Int64N(int64(20 * time.Second))))
	}
	id, granted, refused := s.core.Enqueue(s.now, spec)
	switch {
	case refused.Err != nil:
		s.ended++
		s.tally["refused"]++
	case granted:
		s.started(id)
	default:
		s.waiting = append(s.waiting, id)
	}
}

// started decides what becomes of a call.
func (s *soak) started(id ID) {
	hold := time.Duration(float64(2*time.Second) * (0.1 + s.rng.ExpFloat64()))
	costs := s.core.costs(id.c)
	actual := []int64{1, int64(float64(costs[1]) * (0.2 + 1.6*s.rng.Float64())), 0}
	actual[2] = actual[1]
	end := func(how string, settle []int64) {
		s.tally[how]++
		if s.core.Settle(s.now, id, settle) {
			s.settled += settle[2]
		}
		s.core.FreeSlot(s.now, id)
		s.core.End(s.now, id)
		s.core.End(s.now, id) // as a deferred clean-up does
		s.ended++
	}
	s.later(hold/4, func() { s.core.Counted(s.now, id) })
	s.later(hold, func() {
		switch p := s.rng.IntN(100); {
		case p < 70:
			s.core.Succeeded(s.now, id)
			s.core.FreeSlot(s.now, id) // usage comes after the last item
			s.later(10*time.Millisecond, func() { end("succeeded", actual) })
		case p < 80:
			end("failed", []int64{0, 0, 0})
		case p < 85: // cancelled: the estimate stands
			end("cancelled in flight", slices.Clone(costs))
		case p < 99: // refused by the provider
			s.tally["requeued"]++
			switch n := s.rng.IntN(1000); {
			case n < 5:
				s.core.Cut(s.now, id, 1)
			case n < 10:
				s.core.CutSlots(s.now, id)
			case n < 13:
				s.core.CloseBudget(s.now, 1, s.now.Add(time.Second))
			}
			s.settled++
			s.core.Requeue(s.now, id, []int64{1, 0, 1}, s.now.Add(time.Duration(s.rng.Int64N(int64(3*time.Second)))))
			s.waiting = append(s.waiting, id)
		default: // usage far above the estimate, and some more afterwards
			s.core.Settle(s.now, id, []int64{1, 9000, 9000})
			s.core.Adjust(s.now, id, []int64{0, 500, 500})
			s.settled += 9500
			end("overran", nil)
		}
	})
}

func (s *soak) poll() {
	grants, failed, next := s.core.Poll(s.now)
	for _, id := range slices.Clone(grants) {
		s.started(id)
	}
	for _, f := range slices.Clone(failed) {
		s.tally["deadline"]++
		s.core.End(s.now, f.ID)
		s.ended++
	}
	s.next = next
}

func (s *soak) giveUp() {
	i := s.rng.IntN(len(s.waiting))
	if s.core.Cancel(s.now, s.waiting[i]) {
		s.tally["cancelled in line"]++
		s.ended++
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	if len(s.waiting) > 5000 { // most of them are granted by now
		s.waiting = slices.DeleteFunc(s.waiting, func(id ID) bool { return id.call() == nil || id.call().state == stateRunning })
	}
}

func (s *soak) run(calls int) {
	for asked := 0; asked < calls || s.todo.Len() > 0 || !s.next.IsZero(); {
		s.now = s.now.Add(time.Duration(float64(40*time.Millisecond) * s.rng.ExpFloat64()))
		for arrival := s.now; ; s.poll() {
			at, do := s.next, func() {}
			if s.todo.Len() > 0 && (at.IsZero() || !s.todo.list[0].at.After(at)) {
				at, do = s.todo.list[0].at, s.todo.list[0].do
			}
			if at.IsZero() || at.After(arrival) {
				s.now = arrival
				break
			}
			if s.todo.Len() > 0 && at.Equal(s.todo.list[0].at) {
				stdheap.Pop(&s.todo)
			}
			s.now = at
			do()
		}
		if asked < calls {
			s.ask()
			asked++
			if len(s.waiting) > 0 && s.chance(4) {
				s.giveUp()
			}
			s.poll()
		}
	}
}

func TestAMillionCallsLeaveNoDrift(t *testing.T) {
	t.Parallel()
	calls := 1_000_000
	if testing.Short() || raceEnabled {
		calls = 100_000
		t.Logf("%d calls instead of a million: -short or -race is on", calls)
	}
	s := newSoak(t, Config{
		Slots: 80, FlowSlots: 6, RequestSlots: 3, FlowShare: 0.02, MaxWaiting: 1000,
		Classes: []Class{{Weight: 4, MinSlots: 4}, {Weight: 2}, {Weight: 1, MaxSlots: 24}},
		Dims:    []Dim{refilled(t, 2400, 200), perMinute(t, 4_000_000)},
	})
	s.run(calls)
	if s.ended != calls {
		t.Errorf("%d of %d calls have ended", s.ended, calls)
	}
	if level := s.core.dims[2].Level(s.now); level != soakUnits-s.settled {
		t.Errorf("the books say that %d units were used, settled were %d", soakUnits-level, s.settled)
	}
	s.now = s.now.Add(24 * time.Hour) // the shares are whole again
	s.core.Poll(s.now)
	if err := s.core.empty(); err != nil {
		t.Error(err)
	}
	if err := s.core.intact(); err != nil {
		t.Error(err)
	}
	for i, want := range []int64{200, 4_000_000} {
		if share := s.core.dims[i].share; share < 1 {
			s.core.recover(s.now, s.core.last)
		}
		if level := s.core.dims[i].Level(s.now); level != want {
			t.Errorf("%d units of limit %d are free in the end, want all %d", level, i, want)
		}
	}
	t.Logf("%v", s.tally)
	for _, how := range []string{"succeeded", "failed", "requeued", "refused", "deadline", "cancelled in line", "cancelled in flight", "overran"} {
		if s.tally[how] == 0 {
			t.Errorf("no call was %s", how)
		}
	}
}
