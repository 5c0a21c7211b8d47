package share_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/share"
	"pgregory.net/rapid"
)

// table is a coordinator and what replicas say to it.
type table struct {
	t    testing.TB
	c    *share.Coordinator
	dims []share.Dim
	now  time.Time
	seqs map[string]int64
	last map[string]share.Reply
}

func newTable(t testing.TB, cfg share.CoordinatorConfig) *table {
	t.Helper()
	c, err := share.NewCoordinator(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &table{
		t: t, c: c, dims: cfg.Dims, now: time.Unix(1_000_000, 0),
		seqs: make(map[string]int64), last: make(map[string]share.Reply),
	}
}

func (x *table) after(d time.Duration) *table { x.now = x.now.Add(d); return x }

// request is the next one of a replica, which reports and asks for nothing.
func (x *table) request(replica string) share.Request {
	x.seqs[replica]++
	r := share.Request{Replica: replica, Epoch: 1, Seq: x.seqs[replica], Prev: x.last[replica].At, Coordinator: x.last[replica].Epoch}
	for _, d := range x.dims {
		r.Dims = append(r.Dims, share.DimReport{Limit: d.Limit})
	}
	return r
}

// asks is a request for one dimension: what the replica has, needs and wants.
func (x *table) asks(replica string, has, need, want int64) share.Reply {
	r := x.request(replica)
	r.Dims[0].Has, r.Dims[0].Need, r.Dims[0].Want = has, need, want
	return x.do(r)
}

func (x *table) do(r share.Request) share.Reply {
	reply := x.c.Do(x.now, r)
	x.last[r.Replica] = reply
	return reply
}

// free is what could be granted of the first dimension.
func (x *table) free() float64 {
	b := x.c.Books(x.now)[0]
	return b.Level - float64(b.Outstanding)
}

func aBucket(limit, burst int64) []share.Dim {
	return []share.Dim{{Shape: share.Bucket, Limit: limit, Burst: burst}}
}

func TestTheNeedsOfAllDimensionsAreGrantedTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	x := newTable(t, share.CoordinatorConfig{Dims: []share.Dim{
		{Shape: share.Bucket, Limit: 600, Burst: 600}, {Shape: share.Window, Limit: 10}, {Shape: share.Slots, Limit: 2},
	}})
	ask := func(replica string, needs ...int64) share.Reply {
		r := x.request(replica)
		for i, n := range needs {
			r.Dims[i].Need, r.Dims[i].Want = n, n
		}
		return x.do(r)
	}
	if got := ask("a", 100, 8, 1).Granted; !slices.Equal(got, []int64{100, 8, 1}) {
		t.Errorf("granted %v, want all", got)
	}
	reply := ask("b", 100, 8, 1)
	if !slices.Equal(reply.Granted, []int64{0, 0, 0}) || reply.RetryAfter <= 0 {
		t.Errorf("granted %v, and again after %v; want nothing, and a time", reply.Granted, reply.RetryAfter)
	}
	for i, b := range x.c.Books(x.now) {
		if want := []int64{100, 8, 1}[i]; b.Outstanding != want {
			t.Errorf("%d of dimension %d are outstanding, want %d", b.Outstanding, i, want)
		}
	}
	if got := ask("c", 0, 2, 1).Granted; !slices.Equal(got, []int64{0, 0, 0}) {
		t.Errorf("what is kept for b was granted to c, who came later: %v", got)
	}
}

func TestWhatWaitsForTimeIsToldWhen(t *testing.T) {
	t.Parallel()
	x := newTable(t, share.CoordinatorConfig{Dims: aBucket(600, 100)}) // ten a second
	x.asks("a", 0, 100, 100)
	r := x.request("a")
	r.Dims[0].Spent = []share.Spend{{Amount: 100}}
	x.do(r)
	x.after(time.Second) // it counts as spent at the end of its cell
	reply := x.asks("b", 0, 15, 15)
	if reply.RetryAfter != 1500*time.Millisecond {
		t.Fatalf("15 units are to be had after %v, want 1.5 s", reply.RetryAfter)
	}
	if got := x.after(reply.RetryAfter-time.Microsecond).asks("b", 0, 15, 15); got.Granted[0] != 0 {
		t.Errorf("a microsecond before that %d units were granted", got.Granted[0])
	}
	if got := x.after(time.Microsecond).asks("b", 0, 15, 15); got.Granted[0] != 15 || got.RetryAfter != 0 {
		t.Errorf("at that time %d units were granted, and again after %v", got.Granted[0], got.RetryAfter)
	}
}

