package chaos_test

import (
	"sync"
	"time"
)

const (
	beat = 20 * time.Millisecond
	// longBeat is how much a beat counts at most: whatever is longer, this process did not
	// run, as it was stopped or others had the processors.
	longBeat = 3 * beat
)

// pulse measures how long operations are under way, in time in which this process runs, and
// tells of each that takes too long, once, while it still does.
type pulse struct {
	limit time.Duration
	late  func(what string)
	stop  chan struct{}
	done  chan struct{}

	mu sync.Mutex
	// mu guards all that follows.
	ran   time.Duration
	under map[*underWay]bool
}

// underWay is an operation that is.
type underWay struct {
	what  string
	since time.Duration
	told  bool
}

func newPulse(limit time.Duration, late func(what string)) *pulse {
	p := &pulse{limit: limit, late: late, stop: make(chan struct{}), done: make(chan struct{}), under: map[*underWay]bool{}}
	go p.run()
	return p
}

func (p *pulse) run() {
	defer close(p.done)
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ticker.C:
		case <-p.stop:
			return
		}
		now := time.Now()
		passed := min(now.Sub(last), longBeat)
		last = now
		p.mu.Lock()
		p.ran += passed
		var late []string
		for o := range p.under {
			if !o.told && p.ran-o.since > p.limit {
				o.told = true
				late = append(late, o.what)
			}
		}
		p.mu.Unlock()
		for _, what := range late {
			p.late(what)
		}
	}
}

// begin notes that an operation begins, and returns what is to be called at its end.
func (p *pulse) begin(what string) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := &underWay{what: what, since: p.ran}
	p.under[o] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.under, o)
	}
}

func (p *pulse) close() {
	close(p.stop)
	<-p.done
}
