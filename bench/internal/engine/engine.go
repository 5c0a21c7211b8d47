// Package engine is what the API doubles under bench have in common, whatever
// API they speak: quotas, faults, latencies and the books that are kept of
// them.
//
// A double asks [Engine.Admit] for every call that arrives. The engine refuses
// it, or hands out a [Call]: the double plans it, waits for its tokens, sends
// them in the API's own format, commits the fault that the call may carry, and
// ends it.
//
// Everything random is drawn from the seed and the content of a call. So the
// same calls take the same time, and meet the same faults of chance, in two
// runs, in whatever order they come. The k-th call with the same content has
// draws of its own.
//
// Time is package time only, so an engine lives in real time or in the virtual
// time of a testing/synctest bubble. Speed shortens everything alike: windows,
// latencies, intervals, advised delays; a day, too.
package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrClosed is returned to calls that arrive, or wait, when the engine closes.
var ErrClosed = errors.New("engine closed")

// Config is what an engine is made of. The zero value admits everything and
// answers at once.
type Config struct {
	// Concurrency is the largest number of calls in flight; 0 is no limit.
	Concurrency int
	// CountRefused counts refused calls against the limits on requests, too.
	CountRefused bool
	// Faults are tried in order; a call carries the first one that befalls it.
	Faults []Fault
	// Jitter bounds the delay, uniform from 0, between the arrival of a call
	// and the instant at which it is looked at.
	Jitter time.Duration
	// Latency is how long calls take.
	Latency Latency
	// Limits are the quotas. All must have room for a call.
	Limits []Limit
	// Log is the number of ended calls to remember, the latest ones.
	Log int
	// Seed is the seed of everything random.
	Seed uint64
	// Speed divides all durations. 0 is 1.
	Speed float64
}

// The bounds of Speed keep a window of a minute above a nanosecond and a day
// within the range of durations.
const (
	minSpeed = 1e-3
	maxSpeed = 1e6
)

func (c *Config) validate() error {
	if c.Speed == 0 {
		c.Speed = 1
	}
	switch {
	case c.Concurrency < 0:
		return fmt.Errorf("concurrency %d: must not be negative", c.Concurrency)
	case c.Jitter < 0:
		return fmt.Errorf("arrival jitter %v: must not be negative", c.Jitter)
	case c.Log < 0:
		return fmt.Errorf("call log %d: must not be negative", c.Log)
	case !(c.Speed >= minSpeed && c.Speed <= maxSpeed):
		return fmt.Errorf("speed %v: must be from %g to %g", c.Speed, minSpeed, maxSpeed)
	}
	for _, l := range c.Limits {
		if err := l.validate(); err != nil {
			return err
		}
	}
	return c.Latency.validate()
}

// Engine decides over calls. Its methods may be called from several
// goroutines. It has none of its own.
type Engine struct {
	cfg    Config
	faults []Fault // with the speed applied
	jitter time.Duration
	closed chan struct{}

	// mu guards everything below, and what run points to.
	mu       sync.Mutex
	run      *run
	inFlight map[*Call]struct{}
	shut     bool
}

// New makes an engine, whose time begins now. The error names the field of cfg
// that is wrong, and its value.
func New(cfg Config) (*Engine, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg:      cfg,
		jitter:   shorten(cfg.Jitter, cfg.Speed),
		closed:   make(chan struct{}),
		inFlight: make(map[*Call]struct{}),
	}
	for _, f := range cfg.Faults {
		e.faults = append(e.faults, f.shorten(cfg.Speed))
	}
	e.run = newRun(cfg)
	return e, nil
}

// run is the state from one reset to the next. A call books into the run that
// admitted it.
type run struct {
	epoch  time.Time
	meters []*meter
	// tried is the number of calls that passed the limits.
	tried int64
	seen  history
	stats counters
	log   callLog
}

func newRun(cfg Config) *run {
	r := &run{epoch: time.Now(), seen: history{size: remembered}, stats: newCounters(), log: callLog{size: cfg.Log}}
	for _, l := range cfg.Limits {
		r.meters = append(r.meters, newMeter(l, r.epoch, cfg.Speed))
	}
	return r
}

func (r *run) now() time.Duration { return time.Since(r.epoch) }

// Shorten applies the speed to a duration.
func (e *Engine) Shorten(d time.Duration) time.Duration { return shorten(d, e.cfg.Speed) }

// Reset forgets what was counted: windows, statistics, the log, the numbers of
// calls. The time of limits and faults begins anew. Calls in flight go on, and
// keep their places under the concurrency limit; what they use is not booked
// any more.
func (e *Engine) Reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.run = newRun(e.cfg)
	e.run.stats.peakInFlight = len(e.inFlight)
}

// Close makes every wait return ErrClosed and every later call be refused with
// it. It does not wait for calls in flight.
func (e *Engine) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.shut {
		e.shut = true
		close(e.closed)
	}
}

// Arrival is a call that asks to be admitted.
type Arrival struct {
	// Amounts is what the call uses as far as it is known when it arrives.
	Amounts Amounts
	// Digest identifies its content.
	Digest Digest
	// Fault is a fault that the call itself demands; it comes before the
	// engine's own. It may be nil.
	Fault *Fault
	// Name is what the log calls it: a model, for instance.
	Name string
}

