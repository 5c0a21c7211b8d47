package sqlledger

import (
	"container/list"
	"math"
	"slices"
	"sync"
	"time"
)

// page is what a process knows of a tree. It is remembered from one transaction to the
// next, so that what nobody else has changed need not be read again. What is on it is so as
// of its version; whether that is still the one of the database is found out in the same
// transaction that relies on it.
//
// A page belongs to one transaction at a time, as a tree does.
type page struct {
	tree    int64
	loaded  bool  // version and due are known
	version int64 // 0: the tree was never written
	next    int64 // what it will be
	due     int64 // no open reservation of the tree expires before
	nextDue int64 // the same, once what has expired is ended

	counters map[ref]*counter
	byID     map[int64]*counter
	records  map[ref]*record // open ones, and those that this transaction has to do with
	only     map[ref]*record // open ones that are exclusive

	weight  int  // about how much memory it takes, in things
	changed bool // by this transaction
	stale   bool // it is not as it is in the database
}

func newPage(tree int64) *page {
	return &page{
		tree: tree, due: math.MaxInt64, counters: make(map[ref]*counter), byID: make(map[int64]*counter),
		records: make(map[ref]*record), only: make(map[ref]*record), weight: 1,
	}
}

func (p *page) addRecord(r *record) {
	r.page = p
	p.records[r.ref] = r
	r.weight = 1 + len(r.held)
	p.weight += r.weight
	if r.state == open {
		p.due = min(p.due, r.expires)
		if r.exclusive != (ref{}) {
			p.only[r.exclusive] = r
		}
	}
}

// ended takes a reservation that has ended out of what only open ones are in.
func (p *page) ended(r *record) {
	if p.only[r.exclusive] == r {
		delete(p.only, r.exclusive)
	}
}

// remove forgets a reservation that has ended.
func (p *page) remove(r *record) {
	if p.records[r.ref] == r {
		delete(p.records, r.ref)
		p.weight -= r.weight
	}
}

// forget forgets windows that have passed and hold nothing.
func (c *counter) forget(now int64) {
	c.periods = slices.DeleteFunc(c.periods, func(x *period) bool { return x.end <= now && x.reserved == 0 })
}

// cache has the pages that are remembered, those that were used last. It is safe for
// concurrent use.
type cache struct {
	most int // weight

	mu sync.Mutex
	// mu guards:
	pages  map[int64]*list.Element // of *remembered
	order  list.List               // the one that was used last first
	weight int
	shared map[int64]time.Time // trees that others change, too, until when they are not remembered
}

type remembered struct {
	page   *page
	weight int
}

const (
	// maxRemembered is the weight of all pages, of some 100 bytes each thing.
	maxRemembered = 1 << 17
	// sharedFor is how long a tree is not remembered after somebody else has changed it.
	sharedFor = 10 * time.Second
)

func newCache(most int) *cache {
	c := &cache{most: most, pages: make(map[int64]*list.Element), shared: make(map[int64]time.Time)}
	c.order.Init()
	return c
}

// take takes the page of a tree out, or makes an empty one.
func (c *cache) take(tree int64) *page {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.pages[tree]; e != nil {
		return c.remove(e).page
	}
	return newPage(tree)
}

func (c *cache) remove(e *list.Element) *remembered {
	r := c.order.Remove(e).(*remembered)
	delete(c.pages, r.page.tree)
	c.weight -= r.weight
	return r
}

// put puts pages in, as they are in the database. Those that are not put back are forgotten.
func (c *cache) put(pages []*page) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range pages {
		if until, is := c.shared[p.tree]; is {
			if now.Before(until) {
				continue
			}
			delete(c.shared, p.tree)
		}
		if p.version == 0 {
			continue
		}
		c.pages[p.tree] = c.order.PushFront(&remembered{p, p.weight})
		c.weight += p.weight
	}
	for c.weight > c.most {
		c.remove(c.order.Back())
	}
}

// stale notes that somebody else has changed the trees of those of pages that are stale.
func (c *cache) stale(pages []*page) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.shared) > maxRemembered/16 {
		clear(c.shared)
	}
	for _, p := range pages {
		if p.stale {
			c.shared[p.tree] = now.Add(sharedFor)
		}
	}
}
