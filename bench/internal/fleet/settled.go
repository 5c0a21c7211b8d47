package fleet

import (
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// The fleet has converged at a second if, over the next settledOver,
//
//   - Jain's index over homes of what they got, over their max-min fair shares, is at
//     least settledJain; the users of a home count for it, whoever serves them
//   - no less was let in than was asked for, or than the windows had room for, but for a
//     part settledSlack of the quota's mean rate
//
// and the same is true of the settledSteps-1 seconds after it.
const (
	settledOver  = 10 // seconds
	settledSteps = 3
	settledJain  = 0.95
	settledSlack = 0.1
)

// settledGuard is how much longer than the provider's window a mirror of it may
// remember a call: a cell, and the time to its first item.
const settledGuard = 3 // seconds

// settled is after how many seconds the fleet has converged again after each change, or
// -1 if it has not before the next one.
func settled(l *Log) (list []float64) {
	if len(l.Config.Changes) == 0 {
		return nil
	}
	b := newBins(l)
	for i, ch := range l.Config.Changes {
		end := l.Config.Length
		if i+1 < len(l.Config.Changes) {
			end = l.Config.Changes[i+1].At
		}
		list = append(list, b.settledAfter(int((ch.At+time.Second-1)/time.Second), int(end/time.Second)))
	}
	return list
}

// bins are what happened in each second.
type bins struct {
	cfg *Config
	got [][]float64 // tokens that were let in, by second and home
	ask [][]float64 // tokens that were asked for
	out [][]float64 // tokens that were asked for and are not any more
	all []float64   // the sum of got
}

func newBins(l *Log) *bins {
	n := l.Config.seconds()
	b := &bins{cfg: &l.Config, all: make([]float64, n)}
	for _, list := range []*[][]float64{&b.got, &b.ask, &b.out} {
		for range n {
			*list = append(*list, make([]float64, l.Config.Replicas))
		}
	}
	for i := range l.Calls {
		r := &l.Calls[i]
		home, tokens := l.Config.homeOf(r.User), float64(r.Tokens)
		b.ask[r.Asked/time.Second][home] += tokens
		switch {
		case r.Counted >= 0:
			b.got[r.Counted/time.Second][home] += tokens
			b.all[r.Counted/time.Second] += tokens
			b.out[r.Counted/time.Second][home] += tokens
		case r.Ended >= 0:
			b.out[r.Ended/time.Second][home] += tokens
		}
	}
	return b
}

// homeOf is the home of a user.
func (c *Config) homeOf(user int32) int { return ((int(user)+1)*c.Replicas - 1) / c.Users }

// settledAfter looks for the first second from on, before end.
func (b *bins) settledAfter(from, end int) float64 {
	backlog := make([]float64, b.cfg.Replicas)
	row := 0
	for t := range end {
		if t >= from {
			if t+settledOver > end {
				break
			}
			if row++; !b.converged(t, backlog) {
				row = 0
			}
			if row == settledSteps {
				return float64(t - settledSteps + 1 - from)
			}
		}
		b.pass(t, backlog)
	}
	return -1
}

// converged looks at the time from a second on; backlog is what was asked for before
// it.
func (b *bins) converged(t int, backlog []float64) bool {
	fair, demand, served := b.fairness(t, backlog)
	return served >= min(demand, b.supply(t))-settledSlack*b.usual() && fair >= settledJain
}

// usual is the quota's part of settledOver.
func (b *bins) usual() float64 {
	return float64(b.cfg.TokensPerMinute()) * settledOver / minute.Seconds()
}

// fairness is Jain's index over homes of what they get from a second on, over their
// max-min fair shares; 1 where hardly anything is let in. demand is what is asked for
// then, with the backlog, and served what is let in.
func (b *bins) fairness(t int, backlog []float64) (fair, demand, served float64) {
	asked, got := append([]float64(nil), backlog...), make([]float64, len(backlog))
	for s := t; s < min(t+settledOver, len(b.all)); s++ {
		for h := range got {
			asked[h] += b.ask[s][h]
			got[h] += b.got[s][h]
		}
		served += b.all[s]
	}
	for _, a := range asked {
		demand += a
	}
	if served < settledSlack*b.usual() {
		return 1, demand, served
	}
	return jain(got, maxMin(asked, got)), demand, served
}

// pass adds what happens in a second to the backlog.
func (b *bins) pass(t int, backlog []float64) {
	for h := range backlog {
		backlog[h] += b.ask[t][h] - b.out[t][h]
	}
}

// supply is what could be let in from a second on, after what was let in before.
func (b *bins) supply(t int) float64 {
	quota := float64(b.cfg.TokensPerMinute())
	if b.cfg.Window == engine.Bucket {
		return quota * settledOver / minute.Seconds()
	}
	for s := max(t+settledOver-int(minute/time.Second)-settledGuard, 0); s < t; s++ {
		quota -= b.all[s]
	}
	return max(quota, 0)
}
