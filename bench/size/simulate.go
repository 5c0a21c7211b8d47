package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
	"github.com/headgate-go/headgate/bench/internal/virtual"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// maxSimulated is the largest number of calls of one simulation. More of them
// make its time shorter.
const maxSimulated = 30_000

// leastSimulated is the shortest simulation that says something about limits
// per minute.
const leastSimulated = 5 * time.Minute

// saturation is the load at which a second simulation, in which calls wait for
// as long as they must, measures what replicas carry at most.
const saturation = 2

// simulated is what the simulation measured in the last two thirds of its time:
// the first third fills the windows and uses up what they have saved.
type simulated struct {
	// Skipped is why there was no simulation.
	Skipped string `json:"skipped,omitempty"`
	// Length is the virtual time that was simulated.
	Length time.Duration `json:"length_ns"`
	// Calls is their number.
	Calls int `json:"calls"`

	// Demand is what the simulated users asked for.
	Demand demand `json:"demand"`
	// Served is what became of that demand, with the plan's gates.
	Served outcome `json:"served"`
	// Patient is what 99 of 100 calls of that demand wait at most if all wait for as
	// long as they must.
	Patient time.Duration `json:"wait_p99_without_max_wait_ns"`
	// Most is what became of a demand of twice what the quota carries, with
	// slots for as much as it carries and calls that wait as long as they must; nil where these
	// are too many to simulate.
	Most *outcome `json:"saturated,omitempty"`
}

// outcome is what a simulation measured.
type outcome struct {
	// Binds is the limit that was used most.
	Binds string `json:"binds"`
	// MaxUse is its use in the fullest minute, over its quota.
	MaxUse float64 `json:"max_use"`
	// CallsPerReplica are sent, and RequestsPerReplica are served with all
	// their calls, in a minute.
	CallsPerReplica    float64 `json:"calls_per_minute_per_replica"`
	RequestsPerReplica float64 `json:"user_requests_per_minute_per_replica"`
	// InFlight is the average number of calls in flight per replica, and
	// PeakInFlight the largest of any replica.
	InFlight     float64 `json:"in_flight_per_replica"`
	PeakInFlight int64   `json:"peak_in_flight"`
	// SlotsFull is the part of the time in which a replica has no slot left.
	SlotsFull float64 `json:"slots_full"`
	// Refused is the part of the calls that waited for MaxWait in vain.
	Refused float64 `json:"refused"`
	// Unfit is the part of the calls that are larger than a replica's part of the
	// quota, and can never be sent.
	Unfit float64 `json:"never_fit"`
	// WaitP50 and WaitP99 are how long half, and 99 of 100, of the calls that
	// were sent had waited at most.
	WaitP50 time.Duration `json:"wait_p50_ns"`
	WaitP99 time.Duration `json:"wait_p99_ns"`
	// Throttled is the number of 429s of the whole simulation.
	Throttled int64 `json:"throttled"`
	// Tenants is what became of each tenant's requests.
	Tenants []tenantOutcome `json:"tenants"`
}

type tenantOutcome struct {
	Name string `json:"name"`
	// Requests that came, and those of them that were served with all calls.
	Requests int `json:"requests"`
	Served   int `json:"served"`
}

// simulate plays the question's traffic through the answer's gates.
func simulate(q question, a reckoned, t traffic) (simulated, error) {
	length := timeOf(q.Peak, a.Demand.CallsPerMinute)
	if length < min(leastSimulated, q.Peak) {
		return simulated{Skipped: fmt.Sprintf("%v of this traffic are more than %d calls", leastSimulated, maxSimulated)}, nil
	}
	s := simulated{Length: length}
	requests := t.draw(q, 1, length)
	s.Calls = len(requests) * q.Calls
	s.Demand = ask(q, requests, length)
	var err error
	if s.Served, err = play(q, a.Slots, q.MaxWait, t, requests, length); err != nil {
		return simulated{}, err
	}
	patient, err := play(q, a.Slots, forever, t, requests, length)
	if err != nil {
		return simulated{}, err
	}
	s.Patient = patient.WaitP99
	twice := saturation * a.CallsPerReplica * float64(q.Replicas)
	if length = timeOf(q.Peak, twice); length < min(leastSimulated, q.Peak) {
		return s, nil
	}
	most := slots(a.CallsPerReplica*q.Latency.Minutes(), q.Burst*q.Calls, true)
	o, err := play(q, most, forever, t, t.draw(q, twice/a.Demand.CallsPerMinute, length), length)
	s.Most = &o
	return s, err
}

// timeOf is how much of a peak with so many calls a minute to simulate.
func timeOf(peak time.Duration, perMinute float64) time.Duration {
	return min(peak, duration(maxSimulated/perMinute).Truncate(time.Second))
}

// forever is longer than any line of a simulation lasts.
const forever = 365 * 24 * time.Hour

// ask measures the demand of the requests in the time that counts.
func ask(q question, requests []userRequest, length time.Duration) demand {
	from := length / 3
	minutes := (length - from).Minutes()
	var d demand
	count := q.counter()
	for _, r := range requests {
		for _, c := range r.calls {
			// A call that nothing holds back is in flight from at to at+latency.
			d.InFlight += max(0, min(length, r.at+c.latency)-max(from, r.at)).Minutes() / minutes
			if r.at >= from {
				d.CallsPerMinute += 1 / minutes
				d.TokensPerMinute += float64(count(c.used())) / minutes
			}
		}
		if r.at >= from {
			d.RequestsPerMinute += 1 / minutes
		}
	}
	return d
}

