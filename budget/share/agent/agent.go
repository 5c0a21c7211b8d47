package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/share"
	"github.com/prometheus/client_golang/prometheus"
)

// DefaultTimeout is how long a store is waited for.
const DefaultTimeout = time.Second

// Store takes one request of a replica to the coordinator and brings back its
// answer. It is safe for concurrent use. An error says that nobody knows whether
// the request was taken in: it is then sent again, with its sequence number.
type Store interface {
	Do(ctx context.Context, r share.Request) (share.Reply, error)
}

// Config describes a [Sharing].
type Config struct {
	// Epoch of this run of the replica: larger than that of any before it. If the
	// store knows a larger one at the first request, one above that is taken.
	// Defaults to the time in microseconds.
	Epoch int64
	// Fallback is the part of its share of the quota that a gate goes on with
	// while the store is down. Defaults to share.DefaultFallback; negative is
	// none: calls then wait until the store is back.
	Fallback float64
	// Idle is after how long unused credit is given back. Defaults to
	// share.DefaultIdle.
	Idle time.Duration
	// Logger is told, once, when the store is down, and when it is back. Defaults
	// to slog.Default.
	Logger *slog.Logger
	// Mode defaults to share.Leased.
	Mode share.Mode
	// Open makes the store of a quota; it does no I/O. nil is to have no store: the
	// Mode must be share.Static, and Replicas given.
	Open func(q budget.SharedQuota, dims []share.Dim) (Store, error)
	// OwnSlots: the slots are not shared; every gate has all of its Config.Slots.
	OwnSlots bool
	// Registerer for the Prometheus metrics. Defaults to none.
	Registerer prometheus.Registerer
	// Replica is the name of the replica, the same after a restart. It must be
	// another one for every gate that shares a quota. Defaults to a random one.
	Replica string
	// Replicas is how many gates share the quota at least, whatever a store has said.
	// Without a store it is how many there are; Sharing.SetReplicas changes it.
	Replicas int
	// Stock is for how long the credit of a leased replica lasts. Defaults to
	// share.DefaultStock.
	Stock time.Duration
	// Timeout is how long the store is waited for. Defaults to DefaultTimeout.
	Timeout time.Duration
}

// Sharing shares the quotas of gates through a store. Give it to the Config.Share
// of each gate; a gate that joins is a replica of its own.
type Sharing struct {
	cfg     Config
	metrics *metrics

	mu sync.Mutex
	// mu guards what follows, of a Sharing without a store. It is not held under a
	// gate's lock.
	replicas int
	gates    map[*agent]struct{} // that have been started, and not closed
}

var _ budget.Sharing = (*Sharing)(nil)

// New returns a Sharing, or an error that names the field that is wrong.
func New(cfg Config) (*Sharing, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	switch {
	case cfg.Timeout < 0:
		return nil, fmt.Errorf("agent: Config.Timeout is %v, must not be negative", cfg.Timeout)
	case cfg.Open == nil && (cfg.Mode != share.Static || cfg.Replicas < 1):
		return nil, fmt.Errorf("agent: Config.Open is nil with Mode %v and %d Replicas, want static and at least 1", cfg.Mode, cfg.Replicas)
	}
	s := &Sharing{cfg: cfg, replicas: cfg.Replicas, gates: make(map[*agent]struct{})}
	// The rest is what a lessee checks.
	if _, err := s.lessee([]share.Dim{{}}, nil); err != nil {
		if problem, ok := strings.CutPrefix(err.Error(), "share: LesseeConfig."); ok { // the fields have the same names
			return nil, errors.New("agent: Config." + problem)
		}
		return nil, err
	}
	var err error
	if s.metrics, err = newMetrics(cfg.Registerer); err != nil {
		return nil, fmt.Errorf("agent: Config.Registerer: %w", err)
	}
	return s, nil
}

