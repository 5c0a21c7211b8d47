package share_test

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/share"
)

// A replica that goes by its part of the quota takes no more of it than the provider
// says is left, beside what is in flight.
func TestWhatTheProviderSaysIsLeftLowersAStaticPart(t *testing.T) {
	t.Parallel()
	for _, shape := range []share.Shape{share.Window, share.Bucket} {
		dims := []share.Dim{{Shape: shape, Limit: 400}}
		d := &desk{table: newTable(t, share.CoordinatorConfig{Dims: dims})}
		d.be(share.LesseeConfig{Dims: dims, Mode: share.Static, Replica: "a", Replicas: 4, Alone: true})
		l := d.limiter()
		d.take(20)
		for _, c := range []struct{ left, want int64 }{{90, 80}, {30, 30}, {60, 30}, {-1, 0}} {
			if l.Lower(d.now, c.left, 20*time.Second); l.Level(d.now) != c.want {
				t.Errorf("%v: after %d are said to be left there are %d, want %d", shape, c.left, l.Level(d.now), c.want)
			}
		}
		ok, at := l.Fits(d.now, 30)
		// A window has all back after the reset; a bucket a quarter of 400 a minute.
		if wait := at.Sub(d.now); ok || wait < 18*time.Second || wait > 22*time.Second {
			t.Errorf("%v: 30 fit after %v", shape, wait)
		}
		if ok, _ := l.Fits(at, 30); !ok {
			t.Errorf("%v: at the time that was told they do not fit", shape)
		}
	}
}

// What somebody else has used while the store is down is nothing that the replica
// reports afterwards, or goes on with in the next outage.
func TestWhatOthersHaveUsedDuringAnOutageIsNotTheReplicas(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		d := newDesk(t, share.Central, minute(1000))
		out := func() {
			t.Helper()
			for end := d.now.Add(time.Minute); !d.lessee.Local(); {
				if d.now.After(end) {
					t.Fatal("the replica waits for its store for ever")
				}
				if r := d.asked(); r != nil {
					d.lessee.Failed(d.after(time.Second).now, *r)
				} else {
					d.after(max(d.due(), time.Millisecond))
				}
			}
		}
		d.waits(100).exchange()
		d.limiter().Settle(d.now, d.take(100), 100)
		d.waits(0).after(time.Second).exchange()
		out()
		d.after(70 * time.Second)
		if got := d.limiter().Level(d.now); got != 800 {
			t.Fatalf("it goes on with %d, want 800", got)
		}
		d.limiter().Settle(d.now, d.take(50), 50)
		if d.limiter().Lower(d.now, 200, time.Minute); d.limiter().Level(d.now) != 200 {
			t.Errorf("200 are said to be left, and it goes on with %d", d.limiter().Level(d.now))
		}
		if lost {
			c, err := share.NewCoordinator(share.CoordinatorConfig{Dims: d.dims, Epoch: 2, Learn: true})
			if err != nil {
				t.Fatal(err)
			}
			d.c = c
		}
		told := int64(0)
		for until := d.now.Add(15 * time.Second); d.now.Before(until); d.after(time.Second) {
			// A request that is stale is told again.
			if r := d.asked(); r != nil {
				reply := d.c.Do(d.now, *r)
				for _, s := range r.Dims[0].Spent {
					if !reply.Stale {
						told += s.Amount
					}
				}
				d.lessee.Reply(d.now, *r, reply)
			}
		}
		if d.lessee.Local() || told != 50 {
			t.Errorf("lost %v, back %v: it tells of %d, want the 50 that it has spent", lost, !d.lessee.Local(), told)
		}
		out()
		if got := d.limiter().Level(d.now); got != 0 {
			t.Errorf("lost %v: it goes on with %d at once, want nothing: it has used its 50", lost, got)
		}
		d.after(50 * time.Second) // all that it used within a window before is forgotten
		if got := d.limiter().Level(d.now); got != 50 {
			t.Errorf("lost %v: it goes on with %d, want the 50 that it had used itself", lost, got)
		}
	}
}

// What the provider said before an outage of the store is taken in afterwards for what it
// still means then.
func TestWhatTheProviderSaidLongAgoIsNotNews(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shape  share.Shape
		reset  time.Duration
		passed time.Duration
		want   float64
	}{
		{share.Window, 40 * time.Second, 30 * time.Second, 100},
		{share.Window, 40 * time.Second, 41 * time.Second, 600},
		{share.Window, 0, 50 * time.Second, 100},
		{share.Window, 0, 61 * time.Second, 600},
		{share.Bucket, 0, 30 * time.Second, 400},
		{share.Bucket, 0, 61 * time.Second, 600},
	} {
		for _, asked := range []bool{false, true} { // after a request that was lost, and before
			d := newDesk(t, share.Central, share.Dim{Shape: c.shape, Limit: 600})
			var r *share.Request
			if !asked {
				d.waits(1)
				r = d.asked()
			}
			if d.limiter().Lower(d.now, 100, c.reset); asked {
				r = d.after(share.DefaultIdle).asked()
			}
			if r == nil {
				t.Fatal("no request is due")
			}
			d.after(c.passed - 10*time.Second)
			d.lessee.Failed(d.now, *r)
			d.waits(0).after(10 * time.Second)
			for range 3 {
				d.exchange()
				d.after(time.Millisecond)
			}
			got := d.c.Books(d.now)[0].Level
			if got < c.want-1 || got > c.want+12 { // a bucket has refilled meanwhile
				t.Errorf("%v, reset after %v: %v later the level is %v, want %v", c.shape, c.reset, c.passed, got, c.want)
			}
		}
	}
}
