package burst

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Shapes lists the shapes.
func Shapes() []Shape {
	return []Shape{
		review(), reviewTen(), herd(), hog(), heavyTail(), wrong("under", 0.3), wrong("over", 3), throttled(),
		backfill(), slowConsumers(), quantised(), nested(), brownout(), jittered(),
	}
}

// latency draws the time of a call: log-normal, as those of models are.
func latency(r *rand.Rand, median time.Duration) time.Duration {
	return time.Duration(float64(median) * math.Exp(0.2*r.NormFloat64()))
}

// poisson calls f at the instants of a Poisson process of so many a minute.
func poisson(r *rand.Rand, perMinute float64, until time.Duration, f func(i int, at time.Duration)) {
	at := time.Duration(0)
	for i := 0; ; i++ {
		at += time.Duration(r.ExpFloat64() / perMinute * float64(minute))
		if at >= until {
			return
		}
		f(i, at)
	}
}

// reviewCall is one call of the review agent: 5,000 tokens in and 800 out,
// which the provider counts together.
func reviewCall(r *rand.Rand, user, request string) plan {
	return one(call{flow: user, group: "review", request: request, tokens: 5800, estimate: 5800, takes: latency(r, 8*time.Second)})
}

// reviewPlan is one click: four reviewers at once and a synthesiser.
func reviewPlan(r *rand.Rand, user, request string) plan {
	var reviewers []plan
	for range 4 {
		reviewers = append(reviewers, reviewCall(r, user, request))
	}
	return inOrder(together(reviewers...), reviewCall(r, user, request))
}

func review() Shape {
	const stream = 10 * time.Minute
	return Shape{
		Name: "review", Title: "Review agent: 40 user requests a minute of 5 calls each, where the quota has room for 31",
		TokensPerMinute: 900_000, RequestsPerMinute: 1000, Slots: 60, Stream: stream, MaxWait: 30 * time.Second,
		script: func(r *rand.Rand) (jobs []job) {
			poisson(r, 40, stream, func(i int, when time.Duration) {
				jobs = append(jobs, at(when, reviewPlan(r, fmt.Sprintf("user%d", i%20), fmt.Sprint(i))))
			})
			return jobs
		},
	}
}

func reviewTen() Shape {
	return Shape{
		Name: "review-ten", Title: "Review agent: ten users click at once, and the quota has room for 20 of their 50 calls a minute",
		TokensPerMinute: 120_000, RequestsPerMinute: 1000, Slots: 40,
		script: func(r *rand.Rand) (jobs []job) {
			for i := range 10 {
				jobs = append(jobs, at(time.Duration(i)*apart, reviewPlan(r, fmt.Sprintf("user%d", i), fmt.Sprint(i))))
			}
			return jobs
		},
	}
}

// apart is the time between two arrivals of a burst: some order they must have.
const apart = 100 * time.Microsecond

// crowd is a burst of calls, whose flows take turns, from an instant on.
func crowd(r *rand.Rand, when time.Duration, flows, each int, size func() (tokens, estimate int64)) (jobs []job) {
	for i := range each {
		for f := range flows {
			tokens, estimate := size()
			when += apart
			jobs = append(jobs, at(when, one(call{flow: fmt.Sprintf("flow%d", f), group: "normal", request: fmt.Sprintf("%d/%d", f, i),
				tokens: tokens, estimate: estimate, takes: latency(r, 8*time.Second)})))
		}
	}
	return jobs
}

func same(tokens int64) func() (int64, int64) {
	return func() (int64, int64) { return tokens, tokens }
}

func herd() Shape {
	return Shape{
		Name: "herd", Title: "Thundering herd at the edge of a minute: 240 calls just before and 240 just after, then 240 more",
		TokensPerMinute: 1_000_000, RequestsPerMinute: 1000, Slots: 250,
		script: func(r *rand.Rand) (jobs []job) {
			for _, when := range []time.Duration{59 * time.Second, 61 * time.Second, 90 * time.Second} {
				jobs = append(jobs, crowd(r, when, 6, 40, same(5000))...)
			}
			return jobs
		},
	}
}

func hog() Shape {
	const stream = 30 * time.Minute
	return Shape{
		Name: "hog", Title: "One hog with 20 branches of large calls beside ten users with small ones, at a provider with 4 places",
		TokensPerMinute: 1_000_000, RequestsPerMinute: 1000, Slots: 4, Concurrency: 4, Stream: stream,
		script: func(r *rand.Rand) (jobs []job) {
			for b := range 20 {
				var branch []plan
				for i := range 240 {
					branch = append(branch, one(call{flow: "hog", group: "hog", request: fmt.Sprintf("hog%d/%d", b, i),
						tokens: 10_000, estimate: 10_000, takes: latency(r, 8*time.Second)}))
				}
				jobs = append(jobs, at(0, inOrder(branch...)))
			}
			for u := range 10 {
				user := []plan{pause(time.Duration(r.Float64() * float64(20*time.Second)))}
				for i := range 200 {
					user = append(user, one(call{flow: fmt.Sprintf("user%d", u), group: "interactive", request: fmt.Sprintf("user%d/%d", u, i),
						tokens: 1250, estimate: 1250, takes: latency(r, time.Second)}),
						pause(time.Duration((0.5+r.Float64())*float64(20*time.Second))))
				}
				jobs = append(jobs, at(0, inOrder(user...)))
			}
			return jobs
		},
	}
}

func heavyTail() Shape {
	return Shape{
		Name: "heavy-tail", Title: "A burst of 2,000 calls whose sizes have a heavy tail: most are small, some have 100,000 tokens",
		TokensPerMinute: 4_000_000, RequestsPerMinute: 4000, Slots: 1000,
		script: func(r *rand.Rand) []job {
			return crowd(r, 0, 5, 400, func() (int64, int64) {
				tokens := int64(min(5000*math.Exp(1.2*r.NormFloat64()), 100_000))
				return tokens, tokens
			})
		},
	}
}

