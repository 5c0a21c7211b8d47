package route_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genai"
	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/route"
	"github.com/headgate-go/headgate/usage"
)

// How an attempt at a model goes.
var goings = []string{
	"serve", "serve", "serve", "serve slowly",
	"throttled", "throttled with a hint", "per day", "overloaded", "not sent",
	"bad request", "broken after an item", "throttled after an item",
	"ignores the consumer", "empty", "panic",
}

// plan is all that happens in one run, drawn before it.
type plan struct {
	spill, patience time.Duration
	maxWait         *time.Duration
	routes          []routePlan
	calls           []callPlan
}

type routePlan struct {
	slots  int64
	tier   int
	weight float64
	script []int // into goings, by number of the attempt; then it serves
}

type callPlan struct {
	at     time.Duration
	key    string
	cancel time.Duration // after its start; 0 is never
	stop   int           // items after which the consumer stops; 0 is never
	blow   bool          // it panics then
	stream bool
}

func drawPlan(rt *rapid.T) plan {
	seconds := func(label string, most int) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(rt, label)) * 500 * time.Millisecond
	}
	p := plan{spill: seconds("spill", 8), patience: seconds("patience", 8)}
	if rapid.Bool().Draw(rt, "bounded") {
		p.maxWait = ptr(seconds("max wait", 80))
	}
	for range rapid.IntRange(1, 4).Draw(rt, "routes") {
		p.routes = append(p.routes, routePlan{
			slots:  int64(rapid.IntRange(1, 3).Draw(rt, "slots")),
			tier:   rapid.IntRange(0, 2).Draw(rt, "tier"),
			weight: float64(rapid.IntRange(1, 4).Draw(rt, "weight")),
			script: rapid.SliceOfN(rapid.IntRange(0, len(goings)-1), 0, 12).Draw(rt, "script"),
		})
	}
	for range rapid.IntRange(1, 16).Draw(rt, "calls") {
		p.calls = append(p.calls, callPlan{
			at:     seconds("at", 20),
			key:    rapid.SampledFrom([]string{"", "", "k1", "k2"}).Draw(rt, "key"),
			cancel: seconds("cancel", 20) * time.Duration(rapid.IntRange(0, 1).Draw(rt, "cancels")),
			stop:   rapid.IntRange(0, 2).Draw(rt, "stop"),
			blow:   rapid.IntRange(0, 5).Draw(rt, "blow") == 0,
			stream: rapid.Bool().Draw(rt, "stream"),
		})
	}
	return p
}

// world is what happened in one run, as those see it who stand outside the pool.
type world struct {
	// These are fixed.
	unary     map[string]bool // the calls that ask for no stream
	cancelled map[string]bool // and those whose context ends

	mu sync.Mutex
	// mu guards all that follows.
	problems []string
	attempts map[string][]*attempt // by call
	peaks    []int                 // by route
	running  []int
}

// attempt is one call of a model.
type attempt struct {
	route     int
	under     bool // under way
	delivered int  // items that were passed on to the consumer
}

func (w *world) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

