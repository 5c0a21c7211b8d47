package sqlledger

import (
	"database/sql"
	"fmt"
	"math"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/internal/rolling"
)

// book is what one transaction works on: the pages of its trees, and what becomes of
// them. All that is decided is decided here, without a database.
//
// First operations say what they need, then the transaction reads what is not known yet,
// and then they are done, one after the other.
type book struct {
	clock  int64 // the store's
	now    int64 // the same, but for tests
	pages  []*page
	byTree map[int64]*page

	want    wants
	missing bool          // there are counters without rows
	due     []*page       // whose expired reservations are known
	seen    []*counter    // whose windows were all read
	read    []*record     // reservations that were read
	mark    map[ref]int64 // numbers of writers that were read
	sure    bool          // the versions were read, too

	// What is to be written.
	periods []periodOf
	buckets []*counter
	records []*record
	calls   []callRow
	audit   []auditRow
	raised  map[ref]int64 // numbers of writers
	ended   []*record     // of these, those that have ended are forgotten

	pool rolling.Pool
}

// wants is what is to be read.
type wants struct {
	refs      []refOn
	exclusive []refOn
	periods   []periodOf
	buckets   []*counter
	whole     []*counter // of which all windows are needed
	writers   []ref
	due       []*page // of which the expired reservations are needed
}

type refOn struct {
	page *page
	ref  ref
}

type periodOf struct {
	counter *counter
	*period
}

func newBook(clock, now int64, pages []*page) *book {
	b := &book{clock: clock, now: now, pages: pages, byTree: make(map[int64]*page, len(pages))}
	for _, p := range pages {
		b.byTree[p.tree] = p
		p.changed = false
		if !p.loaded || p.due <= now {
			b.want.due = append(b.want.due, p)
			b.due = append(b.due, p)
			for _, r := range p.records {
				if r.expires <= now {
					b.wantHeld(r)
				}
			}
		}
	}
	return b
}

// wall is the time of the store.
func (b *book) wall() time.Time { return instant(b.now) }

// mustRead reports whether something must be read before anything can be done.
func (b *book) mustRead() bool {
	w := &b.want
	return len(w.refs)+len(w.exclusive)+len(w.periods)+len(w.buckets)+len(w.whole)+len(w.writers)+len(w.due) > 0
}

// unwant takes back what is wanted: somebody else will say what it needs.
func (b *book) unwant() {
	for _, x := range b.want.periods {
		x.wanted = false
	}
	for _, c := range b.want.buckets {
		c.bucket.wanted = false
	}
}

// counter is a counter with what is known of it. One that nobody has used has no row, and
// gets one with what is first written to it.
type counter struct {
	page *page
	name ref
	tree string // "" if it was never asked for by its name
	quota.Counter
	per int64 // 0 of a calendar counter

	id      int64 // 0 if it has no row, or that is not known
	known   bool  // whether it has one
	periods []*period
	bucket  *bucket // of a rolling counter
}

// period is what was spent and is held in one window of a calendar counter.
type period struct {
	row
	start, end          int64
	committed, reserved int64
	limit               int64 // as it was given last
	crossed             int   // the highest threshold that was crossed, in percent
	resets              int64
}

// bucket is a rolling counter.
type bucket struct {
	row
	rolling.Bucket
}

// row is how something stands in the database.
type row struct {
	known  bool // all about it is known
	exists bool // it has a row
	wanted bool // it is to be read
	dirty  bool // it is to be written
	audited
}

// audited is what the rows of the audit about a counter add up to.
type audited struct{ sumCommitted, sumReserved, sumPart int64 }

// counter returns a counter by its name.
func (b *book) counter(p *page, tree string, c quota.Counter, per int64) *counter {
	name := refToCounter(tree, c, per)
	x := p.counters[name]
	if x == nil {
		x = p.add(name, c, per)
	}
	x.tree = tree
	return x
}

func (p *page) add(name ref, c quota.Counter, per int64) *counter {
	x := &counter{page: p, name: name, Counter: c, per: per}
	if per != 0 {
		x.bucket = new(bucket)
	}
	p.counters[name] = x
	p.weight += 2
	return x
}

// found is where an entry is counted, and what its limit says.
type found struct {
	*counter
	period *period    // of a calendar counter
	span   quota.Span // the same
	verdict
}

// of returns the counter of an entry, with the window in which the entry falls.
func (b *book) of(p *page, tree string, e *quota.Entry) found {
	if e.Rolling {
		f := found{counter: b.counter(p, tree, e.Counter, int64(e.Per))}
		b.wantBucket(f.counter)
		b.missing = b.missing || f.counter.known && f.id == 0
		return f
	}
	f := found{counter: b.counter(p, tree, e.Counter, 0), span: e.SpanAt(b.wall())}
	f.period = f.at(bounds(f.span))
	b.wantPeriod(f.counter, f.period)
	b.missing = b.missing || f.counter.known && f.id == 0
	return f
}

