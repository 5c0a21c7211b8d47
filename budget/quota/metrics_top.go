package quota

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Defaults of a [TopConfig].
const (
	// DefaultTopInterval is how often the log is told who uses most.
	DefaultTopInterval = time.Minute
	// DefaultTopCounters is how many subjects are told apart.
	DefaultTopCounters = 1024
	// DefaultTopShown is how many subjects the log is told of.
	DefaultTopShown = 10
)

// TopConfig is what [TopUsers] are made of. The zero value is ready to use.
type TopConfig struct {
	// Counters is how many subjects are told apart at a time. Defaults to
	// [DefaultTopCounters].
	Counters int
	// Hierarchy are the scopes. Defaults to [DefaultHierarchy].
	Hierarchy *Hierarchy
	// Interval is how often the log is told. Defaults to [DefaultTopInterval].
	Interval time.Duration
	// Logger is told. Defaults to [slog.Default].
	Logger *slog.Logger
	// Scope is whose use is counted together. Defaults to [User].
	Scope Scope
	// Shown is how many the log is told of. Defaults to [DefaultTopShown].
	Shown int
}

// TopUsers tells the log who uses most tokens: ids do not belong in metrics. It is a
// [Listener] for a [Bus]; see [TopUsers.Listen].
//
// At the end of every interval in which anybody used anything there is one entry of
// the level info, with the keys of those who used most, the most first.
//
// However many subjects there are, the memory is that of its counters: it is the
// Space-Saving sketch (Metwally, Agrawal and El Abbadi, "Efficient computation of
// frequent and top-k elements in data streams", ICDT 2005), with weights. Whoever
// used more than all tokens of the interval ÷ Counters is in it, and no count is
// too low. It is too high by at most that number; how much at most, the entry says as
// "over".
//
// TopUsers are safe for concurrent use.
type TopUsers struct {
	cfg TopConfig

	mu sync.Mutex
	// mu guards all that follows.
	counters map[string]*topCounter
	heap     []*topCounter // the smallest first
	total    int64
	timer    *time.Timer // armed while anything was counted
	closed   bool
}

// topCounter is what one subject used, or at most used.
type topCounter struct {
	key        string
	n, over    int64
	calls, pos int
}

// NewTopUsers makes TopUsers. The error names the field that is wrong, and its value.
func NewTopUsers(cfg TopConfig) (*TopUsers, error) {
	if cfg.Scope == "" {
		cfg.Scope = User
	}
	number := func(field string, n *int, value int) error {
		if *n < 0 {
			return fmt.Errorf("quota: TopConfig.%s is %d, must not be negative", field, *n)
		}
		if *n == 0 {
			*n = value
		}
		return nil
	}
	if err := cmp.Or(number("Counters", &cfg.Counters, DefaultTopCounters), number("Shown", &cfg.Shown, DefaultTopShown)); err != nil {
		return nil, err
	}
	switch {
	case cfg.Interval < 0:
		return nil, fmt.Errorf("quota: TopConfig.Interval is %v, must not be negative", cfg.Interval)
	case cfg.Interval == 0:
		cfg.Interval = DefaultTopInterval
	}
	if !cfg.Hierarchy.Has(cfg.Scope) {
		return nil, fmt.Errorf("quota: TopConfig.Scope is %.40q, which the hierarchy does not have", string(cfg.Scope))
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &TopUsers{cfg: cfg, counters: map[string]*topCounter{}}, nil
}

// Listen is the [Listener]. It takes notice of settled calls only. Of a correction it
// counts what the call has used more; what it has used less stays counted, as a sketch
// cannot forget.
func (t *TopUsers) Listen(e Event) {
	s, ok := e.(CallSettled)
	if !ok {
		return
	}
	key, ok := t.cfg.Hierarchy.Key(s.Subject, t.cfg.Scope)
	if !ok {
		return
	}
	tokens, calls := s.Charged[Tokens], 1
	if s.Corrects {
		tokens, calls = tokens-s.Before[Tokens], 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || tokens <= 0 {
		return
	}
	t.add(key, tokens, calls)
	if t.timer == nil {
		t.timer = time.AfterFunc(t.cfg.Interval, t.tell)
	}
}

// add counts tokens and calls of a key. mu is held.
func (t *TopUsers) add(key string, tokens int64, calls int) {
	t.total = addAmounts(t.total, tokens)
	c := t.counters[key]
	switch {
	case c != nil:
	case len(t.heap) < t.cfg.Counters:
		c = &topCounter{key: key, pos: len(t.heap)}
		t.counters[key] = c
		t.heap = append(t.heap, c)
	default: // it takes the place of the smallest, and may have used as much before
		c = t.heap[0]
		delete(t.counters, c.key)
		c.key, c.over, c.calls = key, c.n, 0
		t.counters[key] = c
	}
	c.n = addAmounts(c.n, tokens)
	c.calls += calls
	t.up(c)
	t.down(c)
}

// up moves a counter towards the root as far as it is smaller.
func (t *TopUsers) up(c *topCounter) {
	for c.pos > 0 {
		above := t.heap[(c.pos-1)/2]
		if above.n <= c.n {
			return
		}
		t.swap(c, above)
	}
}

// down moves a counter away from the root as far as it is larger.
func (t *TopUsers) down(c *topCounter) {
	for {
		i := 2*c.pos + 1
		if i >= len(t.heap) {
			return
		}
		if i+1 < len(t.heap) && t.heap[i+1].n < t.heap[i].n {
			i++
		}
		if t.heap[i].n >= c.n {
			return
		}
		t.swap(c, t.heap[i])
	}
}

func (t *TopUsers) swap(a, b *topCounter) {
	a.pos, b.pos = b.pos, a.pos
	t.heap[a.pos], t.heap[b.pos] = a, b
}

// tell tells the log of an interval, and begins the next one.
func (t *TopUsers) tell() {
	t.mu.Lock()
	top, total := t.heap, t.total
	t.counters, t.heap, t.total, t.timer = map[string]*topCounter{}, nil, 0, nil
	t.mu.Unlock()
	if len(top) == 0 {
		return
	}
	slices.SortFunc(top, func(a, b *topCounter) int {
		return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.key, b.key))
	})
	users := make([]topUser, 0, t.cfg.Shown)
	for _, c := range top[:min(len(top), t.cfg.Shown)] {
		users = append(users, topUser{Key: c.key, Tokens: c.n, Over: c.over, Calls: c.calls})
	}
	t.cfg.Logger.Info("quota: who used most tokens",
		slog.String("scope", string(t.cfg.Scope)), slog.Duration("interval", t.cfg.Interval),
		slog.Int64("tokens", total), slog.Any("top", users))
}

// topUser is a subject in the log.
type topUser struct {
	Key    string `json:"key"`
	Tokens int64  `json:"tokens"`
	Over   int64  `json:"over,omitempty"`
	Calls  int    `json:"calls"`
}

// Close tells the log of what was counted since the last time. Nothing is counted
// afterwards. Close the bus first.
func (t *TopUsers) Close() {
	t.mu.Lock()
	t.closed = true
	if t.timer != nil {
		t.timer.Stop()
	}
	t.mu.Unlock()
	t.tell()
}