// The sum of what replicas get is max-min fair by weight: nobody who got less
// than it wants could get more without taking it from one that has no more, over its
// weight.
func TestWhatNobodyClaimsIsDividedMaxMinFair(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		pool := rapid.Int64Range(1, 1000).Draw(rt, "pool")
		wants := rapid.SliceOfN(rapid.Int64Range(1, 800), 1, 8).Draw(rt, "wants")
		weights := rapid.SliceOfN(rapid.IntRange(1, 4), len(wants), len(wants)).Draw(rt, "weights")
		x := newTable(t, share.CoordinatorConfig{Dims: []share.Dim{{Shape: share.Window, Limit: 1_000_000}}})
		r := x.request("hog") // all but the pool is in use
		r.Dims[0].Has = 1_000_000
		x.do(r)
		ask := func(i int) int64 {
			r := x.request(fmt.Sprint(i))
			r.Weight, r.Dims[0].Want = float64(weights[i]), wants[i]
			return x.do(r).Granted[0]
		}
		for i := range wants {
			ask(i) // all wants are known now
		}
		r = x.request("hog")
		r.Dims[0].Has = 1_000_000 - pool
		x.do(r)
		got := make([]int64, len(wants))
		total := int64(0)
		for i := range wants {
			r := x.request(fmt.Sprint(i))
			r.Weight, r.Dims[0].Want = float64(weights[i]), wants[i]
			got[i] = x.do(r).Granted[0]
			total += got[i]
		}
		if total > pool {
			rt.Fatalf("%d were granted of %d", total, pool)
		}
		for i := range got {
			if got[i] == wants[i] {
				continue
			}
			for j := range got {
				if float64(got[j])/float64(weights[j]) > float64(got[i]+2)/float64(weights[i]) {
					rt.Errorf("wants %v, weights %v of a pool of %d got %v: %d got more than %d over its weight, which wants more", wants, weights, pool, got, j, i)
				}
			}
		}
		if sum := total; sum < pool-int64(2*len(wants)) && !slices.Equal(got, wants) {
			rt.Errorf("only %d of %d were granted, though wants %v are not met: %v", sum, pool, wants, got)
		}
	})
}

// Five replicas take what they can in small calls; one has calls as large as the
// whole bucket.
func TestALargeCallIsNotStarvedBySmallOnes(t *testing.T) {
	t.Parallel()
	for _, mode := range []share.Mode{share.Leased, share.Central} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			cfg := worldConfig{Late: time.Second, Way: 5 * time.Millisecond, Timeout: time.Second}
			cfg.Dims = aBucket(6000, 600)
			cfg.Lessee.Mode = mode
			w := newWorld(cfg, rand.New(rand.NewPCG(1, 1)), t.Fatalf)
			for range 6 {
				w.join()
			}
			large := w.replicas[5]
			for range 600 {
				for _, n := range w.replicas[:5] {
					for len(n.queue) < 20 {
						n.queue = append(n.queue, []int64{40})
					}
				}
				if len(large.queue) == 0 {
					large.queue = append(large.queue, []int64{600})
				}
				w.advance(200 * time.Millisecond)
				w.check()
			}
			// Each has a sixth of 100 a second, over two minutes.
			fair := 120.0 * 100 / 6
			for _, n := range w.replicas {
				if got := float64(n.taken[0]); got < 0.75*fair || got > 1.35*fair {
					t.Errorf("%s took %v units, want about %v", n.name, got, fair)
				}
			}
		})
	}
}

func TestAClaimIsForgottenWhenItsReplicaDoesNotAskAgain(t *testing.T) {
	t.Parallel()
	x := newTable(t, share.CoordinatorConfig{Dims: aBucket(600, 100)})
	x.asks("a", 0, 60, 60)
	reply := x.asks("b", 0, 90, 90) // waits until a has given back
	if reply.Granted[0] != 0 {
		t.Fatal("b was granted what is not there")
	}
	if got := x.asks("c", 0, 10, 10); got.Granted[0] != 0 {
		t.Errorf("c was granted %d, which are kept for b", got.Granted[0])
	}
	x.after(max(2*reply.RetryAfter, time.Second) + time.Millisecond)
	if got := x.asks("c", 0, 10, 10); got.Granted[0] != 10 {
		t.Errorf("long after b has asked last, c was granted %d of 10", got.Granted[0])
	}
}

func TestANeedAboveWhatThereEverIsKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	for _, d := range []share.Dim{{Shape: share.Window, Limit: 100}, {Shape: share.Bucket}} {
		x := newTable(t, share.CoordinatorConfig{Dims: []share.Dim{d, {Shape: share.Slots, Limit: 5}}})
		if got := x.asks("a", 0, 101, 101); got.Granted[0] != 0 || got.RetryAfter <= 0 {
			t.Errorf("%d were granted, again after %v", got.Granted[0], got.RetryAfter)
		}
		r := x.request("b")
		r.Dims[1].Need = 5
		if got := x.do(r); got.Granted[1] != 5 {
			t.Errorf("another one was granted %d slots of 5", got.Granted[1])
		}
	}
}

func TestACallLargerThanTheBucketGoesIntoDebt(t *testing.T) {
	t.Parallel()
	x := newTable(t, share.CoordinatorConfig{Dims: aBucket(600, 100)})
	x.asks("a", 0, 1, 1)
	if got := x.asks("b", 0, 250, 250); got.Granted[0] != 0 {
		t.Fatalf("%d were granted of a bucket that is not full", got.Granted[0])
	}
	x.asks("a", 0, 0, 0)
	if got := x.after(200*time.Millisecond).asks("b", 0, 250, 250); got.Granted[0] != 250 {
		t.Fatalf("%d were granted of a full bucket, want 250", got.Granted[0])
	}
	r := x.request("b")
	r.Dims[0].Spent = []share.Spend{{Amount: 250}}
	x.do(r)
	if got := x.asks("a", 0, 1, 1); got.RetryAfter < 2400*time.Millisecond {
		t.Errorf("the next unit is to be had after %v, want until the debt is repaid, as far as one waits", got.RetryAfter)
	}
}

func TestWhatWasUsedAboveTheEstimateIsRepaid(t *testing.T) {
	t.Parallel()
	x := newTable(t, share.CoordinatorConfig{Dims: aBucket(600, 100)})
	x.asks("a", 0, 100, 100)
	r := x.request("a")
	r.Dims[0].Spent = []share.Spend{{Amount: 130}}
	x.do(r)
	if got := x.free(); got != -30 {
		t.Errorf("%v are free, want −30", got)
	}
	x.after(time.Second) // it counts as spent at the end of its cell
	if got := x.after(4*time.Second).asks("b", 0, 10, 10); got.Granted[0] != 10 {
		t.Errorf("after four seconds %d were granted, want 10", got.Granted[0])
	}
}

// Fencing by sequence numbers and epochs.
func TestARequestIsTakenInOnce(t *testing.T) {
	t.Parallel()
	request := func(epoch, seq int64) share.Request {
		return share.Request{Replica: "a", Epoch: epoch, Seq: seq, Dims: []share.DimReport{{
			Limit: 600, Has: 10, Need: 10, Want: 10, Spent: []share.Spend{{Amount: 5}},
		}}}
	}
	for _, c := range []struct {
		name       string
		epoch, seq int64
		stale      bool
		granted    int64
		free       float64 // afterwards
	}{
		{name: "the next one", epoch: 3, seq: 8, granted: 10, free: 570},
		{name: "the last one again", epoch: 3, seq: 7, granted: 10, free: 575},
		{name: "an older one", epoch: 3, seq: 6, stale: true, free: 575},
		{name: "one of an older life", epoch: 2, seq: 9, stale: true, free: 575},
		{name: "the first one of another life", epoch: 4, seq: 1, granted: 10, free: 550},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			x := newTable(t, share.CoordinatorConfig{Dims: aBucket(600, 600)})
			if got := x.do(request(3, 7)); got.Granted[0] != 10 { // 5 spent, 10 + 10 outstanding
				t.Fatalf("the first request was granted %v", got.Granted)
			}
			got := x.do(request(c.epoch, c.seq))
			if got.Stale != c.stale || got.Granted[0] != c.granted {
				t.Errorf("stale %v, granted %v; want %v, %v", got.Stale, got.Granted, c.stale, c.granted)
			}
			if free := x.free(); free != c.free {
				t.Errorf("%v are free, want %v", free, c.free)
			}
		})
	}
}

