package anthropic

import (
	"crypto/sha256"
	"sync"
	"time"
)

// cache remembers which prompts are cached until when.
type cache struct {
	shorten func(time.Duration) time.Duration

	mu sync.Mutex
	// mu guards what follows.
	prompts map[[sha256.Size]byte]cached
}

// cached is a prompt that lives until it was not used for its life.
type cached struct {
	until time.Time
	life  time.Duration
}

func newCache(shorten func(time.Duration) time.Duration) *cache {
	return &cache{shorten: shorten, prompts: make(map[[sha256.Size]byte]cached)}
}

func (c *cache) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.prompts)
}

// hits is what the cache has to do with a prompt.
type hits struct {
	read    int64
	written int64
	hour    bool // what is written lives for an hour
}

// lookup tells what of a prompt can be read from the cache, and what would be
// written to it: the prompt up to its last mark, as far as it is not there.
func (c *cache) lookup(m *meter) (h hits) {
	if len(m.marked) == 0 {
		return hits{}
	}
	last := m.marked[len(m.marked)-1]
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range m.ends {
		if p.tokens <= last.tokens && now.Before(c.prompts[p.digest].until) {
			h.read = max(h.read, p.tokens)
		}
	}
	if last.tokens >= MinCachedTokens {
		h.written = last.tokens - h.read
		h.hour = last.life == time.Hour
	}
	return h
}

// store caches what a served prompt marks, and keeps what it has read alive.
func (c *cache) store(m *meter) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for digest, p := range c.prompts {
		if !now.Before(p.until) {
			delete(c.prompts, digest)
		}
	}
	for _, p := range m.ends {
		if old, ok := c.prompts[p.digest]; ok && len(m.marked) > 0 {
			c.prompts[p.digest] = cached{now.Add(old.life), old.life}
		}
	}
	for _, p := range m.marked {
		if p.tokens >= MinCachedTokens {
			life := max(c.shorten(p.life), c.prompts[p.digest].life)
			c.prompts[p.digest] = cached{now.Add(life), life}
		}
	}
}
