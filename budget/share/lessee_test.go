package share_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/share"
)

// desk is one replica and a coordinator, with nothing in between.
type desk struct {
	*table
	lessee *share.Lessee
	demand budget.Demand
	wakes  int
}

func newDesk(t testing.TB, mode share.Mode, dims ...share.Dim) *desk {
	t.Helper()
	d := &desk{table: newTable(t, share.CoordinatorConfig{Dims: dims})}
	d.be(share.LesseeConfig{Dims: dims, Mode: mode, Replica: "a"})
	d.exchange() // it says that it is there
	return d
}

// be makes the replica.
func (d *desk) be(cfg share.LesseeConfig) {
	d.t.Helper()
	cfg.Wake = func() { d.wakes++ }
	l, err := share.NewLessee(cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	d.lessee = l
}

func (d *desk) after(t time.Duration) *desk { d.table.after(t); return d }

func (d *desk) limiter() *share.Limiter { return d.lessee.Limiter(0) }

// waits says that a call of so many units waits, or none.
func (d *desk) waits(units int64) *desk {
	d.demand = budget.Demand{}
	if units > 0 {
		d.demand = budget.Demand{Next: []int64{units}, Slots: 1}
		d.limiter().Fits(d.now, units)
	}
	return d
}

// asked is the request that is due; nil if none is.
func (d *desk) asked() *share.Request {
	r, ok := d.lessee.Request(d.now, &d.demand)
	if !ok {
		return nil
	}
	return &r
}

// exchange takes the request that is due to the coordinator, and the answer back.
func (d *desk) exchange() *share.Request {
	r := d.asked()
	if r != nil {
		d.lessee.Reply(d.now, *r, d.c.Do(d.now, *r))
	}
	return r
}

// due is how long from now the lessee wants to be asked.
func (d *desk) due() time.Duration { return d.lessee.Due(d.now).Sub(d.now) }

// take takes what must fit.
func (d *desk) take(units int64) budget.Hold {
	d.t.Helper()
	h, ok := d.limiter().TryTake(d.now, units)
	if !ok {
		d.t.Fatalf("%d units do not fit, with %d at hand", units, d.limiter().Level(d.now))
	}
	return h
}

func minute(limit int64) share.Dim { return share.Dim{Shape: share.Window, Limit: limit} }

func TestWhatFitsIsWhatWasGranted(t *testing.T) {
	t.Parallel()
	d := newDesk(t, share.Central, minute(100))
	d.due()
	if ok, at := d.limiter().Fits(d.now, 30); ok || !at.IsZero() {
		t.Fatalf("before anything was granted: fits %v, at %v", ok, at)
	}
	if d.wakes != 1 || d.due() != 0 {
		t.Errorf("woken %d times, due in %v; want at once", d.wakes, d.due())
	}
	d.waits(30).exchange()
	if ok, _ := d.limiter().Fits(d.now, 31); ok {
		t.Error("31 fit, though 30 were granted")
	}
	h := d.take(30)
	if got := d.limiter().Level(d.now); got != 0 {
		t.Errorf("%d are left, want none", got)
	}
	if at, ok := d.limiter().Earliest(d.now, 100); !ok || !at.Equal(d.now) {
		t.Errorf("100 could fit at %v, %v; nobody knows when", at, ok)
	}
	if _, ok := d.limiter().Earliest(d.now, 101); ok {
		t.Error("101 could fit into a window of 100")
	}
	d.limiter().Settle(d.now, h, 0)
	if got := d.limiter().Level(d.now); got != 30 {
		t.Errorf("after a call that was not sent %d are at hand, want 30", got)
	}
}

// Spends are dated by when they were counted, not when they are told.
func TestSpendsAndRefundsAreToldWithTheirAges(t *testing.T) {
	t.Parallel()
	d := newDesk(t, share.Central, minute(1000))
	l := d.limiter()
	d.waits(100).exchange()
	h := l.Counted(d.now, d.take(100))
	d.after(200 * time.Millisecond).waits(50).exchange() // tells of the first
	d.after(100 * time.Millisecond)
	l.Settle(d.now, h, 70)           // 30 less than was told
	h = l.Counted(d.now, d.take(50)) // not told yet
	d.after(100 * time.Millisecond)
	l.Settle(d.now, h, 20) // 30 less
	l.Settle(d.now, budget.Hold{}, 7)
	d.after(400 * time.Millisecond)
	r := d.waits(0).asked()
	if r == nil {
		t.Fatal("half a second after something was spent nothing is told")
	}
	// What is less than a quarter of a cell apart is told as one, by the later time.
	want := []share.Spend{{Age: 400 * time.Millisecond, Amount: 27}, {Age: 800 * time.Millisecond, Amount: -30}}
	if got := r.Dims[0].Spent; !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
	if r.Dims[0].Has != 0 {
		t.Errorf("the replica says that it has %d, want nothing", r.Dims[0].Has)
	}
}

func TestARequestWithoutAnAnswerIsSentAgainAsItWas(t *testing.T) {
	t.Parallel()
	d := newDesk(t, share.Central, minute(1000))
	d.waits(100).exchange()
	l := d.limiter()
	h := l.Counted(d.now, d.take(100))
	r := d.after(time.Second).waits(50).asked()
	asked := d.now
	d.c.Do(d.now, *r) // the answer is lost
	if again := d.after(100 * time.Millisecond).asked(); again != nil {
		t.Fatal("a second request was made while the first is under way")
	}
	d.lessee.Failed(d.now, *r)
	l.Settle(d.now, h, 60) // is told only after that
	d.after(d.due())
	again := d.asked()
	if again == nil || again.Seq != r.Seq {
		t.Fatalf("after a failure: %+v, want request %d again", again, r.Seq)
	}
	waited := d.now.Sub(asked)
	if got, want := again.Dims[0].Spent, []share.Spend{{Age: time.Second + waited, Amount: 100}}; !slices.Equal(got, want) {
		t.Errorf("it tells of %v, want %v", got, want)
	}
	if again.Since != r.Since+waited {
		t.Errorf("it was not sent before %v after the last answer, want %v", again.Since, r.Since+waited)
	}
	d.lessee.Reply(d.now, *again, d.c.Do(d.now, *again))
	if got := l.Level(d.now); got != 50 {
		t.Errorf("%d are at hand, want the 50 that were granted once", got)
	}
	if b := d.c.Books(d.now)[0]; b.Level != 900 || b.Outstanding != 50 {
		t.Errorf("level %v, %d outstanding; want 900, 50", b.Level, b.Outstanding)
	}
}

func TestALeaseEndsBeforeTheCoordinatorTakesItBack(t *testing.T) {
	t.Parallel()
	d := newDesk(t, share.Central, minute(100))
	sent := d.now
	r := d.waits(40).asked()
	reply := d.c.Do(d.after(time.Second).now, *r) // half of it is spent on the way
	d.lessee.Reply(d.after(time.Second).now, *r, reply)
	d.waits(0)
	held := d.take(10)
	end := sent.Add(share.DefaultTTL).Sub(d.now)
	if got := d.after(end - 200*time.Millisecond).limiter().Level(d.now); got != 30 {
		t.Errorf("shortly before one TTL after the question %d are at hand, want 30", got)
	}
	if got := d.after(200 * time.Millisecond).limiter().Level(d.now); got != 0 {
		t.Errorf("one TTL after the question %d are at hand, want none", got)
	}
	d.limiter().Settle(d.now, held, 4)
	if got := d.limiter().Level(d.now); got != 0 {
		t.Errorf("a refund made %d usable after the lease", got)
	}
	d.after(share.DefaultLate + time.Second)
	if b := d.c.Books(d.now)[0]; b.Level != 60 || b.Outstanding != 0 {
		t.Errorf("level %v, %d outstanding; want all 40 spent", b.Level, b.Outstanding)
	}
	d.exchange()
	if b := d.c.Books(d.now)[0]; b.Level != 96 {
		t.Errorf("after the replica has told that it has spent 4 the level is %v", b.Level)
	}
}

// A leased replica asks for a second's worth when a quarter of that is left, and
// gives back what it has not used for half a second.
func TestAStockIsRenewedInTimeAndGivenBackWhenIdle(t *testing.T) {
	t.Parallel()
	d := newDesk(t, share.Leased, minute(100_000))
	for range 60 { // six seconds of ten calls a second
		d.waits(10).exchange()
		d.waits(0)
		d.limiter().Settle(d.now, d.take(10), 10)
		d.after(100 * time.Millisecond)
	}
	questions, missing := 0, 0
	for range 100 {
		for d.exchange() != nil {
			questions++
		}
		if ok, _ := d.limiter().Fits(d.now, 10); !ok {
			missing++
			continue
		}
		d.limiter().Settle(d.now, d.take(10), 10)
		d.after(100 * time.Millisecond)
	}
	if missing > 0 || questions > 20 {
		t.Errorf("100 calls in ten seconds found nothing %d times, and took %d questions; want 0, and one or two a second", missing, questions)
	}
	stock := d.limiter().Level(d.now)
	if stock < 20 || stock > 150 {
		t.Errorf("%d are at hand, want about a second's worth, 100, at most", stock)
	}
	d.after(600 * time.Millisecond)
	r := d.exchange()
	if r == nil || r.Dims[0].Has != 0 || d.limiter().Level(d.now) != 0 {
		t.Errorf("after half a second without a call: %+v", r)
	}
}

func TestForACallNowAndThenNothingIsHeld(t *testing.T) {
	t.Parallel()
	d := newDesk(t, share.Leased, minute(100_000))
	for range 20 {
		d.waits(10).exchange()
		d.waits(0)
		d.limiter().Settle(d.now, d.take(10), 10)
		if got := d.limiter().Level(d.now); got != 0 {
			t.Fatalf("%d are held", got)
		}
		d.after(2 * time.Second)
		for d.exchange() != nil {
		}
	}
}

// A call that does not wait fails when there is nothing at hand; the next one finds
// something.
func TestWhatACallThatDoesNotWaitHasMissedIsAskedFor(t *testing.T) {
	t.Parallel()
	for _, mode := range []share.Mode{share.Leased, share.Central} {
		d := newDesk(t, mode, minute(1000), share.Dim{Shape: share.Slots, Limit: 5})
		d.limiter().Fits(d.now, 20)
		d.lessee.Slots().Fits(d.now, 2)
		if d.exchange() == nil {
			t.Fatalf("%v: nothing was asked for", mode)
		}
		if ok, _ := d.limiter().Fits(d.now, 20); !ok || !d.lessee.Slots().Fits(d.now, 2) {
			t.Errorf("%v: what was missed is still not there", mode)
		}
		d.after(600 * time.Millisecond)
		for d.exchange() != nil {
		}
		if got := d.limiter().Level(d.now); got != 0 || d.lessee.Slots().Fits(d.now, 1) {
			t.Errorf("%v: half a second later %d units are still held, or a slot", mode, got)
		}
	}
}

// Two that wait must not keep from each other what both need: who comes second
// gives back what it has left.
func TestWhoWaitsGivesBackWhatThoseBeforeItNeed(t *testing.T) {
	t.Parallel()
	d := newDesk(t, share.Central, minute(100))
	d.waits(30).exchange()
	h := d.take(30)
	d.limiter().Settle(d.now, h, 0) // a credit of 30 is left
	d.asks("first", 0, 100, 100)
	d.waits(60).exchange()
	d.exchange()
	if got := d.limiter().Level(d.now); got != 0 {
		t.Errorf("%d are kept", got)
	}
	if got := d.asks("first", 0, 100, 100); got.Granted[0] != 100 {
		t.Errorf("the first one was granted %d of 100", got.Granted[0])
	}
}

func TestSlotsThatOthersWaitForComeBackAtOnce(t *testing.T) {
	t.Parallel()
	slots := func(d *desk, replica string, has, need int64) share.Reply {
		r := d.request(replica)
		r.Dims[1].Has, r.Dims[1].Need = has, need
		return d.do(r)
	}
	for _, scarce := range []bool{false, true} {
		d := newDesk(t, share.Leased, minute(1000), share.Dim{Shape: share.Slots, Limit: 2})
		s := d.lessee.Slots()
		d.waits(1).exchange()
		s.Use(d.now, 1)
		d.waits(0)
		want := 500 * time.Millisecond
		if scarce {
			want = 20 * time.Millisecond
			d.after(share.DefaultTTL / 2)
			slots(d, "b", 0, 2)
			d.exchange() // hears of it
		}
		s.Use(d.now, -1)
		if !s.Fits(d.now, 1) {
			t.Error("a slot that came back is not there for the next call")
		}
		if got := d.due(); got != want {
			t.Errorf("scarce %v: it is given back after %v, want %v", scarce, got, want)
		}
		if r := d.after(want).exchange(); r == nil || r.Dims[1].Has != 0 {
			t.Errorf("scarce %v: it was not given back", scarce)
		}
	}
}

// A replica whose store is down goes on with its part: a bucket from nothing, and
// a window with what it had itself, until that is forgotten.
func TestAReplicaThatIsCutOffGoesOnWithItsPart(t *testing.T) {
	t.Parallel()
	d := newDesk(t, share.Central, share.Dim{Shape: share.Bucket, Limit: 6000, Burst: 6000}, minute(6000), share.Dim{Shape: share.Slots, Limit: 10})
	for _, other := range []string{"b", "c", "d"} {
		d.do(d.request(other))
	}
	d.demand = budget.Demand{Next: []int64{40, 40}}
	d.limiter().Fits(d.now, 40)
	d.exchange()
	window := d.lessee.Limiter(1)
	for i := range 2 {
		l := d.lessee.Limiter(i)
		l.Settle(d.now, l.Take(d.now, 40), 40)
	}
	down := d.now
	for !d.lessee.Local() {
		if d.now.Sub(down) > time.Minute {
			t.Fatal("the replica waits for its store for ever")
		}
		d.after(d.due())
		if r := d.asked(); r != nil {
			d.lessee.Failed(d.after(time.Second).now, *r)
		}
	}
	if cut := d.now.Sub(down); cut < 4*time.Second || cut > share.DefaultTTL+time.Second {
		t.Errorf("it goes on alone after %v, want when its lease has ended", cut)
	}
	// A quarter of 100 a second, of that 0.8: 20 a second.
	start := d.now
	if got := d.limiter().Level(d.now); got != 0 {
		t.Errorf("its bucket begins with %d, want nothing", got)
	}
	ok, at := d.limiter().Fits(d.now, 100)
	if ok || at.Sub(start).Round(time.Millisecond) != 5*time.Second {
		t.Errorf("100 units fit after %v, want 5 s", at.Sub(start))
	}
	if got := window.Level(d.now); got != 0 {
		t.Errorf("of its window %d are left, want nothing: it has used its 40", got)
	}
	d.now = down.Add(61*time.Second + time.Millisecond)
	if got := window.Level(d.now); got != 40 {
		t.Errorf("when these are forgotten %d are left, want 40", got)
	}
	d.now = start.Add(70 * time.Second)
	if got := window.Level(d.now); got != 1200 {
		t.Errorf("after a window and a TTL %d are left, want 0.8/4 of 6000", got)
	}
	s := d.lessee.Slots()
	if s.Use(d.now, 1); !s.Fits(d.now, 1) || s.Fits(d.now, 2) {
		t.Error("its slots are not 0.8/4 of 10")
	}
	s.Use(d.now, -1)
	h := d.take(100)
	r := d.asked()
	d.lessee.Reply(d.now, *r, d.c.Do(d.now, *r))
	if d.lessee.Local() || r.Alone < time.Minute {
		t.Errorf("it is back: local %v, it says that it was alone for %v", d.lessee.Local(), r.Alone)
	}
	d.limiter().Settle(d.now, h, 100)
	d.after(600 * time.Millisecond).exchange()
	if b := d.c.Books(d.now)[0]; b.Outstanding != 0 || b.Level < 5900 || b.Level > 5960 {
		t.Errorf("level %v, %d outstanding; want what was spent alone told", b.Level, b.Outstanding)
	}
}

func TestNoFallbackIsToWait(t *testing.T) {
	t.Parallel()
	d := newDesk(t, share.Central, minute(100))
	d.be(share.LesseeConfig{Dims: d.dims, Replica: "b", Fallback: -1})
	d.exchange()
	d.waits(1)
	for range 30 {
		d.after(time.Second)
		if r := d.asked(); r != nil {
			d.lessee.Failed(d.now, *r)
		}
	}
	if ok, _ := d.limiter().Fits(d.now, 1); ok || d.lessee.Local() {
		t.Error("a replica without fallback goes on alone")
	}
}

// A coordinator that has lost its state is told what was spent in the last window.
func TestALostStateIsToldAnew(t *testing.T) {
	t.Parallel()
	d := newDesk(t, share.Central, minute(1000))
	for range 3 {
		d.waits(100).exchange()
		d.limiter().Settle(d.now, d.take(100), 100)
		d.waits(0).after(10 * time.Second).exchange()
	}
	d.waits(50).exchange() // a credit
	d.waits(0).after(100 * time.Millisecond)
	c, err := share.NewCoordinator(share.CoordinatorConfig{Dims: d.dims, Epoch: 2, Learn: true})
	if err != nil {
		t.Fatal(err)
	}
	d.c = c
	d.after(share.DefaultTTL / 2)
	d.exchange() // it is stale
	d.exchange()
	if b := d.c.Books(d.now)[0]; b.Level != 700 || b.Outstanding != 0 {
		t.Errorf("level %v, %d outstanding; want what the replica has spent, 300", b.Level, b.Outstanding)
	}
}

func TestTheYoungerOfTwoOfOneNameStays(t *testing.T) {
	t.Parallel()
	d := newDesk(t, share.Central, minute(100))
	r := d.request("a")
	r.Epoch, r.Coordinator = 2, 1
	d.do(r)
	d.waits(10).exchange()
	if !d.lessee.Fenced() {
		t.Error("the older one does not know")
	}
	if d.waits(10).exchange() != nil || !d.lessee.Due(d.now).IsZero() {
		t.Error("it still asks")
	}
}

func TestWhoLeavesGivesEverythingBack(t *testing.T) {
	t.Parallel()
	d := newDesk(t, share.Leased, minute(100), share.Dim{Shape: share.Slots, Limit: 5})
	d.waits(40).exchange()
	d.waits(0)
	h := d.limiter().Counted(d.now, d.take(10))
	d.limiter().Settle(d.now, h, 5)
	d.lessee.Leave()
	r := d.exchange()
	if r == nil || !r.Leave {
		t.Fatalf("it left with %+v", r)
	}
	if b := d.c.Books(d.now); b[0].Level != 95 || b[0].Outstanding != 0 || b[1].Outstanding != 0 {
		t.Errorf("after that: %+v, want 5 spent", b)
	}
}

// A static replica that needs no store has its part from the beginning: a guarded
// mirror of the provider, which holds what is in flight until it is counted.
func TestAStaticReplicaHasItsPart(t *testing.T) {
	t.Parallel()
	dims := []share.Dim{{Shape: share.Bucket, Limit: 600, Burst: 120}, minute(120), {Shape: share.Slots, Limit: 9}}
	d := &desk{table: newTable(t, share.CoordinatorConfig{Dims: dims})}
	d.be(share.LesseeConfig{Dims: dims, Mode: share.Static, Replica: "a", Replicas: 4, Alone: true})
	if d.asked() != nil || !d.lessee.Due(d.now).IsZero() {
		t.Error("it asks, though there is nobody to be asked")
	}
	bucket, window := d.limiter(), d.lessee.Limiter(1)
	h := d.take(20)
	if got := bucket.Level(d.now); got != 10 {
		t.Errorf("%d of 30 are left after 20, want 10", got)
	}
	d.after(4 * time.Second) // ten would have refilled, but the provider is still full
	ok, at := bucket.Fits(d.now, 11)
	if ok || !at.IsZero() {
		t.Errorf("while 20 are in flight 11 fit: %v, at %v", ok, at)
	}
	bucket.Counted(d.now, h)
	d.after(time.Second) // it counts as spent at the end of its cell
	ok, at = bucket.Fits(d.now, 20)
	if wait := at.Sub(d.now); ok || wait < 3*time.Second || wait > 4*time.Second {
		t.Errorf("20 fit after %v, want the time of about ten", at.Sub(d.now))
	}
	if ok, _ := bucket.Fits(at, 20); !ok {
		t.Error("at the time that was told they do not fit")
	}
	if ok, _ := window.Fits(d.now, 31); ok {
		// More than its part, while it has used nothing.
		window.Settle(d.now, window.Take(d.now, 31), 31)
	} else {
		t.Error("a call above its part of the window is never let through")
	}
	if ok, _ := window.Fits(d.now, 1); ok {
		t.Error("one more fits beside it")
	}
	if _, ok := window.Earliest(d.now, 121); ok || window.Max() != 120 || bucket.Max() != math.MaxInt64 {
		t.Errorf("Max is %d and %d, want those of the whole", window.Max(), bucket.Max())
	}
	s := d.lessee.Slots()
	if !s.Fits(d.now, 3) {
		t.Error("a call that is wider than its part cannot run alone")
	}
	if s.Use(d.now, 1); !s.Fits(d.now, 1) || s.Fits(d.now, 2) {
		t.Error("its slots are not a quarter of 9")
	}
}

func TestChangedLimitsAndSharesAreTold(t *testing.T) {
	t.Parallel()
	d := newDesk(t, share.Leased, minute(100), share.Dim{Shape: share.Slots, Limit: 5})
	d.limiter().Scale(time.Time{}, 0.5)
	d.limiter().SetLimit(d.now, 80)
	d.limiter().Scale(d.now, 0.25)
	d.limiter().Lower(d.now, 17, time.Minute)
	d.lessee.Slots().SetLimit(d.now, 3)
	r := d.exchange()
	if r == nil {
		t.Fatal("it is not told at once")
	}
	if got := r.Dims[0]; got.Limit != 80 || got.Share != 0.25 || got.Left == nil || got.Left.Units != 17 || r.Dims[1].Limit != 3 {
		t.Errorf("told %+v", r.Dims)
	}
	if b := d.c.Books(d.now)[0]; b.Limit != 20 || b.Level != 17 {
		t.Errorf("in force are %v, with %v left; want 20, 17", b.Limit, b.Level)
	}
	if d.limiter().Limit() != 80 || d.limiter().Max() != 80 {
		t.Errorf("Limit is %d and Max %d, want those of the whole", d.limiter().Limit(), d.limiter().Max())
	}
}

// Holds that are revised keep both books right.
func TestRevisedHoldsKeepTheBooksRight(t *testing.T) {
	t.Parallel()
	for _, counted := range []bool{false, true} {
		for _, cost := range []int64{0, 20, 50, 80} {
			d := newDesk(t, share.Central, minute(1000))
			d.waits(50).exchange()
			d.waits(0)
			l := d.limiter()
			h := d.take(50)
			if counted {
				h = l.Counted(d.now, h)
				d.after(100 * time.Millisecond).waits(1).exchange() // it is told
				d.waits(0)
			}
			h = l.Revise(d.now, h, cost)
			if h.Cost() != cost {
				t.Fatalf("the hold is of %d, want %d", h.Cost(), cost)
			}
			l.Settle(d.now, h, cost)
			for range 4 {
				d.after(600 * time.Millisecond).exchange()
			}
			if b := d.c.Books(d.now)[0]; b.Level != 1000-float64(cost) || b.Outstanding != 0 {
				t.Errorf("counted %v, revised to %d: level %v, %d outstanding", counted, cost, b.Level, b.Outstanding)
			}
		}
	}
}