// at returns the period that starts at an instant.
func (c *counter) at(start, end int64) *period {
	for _, p := range c.periods {
		if p.start == start {
			return p
		}
	}
	p := &period{start: start, end: end, limit: -1}
	p.known = c.known && c.id == 0 // a counter without a row has none
	c.periods = append(c.periods, p)
	return p
}

func (b *book) wantPeriod(c *counter, p *period) {
	if !p.known && !p.wanted {
		p.wanted = true
		b.want.periods = append(b.want.periods, periodOf{c, p})
	}
}

func (b *book) wantBucket(c *counter) {
	if x := c.bucket; !x.known && !x.wanted {
		x.wanted = true
		b.want.buckets = append(b.want.buckets, c)
	}
}

// wantHeld wants the counters of what a reservation holds.
func (b *book) wantHeld(r *record) {
	for i := range r.held {
		switch h := &r.held[i]; {
		case h.counter == nil: // it was erased
		case h.rolling:
			b.wantBucket(h.counter)
		default:
			b.wantPeriod(h.counter, h.period())
		}
	}
}

// wantRecord wants a reservation, and the counters of what it holds.
func (b *book) wantRecord(p *page, r ref) {
	if rec := p.records[r]; rec != nil {
		b.wantHeld(rec)
		return
	}
	b.want.refs = append(b.want.refs, refOn{p, r})
}

// used is what counts against the limit.
func (p *period) used() int64 { return sum(p.committed, p.reserved) }

// empty reports whether nothing is lost when p is forgotten.
func (p *period) empty() bool { return p.committed|p.reserved == 0 && p.crossed == 0 }

// period is the one in which h is counted.
func (h *held) period() *period { return h.counter.at(h.start, h.end) }

// What transactions call with what they have read.

// foundPage notes the version of a page. It returns an error if that is another one than
// what is on the page is of.
func (b *book) foundPage(p *page, version int64) error {
	if p.loaded && p.version != version {
		p.stale = true
		return errStale
	}
	p.loaded, p.version = true, version
	return nil
}

// foundMark notes the highest number of a writer.
func (b *book) foundMark(writer ref, seq int64) {
	if b.mark == nil {
		b.mark = make(map[ref]int64)
	}
	b.mark[writer] = seq
}

// readWhole reads a window of a counter of which all are wanted.
func (b *book) readWhole(scan func(...any) error) error {
	var i, id, start, end, committed, reserved, limit, crossed, resets int64
	if err := scan(&i, &id, &start, &end, &committed, &reserved, &limit, &crossed, &resets); err != nil {
		return err
	}
	c := b.want.whole[i]
	c.foundID(id)
	c.at(start, end).found(end, committed, reserved, limit, crossed, resets)
	return nil
}

// foundDue notes when the first open reservation of a page expires that has not yet.
func (p *page) foundDue(expires sql.NullInt64) {
	if p.nextDue = expires.Int64; !expires.Valid {
		p.nextDue = math.MaxInt64
	}
}

// foundID notes that a counter has a row.
func (c *counter) foundID(id int64) {
	c.id, c.known = id, true
	c.page.byID[id] = c
}

// found notes what the row of a period says.
func (p *period) found(end, committed, reserved, limit, crossed, resets int64) {
	if p.known {
		return
	}
	p.end, p.committed, p.reserved, p.limit, p.crossed, p.resets = end, committed, reserved, limit, int(crossed), resets
	p.row = row{known: true, exists: true, audited: audited{committed, reserved, 0}}
}

// found notes what the row of a bucket says.
func (x *bucket) found(units, part, at, full, reserved, mark int64, charges string) error {
	if x.known {
		return nil
	}
	open, err := parseCharges(charges)
	if err != nil {
		return fmt.Errorf("charges: %w", err)
	}
	x.Bucket = rolling.Bucket{
		Missing: rolling.Quantity{Units: units, Part: part}, At: at, Full: full, Reserved: reserved, Mark: mark, Open: open,
	}
	x.row = row{known: true, exists: true, audited: audited{units, reserved, part}}
	return nil
}

// readNamed notes that what was wanted by its name was read: what was not found is not
// there.
func (b *book) readNamed() {
	for _, x := range b.want.periods {
		x.counter.known, x.known, x.wanted = true, true, false
	}
	for _, c := range b.want.buckets {
		c.known, c.bucket.known, c.bucket.wanted = true, true, false
	}
}

// heldOn is a counter of what a reservation holds, by its id, and the start of a window.
type heldOn struct {
	page      *page
	id, start int64
}

// unread are the counters of what reservations hold that were read, as far as they were not
// read by name.
func (b *book) unread() (all []heldOn) {
	seen := make(map[heldOn]bool)
	for _, r := range b.read {
		for i := range r.held {
			h := &r.held[i]
			x := heldOn{r.page, h.id, h.start}
			if h.counter != nil || h.id == 0 || seen[x] {
				continue
			}
			if c := r.page.byID[h.id]; c != nil && c.knows(h.start) {
				continue
			}
			seen[x] = true
			all = append(all, x)
		}
	}
	return all
}

