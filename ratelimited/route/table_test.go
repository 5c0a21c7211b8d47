package route

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// spot is a route of a table test.
type spot struct {
	name   string
	tier   int
	weight float64
	wait   time.Duration
}

func tableOf(cfg Config, spots []spot) *table {
	t := newTable(&cfg)
	for _, s := range spots {
		if s.weight == 0 {
			s.weight = 1
		}
		t.lanes = append(t.lanes, lane{hash: hash(s.name), tier: s.tier, weight: s.weight})
	}
	return t
}

// ask is the name of the route that is chosen, and the wait; "" is none.
func ask(t *table, spots []spot, q question, bound time.Duration) (string, time.Duration) {
	var r ranking
	t.rank(0, &q, &r)
	i, wait := t.choose(&r, &q, func(i int) time.Duration { return spots[i].wait }, func(int) time.Duration { return bound })
	if i < 0 {
		return "", wait
	}
	return spots[i].name, wait
}

func TestTheShortestWaitOfTheLowestTierThatIsShortEnough(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, c := range []struct {
		name  string
		spill time.Duration
		bound time.Duration
		spots []spot
		want  string
	}{
		{"the shortest", 0, never, []spot{{"a", 0, 1, 3 * s}, {"b", 0, 1, 2 * s}, {"c", 0, 1, 4 * s}}, "b"},
		{"no wait in the first tier", 0, never, []spot{{"a", 0, 1, 1 * s}, {"b", 0, 1, 0}, {"c", 1, 1, 0}}, "b"},
		{"any wait goes on to the next tier", 0, never, []spot{{"a", 0, 1, 1}, {"b", 1, 1, 0}}, "b"},
		{"a wait that is borne", 5 * s, never, []spot{{"a", 0, 1, 5 * s}, {"b", 1, 1, 0}}, "a"},
		{"a wait that is not borne", 5 * s, never, []spot{{"a", 0, 1, 5*s + 1}, {"b", 1, 1, 4 * s}}, "b"},
		{"the shorter of two of a tier is borne", 5 * s, never, []spot{{"a", 0, 1, 9 * s}, {"b", 0, 1, 4 * s}, {"c", 1, 1, 0}}, "b"},
		{"the call may not wait as long as it would be borne", 5 * s, 2 * s, []spot{{"a", 0, 1, 3 * s}, {"b", 1, 1, 0}}, "b"},
		{"all tiers busy: the shortest of all", 1 * s, never, []spot{{"a", 0, 1, 7 * s}, {"b", 1, 1, 9 * s}, {"c", 2, 1, 8 * s}}, "a"},
		{"as long in a later tier", 1 * s, never, []spot{{"a", 0, 1, 7 * s}, {"b", 1, 1, 7 * s}}, "a"},
		{"the second of three tiers", 5 * s, never, []spot{{"a", 0, 1, 7 * s}, {"b", 1, 1, 4 * s}, {"c", 2, 1, 0}}, "b"},
		{"one that never admits it", 5 * s, never, []spot{{"a", 0, 1, never}, {"b", 1, 1, 50 * s}}, "b"},
		{"none that admits it: its gate shall say so", 0, never, []spot{{"a", 0, 1, never}, {"b", 1, 1, never}}, "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tab := tableOf(Config{Spill: c.spill}, c.spots)
			if got, _ := ask(tab, c.spots, question{here: -1}, c.bound); got != c.want {
				t.Errorf("chose %q, want %q", got, c.want)
			}
		})
	}
}

func TestACallStaysWhereNothingIsShorter(t *testing.T) {
	t.Parallel()
	const s = time.Second
	spots := []spot{{"here", 0, 1, 60 * s}, {"there", 0, 1, 3 * s}, {"small", 1, 1, 0}}
	for _, c := range []struct {
		stay time.Duration
		want string
	}{{2 * s, "here"}, {4 * s, "there"}, {30 * s, "there"}} {
		tab := tableOf(Config{Spill: 10 * s}, spots)
		// What the route would have others wait is nothing to one that keeps its place.
		if got, _ := ask(tab, spots, question{here: 0, stay: c.stay, barred: set(0).with(0)}, never); got != c.want {
			t.Errorf("with %v to wait here it chose %q, want %q", c.stay, got, c.want)
		}
	}
}

// While nobody has to wait, routes have calls in proportion to their weights, in
// every run of calls as exactly as whole calls allow.
func TestWeightsDivideCallsThatNeedNotWait(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(1, 9), 2, 6).Draw(rt, "weights")
		var spots []spot
		total := 0.0
		for i, w := range weights {
			spots = append(spots, spot{name: fmt.Sprint(i), weight: float64(w)})
			total += float64(w)
		}
		tab := tableOf(Config{}, spots)
		got := make([]float64, len(spots))
		for n := 1; n <= 300; n++ {
			var r ranking
			q := question{here: -1}
			tab.rank(0, &q, &r)
			i, _ := tab.choose(&r, &q, func(int) time.Duration { return 0 }, func(int) time.Duration { return never })
			tab.take(0, i, false)
			got[i]++
			for j, w := range weights {
				if want := float64(n) * float64(w) / total; math.Abs(got[j]-want) > float64(len(weights)) {
					rt.Fatalf("after %d calls route %d of weight %d of %v had %v, want about %.1f", n, j, w, total, got[j], want)
				}
			}
		}
	})
}

