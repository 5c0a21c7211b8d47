package adaptive

import (
	"math/rand/v2"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/internal/gate"
)

// headgate is a program with a gate whose limit is unknown: the pure core, driven as
// package ratelimited drives it (Permit.refused and modelCall.again). The limit is
// searched for as a Dimension that refills continuously, or, where the provider
// bounds calls at a time, as slots.
type headgate struct {
	setting *Setting
	dice    *rand.Rand
	send    func(*call)
	core    *gate.Core
	calls   map[gate.ID]*call
	callers int
	limited bool // by a rate
}

// The retries of package retry by default: three attempts, full jitter from half a
// second; and the pauses of package ratelimited.
const (
	attempts  = 3
	base      = 500 * time.Millisecond
	mostHint  = time.Minute
	leastWait = 100 * time.Millisecond
	mostPause = 5
)

// epoch is the instant that the core takes for the start.
var epoch = time.Unix(1_700_000_000, 0)

// fine is how many of the provider's windows the limiter's has, and most the largest
// limit, as package ratelimited makes a Dimension whose Limit is Unknown.
const (
	fine = 60
	most = 1 << 40
)

func newHeadgate(s *Setting, callers int, dice *rand.Rand, send func(*call)) *headgate {
	h := &headgate{setting: s, dice: dice, send: send, callers: callers, calls: make(map[gate.ID]*call), limited: s.Rate > 0}
	cfg := gate.Config{Classes: []gate.Class{{Weight: 1}}, Slots: int64(callers), SearchSlots: s.Places > 0}
	if h.limited {
		bucket, err := budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: fine * most, Burst: most, Window: fine * minute})
		if err != nil {
			panic(err) // these numbers are valid
		}
		cfg.Dims = []gate.Dim{{Limiter: bucket, Window: fine * minute, Search: &gate.Search{Window: minute}}}
	}
	h.core = gate.New(cfg)
	return h
}

// cost is what a call takes from the limits: a request of each.
func (h *headgate) cost(n int64) []int64 {
	if !h.limited {
		return nil
	}
	return []int64{n}
}

func (h *headgate) poll(now time.Duration) time.Duration {
	at := epoch.Add(now)
	for len(h.calls) < h.callers {
		id, granted, refused := h.core.Enqueue(at, gate.Spec{Slots: 1, Costs: h.cost(1)})
		if refused.Err != nil {
			panic(refused.Err) // nothing is bounded
		}
		h.calls[id] = &call{held: id}
		if granted {
			h.granted(id)
		}
	}
	grants, _, next := h.core.Poll(at)
	for _, id := range grants {
		h.granted(id)
	}
	if next.IsZero() {
		return never
	}
	return next.Sub(epoch)
}

func (h *headgate) granted(id gate.ID) {
	k := h.calls[id]
	k.attempts++
	h.send(k)
}

func (h *headgate) refused(now time.Duration, k *call, hint time.Duration) {
	at, id := epoch.Add(now), k.held.(gate.ID)
	hint = min(hint, mostHint)
	h.core.Answered(id)
	if h.limited {
		if hint > 0 {
			h.core.CloseBudget(at, 0, at.Add(h.jittered(hint)))
		}
		if row := h.core.Cut(at, id, 0); row > 0 && hint == 0 {
			h.core.CloseBudget(at, 0, at.Add(h.backoff(min(row, mostPause))))
		}
	} else {
		h.core.Crowded(at, id)
	}
	cost := h.cost(0)
	if h.setting.FailuresCount {
		cost = h.cost(1)
	}
	if k.attempts == attempts {
		h.core.Finish(at, id, cost)
		delete(h.calls, id)
		return
	}
	wait := h.backoff(k.attempts)
	if hint > 0 {
		wait = max(wait, h.jittered(max(hint, leastWait)))
	}
	h.core.Requeue(at, id, cost, at.Add(wait))
}

// jittered is a hint and up to a tenth more.
func (h *headgate) jittered(hint time.Duration) time.Duration {
	return hint + time.Duration(h.dice.Float64()*float64(hint)/10)
}

// backoff is full jitter after so many failures.
func (h *headgate) backoff(failures int) time.Duration {
	return time.Duration(h.dice.Float64() * float64(base<<(failures-1)))
}

func (h *headgate) begun(now time.Duration, k *call) {
	id := k.held.(gate.ID)
	h.core.Succeeded(epoch.Add(now), id)
	h.core.Counted(epoch.Add(now), id)
}

func (h *headgate) ended(now time.Duration, k *call) {
	id := k.held.(gate.ID)
	h.core.Finish(epoch.Add(now), id, nil)
	delete(h.calls, id)
}
