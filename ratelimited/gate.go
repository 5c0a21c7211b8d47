package ratelimited

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/internal/gate"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

// Gate admits calls to one provider quota: a fair line in front of slots and
// limits. Make one per quota and share it between all models and callers that
// draw on this quota; two gates before one quota would each think that they own
// it.
//
// A call gets its slots and what it takes from every limit together, or
// nothing. While it waits it holds nothing; the order of the line is fair over
// classes and flows (see Config.Order), and a call that was found to lack
// something keeps its claim on it, so that a large call is not starved by small
// ones.
//
// A Gate is safe for concurrent use. It keeps no goroutines of its own but a few
// that settle reservations of remote budgets, and those only while there are
// any to settle; Close waits for them. Others do a moment's work, and end.
type Gate struct {
	cfg     Config
	epoch   time.Time
	classes map[string]int
	owner   []int     // per limit of the core: its dimension in the profile
	count   []counter // per limit of the core
	settle  []counter
	foreign bool // functions of the caller's run after a call has read the clock
	keeps   bool // a dimension keeps the limit of a call's output
	plain   bool // all that admission needs of a call is its flow and its costs
	metrics *metrics
	learner *learner
	retries retry.Budget
	settler settler
	shared  budget.Shared // nil if the quota is the gate's own
	pools   pools

	// Hints, read without mu.
	line atomic.Bool // calls wait in line
	long atomic.Bool // many do: see askAside
	// company: calls overlap, so that a call that ends is hardly ever alone.
	company atomic.Bool

	// posted is what whoever has mu does for others; the latest first.
	posted atomic.Pointer[task]

	mu sync.Mutex
	// mu guards all that follows. It is never held while something waits.
	core         *gate.Core
	failures     map[gate.ID]gate.Failure // of calls whose waiter has not woken yet
	mostFailures int                      // that there were since the map was made
	timer        *time.Timer
	wake         time.Time     // when the timer fires; zero if it is not set
	closed       bool          // Close was called: nothing is admitted any more
	cut          bool          // a Close gave up waiting: nothing waits in line any more
	drained      chan struct{} // closed once nothing runs or waits after Close
	solo         int           // calls in a row that ended alone
	scratch      []int64       // for the costs of a call that enters
	reported     []time.Time   // per limit of the core: when the request was sent that told last what is left
	demand       budget.Demand // for a shared quota
	silent       chan struct{} // closed when its store does not answer; nil if nobody wants to know
	silence      time.Duration // when that was last told, after the epoch
	alive        int           // calls in line or in flight, and those with open reservations
}

// Call is what a caller asks a [Gate] for. Empty labels are taken from the
// context; see [WithFlow], [WithAgent], [WithRequest] and [WithClass].
type Call struct {
	// Agent is a label for the part of the program that makes the call.
	Agent string
	// Class is the name of a class in Config.Classes.
	Class string
	// Flow is the party among which the gate is fair.
	Flow string
	// Request is the key for the ceilings per request.
	Request string
	// Slots is the number of slots that the call takes; 0 is 1. A call that is
	// wider than the gate runs alone.
	Slots int
	// Usage is the estimate that the profile turns into units.
	Usage usage.Usage
}

// request is a call as the gate takes it in.
type request struct {
	Call
	raw       estimate      // as it was before it was corrected by what was learned
	since     time.Duration // when it entered the line, after the gate's epoch
	deadline  time.Duration // when it must have left it for good; or never
	class     uint8         // index of its class
	byContext bool          // the deadline is the context's
}

// never is an instant that does not come.
const never = time.Duration(math.MaxInt64)

// NewGate returns a gate, or an error that names the field of the Config that
// is wrong, and its value.
func NewGate(cfg Config) (*Gate, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	core, owner, shared, err := cfg.core()
	if err != nil {
		return nil, err
	}
	g := &Gate{
		cfg: cfg, epoch: time.Now(), owner: owner, core: core, shared: shared,
		classes:  make(map[string]int, len(cfg.Classes)),
		failures: make(map[gate.ID]gate.Failure),
		scratch:  make([]int64, len(owner)), reported: make([]time.Time, len(owner)),
	}
	g.learner = newLearner(g, cfg.AgentLabels)
	for _, d := range owner {
		dim := &cfg.Profile.Dimensions[d]
		g.count = append(g.count, newCounter(dim.Count))
		g.keeps = g.keeps || dim.KeepsLimit
		if dim.Settle != nil {
			g.settle = append(g.settle, newCounter(dim.Settle))
		} else {
			g.settle = append(g.settle, newCounter(dim.Count))
		}
	}
	g.settler.log = cfg.Logger
	g.pools.init()
	for i, cl := range cfg.Classes {
		g.classes[cl.Name] = i
	}
	if cfg.Registerer != nil {
		if g.metrics, err = newMetrics(g); err != nil {
			return nil, fmt.Errorf("ratelimited: Config.Registerer: gate %q: %w", cfg.Name, err)
		}
		g.settler.failed = g.metrics.lost.Inc
	}
	g.plain = g.metrics == nil && cfg.FlowWeight == nil
	g.foreign = cfg.FlowWeight != nil
	for i := range g.count {
		g.foreign = g.foreign || g.count[i].kind == byFunction
	}
	if shared != nil {
		shared.Start((*host)(g))
	}
	return g, nil
}

// Name is the name of the gate in metrics and logs.
func (g *Gate) Name() string { return g.cfg.Name }

// now is the current time on the monotonic clock. It costs one clock reading
// where time.Now costs two.
func (g *Gate) now() time.Time { return g.epoch.Add(time.Since(g.epoch)) }