// model is that of a route: each attempt goes as the script has it.
func (w *world) model(i int, p routePlan) *fakeLLM {
	f := &fakeLLM{}
	f.play = func(ctx context.Context, n int, yield yields) {
		f.mu.Lock()
		call := f.requests[n-1].Model // the name of the call
		f.mu.Unlock()
		a := &attempt{route: i, under: true}
		w.mu.Lock()
		for _, other := range w.attempts[call] {
			if other.under {
				w.problems = append(w.problems, call+": two attempts at once")
			}
			if other.delivered > 0 {
				w.problems = append(w.problems, call+": sent again after an item was delivered")
			}
		}
		w.attempts[call] = append(w.attempts[call], a)
		number := len(w.attempts[call])
		landed := w.cancelled[call] // its slot is back with its context, which may be before it is seen here
		if !landed {
			w.running[i]++
			w.peaks[i] = max(w.peaks[i], w.running[i])
		}
		w.mu.Unlock()
		land := func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if !landed {
				landed = true
				w.running[i]--
			}
		}
		defer func() {
			land()
			w.mu.Lock()
			defer w.mu.Unlock()
			a.under = false
		}()
		seq := 0
		item := func(last bool) bool {
			r := final(5, 5)
			r.Partial = !last
			r.ModelVersion = fmt.Sprint(call, "/", number, "/", seq)
			seq++
			if last || w.unary[call] { // it is all that was asked for
				land()
			}
			w.mu.Lock()
			a.delivered++
			w.mu.Unlock()
			return yield(r, nil)
		}
		refuse := func(err error) { land(); yield(nil, err) }
		going := "serve"
		if n <= len(p.script) {
			going = goings[p.script[n-1]]
		}
		took := 700 * time.Millisecond
		if going == "serve slowly" {
			took = 7 * time.Second
		}
		if going != "empty" && wait(ctx, took) != nil {
			refuse(ctx.Err())
			return
		}
		switch going {
		case "throttled":
			refuse(throttled())
		case "throttled with a hint":
			refuse(throttled(retryInfo(4 * time.Second)))
		case "per day":
			refuse(perDay())
		case "overloaded":
			refuse(overloaded())
		case "not sent":
			refuse(notSent())
		case "bad request":
			refuse(badRequest())
		case "broken after an item":
			if item(false) {
				refuse(errBroken)
			}
		case "throttled after an item":
			if item(false) {
				refuse(throttled())
			}
		case "ignores the consumer":
			if !item(false) {
				seq++ // what is not passed on is not counted below
			}
			yield(nil, throttled())
			yield(nil, errBroken)
		case "empty":
		case "panic":
			panic(errBroken)
		default:
			if item(false) && wait(ctx, took) == nil {
				item(true)
			}
		}
	}
	return f
}

// make makes one call and checks what its consumer sees.
func (w *world) make(ctx context.Context, p *pool, name string, c callPlan) {
	time.Sleep(c.at)
	ctx = context.WithValue(ctx, nameKey{}, name)
	if c.cancel > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cancel)
		defer cancel()
	}
	req := &LLMRequest{Model: name, Contents: genai.Text("hello")}
	var seen []string
	errs, stopped := 0, false
	defer func() {
		if r := recover(); r != nil && r != errBroken && r != "mine" {
			panic(r)
		} else if r == nil && len(seen) == 0 && errs == 0 && !w.empty(name) {
			w.problem("%s: neither answered nor an error", name)
		}
		if errs > 1 {
			w.problem("%s: %d errors", name, errs)
		}
		w.mu.Lock()
		last := len(w.attempts[name])
		w.mu.Unlock()
		for i, got := range seen {
			if want := fmt.Sprint(name, "/", last, "/", i); got != want {
				w.problem("%s: item %d is %s, want %s: of the last attempt, each once", name, i, got, want)
			}
		}
	}()
	for item, err := range p.GenerateContent(route.Sticky(ctx, c.key), req, c.stream) {
		switch {
		case stopped:
			w.problem("%s: yielded after the consumer has stopped", name)
		case err != nil:
			errs++
			stopped = true // as frameworks do
		case item == nil:
			w.problem("%s: an item that is nothing", name)
		default:
			seen = append(seen, item.ModelVersion)
			stopped = len(seen) == c.stop
			if stopped && c.blow {
				panic("mine")
			}
		}
		if stopped {
			break
		}
	}
}

// empty reports whether the last attempt of a call may have answered with nothing.
func (w *world) empty(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.attempts[name]
	return len(all) > 0 && all[len(all)-1].delivered == 0
}

// purse is a person's budget that only counts, by call.
type purse struct {
	w       *world
	mu      sync.Mutex
	open    map[string]int
	settled map[string]int
}

type nameKey struct{}

func (p *purse) Reserve(ctx context.Context, _ budget.Call) (budget.Reservation, error) {
	name := ctx.Value(nameKey{}).(string)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[name]++; p.open[name] > 1 {
		p.w.problem("%s: reserved twice at once", name)
	}
	return &note{p: p, name: name}, nil
}

