package main

import (
	"math"
	"time"
)

// What a token quota counts.
const (
	countTotal = "total"
	countInput = "input"
)

// tenant is one party whose users share the quota.
type tenant struct {
	Name      string  `json:"name"`
	PerMinute float64 `json:"requests_per_minute"`
}

// question is what is to be sized.
type question struct {
	Tenants  []tenant      `json:"tenants"`
	Calls    int           `json:"calls_per_request"`
	Tokens   int64         `json:"tokens_per_call"`
	Output   int64         `json:"output_tokens_per_call"`
	Count    string        `json:"count"`
	Headroom float64       `json:"headroom"`
	Latency  time.Duration `json:"latency_ns"`
	RPM      int64         `json:"requests_per_minute_quota"`
	TPM      int64         `json:"tokens_per_minute_quota"`
	Replicas int           `json:"replicas"`
	Burst    int           `json:"burst_requests"`
	MaxWait  time.Duration `json:"max_wait_ns"`
	Peak     time.Duration `json:"peak_ns"`
}

// limit is one quota as the arithmetic sees it.
type limit struct {
	name    string // as in the answer: "requests", "tokens"
	flag    string
	quota   int64 // a minute, over all replicas
	perCall int64
}

// limits are the quotas that there are, requests first.
func (q question) limits() []limit {
	var l []limit
	if q.RPM > 0 {
		l = append(l, limit{name: "requests", flag: "rpm", quota: q.RPM, perCall: 1})
	}
	if q.TPM > 0 {
		l = append(l, limit{name: "tokens", flag: "tpm", quota: q.TPM, perCall: q.counted()})
	}
	return l
}

// counted is what one call takes from the token quota.
func (q question) counted() int64 {
	if q.Count == countInput {
		return q.Tokens - q.Output
	}
	return q.Tokens
}

// usersPerMinute is the sum of the tenants' peaks.
func (q question) usersPerMinute() float64 {
	sum := 0.0
	for _, t := range q.Tenants {
		sum += t.PerMinute
	}
	return sum
}

// reckoned is the answer by arithmetic. A minute's calls that a replica can
// carry are its part of the usable quota; what it will carry is that or its
// part of the demand, whichever is less.
type reckoned struct {
	// Demand is what users ask for, over the fleet.
	Demand demand `json:"demand"`
	// Limits are the calls a minute that each quota has room for, over the
	// fleet, headroom deducted.
	Limits []limitRoom `json:"limits"`
	// Binds is the limit that has room for the fewest calls.
	Binds string `json:"binds"`
	// Load is the demand over what the binding limit has room for. Above 1 the
	// peak cannot be served as it comes.
	Load float64 `json:"load"`

	// CallsPerReplica and RequestsPerReplica are what one replica can carry in
	// a minute.
	CallsPerReplica    float64 `json:"calls_per_minute_per_replica"`
	RequestsPerReplica float64 `json:"user_requests_per_minute_per_replica"`
	// InFlight is the average number of calls in flight per replica.
	InFlight float64 `json:"in_flight_per_replica"`
	// Slots is what to set Config.Slots to in each replica.
	Slots int64 `json:"slots_per_replica"`

	// Refused is the part of the calls that MaxWait turns away once a peak has
	// lasted for a while, from 0 to 1.
	Refused float64 `json:"refused"`
	// WaitP99 is what 99 of 100 calls wait at most while demand is below what
	// the quota carries; where it is above, it is MaxWait.
	WaitP99 time.Duration `json:"wait_p99_ns"`
	// WaitAll is the MaxWait with which nobody would be turned away until the
	// end of the peak: what to expect if nothing else is changed.
	WaitAll time.Duration `json:"max_wait_to_serve_all_ns"`
}

type demand struct {
	RequestsPerMinute float64 `json:"user_requests_per_minute"`
	CallsPerMinute    float64 `json:"calls_per_minute"`
	// TokensPerMinute are those that the quota counts.
	TokensPerMinute float64 `json:"tokens_per_minute"`
	// InFlight is how many calls would be in flight if no limit held them back.
	InFlight float64 `json:"in_flight"`
}

