package fleet

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestEventsHappenInOrderOfTimeAndThoseOfOneInstantInTheOrderInWhichTheyWereMade(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var want []event // that are in it
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "step") > 0 {
				at := rapid.Int64Range(0, 20).Draw(t, "at")
				q.push(at, arrives, 1, at)
				want = append(want, event{at: at, seq: q.seq, who: 1, nth: at})
				continue
			}
			e, ok := q.pop()
			if ok != (len(want) > 0) {
				t.Fatalf("pop says %v with %d events", ok, len(want))
			}
			if !ok {
				continue
			}
			slices.SortFunc(want, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
			if e != want[0] {
				t.Fatalf("popped %+v, want %+v", e, want[0])
			}
			want = want[1:]
		}
	})
}