type note struct {
	p    *purse
	name string
	done bool
}

func (n *note) Local() bool { return true }

func (n *note) Settle(context.Context, usage.Usage) error { return n.end(1) }

func (n *note) Release(context.Context) error { return n.end(0) }

func (n *note) end(settled int) error {
	n.p.mu.Lock()
	defer n.p.mu.Unlock()
	if n.done {
		return nil
	}
	n.done = true
	n.p.open[n.name]--
	if n.p.settled[n.name] += settled; n.p.settled[n.name] > 1 {
		n.p.w.problem("%s: charged twice", n.name)
	}
	return nil
}

// Whatever the routes do, and however calls end: each is answered once, by one
// route, or ends with one error; no item comes twice; after an item was delivered
// nothing is sent again; and nothing stays held.
func TestWhateverHappensEachCallIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		plan := drawPlan(rt)
		w := &world{
			attempts: map[string][]*attempt{}, peaks: make([]int, len(plan.routes)), running: make([]int, len(plan.routes)),
			unary: map[string]bool{}, cancelled: map[string]bool{},
		}
		for i, c := range plan.calls {
			w.unary[fmt.Sprint("call ", i)] = !c.stream
			w.cancelled[fmt.Sprint("call ", i)] = c.cancel > 0
		}
		synctest.Test(t, func(t *testing.T) {
			purse := &purse{w: w, open: map[string]int{}, settled: map[string]int{}}
			var ways []way
			for i, r := range plan.routes {
				g := newGate(t, ratelimited.Config{Name: fmt.Sprint(i), Slots: r.slots, Profile: perMinute})
				ways = append(ways, way{
					Name: fmt.Sprint(i), Model: wrap(t, w.model(i, r), g, ratelimited.WithBudgets(purse)), Tier: r.tier, Weight: r.weight,
				})
			}
			p := newPool(t, route.Config{Spill: plan.spill, Patience: plan.patience, MaxWait: plan.maxWait}, ways...)
			var all sync.WaitGroup
			for i, c := range plan.calls {
				all.Go(func() { w.make(t.Context(), p, fmt.Sprint("call ", i), c) })
			}
			all.Wait()
			synctest.Wait()
			w.afterwards(t, p, purse, plan)
		})
		if len(w.problems) > 0 {
			rt.Fatalf("%+v\n%s", plan, strings.Join(w.problems, "\n"))
		}
	})
}

// afterwards checks that nothing is held, and that every route can serve again.
func (w *world) afterwards(t *testing.T, p *pool, purse *purse, plan plan) {
	for i, g := range p.Gates() {
		if s := g.Stats(); s.SlotsInUse != 0 || s.Running != 0 || s.Waiting != 0 {
			w.problem("gate %d: %d slots in use, %d running, %d waiting", i, s.SlotsInUse, s.Running, s.Waiting)
		}
	}
	for i, r := range plan.routes {
		if int64(w.peaks[i]) > r.slots {
			w.problem("model %d had %d calls at a time, of %d", i, w.peaks[i], r.slots)
		}
	}
	for name, n := range purse.open {
		if n != 0 {
			w.problem("%s: a reservation is open", name)
		}
	}
	// However often each was left out, calls that need it bring it back, once its
	// script is over.
	for i, out := range p.Gates() {
		var others []func()
		for _, g := range p.Gates() {
			if g != out {
				others = append(others, occupy(t, g))
			}
		}
		for n := 0; n < 16 && !p.Stats()[i].Up; n++ {
			time.Sleep(3 * time.Minute)
			w.make(ratelimited.WithMaxWait(t.Context(), time.Minute), p, fmt.Sprint("late call ", i, n), callPlan{stream: true})
		}
		for _, release := range others {
			release()
		}
		if s := p.Stats()[i]; !s.Up {
			w.problem("a route was not tried again: %+v", s)
		}
	}
}
