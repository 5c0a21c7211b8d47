package fleet

import (
	"math"
	"math/rand/v2"
	"time"
)

// home makes the calls of the users of one replica.
type home struct {
	rnd     *rand.Rand
	rate    float64       // calls per second while on
	on, off time.Duration // in the mean
	first   int32         // of its users
	users   int           // how many

	at    float64 // of the last call, in seconds
	until float64 // when it goes off
}

// job is a call as a user makes it, whatever becomes of it.
type job struct {
	user     int32
	tokens   int64 // what it uses
	estimate int64 // what the replica thinks
	first    int64 // ns from its arrival at the provider to its first item
	rest     int64 // ns from that to its last
}

// streams of random numbers, apart for what must not move each other.
const (
	trafficStream = 1 << 32
	networkStream = 2 << 32
)

// homes makes all of them.
func (c *Config) homes() []*home {
	list := make([]*home, c.Replicas)
	hot := max(c.Replicas/10, 1)
	for i := range list {
		h := &home{rnd: rand.New(rand.NewPCG(c.Seed, trafficStream+uint64(i))), rate: c.Rate, until: math.Inf(1)}
		from, to := i*c.Users/c.Replicas, (i+1)*c.Users/c.Replicas
		h.first, h.users = int32(from), to-from
		switch {
		case c.Shape == Bursty:
			h.rate *= 1 / duty
			h.on, h.off = c.On, time.Duration(float64(c.On)*(1/duty-1))
			h.until = 0
			if h.rnd.Float64() < duty {
				h.until = h.rnd.ExpFloat64() * h.on.Seconds()
			}
		case c.Shape == Skewed && c.Replicas > hot:
			half := c.callsPerSecond() / 2
			if i < hot {
				h.rate = half / float64(hot)
			} else {
				h.rate = half / float64(c.Replicas-hot)
			}
		}
		list[i] = h
	}
	return list
}

// duty is the part of the time for which a Bursty home is on.
const duty = 0.25

// next is when the next call comes, in ns.
func (h *home) next() int64 {
	h.at += h.rnd.ExpFloat64() / h.rate
	for h.at > h.until { // what is left over goes on after the pause
		over := h.at - h.until
		begin := h.until + h.rnd.ExpFloat64()*h.off.Seconds()
		h.until = begin + h.rnd.ExpFloat64()*h.on.Seconds()
		h.at = begin + over
	}
	return int64(h.at * 1e9)
}

// job draws a call.
func (h *home) job(c *Config) job {
	used := lognormal(h.rnd, c.Tokens/math.Exp(c.TokensSigma*c.TokensSigma/2), c.TokensSigma)
	used = min(max(used, 1), c.largest())
	guess := used
	if c.Error > 0 {
		guess = min(max(lognormal(h.rnd, used, c.Error), 1), c.largest())
	}
	return job{
		user: h.first + int32(h.rnd.IntN(h.users)), tokens: int64(used), estimate: int64(guess),
		first: c.First.draw(h.rnd), rest: c.Rest.draw(h.rnd),
	}
}

func lognormal(rnd *rand.Rand, median, sigma float64) float64 {
	if sigma == 0 {
		return median
	}
	return median * math.Exp(sigma*rnd.NormFloat64())
}

// draw draws a time in ns.
func (s Spread) draw(rnd *rand.Rand) int64 {
	return int64(min(lognormal(rnd, float64(s.Median), s.Sigma), float64(time.Hour)))
}
