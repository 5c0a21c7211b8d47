package share_test

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/share"
)

// Requests that fail come again after growing times, which are not the same for all.
func TestRetriesGrowAndAreSpread(t *testing.T) {
	t.Parallel()
	waits := func(replica string) (list []time.Duration) {
		l, err := share.NewLessee(share.LesseeConfig{Dims: []share.Dim{minute(100)}, Replica: replica})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1_000_000, 0)
		for range 8 {
			r, ok := l.Request(now, &budget.Demand{})
			if !ok {
				t.Fatalf("after %v there is no request, though it was due", list)
			}
			l.Failed(now, r)
			due := l.Due(now)
			list = append(list, due.Sub(now))
			now = due
		}
		return list
	}
	a, b := waits("a"), waits("b")
	for i, most := range []time.Duration{100, 200, 400, 800, 1000, 1000, 1000, 1000} {
		most *= time.Millisecond
		if a[i] <= most/2 || a[i] > most {
			t.Errorf("the wait after failure %d is %v, want more than half of %v and no more than all", i+1, a[i], most)
		}
	}
	if slices.Equal(a, b) || slices.Equal(a, waits("c")) {
		t.Errorf("two replicas come at the same times: %v", a)
	}
	if !slices.Equal(a, waits("a")) {
		t.Error("the same replica does not do the same again")
	}
}

// A replica whose store goes down before it has heard of all others goes on with its part
// of as many as there are at least.
func TestAReplicaThatHasNotHeardOfAllTakesNoMoreThanItsPart(t *testing.T) {
	t.Parallel()
	d := newDesk(t, share.Central, share.Dim{Shape: share.Bucket, Limit: 6000}, share.Dim{Shape: share.Slots, Limit: 50})
	d.be(share.LesseeConfig{Dims: d.dims, Replica: "first", Replicas: 5})
	if d.exchange() == nil || d.lessee.Replicas() > 2 {
		t.Fatalf("it has heard of %d replicas: this test proves nothing", d.lessee.Replicas())
	}
	for range 20 {
		d.after(time.Second)
		if r := d.asked(); r != nil {
			d.lessee.Failed(d.now, *r)
		}
	}
	if !d.lessee.Local() {
		t.Fatal("it does not go on alone")
	}
	d.after(10 * time.Minute)
	if got := d.limiter().Level(d.now); got != 960 {
		t.Errorf("it has %d units, want 0.8/5 of 6000", got)
	}
	if s := d.lessee.Slots(); !s.Fits(d.now, 8) {
		t.Error("it has not 0.8/5 of 50 slots")
	} else if s.Use(d.now, 8); s.Fits(d.now, 1) {
		t.Error("it has more than 0.8/5 of 50 slots")
	}
}

// A coordinator that has lost its state knows of few replicas at first. One whose store
// goes down again meanwhile goes on with its part of as many as it knew of before.
func TestAReplicaKnowsOfOthersThatANewCoordinatorHasNotHeardOf(t *testing.T) {
	t.Parallel()
	d := newDesk(t, share.Central, share.Dim{Shape: share.Bucket, Limit: 6000})
	for _, name := range []string{"b", "c", "d"} {
		d.do(d.request(name))
	}
	d.waits(40).exchange()
	d.waits(0)
	if n := d.lessee.Replicas(); n != 4 {
		t.Fatalf("it knows of %d replicas, want 4", n)
	}
	c, err := share.NewCoordinator(share.CoordinatorConfig{Dims: d.dims, Epoch: 2, Learn: true})
	if err != nil {
		t.Fatal(err)
	}
	d.c = c
	for range 3 * int(share.DefaultTTL/time.Second) {
		d.after(time.Second).exchange()
		if n := d.lessee.Replicas(); n != 4 {
			t.Fatalf("it goes by %d replicas, when others may not have been heard of yet", n)
		}
	}
	for range 3 * int(share.DefaultTTL/time.Second) {
		d.after(time.Second).exchange()
	}
	if n := d.lessee.Replicas(); n != 1 {
		t.Errorf("it goes by %d replicas, long after all must have been heard of; want 1", n)
	}
}