// SetReplicas changes Config.Replicas of a Sharing without a store, while gates work: each
// goes on with another part of the quota. Nobody but the caller knows when replicas come
// and go. So that all together never use more than the whole, tell each of more of them
// one of the provider's windows before they come, and of fewer when they are gone: then a
// gate waits by itself until a window has forgotten what those used. It returns an error if
// n is less than 1, and where there is a store, which knows how many there are.
func (s *Sharing) SetReplicas(n int) error {
	switch {
	case n < 1:
		return fmt.Errorf("agent: SetReplicas: n is %d, must be at least 1", n)
	case s.cfg.Open != nil:
		return fmt.Errorf("agent: SetReplicas: n is %d, but there is a store, which knows how many replicas there are", n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicas = n
	for a := range s.gates {
		a.setReplicas(n)
	}
	return nil
}

func (a *agent) setReplicas(n int) {
	a.host.Update(func(now time.Time, _ *budget.Demand) { a.lessee.SetReplicas(now, n) })
}

// started takes note of a gate that has no store, and ended of its end.
func (s *Sharing) started(a *agent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gates[a] = struct{}{}
	a.setReplicas(s.replicas) // it may have changed since the gate joined
}

func (s *Sharing) ended(a *agent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.gates, a)
}

// lessee makes the replica's side of a quota.
func (s *Sharing) lessee(dims []share.Dim, wake func()) (*share.Lessee, error) {
	cfg := share.LesseeConfig{
		Dims: dims, Epoch: s.cfg.Epoch, Fallback: s.cfg.Fallback, Idle: s.cfg.Idle, Mode: s.cfg.Mode,
		Replica: s.cfg.Replica, Replicas: s.cfg.Replicas, Stock: s.cfg.Stock, Alone: s.cfg.Open == nil, Wake: wake,
	}
	if cfg.Replica == "" {
		cfg.Replica = rand.Text()
	}
	if cfg.Epoch == 0 {
		cfg.Epoch = max(time.Now().UnixMicro(), 1)
	}
	return share.NewLessee(cfg)
}

// Dims are the dimensions of a gate's quota, as the gate and the coordinator name
// them: its limits, and its slots unless they are its own.
func Dims(q budget.SharedQuota, ownSlots bool) []share.Dim {
	var list []share.Dim
	for _, l := range q.Limits {
		d := share.Dim{Limit: l.Limit, Window: l.Window, Cell: l.Cell}
		if l.Bucket {
			d.Shape, d.Burst, d.Pace = share.Bucket, l.Burst, l.Pace
		}
		list = append(list, d)
	}
	if !ownSlots {
		list = append(list, share.Dim{Shape: share.Slots, Limit: q.Slots})
	}
	return list
}

// Join implements [budget.Sharing].
func (s *Sharing) Join(q budget.SharedQuota) (budget.Shared, error) {
	dims := Dims(q, s.cfg.OwnSlots)
	if len(dims) == 0 {
		return nil, errors.New("agent: there is nothing to share: no limits, and Config.OwnSlots is set")
	}
	a := &agent{
		sharing: s, cfg: s.cfg, name: q.Name, wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{}),
		metrics: s.metrics.of(q.Name),
	}
	var err error
	if a.lessee, err = s.lessee(dims, a.signal); err != nil {
		return nil, err
	}
	if s.cfg.Open != nil {
		if a.store, err = s.cfg.Open(q, dims); err != nil {
			return nil, err
		}
	}
	for i := range q.Limits {
		a.limiters = append(a.limiters, a.lessee.Limiter(i))
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a, nil
}

// agent drives the lessee of one gate.
type agent struct {
	sharing  *Sharing
	cfg      Config
	name     string
	lessee   *share.Lessee // used under the gate's lock
	limiters []budget.Limiter
	store    Store
	host     budget.Host
	metrics  *gateMetrics

	wake    chan struct{}
	ctx     context.Context // of requests
	cancel  context.CancelFunc
	leave   sync.Once
	closing chan struct{} // closed by Close
	done    chan struct{} // closed when run has ended
	told    trouble       // what the logger was told last; run's
}

// trouble is what is wrong with the store.
type trouble uint8

const (
	fine   trouble = iota
	silent         // it does not answer
	alone          // nor did it before the lease ended: the gate goes on alone
	fenced         // another replica has our name
)

// Limiters implements [budget.Shared].
func (a *agent) Limiters() []budget.Limiter { return a.limiters }

// Slots implements [budget.Shared].
func (a *agent) Slots() budget.SlotLender {
	if s := a.lessee.Slots(); s != nil {
		return s
	}
	return nil
}

// Start implements [budget.Shared].
func (a *agent) Start(h budget.Host) {
	a.host = h
	if a.store == nil {
		a.sharing.started(a)
		close(a.done)
		return
	}
	go a.run()
}

// Close implements [budget.Shared]. It tells the store that the gate leaves, if the
// store answers; otherwise what the gate has lapses.
func (a *agent) Close(ctx context.Context) error {
	if a.host == nil {
		return nil
	}
	a.leave.Do(func() {
		a.host.Update(func(time.Time, *budget.Demand) { a.lessee.Leave() })
		a.sharing.ended(a)
		close(a.closing)
	})
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		a.cancel()
		<-a.done
		return context.Cause(ctx)
	}
}

