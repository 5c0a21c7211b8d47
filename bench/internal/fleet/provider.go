package fleet

import (
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// provider has a quota of tokens and one of requests, and counts a call as it
// arrives.
type provider struct {
	limits [dims]int64
	let    [dims]*engine.Meter // what was let in
	sent   [dims]*engine.Meter // all that came, refused or not
	use    float64             // the largest use of sent
}

// dims are the dimensions of the quota, in the order of a call's costs.
const (
	tokensDim = iota
	requestsDim
	dims
)

func newProvider(c *Config) (*provider, error) {
	p := &provider{limits: [dims]int64{c.TokensPerMinute(), c.RequestsPerMinute()}}
	for i, amount := range p.limits {
		l := engine.Limit{Amount: amount, Length: minute, Model: c.Window, Dimension: engine.Requests, Name: "quota"}
		for _, m := range []**engine.Meter{&p.let[i], &p.sent[i]} {
			var err error
			if *m, err = engine.NewMeter(l); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// arrive counts a call, or refuses it: then it tells after how long it would fit, and
// in which dimensions it does not.
func (p *provider) arrive(now int64, costs [dims]int64) (wait time.Duration, over [dims]bool, ok bool) {
	at := time.Duration(now)
	ok = true
	for i, cost := range costs {
		p.sent[i].Count(at, cost)
		p.use = max(p.use, float64(p.limits[i]-p.sent[i].Left(at))/float64(p.limits[i]))
		switch w, fits := p.let[i].Fits(at, cost); {
		case !fits:
			over[i] = true
			return hour, over, false
		case w > 0:
			ok, over[i] = false, true
			wait = max(wait, w)
		}
	}
	if ok {
		for i, cost := range costs {
			p.let[i].Count(at, cost)
		}
	}
	return wait, over, ok
}

const hour = time.Hour