// Acquire waits until the call may be sent, and returns the permit for it,
// which must be ended exactly once: see [Permit]. It returns a [WaitError], a
// [NeverFitsError] or an error that names a field of the call; nothing is held
// then. A context that has ended already is never admitted.
func (g *Gate) Acquire(ctx context.Context, call Call) (Permit, error) {
	if g.plain && !g.line.Load() {
		if p, ok := g.start(ctx, &call); ok {
			return p, nil
		}
	}
	g.fill(ctx, &call)
	// From here on the call may wait, and its goroutine's stack must hold what
	// this function needs; see askAside. So it does itself what wait does.
	var p place
	var ready <-chan struct{}
	var err error
	if g.long.Load() {
		a := g.askAside(ctx, &call)
		<-a.done
		ready, err = a.answer(&p)
	} else {
		ready, err = g.ask(ctx, &call, &p)
	}
	if ready == nil {
		return g.acquired(&call, &p, err)
	}
	received, open := false, true
	select {
	case _, open = <-ready:
		received = true
	case <-ctx.Done():
	}
	return g.acquired(&call, &p, g.woken(ctx, &p, received, open))
}

// start admits a call that need not wait, if it can be said with little work
// that it need not.
func (g *Gate) start(ctx context.Context, call *Call) (Permit, bool) {
	l := labelsOf(ctx)
	if call.Class != "" || l.class != "" || uint(call.Slots) > maxSlots || ctx.Err() != nil {
		return Permit{}, false
	}
	if call.Flow == "" {
		call.Flow = g.flowOf(ctx, l)
	}
	var buf costs
	n := buf.of(g)
	g.admissionCosts(n, &call.Usage)
	now := g.now()
	g.lockOnly()
	var p Permit
	ok := !g.closed && g.posted.Load() == nil // who posted was here before
	if ok {
		p.g = g
		if p.id, ok = g.core.Start(now, 0, call.Flow, int32(max(call.Slots, 1)), n); ok {
			g.alive++
		}
	}
	g.unlock()
	return p, ok
}

// ask takes a call in: it is admitted at once, or has its place in line, and a
// channel that tells when it is granted. What this needs is off the stack again
// while the call waits.
//
//go:noinline
func (g *Gate) ask(ctx context.Context, call *Call, p *place) (ready <-chan struct{}, err error) {
	r := request{Call: *call, raw: estimateOf(call.Usage)}
	if err := g.resolve(&r); err != nil {
		p.since = never
		return nil, err
	}
	g.begin(ctx, &r, labelsOf(ctx))
	return g.takeIn(ctx, &r, nil, p)
}

// acquired ends an Acquire.
//
//go:noinline
func (g *Gate) acquired(call *Call, p *place, err error) (Permit, error) {
	var d *direct
	if g.metrics != nil {
		d = g.observe(call, p, err)
	}
	if err != nil {
		return Permit{}, err
	}
	return Permit{g, p.id, d}, nil
}

// observe counts how an Acquire ended.
func (g *Gate) observe(call *Call, p *place, err error) *direct {
	class := uint8(g.classes[call.Class]) // or the first
	if err != nil {
		if p.since != never { // the call was valid
			g.metrics.refused(class, err)
		}
		return nil
	}
	d := &direct{gate: g, party: g.learner.party("", call.Agent), usage: call.Usage.Clamp(), granted: g.time(), class: class}
	g.metrics.admitted(d.party, class, d.granted-p.since)
	return d
}

// resolve checks what the call says about itself.
func (g *Gate) resolve(r *request) error {
	if r.Slots < 0 {
		return fmt.Errorf("ratelimited: Call.Slots is %d, must not be negative", r.Slots)
	}
	if r.Class == "" {
		r.Class = g.cfg.Classes[0].Name
		return nil
	}
	class, ok := g.classes[r.Class]
	if !ok {
		return fmt.Errorf("ratelimited: Call.Class is %q, which the gate %q does not have", r.Class, g.cfg.Name)
	}
	r.class = uint8(class)
	return nil
}

// begin notes when the call enters the line and when it must have left it.
func (g *Gate) begin(ctx context.Context, r *request, l *labels) {
	r.since = g.time()
	r.deadline, r.byContext = g.deadline(ctx, r.since, l)
}

// deadline is when a call must have left the line that entered it at since, and
// whether this is because its context ends.
func (g *Gate) deadline(ctx context.Context, since time.Duration, l *labels) (deadline time.Duration, byContext bool) {
	deadline = never
	if at, ok := ctx.Deadline(); ok {
		deadline, byContext = max(at.Sub(g.epoch), 0), true
	}
	maxWait := l.maxWait
	if maxWait == nil {
		maxWait = g.cfg.MaxWait
	}
	if maxWait != nil && *maxWait < deadline-since {
		return since + *maxWait, false
	}
	return deadline, byContext
}

// acquire waits in line, and tells when the call was admitted.
func (g *Gate) acquire(ctx context.Context, r *request, revised *revisable, d Diversion) (id gate.ID, at time.Duration, err error) {
	var p place
	ready, err := g.takeIn(ctx, r, revised, &p)
	at = r.since
	if ready != nil {
		err = g.await(ctx, &p, ready, r, d)
		at = g.time()
	}
	if err != nil {
		return gate.ID{}, at, err
	}
	return p.id, at, nil
}

// limitName is the name of a limit of the core.
func (g *Gate) limitName(core int) string {
	if core < 0 {
		return "slots"
	}
	return g.cfg.Profile.Dimensions[g.owner[core]].Name
}