// What a replica had when it crashed counts as spent when its lease ends, though it
// is back under another epoch; its slots come back then.
func TestWhatAFormerLifeHadIsSpentWhenItsLeaseEnds(t *testing.T) {
	t.Parallel()
	x := newTable(t, share.CoordinatorConfig{Dims: []share.Dim{
		{Shape: share.Window, Limit: 100}, {Shape: share.Slots, Limit: 4},
	}})
	r := x.request("a")
	r.Dims[0].Need, r.Dims[1].Need = 60, 3
	x.do(r)
	x.after(time.Second)
	r = x.request("a")
	r.Epoch, r.Seq = 2, 1
	r.Dims[0].Need, r.Dims[1].Need = 30, 1
	if got := x.do(r).Granted; !slices.Equal(got, []int64{30, 1}) {
		t.Fatalf("granted %v of what the former life did not have", got)
	}
	expiry := share.DefaultTTL + share.DefaultLate - time.Second
	books := func(d time.Duration) string {
		b := x.c.Books(x.now.Add(d))
		return fmt.Sprint(b[0].Level, b[0].Outstanding, b[1].Outstanding)
	}
	if got, want := books(expiry-time.Millisecond), "100 90 4"; got != want {
		t.Errorf("before the lease ends: %s, want %s", got, want)
	}
	if got, want := books(expiry), "40 30 1"; got != want {
		t.Errorf("after that: %s, want %s", got, want)
	}
}

// A replica that was cut off and comes back tells itself what it has spent, and
// that replaces what was booked when its lease ended.
func TestAReplicaThatComesBackIsBelieved(t *testing.T) {
	t.Parallel()
	for _, d := range []share.Dim{{Shape: share.Window, Limit: 1000}, {Shape: share.Bucket, Limit: 60, Burst: 1000}} {
		x := newTable(t, share.CoordinatorConfig{Dims: []share.Dim{d}})
		x.asks("a", 0, 500, 500)
		x.after(10 * time.Second)
		if b := x.c.Books(x.now)[0]; b.Outstanding != 0 || b.Level > 560 {
			t.Fatalf("after its lease: level %v, %d outstanding; want 500 spent", b.Level, b.Outstanding)
		}
		r := x.request("a")
		r.Dims[0].Spent = []share.Spend{{Age: 9 * time.Second, Amount: 100}, {Age: time.Second, Amount: 20}}
		r.Dims[0].Has = 30
		x.do(r)
		b := x.c.Books(x.now)[0]
		// The bucket may have refilled nine of what was spent first.
		if b.Outstanding != 30 || b.Level < 880 || b.Level > 890 {
			t.Errorf("after it has told: level %v, %d outstanding; want about 880, 30", b.Level, b.Outstanding)
		}
	}
}

// A coordinator that has lost its state grants nothing for one TTL, and learns.
func TestACoordinatorThatHasLostItsStateLearnsFirst(t *testing.T) {
	t.Parallel()
	cfg := share.CoordinatorConfig{Epoch: 2, Dims: []share.Dim{
		{Shape: share.Window, Limit: 100}, {Shape: share.Bucket, Limit: 600, Burst: 100}, {Shape: share.Slots, Limit: 5},
	}}
	for _, told := range []bool{true, false} { // or it finds out from the first that knew its predecessor
		cfg.Learn = told
		x := newTable(t, cfg)
		r := x.request("a")
		r.Coordinator = 1
		if got := x.do(r); !got.Stale || got.Epoch != 2 {
			t.Fatalf("a report for another coordinator: stale %v, epoch %d", got.Stale, got.Epoch)
		}
		r = x.request("a")
		r.Dims[0].Spent = []share.Spend{{Age: 20 * time.Second, Amount: 30}, {Age: 70 * time.Second, Amount: 30}}
		r.Dims[0].Has, r.Dims[0].Need = 10, 50
		r.Dims[1].Has, r.Dims[2].Has = 10, 2
		reply := x.do(r)
		if !slices.Equal(reply.Granted, []int64{0, 0, 0}) || reply.RetryAfter <= 0 || reply.RetryAfter > share.DefaultTTL {
			t.Errorf("while it learns: granted %v, again after %v", reply.Granted, reply.RetryAfter)
		}
		x.after(share.DefaultTTL)
		r = x.request("a")
		r.Dims[0].Has, r.Dims[1].Has, r.Dims[2].Has = 10, 10, 2
		r.Dims[0].Need, r.Dims[1].Need, r.Dims[2].Need = 60, 40, 3
		if got := x.do(r); !slices.Equal(got.Granted, []int64{60, 40, 3}) { // the bucket began with nothing
			t.Errorf("after that: granted %v, want 60, 40 and 3", got.Granted)
		}
		if b := x.c.Books(x.now); b[0].Level != 70 || b[0].Outstanding != 70 {
			t.Errorf("the window has %v, %d outstanding; want 70, 70", b[0].Level, b[0].Outstanding)
		}
	}
}

