package redisledger

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// masterIDs are the masters that have answered last: each process of a server has an id of its own
// (run_id). One with another id may lack what was acknowledged last, and no operation need have
// failed in between: there may have been none, or the client has sent it again.
type masterIDs struct {
	mu sync.Mutex
	// mu guards:
	ids  map[string]bool
	seen time.Time // when they were asked
}

// look is one look at all masters.
type look struct {
	begun time.Time

	mu  sync.Mutex
	ids map[string]bool // guarded by mu
}

func newLook() *look { return &look{begun: time.Now(), ids: map[string]bool{}} }

var errNoRunID = errors.New("INFO has no run_id, which Config.Replaced needs")

// at looks at one of them.
func (k *look) at(ctx context.Context, c redis.Cmdable) error {
	var info *redis.StringCmd
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Ping(ctx) // a server that is loading refuses it
		info = p.Info(ctx, "server")
		return nil
	})
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(info.Val(), "run_id:")
	id, _, _ := strings.Cut(rest, "\r\n")
	if id == "" {
		return errNoRunID
	}
	k.mu.Lock()
	k.ids[id] = true
	k.mu.Unlock()
	return nil
}

// saw notes a look, and reports whether there is a master that was none at the look before, and
// when that was.
func (m *masterIDs) saw(k *look) (since time.Time, replaced bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if k.begun.Before(m.seen) { // a later one was faster
		return time.Time{}, false
	}
	since = m.seen
	for id := range k.ids {
		replaced = replaced || m.ids != nil && !m.ids[id]
	}
	m.ids, m.seen = k.ids, k.begun
	return since, replaced
}
