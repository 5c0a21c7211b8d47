package servers

import (
	"errors"
	"os"
	"sync"
	"testing"
)

// shared are the servers that all tests of the binary use, once one of them
// did.
var shared sharedServers

type sharedServers struct{ redis, postgres sharedServer }

func (s *sharedServers) stop() {
	s.redis.stop()
	s.postgres.stop()
}

// sharedServer is started by the first test that asks for it, and stays.
type sharedServer struct {
	mu  sync.Mutex // guards all below
	s   *server
	err error // why it could not be started; nobody tries again
}

// get returns the server, which start makes if need be.
func (h *sharedServer) get(t testing.TB, start func() (*server, error)) handle {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.s == nil && h.err == nil {
		h.s, h.err = start()
	}
	if h.err != nil {
		t.Fatal(h.err)
	}
	return handle{t: t, server: h.s, isShared: true}
}

func (h *sharedServer) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.s != nil {
		if err := h.s.close(); err != nil {
			_, _ = os.Stderr.WriteString("servers.Stop: " + err.Error() + "\n")
		}
	}
	h.s, h.err = nil, nil
}

// SharedRedis returns a redis-server for all tests of the binary, which keeps
// nothing on disk. It is started on first use and ends with [Stop]. Tests keep
// apart by the keys that they use; they cannot kill, pause or restart it.
func SharedRedis(t testing.TB) *Redis {
	t.Helper()
	binary := requireRedis(t)
	return &Redis{shared.redis.get(t, func() (*server, error) {
		s, err := newRedis(binary, RedisOptions{})
		if err != nil {
			return nil, err
		}
		return startShared(s)
	})}
}

// SharedPostgres returns a Postgres for all tests of the binary, which does not
// wait for the disk. It is started on first use and ends with [Stop]. Tests
// keep apart by [Postgres.NewDatabase]; they cannot kill, pause or restart it.
func SharedPostgres(t testing.TB) *Postgres {
	t.Helper()
	programs := requirePostgres(t)
	return &Postgres{shared.postgres.get(t, func() (*server, error) {
		s, err := newPostgres(programs, PostgresOptions{})
		if err != nil {
			return nil, err
		}
		return startShared(s)
	})}
}

func startShared(s *server) (*server, error) {
	if err := s.startNew(1); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}
