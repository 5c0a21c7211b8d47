package share_test

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/share"
)

// Silence is of a coordinator that does not answer: not of one that refuses, and not for
// what is at hand, nor for slots that may come back within the lease.
func TestSilenceIsOfACoordinatorThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	dims := []share.Dim{minute(100), {Shape: share.Slots, Limit: 1}}
	d := &desk{table: newTable(t, share.CoordinatorConfig{Dims: dims})}
	d.be(share.LesseeConfig{Dims: dims, Mode: share.Central, Replica: "a", Fallback: -1})
	d.exchange()
	slots := d.lessee.Slots()
	is := func(when string, units, ofSlots time.Duration) {
		t.Helper()
		if got := d.limiter().Silence(d.now, 50); got != units {
			t.Errorf("%s: a silence of %v for 50 units, want %v", when, got, units)
		}
		if got := slots.Silence(d.now, 1); got != ofSlots {
			t.Errorf("%s: a silence of %v for a slot, want %v", when, got, ofSlots)
		}
	}
	is("while nobody has asked", 0, 0)
	d.waits(80).exchange()
	d.take(80)
	slots.Use(d.now, 1)
	d.waits(50).exchange()
	if d.limiter().Forecast(d.now, 50) == 0 {
		t.Fatal("nothing was refused: this test proves nothing")
	}
	is("refused", 0, 0)

	r := d.after(share.DefaultTTL / 2).asked()
	if r == nil {
		t.Fatal("it does not ask")
	}
	is("on its way", 0, 0)
	d.lessee.Failed(d.after(time.Second).now, *r)
	is("a second without an answer", time.Second, 0) // the slot may come back
	if got := d.limiter().Silence(d.now, 0); got != 0 {
		t.Errorf("a silence of %v for nothing", got)
	}
	d.after(share.DefaultTTL)
	is("after the lease", 6*time.Second, 6*time.Second)
	r = d.asked()
	d.lessee.Reply(d.now, *r, d.c.Do(d.now, *r))
	is("answered", 0, 0)
}