// Admit waits for the arrival jitter and then decides. It returns a Call, which
// must be ended; or a [*Refusal]; or ErrClosed; or the context's error, and
// then the call was never seen.
func (e *Engine) Admit(ctx context.Context, a Arrival) (*Call, error) {
	arrived := time.Now()
	if e.jitter > 0 {
		if err := e.sleep(ctx, e.delay(a)); err != nil {
			return nil, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shut {
		return nil, ErrClosed
	}
	r := e.run
	now := r.now()
	r.stats.requests++
	refusal := e.limited(now, a)
	var fault Fault
	var nth occurrence
	if refusal == nil {
		r.tried++
		nth = r.seen.next(a.Digest)
		fault = e.befall(now, a, nth)
		if fault.Kind.Refuses {
			refusal = &Refusal{Fault: fault, Retry: fault.hint(now)}
		}
	}
	if fault.Kind.Name != "" {
		r.stats.faults[fault.Kind.Name]++
	}
	if refusal != nil {
		e.refuse(now, a, refusal)
		r.log.add(Record{Name: a.Name, Arrived: arrived, Decided: r.epoch.Add(now), Ended: r.epoch.Add(now),
			Input: a.Amounts[InputTokens], Outcome: Refused, Refused: refusal.names(), Fault: fault.Kind.Name})
		return nil, refusal
	}
	if fault.Kind.Name == "" {
		r.seen.served(a.Digest)
	}
	return e.admit(now, arrived, a, fault, nth), nil
}

// delay draws the arrival jitter of the call.
func (e *Engine) delay(a Arrival) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	nth := e.run.seen.arrived(a.Digest)
	return time.Duration(newDraw(e.cfg.Seed, a.Digest, "jitter", nth).Uniform("delay") * float64(e.jitter))
}

// limited returns the refusal by the limits, or nil. Callers hold mu.
func (e *Engine) limited(now time.Duration, a Arrival) *Refusal {
	var full []Violation
	at := now
	for _, m := range e.run.meters {
		if m.window == nil {
			continue
		}
		if fits := m.window.fits(now, a.Amounts[m.Dimension]); fits > now {
			full = append(full, Violation{Name: m.Name, Limit: m.Amount})
			at = max(at, fits)
		}
	}
	if e.cfg.Concurrency > 0 && len(e.inFlight) >= e.cfg.Concurrency {
		full = append(full, Violation{Name: Concurrency, Limit: int64(e.cfg.Concurrency)})
		at = max(at, e.soonestEnd(now))
	}
	if full == nil {
		return nil
	}
	r := &Refusal{Violations: full}
	if at > now && at < never-1 {
		r.Retry = at - now
	}
	return r
}

// soonestEnd is when the first of the calls in flight is planned to end; never
// where none has a plan. Callers hold mu.
func (e *Engine) soonestEnd(now time.Duration) time.Duration {
	soonest := never
	for c := range e.inFlight {
		if c.planned {
			soonest = min(soonest, c.admitted.Add(c.pace.Total).Sub(e.run.epoch))
		}
	}
	return max(soonest, now)
}

// befall returns the fault of the call, or none. Callers hold mu.
func (e *Engine) befall(now time.Duration, a Arrival, nth occurrence) Fault {
	draw := newDraw(e.cfg.Seed, a.Digest, "fault", nth.tried)
	if a.Fault != nil {
		if f := a.Fault.shorten(e.cfg.Speed); f.befalls(e.run.tried, now, draw.Uniform("demanded")) {
			return f
		}
	}
	for i, f := range e.faults {
		if f.befalls(e.run.tried, now, draw.Uniform(fmt.Sprint(i))) {
			return f
		}
	}
	return Fault{}
}

// refuse books a refusal. Callers hold mu.
func (e *Engine) refuse(now time.Duration, a Arrival, refusal *Refusal) {
	r := e.run
	r.stats.refused++
	for _, name := range refusal.names() {
		r.stats.refusedBy[name]++
	}
	if !e.cfg.CountRefused {
		return
	}
	for _, m := range r.meters {
		if m.Dimension == Requests && m.window != nil {
			m.window.count(now, a.Amounts[Requests]) // and not its peak, which measures what was admitted
		}
	}
	if len(refusal.Violations) > 0 && refusal.Retry > 0 {
		// What was just counted may have moved the instant at which it fits.
		if again := e.limited(now, a); again != nil {
			refusal.Retry = again.Retry
		}
	}
}

// admit books an admission. Callers hold mu.
func (e *Engine) admit(now time.Duration, arrived time.Time, a Arrival, fault Fault, nth occurrence) *Call {
	r := e.run
	c := &Call{
		engine: e, run: r, name: a.Name, amounts: a.Amounts,
		arrived: arrived, admitted: r.epoch.Add(now), fault: fault,
		draw: newDraw(e.cfg.Seed, a.Digest, "serve", nth.served),
	}
	for _, m := range r.meters {
		if m.CountAt == AtArrival {
			m.count(now, a.Amounts)
		}
	}
	e.inFlight[c] = struct{}{}
	r.stats.admitted++
	r.stats.input += a.Amounts[InputTokens]
	r.stats.peakInFlight = max(r.stats.peakInFlight, len(e.inFlight))
	return c
}

// sleep waits for d, the end of ctx or the end of the engine, whichever comes
// first. The context's error comes before the others.
func (e *Engine) sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var elapsed <-chan time.Time // never ready where there is no bound
	if d != forever {
		timer := time.NewTimer(d)
		defer timer.Stop()
		elapsed = timer.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-e.closed:
		return ErrClosed
	case <-elapsed:
		return nil
	}
}