// A route that had no calls for a while, because they had to wait there, does not
// get all that it has missed at once.
func TestARouteDoesNotMakeUpForBusyTimes(t *testing.T) {
	t.Parallel()
	spots := []spot{{name: "a", wait: time.Second}, {name: "b"}}
	tab := tableOf(Config{}, spots)
	take := func() string {
		name, _ := ask(tab, spots, question{here: -1}, never)
		tab.take(0, map[string]int{"a": 0, "b": 1}[name], false)
		return name
	}
	for range 100 {
		if take() != "b" {
			t.Fatal("a call was to wait")
		}
	}
	spots[0].wait = 0
	got := map[string]int{}
	for range 20 {
		got[take()]++
	}
	if got["a"] > 11 {
		t.Errorf("of 20 calls after its busy time it got %d, want its half", got["a"])
	}
}

// A call with a key takes its own route though it has to wait there a while, and
// otherwise the next one of its own; routes that are not its own share it out.
func TestAKeyIsWorthAWaitButNotEveryWait(t *testing.T) {
	t.Parallel()
	spots := []spot{{name: "a"}, {name: "b"}, {name: "c"}, {name: "d", tier: 1}}
	key := question{here: -1, key: hash("session 7"), sticky: true}
	tab := tableOf(Config{Patience: 5 * time.Second}, spots)
	own, _ := ask(tab, spots, key, never)
	at := map[string]int{"a": 0, "b": 1, "c": 2}[own]
	if own == "d" {
		t.Fatal("a key belongs to a route of the lowest tier")
	}
	for _, c := range []struct {
		wait, bound time.Duration
		own         bool
	}{{0, never, true}, {5 * time.Second, never, true}, {5*time.Second + 1, never, false}, {3 * time.Second, 2 * time.Second, false}} {
		spots[at].wait = c.wait
		if got, _ := ask(tab, spots, key, c.bound); (got == own) != c.own {
			t.Errorf("with a wait of %v at its own route, of %v that it may wait, it went to %q (own %q)", c.wait, c.bound, got, own)
		}
	}
	second, _ := ask(tab, spots, key, never)
	for range 10 {
		tab.take(0, map[string]int{"a": 0, "b": 1, "c": 2}[second], false)
		if got, _ := ask(tab, spots, key, never); got != second {
			t.Fatalf("its second route was %q and is %q", second, got)
		}
	}
}

func TestOnlyOneOfTwoCallsTriesARoute(t *testing.T) {
	t.Parallel()
	spots := []spot{{name: "a"}}
	tab := tableOf(Config{}, spots)
	tab.hit(0, 0, 0, exhausted, 0)
	if name, _ := ask(tab, spots, question{here: -1}, never); name != "" {
		t.Fatal("it is left out")
	}
	until := tab.lanes[0].until
	if _, _, out, ok := tab.take(until, 0, false); !ok || !out {
		t.Fatal("the first may try it")
	}
	if _, _, _, ok := tab.take(until, 0, false); ok {
		t.Error("so may the second")
	}
	if _, _, _, ok := tab.take(until, 0, true); !ok {
		t.Error("where every route is left out calls are sent all the same")
	}
}

// Calls in line are told of a route that is left out or back, and of hints once a
// second.
func TestCallsInLineAreToldOfChanges(t *testing.T) {
	t.Parallel()
	tab := tableOf(Config{}, []spot{{name: "a"}})
	changed := tab.watch()
	told := func() bool {
		select {
		case <-changed:
			changed = tab.watch()
			return true
		default:
			return false
		}
	}
	for _, c := range []struct {
		what string
		do   func()
		want bool
	}{
		{"a failure", func() { tab.hit(0, 0, 0, failed, 0) }, false},
		{"a short hint", func() { tab.hit(0, 0, 0, failed, time.Second/2) }, false},
		{"a hint", func() { tab.hit(1, 1, 0, refused, time.Second) }, true},
		{"a hint at once after it", func() { tab.hit(second(1), second(1), 0, refused, time.Second) }, false},
		{"left out", func() { tab.hit(second(1)+2, second(1), 0, failed, 0) }, true},
		{"a failure while it is out", func() { tab.hit(second(1)+3, second(1), 0, failed, 0) }, false},
		{"back", func() { tab.served(0, second(2)) }, true},
		{"served again", func() { tab.served(0, second(3)) }, false},
	} {
		if c.do(); told() != c.want {
			t.Errorf("%s: told is %v, want %v", c.what, !c.want, c.want)
		}
	}
}
