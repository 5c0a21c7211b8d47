package route

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// homes are the routes of keys, by rendezvous hashing over names and weights.
func homes(keys int, spots []spot) (all []string) {
	tab := tableOf(Config{Patience: DefaultPatience}, spots)
	for k := range keys {
		name, _ := ask(tab, spots, question{here: -1, sticky: true, key: hash(fmt.Sprint("session ", k))}, never)
		all = append(all, name)
	}
	return all
}

// When a route goes, its keys move and no others; when one comes, keys move to it
// and nowhere else.
func TestRoutesThatComeAndGoMoveOnlyTheirOwnKeys(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(rt, "routes")
		var spots []spot
		for i := range n {
			spots = append(spots, spot{name: fmt.Sprint("region ", i), weight: float64(rapid.IntRange(1, 5).Draw(rt, "weight"))})
		}
		gone := rapid.IntRange(0, n-1).Draw(rt, "gone")
		before := homes(200, spots)
		after := homes(200, append(append([]spot(nil), spots[:gone]...), spots[gone+1:]...))
		for k := range before {
			if before[k] != spots[gone].name && after[k] != before[k] {
				rt.Fatalf("key %d moved from %q to %q when %q went", k, before[k], after[k], spots[gone].name)
			}
		}
	})
}

func TestKeysAreSpreadByWeight(t *testing.T) {
	t.Parallel()
	spots := []spot{{name: "a", weight: 1}, {name: "b", weight: 2}, {name: "c", weight: 5}}
	const keys = 20_000
	got := map[string]int{}
	for _, name := range homes(keys, spots) {
		got[name]++
	}
	for _, s := range spots {
		// Five standard deviations of a binomial distribution.
		p := s.weight / 8
		if want, d := keys*p, 5*math.Sqrt(keys*p*(1-p)); math.Abs(float64(got[s.name])-want) > d {
			t.Errorf("%q of weight %v has %d keys of %d, want %.0f ± %.0f", s.name, s.weight, got[s.name], keys, want, d)
		}
	}
}

// Replicas, and the program of tomorrow, must agree on where a key belongs.
func TestWhereAKeyBelongsIsTheSameInEveryProcess(t *testing.T) {
	t.Parallel()
	spots := []spot{{name: "europe-west1"}, {name: "us-central1"}, {name: "asia-east1"}}
	want := []string{"asia-east1", "europe-west1", "us-central1", "us-central1", "asia-east1", "us-central1", "europe-west1", "asia-east1"} // by another implementation
	if got := homes(8, spots); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("keys belong to %q, want %q as ever", got, want)
	}
}