func wrong(name string, factor float64) Shape {
	return Shape{
		Name: "estimates-" + name, Title: fmt.Sprintf("A burst of 600 calls whose estimates are %g times what they use", factor),
		TokensPerMinute: 1_000_000, RequestsPerMinute: 1000, Slots: 250,
		script: func(r *rand.Rand) []job {
			return crowd(r, 0, 5, 120, func() (int64, int64) {
				tokens := int64(5000 * math.Exp(0.1*r.NormFloat64()))
				return tokens, int64(factor * float64(tokens))
			})
		},
	}
}

func throttled() Shape {
	const stream = 10 * time.Minute
	s := Shape{
		Name: "below-published", Title: "A provider that lets through 70 % of the quota that it publishes, and demand for 120 % of that",
		TokensPerMinute: 1_000_000, RequestsPerMinute: 1000, Slots: 100, Stream: stream, MaxWait: 2 * time.Minute, Granted: 0.7,
	}
	s.script = steady(170, stream, 5)
	return s
}

// steady is a Poisson stream of calls of several flows.
func steady(perMinute float64, stream time.Duration, flows int) func(*rand.Rand) []job {
	return func(r *rand.Rand) (jobs []job) {
		poisson(r, perMinute, stream, func(i int, when time.Duration) {
			jobs = append(jobs, at(when, one(call{flow: fmt.Sprintf("flow%d", i%flows), group: "normal", request: fmt.Sprint(i),
				tokens: 5000, estimate: 5000, takes: latency(r, 8*time.Second)})))
		})
		return jobs
	}
}

func backfill() Shape {
	const stream = 10 * time.Minute
	return Shape{
		Name: "backfill", Title: "Interactive calls beside a backfill that would use up the quota by itself",
		TokensPerMinute: 1_000_000, RequestsPerMinute: 1000, Slots: 100, Stream: stream,
		script: func(r *rand.Rand) (jobs []job) {
			for i := range 2400 {
				jobs = append(jobs, at(0, one(call{flow: "backfill", group: "batch", class: "batch", request: fmt.Sprint("b", i),
					tokens: 5000, estimate: 5000, takes: latency(r, 8*time.Second)})))
			}
			poisson(r, 60, stream, func(i int, when time.Duration) {
				jobs = append(jobs, at(when, one(call{flow: fmt.Sprintf("user%d", i%10), group: "interactive", class: "interactive",
					request: fmt.Sprint("i", i), tokens: 3000, estimate: 3000, takes: latency(r, 5*time.Second)})))
			})
			return jobs
		},
	}
}

func slowConsumers() Shape {
	return Shape{
		Name: "slow-consumers", Title: "A burst of 500 streamed calls whose consumers keep the first item for 20 s",
		TokensPerMinute: 1_000_000, RequestsPerMinute: 1000, Slots: 250,
		script: func(r *rand.Rand) []job {
			jobs := crowd(r, 0, 5, 100, same(5000))
			for i := range jobs {
				jobs[i].call.reads = 20 * time.Second
			}
			return jobs
		},
	}
}

func quantised() Shape {
	const stream = 5 * time.Minute
	return Shape{
		Name: "quantised", Title: "A quota of 600 calls a minute that the provider checks every second, and demand for 120 % of it",
		TokensPerMinute: 600_000, RequestsPerMinute: 1200, Slots: 60, Stream: stream, MaxWait: time.Minute, Quantum: time.Second,
		script: func(r *rand.Rand) (jobs []job) {
			poisson(r, 720, stream, func(i int, when time.Duration) {
				jobs = append(jobs, at(when, one(call{flow: fmt.Sprintf("flow%d", i%5), group: "normal", request: fmt.Sprint(i),
					tokens: 1000, estimate: 1000, takes: latency(r, 2*time.Second)})))
			})
			return jobs
		},
	}
}

func nested() Shape {
	return Shape{
		Name: "nested", Title: "Nested agents: 20 requests, each a planner, three agents with three sub-agents each, and a summary",
		TokensPerMinute: 500_000, RequestsPerMinute: 1000, Slots: 150,
		script: func(r *rand.Rand) (jobs []job) {
			for i := range 20 {
				think := func() plan {
					return one(call{flow: fmt.Sprintf("user%d", i), group: "normal", request: fmt.Sprint(i), tokens: 5000, estimate: 5000,
						takes: latency(r, 4*time.Second)})
				}
				var agents []plan
				for range 3 {
					agents = append(agents, inOrder(think(), together(think(), think(), think()), think()))
				}
				jobs = append(jobs, at(time.Duration(i)*apart, inOrder(think(), together(agents...), think())))
			}
			return jobs
		},
	}
}

func brownout() Shape {
	const stream = 10 * time.Minute
	s := Shape{
		Name: "brown-out", Title: "A provider that answers 503 for a minute, in a stream of 80 % of the quota",
		TokensPerMinute: 1_000_000, RequestsPerMinute: 1000, Slots: 250, Stream: stream, MaxWait: 2 * time.Minute,
		OutageFrom: 3 * time.Minute, OutageTo: 4 * time.Minute,
	}
	s.script = steady(160, stream, 5)
	return s
}

func jittered() Shape {
	return Shape{
		Name: "jitter", Title: "A burst of 600 calls that reach the provider 1 to 3 s after they were sent",
		TokensPerMinute: 1_000_000, RequestsPerMinute: 1000, Slots: 250, Delay: time.Second, Jitter: 2 * time.Second,
		script: func(r *rand.Rand) []job { return crowd(r, 0, 5, 120, same(5000)) },
	}
}
