package main

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
	"github.com/headgate-go/headgate/usage"
)

// traffic is how the simulation makes the question's averages into calls.
type traffic struct {
	// Window is how the provider's windows move.
	Window engine.WindowModel `json:"window"`
	// Spread is the sigma of log-normal sizes and latencies.
	Spread float64 `json:"spread"`
	// Seed of everything random.
	Seed uint64 `json:"seed"`
}

// userRequest is one click: calls that start together, at one replica.
type userRequest struct {
	at      time.Duration
	tenant  int
	replica int
	calls   []modelCall
}

type modelCall struct {
	input, output int64
	latency       time.Duration
}

func (c modelCall) used() usage.Usage { return usage.Usage{Input: c.input, Output: c.output} }

// draw makes the user requests of a peak of so long, in order of time. They
// come in groups of Burst at one instant, at random instants (a Poisson
// process), from a random tenant by its rate; each group goes to one replica, in
// turn.
// Scale multiplies every tenant's rate.
func (t traffic) draw(q question, scale float64, length time.Duration) []userRequest {
	rnd := rand.New(rand.NewPCG(t.Seed, 0))
	gap := float64(time.Minute) * float64(q.Burst) / (q.usersPerMinute() * scale)
	var all []userRequest
	for at := time.Duration(rnd.ExpFloat64() * gap); at < length; at += time.Duration(rnd.ExpFloat64() * gap) {
		who, where := q.pick(rnd.Float64()), len(all)/q.Burst%q.Replicas
		for range q.Burst {
			r := userRequest{at: at, tenant: who, replica: where}
			for range q.Calls {
				size := t.vary(rnd)
				r.calls = append(r.calls, modelCall{
					input:   int64(math.Round(float64(q.Tokens-q.Output) * size)),
					output:  int64(math.Round(float64(q.Output) * size)),
					latency: time.Duration(float64(q.Latency) * t.vary(rnd)),
				})
			}
			all = append(all, r)
		}
	}
	return all
}

// vary draws a log-normal factor with mean 1.
func (t traffic) vary(rnd *rand.Rand) float64 {
	return math.Exp(t.Spread*rnd.NormFloat64() - t.Spread*t.Spread/2)
}

// pick returns the tenant at the part u of the sum of rates.
func (q question) pick(u float64) int {
	left := u * q.usersPerMinute()
	for i, t := range q.Tenants {
		if left -= t.PerMinute; left < 0 {
			return i
		}
	}
	return len(q.Tenants) - 1
}