// A coordinator that is new, and hears first of a replica that has gone by its part, waits
// for the others that there must be.
func TestWhoWasNeverHeardOfMayHaveGoneAloneToo(t *testing.T) {
	t.Parallel()
	for replicas, waits := range map[int]bool{1: false, 2: true, 5: true} {
		x := newTable(t, share.CoordinatorConfig{Dims: []share.Dim{minute(100)}, Replicas: replicas})
		r := x.request("a")
		r.Alone, r.Dims[0].Need = 10*time.Second, 10
		reply := x.do(r)
		if (reply.Granted[0] == 0) != waits || (reply.RetryAfter == share.DefaultTTL) != waits {
			t.Errorf("one of %d replicas comes first, and has gone alone: %+v", replicas, reply)
		}
		if !waits {
			continue
		}
		for i := 1; i < replicas; i++ { // the others tell what they have used meanwhile
			r := x.request(string(rune('a' + i)))
			r.Dims[0].Spent = []share.Spend{{Age: time.Second, Amount: 20}}
			x.do(r)
		}
		x.after(share.DefaultTTL)
		if got, want := x.asks("a", 0, 0, 100).Granted[0], int64(100-20*(replicas-1)); got != want {
			t.Errorf("of %d replicas, each of which has used 20 alone, the first gets %d, want %d", replicas, got, want)
		}
	}
}

// What a replica that is cut off lacks may come as late again as the silence has lasted, but
// no later than it goes by its part; what it still has is at hand.
func TestAForecastBeforeAReplicaGoesByItsPart(t *testing.T) {
	t.Parallel()
	d := newDesk(t, share.Central, minute(600))
	d.waits(60).exchange()
	d.waits(0)
	if got := d.limiter().Forecast(d.now, 61); got != 0 {
		t.Errorf("61 are forecast in %v, want none: it is a round trip", got)
	}
	if d.waits(70).asked() == nil {
		t.Fatal("it does not ask for more")
	}
	for _, c := range []struct {
		passed time.Duration
		want   time.Duration
	}{{50 * time.Millisecond, 0}, {time.Second, time.Second}, {4 * time.Second, 900 * time.Millisecond}} {
		now := d.now.Add(c.passed)
		if got := d.limiter().Forecast(now, 60); got != 0 {
			t.Errorf("after %v: what is at hand is forecast in %v", c.passed, got)
		}
		if got := d.limiter().Forecast(now, 61); got != c.want {
			t.Errorf("after %v without an answer what is not is forecast in %v, want %v", c.passed, got, c.want)
		}
	}
	// Another one takes its name.
	other := newDesk(t, share.Central, minute(600))
	second := other.request("a")
	second.Epoch = 9
	other.do(second)
	other.waits(10).exchange()
	if !other.lessee.Fenced() || other.limiter().Forecast(other.now, 1) < time.Hour {
		t.Errorf("fenced %v, and 1 is forecast in %v", other.lessee.Fenced(), other.limiter().Forecast(other.now, 1))
	}
}

// While a request waits to be sent again there is nothing to do, however often a gate tries
// whether a call can start that takes what is at hand of one limit and lacks another: who
// is woken by that would do nothing else.
func TestNobodyIsWokenBeforeARequestIsSentAgain(t *testing.T) {
	t.Parallel()
	d := newDesk(t, share.Leased, minute(60_000), minute(60_000))
	for range 40 { // so that there is a stock
		d.demand = budget.Demand{Next: []int64{100, 0}, Backlog: []int64{100, 0}}
		d.limiter().Fits(d.now, 100)
		d.exchange()
		if h, ok := d.limiter().TryTake(d.now, 100); ok {
			d.limiter().Settle(d.now, h, 100)
		}
		d.after(50 * time.Millisecond)
	}
	d.demand = budget.Demand{Next: []int64{100, 1}}
	d.lessee.Limiter(1).Fits(d.now, 1)
	r := d.asked()
	if r == nil {
		t.Fatal("it asks for nothing")
	}
	d.lessee.Failed(d.now, *r)
	if d.asked() != nil || d.due() <= 0 {
		t.Fatal("the request is sent again at once")
	}
	has := d.limiter().Level(d.now)
	if has == 0 {
		t.Fatal("it has nothing at hand: this test proves nothing")
	}
	d.wakes = 0
	for range 10 {
		d.limiter().Settle(d.now, d.take(has), 0) // the other limit lacks what the call takes of that
		d.lessee.Limiter(1).Fits(d.now, 1)
		d.due()
	}
	if d.wakes > 0 {
		t.Errorf("it was woken %d times, though there is nothing to do", d.wakes)
	}
	if d.after(d.due()); d.asked() == nil {
		t.Error("the request is not sent again when it is due")
	}
}
