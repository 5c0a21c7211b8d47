package gate

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// reference is the rules of the line written down once more, without heaps,
// timers, wake-ups or recycled records: every question is answered by looking at
// every call. It never forgets a flow or a request, so a Core that agrees with
// it forgets nothing that matters.
type reference struct {
	cfg     Config
	clock   clock
	books   []*book // per Dim
	classes []*refClass
	flows   map[refKey]*refFlow
	shares  map[string]*refCeiling // of requests
	calls   []*refCall             // that have not ended, in order of arrival
	chosen  []*refCall
	top     refLevel // over the classes

	seq     int
	slots   int64
	share   float64
	cutAt   int64
	hold    float64
	perUnit []float64
	perSlot float64
	unfit   bool

	finds    *refSlots // or nil
	replicas int

	lends *lender // or nil

	shut      bool // the provider is down
	shutUntil int64
	prober    *refCall
	refusals  []int64 // when they came
	whole     float64 // share before they came
	regain    float64
}

type refKey struct {
	class int
	flow  string
}

// refLevel is the virtual time of the classes, or of the flows of a class.
type refLevel struct{ now, largest int64 }

// refTag is the counter of a class or a flow.
type refTag struct {
	weight     float64
	at, credit int64
}

type refClass struct {
	Class
	refTag
	level refLevel
}

type refFlow struct {
	refTag
	refCeiling
	class  int
	shared bool
	life   int             // how often it was forgotten
	had    map[int]float64 // its weight in each of its lives
}

// refCeiling is what a flow or a request holds and has taken.
type refCeiling struct {
	slots  int64
	shares []*budget.TokenBudget
}

type refState int

const (
	refQueued refState = iota
	refBacking
	refRunning
	refFailed
)

type refCall struct {
	seq       int
	spec      Spec
	flow      *refFlow
	life      int // of its flow
	request   *refCeiling
	deadline  int64
	notBefore int64
	state     refState
	claims    []bool // per Dim, then the slots; nil unless chosen

	freed, settled, answered bool
	stays                    bool // between two attempts
	holds                    []budget.Hold
	refused                  []bool // per Dim that is searched for; nil is none
	shareHolds               [2][]budget.Hold
	perUnit                  []float64
	perSlot                  float64
	charged, used            int64
	started, held            int64
}

func (k *refCall) over() bool    { return k.freed && k.settled }
func (k *refCall) waiting() bool { return k.state == refQueued || k.state == refBacking }

func newReference(cfg Config, books []*book) *reference {
	r := &reference{
		cfg: cfg, books: books, flows: make(map[refKey]*refFlow), shares: make(map[string]*refCeiling),
		slots: cfg.Slots, share: 1, cutAt: -1, hold: 1e9, replicas: 1,
	}
	if cfg.SearchSlots {
		r.slots = min(cfg.Slots, 10)
		r.finds = &refSlots{most: cfg.Slots, found: float64(r.slots), quick: true, cutAt: -1, order: r.slots}
	}
	for _, cl := range cfg.Classes {
		if cfg.FIFO {
			cl.MinSlots, cl.MaxSlots = 0, 0
		}
		r.classes = append(r.classes, &refClass{Class: cl, refTag: refTag{weight: cl.Weight}})
	}
	r.newRates()
	return r
}

func (r *reference) newRates() {
	r.perSlot, r.perUnit = 1/float64(r.slots), nil
	if r.finds != nil {
		r.perSlot = 1 / float64(r.finds.order)
	}
	for i, b := range r.books {
		d := r.cfg.Dims[i]
		units, window := float64(b.twin.Limit()), d.Window
		if s := d.Search; b.search != nil {
			units, window = b.search.order, s.Window
		} else if s != nil { // it was told
			units, window = units*(float64(s.Window)/float64(d.Window)), s.Window
		}
		r.perUnit = append(r.perUnit, float64(window)/math.Max(1, units))
	}
}

// quota is the dominant share in quota-nanoseconds.
func quota(perUnit []float64, costs []int64, rest float64) int64 {
	for i, n := range costs {
		rest = max(rest, float64(n)*perUnit[i])
	}
	return int64(min(max(rest, 1), maxCharge))
}