// knows reports whether a window, or the bucket, is known.
func (c *counter) knows(start int64) bool {
	if c.bucket != nil {
		return c.bucket.known
	}
	for _, p := range c.periods {
		if p.start == start {
			return p.known
		}
	}
	return false
}

// readHeld reads a counter by its id, with a period or its bucket.
func (b *book) readHeld(list []heldOn, scan func(...any) error) error {
	var i, id, unit, per int64
	var name, key, window string
	var n [6]sql.NullInt64
	var charges sql.NullString
	if err := scan(&i, &id, &name, &key, &window, &unit, &per, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &charges); err != nil {
		return err
	}
	x := list[i]
	c := x.page.byID[id]
	if c == nil {
		r, err := parseRef(name)
		if err != nil {
			return err
		}
		if unit < 0 || unit >= int64(quota.Units) || per < 0 {
			return fmt.Errorf("counter %d has unit %d and per %d", id, unit, per)
		}
		if c = x.page.counters[r]; c == nil {
			c = x.page.add(r, quota.Counter{Key: fromText(key), Window: fromText(window), Unit: quota.Unit(unit)}, per)
		}
		c.foundID(id)
	}
	v := func(i int) int64 { return n[i].Int64 }
	switch {
	case per != 0 && n[0].Valid:
		return c.bucket.found(v(0), v(1), v(2), v(3), v(4), v(5), charges.String)
	case per != 0:
		c.bucket.known = true
	case n[0].Valid:
		c.at(x.start, v(0)).found(v(0), v(1), v(2), v(3), v(4), v(5))
	}
	return nil
}

// resolve finds the counters of what reservations hold, once everything was read.
func (b *book) resolve() {
	for _, r := range b.read {
		for i := range r.held {
			h := &r.held[i]
			if h.counter = r.page.byID[h.id]; h.counter != nil && !h.rolling {
				h.period().known = true
			}
		}
	}
	for _, p := range b.want.due {
		p.due = p.nextDue
	}
	b.seen = append(b.seen, b.want.whole...)
	b.ended = append(b.ended, b.read...)
	b.read, b.want, b.sure = nil, wants{}, true
}

// What has changed.

func (b *book) touchPeriod(c *counter, p *period) {
	c.page.changed = true
	if !p.dirty {
		p.dirty = true
		b.periods = append(b.periods, periodOf{c, p})
	}
}

// touchBucket also notes when the bucket is full again.
func (b *book) touchBucket(c *counter, limit int64) {
	c.page.changed = true
	x := c.bucket
	x.Full = sum(b.now, x.Missing.Time(limit, c.per))
	if !x.dirty {
		x.dirty = true
		b.buckets = append(b.buckets, c)
	}
}

func (b *book) touchRecord(r *record) {
	r.page.changed = true
	if !r.dirty {
		r.dirty = true
		b.records = append(b.records, r)
	}
}

// setBack is how far a time must be ahead for the store's clock to have been set back. It is
// more than processes can differ that have guessed the time.
const setBack = 2 * nearby

// refill brings a bucket to now. If the store's clock was set back, time goes on from there.
func (b *book) refill(c *counter, limit int64) *bucket {
	x := c.bucket
	if x.At-b.now > int64(setBack) {
		x.At = b.now
	}
	x.Refill(b.now, limit, c.per)
	return x
}

// nextMark names the next charge of a bucket. It is larger than that of any before,
// also of a bucket that was forgotten meanwhile.
func (b *book) nextMark(c *counter) int64 { return max(c.bucket.Mark+1, b.now) }

// changed reports whether anything must be written.
func (b *book) changed() bool {
	return len(b.periods)+len(b.buckets)+len(b.records)+len(b.audit)+len(b.raised) > 0
}

// fresh are the counters that need a row, and have none.
func (b *book) fresh() (all []*counter) {
	seen := make(map[*counter]bool)
	add := func(c *counter) {
		if c != nil && c.id == 0 && !seen[c] {
			seen[c] = true
			all = append(all, c)
		}
	}
	for _, x := range b.periods {
		add(x.counter)
	}
	for _, c := range b.buckets {
		add(c)
	}
	for _, r := range b.records {
		for i := range r.held {
			add(r.held[i].counter)
		}
	}
	return all
}

// written notes that everything is in the database.
func (b *book) written(fresh []*counter) {
	for _, c := range fresh {
		c.foundID(c.id)
	}
	for _, x := range b.periods {
		x.exists, x.dirty = true, false
	}
	for _, c := range b.buckets {
		c.bucket.exists, c.bucket.dirty = true, false
	}
	for _, r := range b.records {
		r.exists, r.dirty = true, false
	}
	b.ended = append(b.ended, b.records...)
}

// forget forgets what is not needed soon: reservations that have ended, and windows that have
// passed and hold nothing.
func (b *book) forget() {
	for _, r := range b.ended {
		if r.state != open {
			r.page.remove(r)
		}
	}
	for _, x := range b.periods {
		x.counter.forget(b.now)
	}
	for _, c := range b.seen {
		c.forget(b.now)
	}
}
