package burst

import (
	"github.com/headgate-go/headgate/bench/internal/engine"
)

// Window is the way in which the provider's quota renews itself.
type Window = engine.WindowModel

// Windows are the ways in which a quota per minute renews itself at providers.
func Windows() []Window { return []Window{engine.Fixed, engine.Sliding, engine.Bucket} }

// Result is what became of a shape that was played through a policy.
type Result struct {
	Shape  string `json:"shape"`
	Policy string `json:"policy"`
	Window string `json:"window"`
	Seed   uint64 `json:"seed"`
	// Err is why there is no result: an oracle cannot be computed for every
	// shape. It is empty where there is one.
	Err     string  `json:"err,omitempty"`
	Metrics Metrics `json:"metrics"`
	// Series has one sample per second of virtual time, or fewer where that
	// would be more than MaxSamples.
	Series []Sample `json:"series"`
}

// MaxSamples is the length of the longest Series.
const MaxSamples = 600

// Sample is one instant of a run.
type Sample struct {
	// At is the instant, in seconds after the start.
	At float64 `json:"at"`
	// InFlight is the number of calls at the provider.
	InFlight int `json:"in_flight"`
	// Waiting is the number of calls that want to run and are not at the
	// provider.
	Waiting int `json:"waiting"`
	// Throttled is the number of attempts that were answered 429 since the
	// last sample.
	Throttled int `json:"throttled"`
	// Use is the largest use of any limit in the window that ends here, over its
	// quota: 1 is full. For a bucket it is the part that is empty.
	Use float64 `json:"use"`
}

// Metrics are the figures of a run. All are finite; one that does not apply is
// 0.
type Metrics struct {
	// Calls is the number of calls that were asked for: Completed, Refused and
	// Failed together.
	Calls     int `json:"calls"`
	Completed int `json:"completed"`
	// Refused were given up before they were sent: they had waited for MaxWait,
	// or the line was full.
	Refused int `json:"refused"`
	// Failed were sent, and not served in the end.
	Failed int `json:"failed"`
	// Attempts is how often a call was sent, Throttled how often the answer was
	// 429.
	Attempts            int     `json:"attempts"`
	Throttled           int     `json:"throttled"`
	ThrottledPerAttempt float64 `json:"throttled_per_attempt"`
	// Goodput is tokens of completed calls over G*, the fluid bound, after the
	// guard share that the policy states. It may be a little above 1, since a guard
	// is what is lost in the long run. Of a stream, calls count that were let in
	// before its end.
	Goodput float64 `json:"goodput"`
	// Share is the same over G* itself: the one to compare policies by.
	Share float64 `json:"share"`
	// Guard is the part of the quota that remains of it under the policy's guard;
	// 1 for policies without.
	Guard float64 `json:"guard"`
	// Makespan is the time until the last call was over, LowerBound one in which
	// nobody can do it, both in seconds. They are 0 where the shape has no
	// makespan, because it is an endless stream, and where not all calls were
	// completed.
	Makespan      float64 `json:"makespan"`
	LowerBound    float64 `json:"lower_bound"`
	MakespanRatio float64 `json:"makespan_ratio"`
	// QuotaBinds tells that it is the quota that makes up the lower bound.
	QuotaBinds bool `json:"quota_binds"`
	// Wasted is the tokens of attempts that came to nothing over all tokens sent.
	Wasted float64 `json:"wasted"`
	// WaitP50 and WaitP99 are seconds, per class of calls, from asking until the
	// attempt that was served was sent, or until the call was given up.
	WaitP50 map[string]float64 `json:"wait_p50"`
	WaitP99 map[string]float64 `json:"wait_p99"`
	// Jain is the least Jain index of any 60 s in which every backlogged flow of
	// a class got at least 20 calls, in quota-seconds; 0 where there are none.
	Jain float64 `json:"jain"`
	// Gap is the largest difference in service between two backlogged flows of a
	// class, in quota-seconds, and GapBound what a fair queue promises.
	Gap      float64 `json:"gap"`
	GapBound float64 `json:"gap_bound"`
	// Idle is the share of slot time that was idle while a waiting call could
	// have run. It is 0 for policies without slots.
	Idle float64 `json:"idle"`
	// MaxUse is the largest use of any limit in any window of the provider's
	// kind, over its quota.
	MaxUse float64 `json:"max_use"`
}