type limitRoom struct {
	Name           string  `json:"name"`
	CallsPerMinute float64 `json:"calls_per_minute"`
	// Demand is the demand as a part of the whole quota, headroom included.
	Demand float64 `json:"demand_over_quota"`
}

// reckon answers by arithmetic alone.
func reckon(q question) reckoned {
	users, replicas := q.usersPerMinute(), float64(q.Replicas)
	calls := users * float64(q.Calls)
	a := reckoned{Demand: demand{
		RequestsPerMinute: users,
		CallsPerMinute:    calls,
		TokensPerMinute:   calls * float64(q.counted()),
		InFlight:          calls * q.Latency.Minutes(), // Little's law: rate times time
	}}
	room := math.Inf(1)
	for _, l := range q.limits() {
		r := limitRoom{Name: l.name, CallsPerMinute: float64(l.quota) * q.Headroom / float64(l.perCall),
			Demand: calls * float64(l.perCall) / float64(l.quota)}
		if r.CallsPerMinute < room {
			room, a.Binds = r.CallsPerMinute, l.name
		}
		a.Limits = append(a.Limits, r)
	}
	a.Load = calls / room
	a.CallsPerReplica = room / replicas
	a.RequestsPerReplica = a.CallsPerReplica / float64(q.Calls)
	a.InFlight = min(room, calls) / replicas * q.Latency.Minutes()
	a.Slots = slots(a.InFlight, q.Burst*q.Calls, a.Load >= 1)
	a.wait(q)
	return a
}

// slots are those that an average number of calls in flight needs, if up to
// burst calls come at one instant, and should find a slot each.
//
// Where the quota does not bind, calls are in flight as they come. In groups, their
// number varies by √(average·group); with two such deviations on top all
// slots are in use in about one of forty instants. Where the quota binds, the
// gate lets calls go one by one, as room comes free, and slots need only not be
// what binds in its place: one deviation of independent calls, √average, is
// enough. Both are square-root staffing (Halfin and Whitt, Operations Research
// 29, 1981).
func slots(inFlight float64, burst int, binds bool) int64 {
	room := 2 * math.Sqrt(inFlight*float64(burst))
	if binds {
		room = math.Sqrt(inFlight)
	}
	return max(int64(math.Ceil(inFlight+room)), int64(burst))
}

// wait reckons how long calls wait for the quota.
//
// Below the quota, the backlog of a quota that lets c user requests a minute
// through and has saved up one minute's worth exceeds x with probability about
// exp(-θ(c+x)): the exponential tail of a queue that is fed by groups of b
// requests at random instants of which every r-th goes to this one of r
// replicas, θ = 2r(1-ρ)/(ρb) for a load ρ (the diffusion approximation; Kingman,
// 1962). It is solved for one call in a hundred. Near ρ = 1 a peak is over before
// that builds up: its demand strays from the average by more than 2.58·√(bn/r),
// for n requests in all, with a probability of one in a hundred (the reflection
// principle of a random walk). The lesser of the two counts.
//
// Above it, the line grows by the excess for as long as the peak lasts, or until
// calls at its head have waited for MaxWait.
func (a *reckoned) wait(q question) {
	if a.Load >= 1 {
		a.WaitAll = duration((a.Load - 1) * q.Peak.Minutes())
		a.WaitP99 = min(a.WaitAll, q.MaxWait)
		if a.WaitAll > q.MaxWait {
			a.Refused = 1 - 1/a.Load
		}
		return
	}
	theta := 2 * float64(q.Replicas) * (1 - a.Load) / (a.Load * float64(q.Burst))
	c := a.RequestsPerReplica
	n := a.Demand.RequestsPerMinute * q.Peak.Minutes()
	excess := min(math.Log(100)/theta, 2.58*math.Sqrt(float64(q.Burst)*n/float64(q.Replicas)))
	a.WaitAll = duration(max(0, excess-c) / c)
	a.WaitP99 = min(a.WaitAll, q.MaxWait)
}

// duration converts minutes, up to a year.
func duration(minutes float64) time.Duration {
	return time.Duration(min(minutes, 365*24*60) * float64(time.Minute))
}
