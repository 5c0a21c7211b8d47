package blocks

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// counterKey tells counters of a tree apart.
type counterKey struct {
	quota.Counter
	per time.Duration // of a rolling one, or 0
}

func keyOf(e *quota.Entry) counterKey {
	k := counterKey{Counter: e.Counter}
	if e.Rolling {
		k.per = e.Per
	}
	return k
}

// counter is one that is served from blocks. Whoever asks the ledger about it holds
// talk meanwhile, so that what the ledger says and what is known here are of the same
// moment.
type counter struct {
	t    *tree
	key  counterKey
	talk chan struct{}

	// The tree's lock guards all that follows.
	entry   quota.Entry // as it was given last; the strings are the counter's own
	pools   []*pool     // by window, in the order in which they were first used
	demand  demand
	wanted  int64 // what those who wait want, and will get
	before  int64 // the same, of those in front of the one that is looked at
	working bool  // there is a goroutine at work
	short   bool  // little is left
	noMore  int64 // no more is leased ahead before this time
	lost    *ask  // one whose reply has not come
	retryAt int64 // after something failed
	backoff time.Duration
	crossed []quota.Crossing // to be told with the next result
	usedAt  int64
}

// counter returns an entry's counter, and makes it if need be.
func (t *tree) counter(e *quota.Entry) *counter {
	k := keyOf(e)
	if c := t.counters[k]; c != nil {
		return c
	}
	k.Key, k.Window = strings.Clone(k.Key), strings.Clone(k.Window)
	c := &counter{t: t, key: k, talk: make(chan struct{}, 1)}
	t.counters[k] = c
	return c
}

// note remembers how the counter's limit is asked about.
func (c *counter) note(e *quota.Entry) {
	thresholds := c.entry.Thresholds
	if !slices.Equal(thresholds, e.Thresholds) {
		thresholds = slices.Clone(e.Thresholds)
	}
	c.entry = *e
	c.entry.Counter, c.entry.Thresholds = c.key.Counter, thresholds
}

// current is the pool of the window in which an entry falls now.
func (c *counter) current(e *quota.Entry, now int64) *pool {
	span := quota.Span{}
	if !e.Rolling {
		span = e.SpanAt(c.t.ledgerNow(now))
	}
	p := c.pool(span)
	p.usedAt = now
	return p
}

// find returns the pool of a window, or nil.
func (c *counter) find(span quota.Span) *pool {
	for i := len(c.pools) - 1; i >= 0; i-- {
		if p := c.pools[i]; p.is(span) {
			return p
		}
	}
	return nil
}

// pool returns the pool of a window, and makes it if need be.
func (c *counter) pool(span quota.Span) *pool {
	if p := c.find(span); p != nil {
		return p
	}
	p := &pool{c: c, span: span}
	p.recount()
	c.pools = append(c.pools, p)
	return p
}

// turn waits until nobody else asks the ledger about the counter; pass ends that.
func (c *counter) turn(ctx context.Context) error {
	select {
	case c.talk <- struct{}{}:
		return nil
	default:
	}
	select {
	case c.talk <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *counter) pass() { <-c.talk }
