package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/share"
)

// ErrDown is the error of a [Memory] that is down.
var ErrDown = errors.New("the store is down")

// Memory is a [Store] in memory: a coordinator behind a network of its own. It is for
// gates of one program that share a quota, for simulations, and for tests, which can
// make it slow, lose replies, and fail. It is safe for concurrent use.
type Memory struct {
	cfg share.CoordinatorConfig

	mu sync.Mutex
	// mu guards all that follows.
	coordinator *share.Coordinator
	latency     func() time.Duration
	down        bool
	drop        int
	done        int64
}

// NewMemory returns a store for a quota of the given configuration. Where it names no
// Dims, those of the first gate that joins are taken.
func NewMemory(cfg share.CoordinatorConfig) *Memory { return &Memory{cfg: cfg} }

// Open is for Config.Open.
func (m *Memory) Open(_ budget.SharedQuota, dims []share.Dim) (Store, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cfg.Dims == nil {
		m.cfg.Dims = dims
	}
	if len(m.cfg.Dims) != len(dims) {
		return nil, errors.New("agent: the gates that share a quota name different limits")
	}
	if m.coordinator == nil {
		c, err := share.NewCoordinator(m.cfg)
		if err != nil {
			return nil, err
		}
		m.coordinator = c
	}
	return m, nil
}

// SetLatency makes a request and its reply take so long each.
func (m *Memory) SetLatency(oneWay func() time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latency = oneWay
}

// SetDown makes requests fail before they arrive.
func (m *Memory) SetDown(down bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = down
}

// DropReplies loses the next n replies: the requests are taken in.
func (m *Memory) DropReplies(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop = n
}

// Lose loses the coordinator's state, and begins with another epoch.
func (m *Memory) Lose() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cfg.Epoch = max(m.cfg.Epoch, 1) + 1
	m.cfg.Learn = true
	c, err := share.NewCoordinator(m.cfg)
	if err == nil {
		m.coordinator = c
	}
	return err
}

// Requests is the number of requests that were taken in.
func (m *Memory) Requests() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.done
}

// Books are what the coordinator knows of each dimension; nil if no gate has
// joined.
func (m *Memory) Books() []share.Books {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.coordinator == nil {
		return nil
	}
	return m.coordinator.Books(time.Now())
}

// Do implements [Store].
func (m *Memory) Do(ctx context.Context, r share.Request) (share.Reply, error) {
	if err := m.travel(ctx); err != nil {
		return share.Reply{}, err
	}
	reply, err := m.arrive(r)
	if err == nil {
		err = m.travel(ctx)
	}
	if err != nil {
		return share.Reply{}, err
	}
	return reply, nil
}

func (m *Memory) arrive(r share.Request) (share.Reply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down || m.coordinator == nil {
		return share.Reply{}, ErrDown
	}
	m.done++
	reply := m.coordinator.Do(time.Now(), r)
	if m.drop > 0 {
		m.drop--
		return share.Reply{}, ErrDown
	}
	return reply, nil
}

// travel waits for one way.
func (m *Memory) travel(ctx context.Context) error {
	m.mu.Lock()
	latency := m.latency
	m.mu.Unlock()
	if latency == nil {
		return ctx.Err()
	}
	timer := time.NewTimer(latency())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