// signal makes run look again. It is called under the gate's lock.
func (a *agent) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// run asks the store when it is time, until it has left.
func (a *agent) run() {
	defer close(a.done)
	defer a.cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for a.ctx.Err() == nil {
		r, due, ok := a.look()
		if ok {
			if left := a.exchange(r) && r.Leave; left {
				return
			}
			continue
		}
		var fires <-chan time.Time
		if !due.IsZero() {
			timer.Reset(max(time.Until(due), 0))
			fires = timer.C
		}
		select {
		case <-fires:
		case <-a.wake:
		case <-a.closing: // what is still to be told is due now, or cannot be told
			if a.told != fine {
				return
			}
		case <-a.ctx.Done():
		}
	}
}

// look makes the request that is due, or tells when to look again.
func (a *agent) look() (r share.Request, due time.Time, ok bool) {
	now := trouble(0)
	a.host.Update(func(at time.Time, d *budget.Demand) {
		if r, ok = a.lessee.Request(at, d); !ok {
			due = a.lessee.Due(at)
		}
		now = a.trouble()
	})
	a.tell(now, nil)
	return r, due, ok
}

// exchange takes a request to the store and brings back the answer. It reports
// whether there was one.
func (a *agent) exchange(r share.Request) (answered bool) {
	ctx, cancel := context.WithTimeout(a.ctx, a.cfg.Timeout)
	began := time.Now()
	reply, err := a.store.Do(ctx, r)
	took := time.Since(began)
	cancel()
	now := trouble(0)
	a.host.Update(func(at time.Time, _ *budget.Demand) {
		if err != nil {
			a.lessee.Failed(at, r)
		} else {
			a.lessee.Reply(at, r, reply)
		}
		now = a.trouble()
	})
	a.metrics.exchanged(took, err, reply)
	a.tell(now, err)
	return err == nil
}

// trouble is what is wrong. The gate's lock is held.
func (a *agent) trouble() trouble {
	switch {
	case a.lessee.Fenced():
		return fenced
	case !a.lessee.Failing():
		return fine
	case a.lessee.Local():
		return alone
	}
	return silent
}

// tell logs what has become wrong, or right, once.
func (a *agent) tell(now trouble, err error) {
	if now == a.told {
		return
	}
	before := a.told
	a.told = now
	a.metrics.trouble(now)
	log := a.cfg.Logger.With(slog.String("gate", a.name))
	switch {
	case now == fenced:
		log.Error("share: another replica of this name shares the quota, or one that knows other limits: nothing is granted to this gate any more")
	case now == alone:
		log.Warn("share: the store of the shared quota does not answer: the gate goes on with its part of the quota")
	case now == silent && before == fine:
		log.Warn("share: the store of the shared quota does not answer: the gate goes on with what it was granted", slog.Any("error", err))
	case now == fine:
		log.Info("share: the store of the shared quota answers again")
	}
}
