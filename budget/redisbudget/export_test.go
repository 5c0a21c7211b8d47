package redisbudget

import (
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/budget/share/agent"
)

// Open makes the store of a quota.
func Open(s *Sharing, q budget.SharedQuota, dims []share.Dim) (agent.Store, error) {
	return s.open(q, dims)
}

// SetClock has a Sharing go by a clock that stands at t, in place of the server's.
func SetClock(s *Sharing, t time.Time) { s.clock.still.Store(&t) }

// Learn says whether a quota that is not known is taken for one that was lost.
func Learn(s *Sharing, always bool) {
	if s.learn = learnNever; always {
		s.learn = learnAlways
	}
}

// Keys are the keys of a quota.
func Keys(prefix, name string) []string { return keysOf(prefix, name) }

// Decode reads the answer of the script for so many dimensions.
func Decode(dims int, answer any) (share.Reply, error) {
	s := store{cfg: &Config{}, dims: make([]share.Dim, dims)}
	return s.decode(answer)
}
