package counttokens

import (
	"container/list"
	"crypto/sha256"
	"encoding/json"
)

// key stands for a request.
type key [sha256.Size]byte

// keyOf hashes a request as JSON, and returns that, too. A request that is larger
// than most, or that is no JSON, has no key.
func keyOf(req any, most int) (k key, data []byte, ok bool) {
	data, err := json.Marshal(req)
	if err != nil || len(data) > most {
		return key{}, nil, false
	}
	return sha256.Sum256(data), data, true
}

// cache remembers the counts that were asked for last. It is not safe for
// concurrent use.
type cache struct {
	size    int
	entries map[key]*list.Element
	order   *list.List // of entry, the latest in front
}

type entry struct {
	key key
	n   int64
}

func newCache(size int) cache {
	return cache{size: size, entries: map[key]*list.Element{}, order: list.New()}
}

func (c *cache) get(k key) (int64, bool) {
	e, ok := c.entries[k]
	if !ok {
		return 0, false
	}
	c.order.MoveToFront(e)
	return e.Value.(entry).n, true
}

func (c *cache) put(k key, n int64) {
	if e, ok := c.entries[k]; ok {
		e.Value = entry{k, n}
		c.order.MoveToFront(e)
		return
	}
	c.entries[k] = c.order.PushFront(entry{k, n})
	if c.order.Len() > c.size {
		last := c.order.Back()
		c.order.Remove(last)
		delete(c.entries, last.Value.(entry).key)
	}
}