func weighed(q int64, weight float64) int64 {
	return max(1, int64(min(float64(q)/weight, maxCharge)))
}

// floor is virtual time less one largest call, below which only refunds bring a
// counter.
func (v *refLevel) floor(t *refTag) int64 {
	return v.now - int64(min(float64(v.largest)/t.weight, maxCharge))
}

func (v *refLevel) charge(t *refTag, q int64) {
	start := t.at
	floor := v.floor(t)
	if start < floor-t.credit {
		start = floor - t.credit
	}
	t.at = start + weighed(q, t.weight)
	t.credit = 0
	if start < v.now && t.at < floor {
		t.credit = floor - t.at
	}
	v.now = max(v.now, start)
	v.largest = max(v.largest-v.largest/1024, q)
}

func (v *refLevel) correct(t *refTag, old, q int64) {
	if old == q {
		return
	}
	d := weighed(q, t.weight) - weighed(old, t.weight)
	t.at += d
	floor := v.floor(t)
	if d < 0 && t.at < floor {
		t.credit += min(-d, floor-t.at)
	}
}

// counters are what the order hangs on.
type counters struct {
	top     refLevel
	hold    float64
	classes []refClass
	flows   map[refKey]refFlow
}

func (r *reference) count() counters {
	c := counters{top: r.top, hold: r.hold, flows: make(map[refKey]refFlow)}
	for _, cl := range r.classes {
		c.classes = append(c.classes, *cl)
	}
	for key, f := range r.flows {
		c.flows[key] = *f
	}
	return c
}

// recount takes all counters back to what they were.
func (r *reference) recount(c counters) {
	r.top, r.hold = c.top, c.hold
	for i := range r.classes {
		*r.classes[i] = c.classes[i]
	}
	for key, f := range r.flows {
		f.refTag, f.life = c.flows[key].refTag, c.flows[key].life
	}
}

// limit is the number of slots in force.
func (r *reference) limit() int64 { return max(1, int64(float64(r.slots)*r.share+1e-6)) }

// minimum is what is kept for a class: all of what is configured, where that
// leaves a slot for everybody.
func (r *reference) minimum(class int) int64 {
	shrunk := func(room int64) (list []int64, sum int64) {
		total := int64(0)
		for _, cl := range r.classes {
			total += cl.MinSlots
		}
		for _, cl := range r.classes {
			n := cl.MinSlots
			if total > room {
				n = n * room / total
			}
			list, sum = append(list, n), sum+n
		}
		return list, sum
	}
	list, sum := shrunk(r.limit())
	if sum == r.limit() && slices.Contains(list, 0) {
		list, _ = shrunk(r.limit() - 1)
	}
	return list[class]
}

// inUse is the number of slots that a class holds; of all for -1.
func (r *reference) inUse(class int) (n int64) {
	for _, k := range r.calls {
		if k.state == refRunning && !k.freed && (class < 0 || k.flow.class == class) {
			n += int64(k.spec.Slots)
		}
	}
	return n
}

// unused is what is left of a class's minimum.
func (r *reference) unused(class int) int64 { return max(0, r.minimum(class)-r.inUse(class)) }

// room is what a class may have at most, beside nobody.
func (r *reference) room(class int) int64 {
	n := r.limit()
	for i := range r.classes {
		if i != class {
			n -= r.minimum(i)
		}
	}
	return n
}

func (r *reference) slotsFit(k *refCall) bool {
	free := r.limit() - r.inUse(-1)
	for i := range r.classes {
		if i != k.flow.class {
			free -= r.unused(i)
		}
	}
	if r.lends != nil && min(int64(k.spec.Slots), r.slots) > r.lends.lent-r.inUse(-1) {
		return false
	}
	return int64(k.spec.Slots) <= free || r.inUse(-1) == 0
}

func (r *reference) underCap(k *refCall) bool {
	taken := r.inUse(k.flow.class)
	for _, c := range r.chosen {
		if c.flow.class == k.flow.class {
			taken += int64(c.spec.Slots)
		}
	}
	most := r.classes[k.flow.class].MaxSlots
	return most <= 0 || taken == 0 || taken+int64(k.spec.Slots) <= most
}