// play sends the requests through a fleet with so many slots per replica and
// that MaxWait, in virtual time.
func play(q question, slots int64, maxWait time.Duration, t traffic, requests []userRequest, length time.Duration) (outcome, error) {
	var o outcome
	var failed error
	err := virtual.Run(func() { o, failed = fleet(q, slots, maxWait, t, requests, length) })
	return o, errors.Join(err, failed)
}

// fleet is what play runs in virtual time.
func fleet(q question, slots int64, maxWait time.Duration, t traffic, requests []userRequest, length time.Duration) (outcome, error) {
	e, err := newEngine(q, t.Window)
	if err != nil {
		return outcome{}, err
	}
	return fleetBefore(e, q, slots, maxWait, t, requests, length)
}

// fleetBefore is a fleet that sends its calls to this engine.
func fleetBefore(e *engine.Engine, q question, slots int64, maxWait time.Duration, t traffic, requests []userRequest, length time.Duration) (outcome, error) {
	start := time.Now()
	b := &books{from: start.Add(length / 3), to: start.Add(length), tenants: make([]tenantOutcome, len(q.Tenants))}
	for i, who := range q.Tenants {
		b.tenants[i].Name = who.Name
	}
	gauges := make([]*gauge, q.Replicas)
	models := make([]*ratelimited.RateLimitedModel[*order, usage.Usage], q.Replicas)
	for i := range models {
		gate, err := gateFor(q, slots, maxWait, t.Window)
		if err != nil {
			return outcome{}, err
		}
		gauges[i] = &gauge{full: slots, from: b.from, to: b.to, since: start}
		p := &provider{engine: e, count: q.counter(), gauge: gauges[i]}
		models[i], err = ratelimited.NewMetered(p, gate, meter{q.Output}, ratelimited.WithTransport())
		if err != nil {
			return outcome{}, err
		}
	}
	var all sync.WaitGroup
	index := uint64(0)
	for _, r := range requests {
		time.Sleep(time.Until(start.Add(r.at)))
		ctx := ratelimited.WithFlow(context.Background(), q.Tenants[r.tenant].Name)
		var orders []*order
		for _, c := range r.calls {
			orders = append(orders, &order{modelCall: c, index: index})
			index++
		}
		all.Go(func() { b.request(ctx, r.tenant, models[r.replica], orders) })
	}
	all.Wait()
	for _, m := range models {
		if err := m.Gate().Close(context.Background()); err != nil {
			return outcome{}, err
		}
	}
	return b.outcome(e, gauges, length), nil
}

// books are what clients saw.
type books struct {
	from, to time.Time // what lies between is measured

	mu      sync.Mutex // guards what follows
	tenants []tenantOutcome
	waits   []time.Duration
	sent    int
	served  int
	asked   int
	refused int
	unfit   int
}

// request makes the calls of one user request, all at once.
func (b *books) request(ctx context.Context, tenant int, m *ratelimited.RateLimitedModel[*order, usage.Usage], orders []*order) {
	arrived := time.Now()
	var calls sync.WaitGroup
	failures := make([]error, len(orders))
	for i, o := range orders {
		calls.Go(func() {
			for _, err := range m.GenerateContent(ctx, o, false) {
				failures[i] = err
			}
		})
	}
	calls.Wait()
	whole := !slices.ContainsFunc(failures, func(err error) bool { return err != nil })
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, o := range orders {
		if b.measures(o.sent) {
			b.sent++
		}
		if !b.measures(arrived) {
			continue
		}
		b.asked++
		switch {
		case errors.Is(failures[i], ratelimited.ErrWait):
			b.refused++
		case errors.Is(failures[i], ratelimited.ErrNeverFits):
			b.unfit++
		default:
			b.waits = append(b.waits, o.sent.Sub(arrived))
		}
	}
	if whole && b.measures(time.Now()) {
		b.served++
	}
	if b.measures(arrived) {
		b.tenants[tenant].Requests++
		if whole {
			b.tenants[tenant].Served++
		}
	}
}

func (b *books) measures(at time.Time) bool { return !at.Before(b.from) && at.Before(b.to) }

// outcome adds up what was measured.
func (b *books) outcome(e *engine.Engine, gauges []*gauge, length time.Duration) outcome {
	minutes := (length - length/3).Minutes()
	replicas := float64(len(gauges))
	stats := e.Stats()
	o := outcome{
		CallsPerReplica:    float64(b.sent) / minutes / replicas,
		RequestsPerReplica: float64(b.served) / minutes / replicas,
		Throttled:          stats.Refused,
		Tenants:            b.tenants,
	}
	for _, w := range stats.Windows {
		if w.Share > o.MaxUse {
			o.Binds, o.MaxUse = w.Name, w.Share
		}
	}
	for _, g := range gauges {
		g.add(0)
		o.InFlight += g.area / minutes / 60 / replicas
		o.SlotsFull += g.sated / minutes / 60 / replicas
		o.PeakInFlight = max(o.PeakInFlight, g.peak)
	}
	if b.asked > 0 {
		o.Refused = float64(b.refused) / float64(b.asked)
		o.Unfit = float64(b.unfit) / float64(b.asked)
	}
	slices.Sort(b.waits)
	o.WaitP50, o.WaitP99 = quantile(b.waits, 0.5), quantile(b.waits, 0.99)
	return o
}

// quantile returns the least of the sorted values that the part p of them does
// not exceed; 0 where there are none.
func quantile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(int(math.Ceil(p*float64(len(sorted))))-1, 0)]
}
