package burst

import (
	"sync"
	"time"
)

// record is what became of a call. One goroutine writes it, and others read it
// when the run is over.
type record struct {
	call     *call
	asked    time.Duration // when the program wanted it
	attempts []*attempt
	ended    time.Duration // when it was served or given up
	done     bool          // it was served
}

// attempt is one time that a call was sent.
type attempt struct {
	sent      time.Duration
	decided   time.Duration // when the provider let it in, or refused it
	ended     time.Duration
	admitted  bool
	throttled bool // the answer was 429
	served    bool
}

// begin notes that the call is sent.
func (r *record) begin(now time.Duration) *attempt {
	a := &attempt{sent: now}
	r.attempts = append(r.attempts, a)
	return a
}

func (a *attempt) admit(now time.Duration) { a.admitted, a.decided = true, now }

func (a *attempt) over(now time.Duration) {
	a.ended = now
	if !a.admitted {
		a.decided = now
	}
}

// log is what happened in a run.
type log struct {
	mu sync.Mutex
	// mu guards the list while the run goes on.
	records []*record
}

func (l *log) add(c *call, now time.Duration) *record {
	r := &record{call: c, asked: now}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
	return r
}

// attempts are all attempts with their calls.
func (l *log) attempts(f func(*record, *attempt)) {
	for _, r := range l.records {
		for _, a := range r.attempts {
			f(r, a)
		}
	}
}

// end is when the last call was over.
func (l *log) end() (end time.Duration) {
	for _, r := range l.records {
		end = max(end, r.ended)
	}
	return end
}

// waits calls f for every stretch of time in which the call wanted to run and
// was not at the provider.
func (r *record) waits(f func(from, to time.Duration)) {
	from := r.asked
	for _, a := range r.attempts {
		if a.sent > from {
			f(from, a.sent)
		}
		from = a.ended
	}
	if r.ended > from {
		f(from, r.ended)
	}
}
