package share_test

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/share"
)

// A replica that has no store is told how many there are. What those used that are gone, a
// window still remembers.
func TestAReplicaWithoutAStoreIsToldHowManyThereAre(t *testing.T) {
	t.Parallel()
	dims := []share.Dim{{Shape: share.Bucket, Limit: 600}, minute(600), {Shape: share.Slots, Limit: 12}}
	d := &desk{table: newTable(t, share.CoordinatorConfig{Dims: dims})}
	d.be(share.LesseeConfig{Dims: dims, Mode: share.Static, Replica: "a", Replicas: 3, Alone: true})
	bucket, window, slots := d.limiter(), d.lessee.Limiter(1), d.lessee.Slots()
	has := func(when string, inBucket, inWindow, inSlots int64) {
		t.Helper()
		if b, w := bucket.Level(d.now), window.Level(d.now); b != inBucket || w != inWindow {
			t.Errorf("%s there are %d and %d, want %d and %d", when, b, w, inBucket, inWindow)
		}
		if slots.Use(d.now, 1); !slots.Fits(d.now, inSlots-1) || slots.Fits(d.now, inSlots) {
			t.Errorf("%s there are not %d slots", when, inSlots)
		}
		slots.Use(d.now, -1)
	}
	has("of three", 200, 200, 4)
	window.Settle(d.now, window.Take(d.now, 150), 150)
	d.after(time.Second)

	d.lessee.SetReplicas(d.now, 4)
	has("of four", 150, 0, 3)
	d.lessee.SetReplicas(d.now, 2)
	if d.lessee.Replicas() != 2 {
		t.Errorf("it knows of %d replicas, want 2", d.lessee.Replicas())
	}
	has("of two, at once", 150, 0, 6)
	ok, at := window.Fits(d.now, 150)
	if wait := at.Sub(d.now); ok || wait < 59*time.Second || wait > 61*time.Second {
		t.Errorf("150 fit after %v, want when its own 150 are forgotten", wait)
	}
	ok, at = window.Fits(d.now, 151)
	if wait := at.Sub(d.now); ok || wait != 61*time.Second {
		t.Errorf("151 fit after %v, want when a window has forgotten what others used", wait)
	}
	if ok, _ = window.Fits(d.after(at.Sub(d.now)).now, 151); !ok {
		t.Error("at the time that was told they do not fit")
	}
	has("of two", 300, 300, 6)
	// What the replica uses itself meanwhile does not put that off.
	d.lessee.SetReplicas(d.now, 4)
	d.lessee.SetReplicas(d.now, 3)
	window.Settle(d.after(50*time.Second).now, window.Take(d.now, 150), 150)
	ok, at = window.Fits(d.now, 50)
	if wait := at.Sub(d.now); ok || wait != 11*time.Second {
		t.Errorf("50 fit after %v, want when a window has forgotten what others used", wait)
	}
	if ok, _ = window.Fits(d.after(at.Sub(d.now)).now, 50); !ok {
		t.Error("at the time that was told they do not fit")
	}
	d.after(time.Minute).lessee.SetReplicas(d.now, 2)
	d.after(time.Minute + time.Second)
	d.lessee.SetReplicas(d.now, 0)
	has("of none, which there cannot be,", 300, 300, 6)
}

func TestAReplicaThatHasAStoreIsToldByThatHowManyThereAre(t *testing.T) {
	t.Parallel()
	d := newDesk(t, share.Static, minute(600))
	d.after(share.DefaultTTL / 2).exchange()
	had := d.limiter().Level(d.now)
	if d.lessee.SetReplicas(d.now, 3); d.lessee.Replicas() != 1 || d.limiter().Level(d.now) != had {
		t.Errorf("it goes by %d replicas, with %d of %d", d.lessee.Replicas(), d.limiter().Level(d.now), had)
	}
}