func TestTheSmallestLimitAndShareAreInForce(t *testing.T) {
	t.Parallel()
	x := newTable(t, share.CoordinatorConfig{Dims: []share.Dim{{Shape: share.Window, Limit: 100}}})
	say := func(replica string, limit int64, part float64) float64 {
		r := x.request(replica)
		r.Dims[0].Limit, r.Dims[0].Share = limit, part
		reply := x.do(r)
		if limit < 100 && reply.Limits[0] != limit {
			x.t.Errorf("the limit of all is said to be %d, want %d", reply.Limits[0], limit)
		}
		return x.c.Books(x.now)[0].Limit
	}
	for _, c := range []struct {
		replica string
		limit   int64
		part    float64
		want    float64
	}{
		{"a", 100, 0, 100}, {"b", 100, 0.5, 50}, {"a", 80, 1, 40}, {"b", 100, 1, 80}, {"a", 200, 1, 100}, {"b", 200, 1, 200},
	} {
		if got := say(c.replica, c.limit, c.part); got != c.want {
			t.Errorf("after %s says %d × %v, %v are in force, want %v", c.replica, c.limit, c.part, got, c.want)
		}
	}
	say("c", 10, 1)
	x.after(share.DefaultTTL + share.DefaultLate)
	if got := say("b", 200, 1); got != 200 {
		t.Errorf("long after c was heard of, %v are in force, want 200", got)
	}
}

func TestWhatTheProviderSaysIsLeftOnlyLowers(t *testing.T) {
	t.Parallel()
	x := newTable(t, share.CoordinatorConfig{Dims: []share.Dim{{Shape: share.Window, Limit: 100}}})
	x.asks("a", 0, 20, 20)
	for _, c := range []struct {
		left int64
		free float64
	}{{90, 80}, {50, 50}, {70, 50}, {0, 0}, {-5, 0}} {
		r := x.request("a")
		r.Dims[0].Has, r.Dims[0].Left = 20, &share.Left{Units: c.left}
		if x.do(r); x.free() != c.free {
			t.Errorf("after %d are said to be left, %v are free, want %v", c.left, x.free(), c.free)
		}
	}
}

func TestConfigErrorsNameTheField(t *testing.T) {
	t.Parallel()
	dims := aBucket(1, 1)
	for want, cfg := range map[string]share.CoordinatorConfig{
		"Dims is empty":    {},
		"Dims[0].Limit":    {Dims: []share.Dim{{Limit: -1}}},
		"Dims[0].Burst":    {Dims: []share.Dim{{Shape: share.Bucket, Burst: -1}}},
		"Dims[0].Window":   {Dims: []share.Dim{{Window: -1}}},
		"Dims[0].Cell":     {Dims: []share.Dim{{Cell: time.Hour}}},
		"more than 4096":   {Dims: []share.Dim{{Window: time.Hour, Cell: time.Microsecond}}},
		"Dims[0].Shape":    {Dims: []share.Dim{{Shape: 9}}},
		"must be the last": {Dims: []share.Dim{{Shape: share.Slots}, {}}},
		"Dims[0].Pace":     {Dims: []share.Dim{{Pace: true}}},
		"Epoch":            {Dims: dims, Epoch: -1},
		"Late":             {Dims: dims, Late: -1},
		"Poll":             {Dims: dims, Poll: 1},
		"Replicas":         {Dims: dims, Replicas: -1},
		"TTL":              {Dims: dims, TTL: -1},
	} {
		if _, err := share.NewCoordinator(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error that says %q", cfg, err, want)
		}
	}
	for want, cfg := range map[string]share.LesseeConfig{
		"Dims is empty": {Replica: "a"},
		"Replica":       {Dims: dims},
		"Epoch":         {Dims: dims, Replica: "a", Epoch: -1},
		"Fallback":      {Dims: dims, Replica: "a", Fallback: 1.5},
		"Idle":          {Dims: dims, Replica: "a", Idle: -1},
		"Mode":          {Dims: dims, Replica: "a", Mode: 7},
		"Replicas":      {Dims: dims, Replica: "a", Replicas: -1},
		"Stock":         {Dims: dims, Replica: "a", Stock: -1},
		"Alone":         {Dims: dims, Replica: "a", Alone: true},
	} {
		if _, err := share.NewLessee(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error that says %q", cfg, err, want)
		}
	}
	for _, m := range []share.Mode{share.Leased, share.Central, share.Static} {
		if got, err := share.ParseMode(m.String()); err != nil || got != m {
			t.Errorf("mode %v is read as %v, %v", m, got, err)
		}
	}
	if _, err := share.ParseMode("shared"); err == nil {
		t.Error("a mode that there is not was read")
	}
}
