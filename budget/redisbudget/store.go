package redisbudget

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/budget/share/agent"
)

// A store takes the requests of the gates of one quota to Redis.
type store struct {
	cfg     *Config
	clock   *clock
	learn   int64 // of a quota that is not known: never, always, or if the server was just started
	bounded bool  // the client keeps deadlines
	dims    []share.Dim
	keys    []string
	form    string
	keep    time.Duration // of keys that nobody touches
	memory  time.Duration // of replicas that are gone
	stray   atomic.Int32  // requests that were given up and have not returned
}

// Whether a quota that is not known is taken for one that was lost.
const (
	learnNever int64 = iota
	learnAlways
	learnAfterRestart
)

// clock is for tests: what is added to the server's clock, in microseconds, or a clock
// in its place.
type clock struct {
	offset atomic.Int64
	still  atomic.Pointer[time.Time]
}

func (c *clock) now() int64 {
	if t := c.still.Load(); t != nil {
		return t.UnixMicro()
	}
	return 0
}

// longest is for how long a replica that says nothing is remembered, as
// share.Coordinator does.
const longest = 300 * time.Second

// open makes the store of a quota.
func (s *Sharing) open(q budget.SharedQuota, dims []share.Dim) (agent.Store, error) {
	dims, err := share.Complete(dims)
	if err != nil {
		return nil, err
	}
	name := s.cfg.Name
	if name == "" {
		name = q.Name
	}
	window := time.Duration(0)
	for _, d := range dims {
		window = max(window, d.Window)
	}
	return &store{
		cfg: &s.cfg, clock: &s.clock, learn: s.learn, bounded: keepsDeadlines(s.cfg.Client),
		dims: dims, keys: keysOf(s.cfg.Prefix, name), form: formOf(dims),
		memory: max(min(2*window, longest), s.cfg.TTL+s.cfg.Late),
		keep:   2*window + longest + s.cfg.TTL + s.cfg.Late,
	}, nil
}

// Do implements [agent.Store].
func (s *store) Do(ctx context.Context, r share.Request) (share.Reply, error) {
	if len(r.Dims) != len(s.dims) {
		return share.Reply{}, fmt.Errorf("redisbudget: a request has %d dimensions, want %d", len(r.Dims), len(s.dims))
	}
	numbers := s.encode(&r)
	if s.bounded {
		return s.send(ctx, numbers, r.Replica)
	}
	// The client may wait for longer than the caller does.
	if s.stray.Load() >= maxStray {
		return share.Reply{}, errBusy
	}
	type result struct {
		reply share.Reply
		err   error
	}
	came := make(chan result, 1)
	s.stray.Add(1)
	go func() {
		defer s.stray.Add(-1)
		reply, err := s.send(ctx, numbers, r.Replica)
		came <- result{reply, err}
	}()
	select {
	case res := <-came:
		return res.reply, res.err
	case <-ctx.Done():
		return share.Reply{}, context.Cause(ctx)
	}
}

// maxStray bounds the requests that were given up, and that the client has not.
const maxStray = 16

var errBusy = errors.New("redisbudget: the client still waits for the answers to earlier requests")

// send has the script run. A server that does not know it, because it was
// restarted or the script was flushed, is told its text.
func (s *store) send(ctx context.Context, numbers []byte, replica string) (share.Reply, error) {
	args := make([]any, 0, 3+len(s.keys)+3)
	args = append(args, "evalsha", doSHA, len(s.keys))
	for _, k := range s.keys {
		args = append(args, k)
	}
	args = append(args, numbers, replica, s.form)
	answer, err := s.cfg.Client.Do(ctx, args...).Result()
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = "eval", doLua
		answer, err = s.cfg.Client.Do(ctx, args...).Result()
	}
	if err != nil {
		return share.Reply{}, fmt.Errorf("redisbudget: %w", err)
	}
	return s.decode(answer)
}

// keepsDeadlines reports whether a client gives up at the deadline of a context.
func keepsDeadlines(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		return c.Options().ContextTimeoutEnabled
	}
	return false
}