// lacks says for every Dim, and last for the slots, whether k cannot have it.
func (r *reference) lacks(now time.Time, k *refCall) (lack []bool, any bool) {
	lack = make([]bool, len(r.books)+1)
	for i, b := range r.books {
		if n := k.spec.Costs[i]; n > 0 {
			ok, _ := b.twin.Fits(now, n)
			lack[i] = !ok || b.shut && (r.clock.last < b.until || b.probe != nil)
			any = any || lack[i]
		}
	}
	last := len(r.books)
	lack[last] = !r.slotsFit(k) || r.shut && (r.clock.last < r.shutUntil || r.prober != nil && r.clock.last < r.prober.started+int64(30*time.Second))
	return lack, any || lack[last]
}

// aside reports whether the ceiling of k's request forbids it, or an older call
// of the request waits for that.
func (r *reference) aside(now time.Time, k *refCall) bool {
	if k.request == nil {
		return false
	}
	for _, o := range r.calls {
		if o.request == k.request && o.state == refQueued && o.claims == nil && o.seq <= k.seq &&
			o.request.blocks(now, r.cfg.RequestSlots, o) {
			return true
		}
	}
	return false
}

func (c *refCeiling) blocks(now time.Time, most int64, k *refCall) bool {
	if most > 0 && c.slots > 0 && c.slots+int64(k.spec.Slots) > most {
		return true
	}
	for i, b := range c.shares {
		if k.spec.Costs[i] > 0 {
			if ok, _ := b.Fits(now, k.spec.Costs[i]); !ok {
				return true
			}
		}
	}
	return false
}

func (r *reference) flowSlots() int64 {
	if r.cfg.FIFO {
		return 0
	}
	return r.cfg.FlowSlots
}

func (r *reference) plain() bool {
	return r.flowSlots() <= 0 && (r.cfg.FIFO || r.cfg.FlowShare <= 0) && r.cfg.RequestSlots <= 0 && r.cfg.RequestShare <= 0
}

// head is the call that a flow would start next: the oldest that need not step
// aside. There is none while an older one is chosen.
func (r *reference) head(now time.Time, f *refFlow) *refCall {
	var head *refCall
	for _, k := range r.calls {
		switch {
		case k.flow != f:
		case k.claims != nil:
			return nil
		case head == nil && k.state == refQueued && !r.aside(now, k):
			head = k
		}
	}
	if head != nil && head.flow.blocks(now, r.flowSlots(), head) {
		return nil
	}
	return head
}

// heads are the calls that the flows would start next.
func (r *reference) heads(now time.Time) (heads []*refCall) {
	seen := make(map[*refFlow]bool)
	for _, k := range r.calls {
		if k.state == refQueued && !seen[k.flow] {
			seen[k.flow] = true
			if h := r.head(now, k.flow); h != nil {
				heads = append(heads, h)
			}
		}
	}
	return heads
}

// sooner is the fair order: the class with the least counter, the first of those
// that are even; in it the flow with the least, then the call that came first.
func (r *reference) sooner(a, b *refCall) int {
	ca, cb := r.classes[a.flow.class], r.classes[b.flow.class]
	if a.flow.class != b.flow.class {
		return cmp.Or(cmp.Compare(ca.at, cb.at), a.flow.class-b.flow.class)
	}
	return cmp.Or(cmp.Compare(a.flow.at, b.flow.at), a.seq-b.seq)
}

// next is the head to be served next that nothing blocks, where blocked tells
// what the claims block and skip the classes that are out.
func (r *reference) next(heads []*refCall, skip map[int]bool, blocked func(*refCall) bool) *refCall {
	var perClass []*refCall
	for class := range r.classes {
		var best *refCall
		for _, k := range heads {
			if k.flow.class == class && !skip[class] && !blocked(k) && (best == nil || r.sooner(k, best) < 0) {
				best = k
			}
		}
		if best != nil {
			perClass = append(perClass, best)
		}
	}
	if len(perClass) == 0 {
		return nil
	}
	return slices.MinFunc(perClass, r.sooner)
}
