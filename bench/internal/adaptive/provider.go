package adaptive

import (
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// provider decides about calls. Instants are durations since its start, which do
// not go back.
type provider struct {
	setting *Setting
	rate    float64

	at    time.Duration // of level, or the begin of the fixed minute that used belongs to
	level float64       // of a bucket
	used  float64       // of a fixed minute
	log   []time.Duration

	inFlight int
	busy     float64       // place-seconds
	since    time.Duration // when that was brought up to date
	offered  float64       // calls that the quota had room for
	counted  time.Duration // when that was brought up to date
}

func newProvider(s *Setting) *provider {
	p := &provider{setting: s, rate: s.Rate}
	p.level = p.depth()
	return p
}

// depth is what the bucket holds.
func (p *provider) depth() float64 { return p.rate * p.setting.Depth.Seconds() }

// setRate changes the quota.
func (p *provider) setRate(now time.Duration, rate float64) {
	p.tally(now)
	p.refill(now)
	p.rate = rate
	p.level = min(p.level, p.depth())
}

// tally brings the sums up to date.
func (p *provider) tally(now time.Duration) {
	p.offered += p.rate * (now - p.counted).Seconds()
	p.counted = now
	p.busy += float64(p.inFlight) * (now - p.since).Seconds()
	p.since = now
}

// reset forgets the sums.
func (p *provider) reset(now time.Duration) {
	p.tally(now)
	p.offered, p.busy = 0, 0
}

func (p *provider) refill(now time.Duration) {
	if p.setting.Window == engine.Bucket {
		p.level = min(p.depth(), p.level+p.rate*(now-p.at).Seconds())
		p.at = now
	}
}

// arrive decides about a call. Of one that is refused for the quota, hint is how long
// the next one must wait.
func (p *provider) arrive(now time.Duration) (served bool, hint time.Duration) {
	if p.setting.Places > 0 && p.inFlight >= p.setting.Places {
		return false, 0
	}
	if p.rate > 0 {
		if served, hint = p.take(now); !served {
			return false, hint
		}
	}
	p.tally(now)
	p.inFlight++
	return true, 0
}

// end tells that a call that was served is over.
func (p *provider) end(now time.Duration) {
	p.tally(now)
	p.inFlight--
}

// take takes a call out of the quota.
func (p *provider) take(now time.Duration) (ok bool, hint time.Duration) {
	fails := p.setting.FailuresCount
	switch p.setting.Window {
	case engine.Bucket:
		p.refill(now)
		if p.level >= 1 {
			p.level--
			return true, 0
		}
		if fails {
			p.level = max(p.level-1, -p.depth())
		}
		return false, time.Duration((1 - p.level) / p.rate * float64(time.Second))
	case engine.Fixed:
		if begin := now / minute * minute; begin != p.at {
			p.at, p.used = begin, 0
		}
		if p.used+1 > p.rate*minute.Seconds() {
			return false, p.at + minute - now
		}
		p.used++
		return true, 0
	}
	for len(p.log) > 0 && p.log[0] <= now-minute {
		p.log = p.log[1:]
	}
	full := float64(len(p.log)+1) > p.rate*minute.Seconds()
	if !full || fails {
		p.log = append(p.log, now)
	}
	if !full {
		return true, 0
	}
	return false, p.log[0] + minute - now
}
