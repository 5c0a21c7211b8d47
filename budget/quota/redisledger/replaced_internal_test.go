package redisledger

import (
	"testing"
	"time"
)

// Of two who ask at a time, the one that asked first may be answered last, by a master that is
// none any more.
func TestAnAnswerThatIsOvertakenReplacesNobody(t *testing.T) {
	t.Parallel()
	now := time.Now()
	asked := func(after time.Duration, ids ...string) *look {
		k := &look{begun: now.Add(after), ids: map[string]bool{}}
		for _, id := range ids {
			k.ids[id] = true
		}
		return k
	}
	var m masterIDs
	for i, c := range []struct {
		look  *look
		since time.Duration // what is told; 0 is nothing
	}{
		{asked(time.Second, "a", "b"), 0},
		{asked(4*time.Second, "a", "b"), 0},
		{asked(6*time.Second, "a", "c"), 4 * time.Second},
		{asked(5*time.Second, "a", "b"), 0},
		{asked(7*time.Second, "c", "a"), 0},
		{asked(8*time.Second, "a"), 0},                    // a Cluster that has become smaller has lost nothing
		{asked(9*time.Second, "a", "c"), 8 * time.Second}, // it was away
	} {
		since, replaced := m.saw(c.look)
		if replaced != (c.since != 0) || replaced && since.Sub(now) != c.since {
			t.Errorf("look %d: replaced %v, since %v, want %v", i, replaced, since.Sub(now), c.since)
		}
	}
}
