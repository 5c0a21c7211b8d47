package share_test

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/share"
)

// again begins another life of the replica, whose clock says epoch.
func (d *desk) again(epoch int64) *desk {
	d.be(share.LesseeConfig{Dims: d.dims, Mode: share.Central, Replica: "a", Epoch: epoch})
	return d
}

// A replica that comes back on a host whose clock is behind is younger than its former
// life all the same. What that had counts until its lease ends.
func TestAReplicaThatComesBackUnderAnOlderClockTakesItsPlace(t *testing.T) {
	t.Parallel()
	const ahead = 1 << 50
	for _, c := range []struct {
		name   string
		before func(d *desk)
		level  int64
	}{
		{name: "after a crash", before: func(d *desk) { d.waits(30).exchange() }, level: 70},
		{name: "after it has left", before: func(d *desk) {
			d.waits(0).lessee.Leave()
			d.exchange()
		}, level: 100},
		{name: "after two lives, the older of which was ahead of it, too", before: func(d *desk) {
			d.waits(30).exchange()
			d.waits(0).again(ahead + 1<<30).exchange()
		}, level: 70},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dims := []share.Dim{minute(100)}
			d := &desk{table: newTable(t, share.CoordinatorConfig{Dims: dims})}
			d.again(ahead).exchange()
			c.before(d)

			d.again(ahead / 2).waits(c.level).exchange()
			if d.lessee.Fenced() || d.due() != 0 {
				t.Fatalf("fenced %v, asks again in %v; want at once, under another epoch", d.lessee.Fenced(), d.due())
			}
			r := d.exchange()
			if got := d.limiter().Level(d.now); got != c.level || r.Epoch <= ahead {
				t.Errorf("under the epoch %d it was granted %d, want %d, under one above %d", r.Epoch, got, c.level, ahead)
			}
			if b := d.c.Books(d.now)[0]; b.Outstanding != 100 {
				t.Errorf("%d are outstanding, want those of both lives, 100", b.Outstanding)
			}
			d.after(share.DefaultTTL / 2).exchange() // it stays
			if d.lessee.Fenced() {
				t.Error("it is fenced later on")
			}
		})
	}
}

// What a replica has used alone, before the store answered it for the first time, it tells
// though that answer is that it was taken for an older life.
func TestWhatWasUsedBeforeTheFirstAnswerIsTold(t *testing.T) {
	t.Parallel()
	dims := []share.Dim{minute(100)}
	d := &desk{table: newTable(t, share.CoordinatorConfig{Dims: dims, Replicas: 2})}
	d.again(1 << 50).exchange()

	d.be(share.LesseeConfig{Dims: dims, Replica: "a", Replicas: 2})
	r := d.waits(10).asked() // the store is down
	if d.lessee.Failed(d.now, *r); !d.lessee.Local() {
		t.Fatal("it does not go by its part")
	}
	d.after(70*time.Second).limiter().Settle(d.now, d.take(10), 10)
	for range 3 {
		d.exchange()
	}
	if b := d.c.Books(d.now)[0]; d.lessee.Local() || b.Level != 90 {
		t.Errorf("on its own: %v; the level is %v, want 90: 10 were used", d.lessee.Local(), b.Level)
	}
}

// Two that live at the same time under one name do not fence each other in turns: who comes
// last stays, and each takes a larger epoch once at most.
func TestTwoOfOneNameDoNotTakeTurns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		steps string // which of the two exchanges; capital letters: and the answer is lost
		stays byte
	}{
		{"the second one's clock is behind", "a bb ab ab ab", 'b'},
		{"the first one's clock is behind", "b a ba ba ba", 'a'},
		{"the first one has no answer before the second one comes", "A bb aa bb ab ab", 'a'},
		{"neither has an answer before the other one comes", "A bB aa bb ab ab", 'a'},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dims := []share.Dim{minute(100)}
			d := &desk{table: newTable(t, share.CoordinatorConfig{Dims: dims})}
			a := d.again(2_000).lessee
			b := d.again(1_000).lessee
			epochs := map[byte]map[int64]bool{'a': {}, 'b': {}}
			for _, step := range c.steps {
				if step == ' ' {
					d.after(2 * share.DefaultTTL) // until both tell of themselves
					continue
				}
				who := byte(step) | 0x20
				if d.lessee = a; who == 'b' {
					d.lessee = b
				}
				d.waits(10)
				r := d.asked()
				if r == nil {
					continue
				}
				epochs[who][r.Epoch] = true
				reply := d.c.Do(d.now, *r)
				if byte(step) == who {
					d.lessee.Reply(d.now, *r, reply)
				} else {
					d.lessee.Failed(d.now, *r)
				}
			}
			if a.Fenced() != (c.stays == 'b') || b.Fenced() != (c.stays == 'a') {
				t.Errorf("a is fenced: %v, b is fenced: %v; want %c alone to stay", a.Fenced(), b.Fenced(), c.stays)
			}
			for who, list := range epochs {
				if len(list) > 2 {
					t.Errorf("%c has gone by %d epochs, want 2 at most", who, len(list))
				}
			}
		})
	}
}

// Who stops does not take the place of anybody.
func TestWhoLeavesBeforeItsFirstAnswerTakesNobodysPlace(t *testing.T) {
	t.Parallel()
	dims := []share.Dim{minute(100)}
	d := &desk{table: newTable(t, share.CoordinatorConfig{Dims: dims})}
	first := d.again(2_000).lessee
	d.exchange()
	d.again(1_000).waits(0).lessee.Leave()
	for range 3 {
		d.exchange()
	}
	left := d.lessee
	d.lessee = first
	d.waits(10).after(share.DefaultTTL / 2).exchange()
	if first.Fenced() || !left.Fenced() {
		t.Errorf("who was there is fenced: %v, who has left: %v", first.Fenced(), left.Fenced())
	}
}
