package fleet

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// exact is a fleet whose times and sizes do not vary: a call uses 100 tokens, takes 20
// ms to the provider and back, 600 ms to its first item and 3 s after that.
func exact(replicas int, m Mode, load float64) Config {
	return Config{
		Replicas: replicas, Users: 4 * replicas, Mode: m, Shape: Steady, Rate: 4, Load: load, Length: 90 * time.Second, Seed: 3,
		Tokens: 100, First: Spread{Median: 600 * time.Millisecond}, Rest: Spread{Median: 3 * time.Second},
		ToStore: Spread{Median: time.Millisecond}, ToProvider: Spread{Median: 20 * time.Millisecond},
	}
}

// counted is how many calls of a replica, or of all if it is below 0, the provider has let
// in before an instant.
func counted(l *Log, replica int32, before time.Duration) (n int64) {
	for _, r := range l.Calls {
		if r.Counted >= 0 && r.Counted < before && (replica < 0 || r.Replica == replica) {
			n++
		}
	}
	return n
}

func TestCallsThatNobodyHoldsUpTakeTheTimeOfTheNetworkAndOfTheModel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode Mode
		wait time.Duration
	}{{Alone, 0}, {Static, 0}, {Central, 2 * time.Millisecond}} { // to the store and back
		l := play(t, exact(1, c.mode, 0.1))
		looked := 0
		for i, r := range l.Calls {
			if r.Outcome != Served {
				continue
			}
			switch wait := r.Started - r.Asked; {
			case wait == c.wait:
				looked++
			case c.wait == 0 || wait < c.wait || wait > 2*c.wait: // another request may be under way
				t.Errorf("%v: call %d waits %v, want %v", c.mode, i, wait, c.wait)
			}
			if r.Counted != r.Started+20*time.Millisecond || r.Ended != r.Counted+3620*time.Millisecond {
				t.Errorf("%v: a call is counted after %v and has ended after %v", c.mode, r.Counted-r.Started, r.Ended-r.Started)
			}
		}
		if looked < 250 {
			t.Errorf("%v: only %d calls wait %v", c.mode, looked, c.wait)
		}
	}
}

func TestInItsFirstWindowAFleetUsesExactlyTheQuota(t *testing.T) {
	t.Parallel()
	const quota = 2 * 4 * 60 / 2 // calls a minute: 4 a second come to each of 2 replicas, twice the quota
	for _, w := range []engine.WindowModel{engine.Sliding, engine.Fixed} {
		for _, c := range []struct {
			mode     Mode
			all      int64 // let in within the first minute
			each     int64 // by each replica; 0 is not known
			refusals bool
		}{
			{Central, quota, 0, false},
			{Leased, quota, 0, false},
			{Static, quota, quota / 2, false},
			{Alone, quota, 0, true},
		} {
			t.Run(fmt.Sprintf("%v/%v", w, c.mode), func(t *testing.T) {
				t.Parallel()
				cfg := exact(2, c.mode, 2)
				cfg.Window = w
				l := play(t, cfg)
				if tokens := l.Config.TokensPerMinute(); tokens != 100*quota {
					t.Fatalf("the quota is %d tokens", tokens)
				}
				if n := counted(l, -1, time.Minute); n != c.all {
					t.Errorf("%d calls were let in within the first minute, want %d", n, c.all)
				}
				for r := range int32(2) {
					if n := counted(l, r, time.Minute); c.each > 0 && n != c.each {
						t.Errorf("replica %d: %d calls were let in within the first minute, want %d", r, n, c.each)
					}
				}
				m := Measure(l)
				if (m.Throttled > 0) != c.refusals || (m.MaxUse > 1) != c.refusals {
					t.Errorf("%v of the attempts were refused, and the largest use is %v", m.Throttled, m.MaxUse)
				}
				if !c.refusals && m.MaxUse != 1 {
					t.Errorf("the largest use is %v, want 1", m.MaxUse)
				}
			})
		}
	}
}

func TestAReplicaThatDiesTakesItsCallsWithItAndLeavesItsUsersToTheOthers(t *testing.T) {
	t.Parallel()
	cfg := exact(3, Leased, 0.3)
	cfg.Changes = []Change{{At: 30 * time.Second, Kill: 1}, {At: 60 * time.Second, Join: 1}}
	l := play(t, cfg)
	lost := 0
	for i, r := range l.Calls {
		away := r.Asked >= 30*time.Second && r.Asked < 60*time.Second
		home := int32(l.Config.homeOf(r.User))
		switch {
		case r.Outcome == Lost:
			lost++
			if home != 0 || r.Asked >= 30*time.Second || r.Ended != 30*time.Second {
				t.Errorf("call %d of home %d was lost: asked for at %v, ended at %v", i, home, r.Asked, r.Ended)
			}
		case !away && r.Replica != home:
			t.Errorf("call %d of home %d came to replica %d at %v", i, home, r.Replica, r.Asked)
		case away && (r.Replica == 0 || home > 0 && r.Replica != home):
			t.Errorf("call %d of home %d came to replica %d at %v", i, home, r.Replica, r.Asked)
		}
	}
	// Those that were sent or made in the 3.64 s before: 14.6 at 4 a second.
	if lost < 5 || lost > 25 {
		t.Errorf("%d calls were lost", lost)
	}
}

func TestReplicasThatJoinLaterAreNotThereAtTheStart(t *testing.T) {
	t.Parallel()
	cfg := exact(3, Leased, 0.3)
	cfg.Changes = []Change{{At: 20 * time.Second, Kill: 1}, {At: 40 * time.Second, Join: 2}}
	for i, r := range play(t, cfg).Calls {
		if r.Replica == 2 && r.Asked < 40*time.Second || r.Replica == 0 && r.Asked >= 20*time.Second && r.Asked < 40*time.Second {
			t.Errorf("call %d came to replica %d at %v", i, r.Replica, r.Asked)
		}
	}
}

func TestReplicasGoOnWithoutTheStoreAndAskForNoMoreThanTheQuota(t *testing.T) {
	t.Parallel()
	cfg := exact(4, Leased, 0.4)
	cfg.Length, cfg.DownFrom, cfg.DownTo = 3*time.Minute, 90*time.Second, 2*time.Minute
	l := play(t, cfg)
	for s, n := range l.Trips {
		if down := s >= 90 && s < 120; down && n > 0 {
			t.Errorf("%d requests were taken in in second %d", n, s)
		}
	}
	m := Measure(l)
	if m.Throttled > 0 || m.MaxUse > 1 {
		t.Errorf("%v of the attempts were refused, and the largest use is %v", m.Throttled, m.MaxUse)
	}
	// Leases end after 5 s. From then on each replica goes on with what it has used in the
	// minute before: as much as comes, so that what has piled up until then stays.
	started := make(map[[2]int]int)
	for _, r := range l.Calls {
		started[[2]int{int(r.Replica), int(r.Started / (5 * time.Second))}]++
	}
	for replica := range 4 {
		for slice := 19; slice < 24; slice++ { // from 95 s to 120 s
			if n := started[[2]int{replica, slice}]; n < 5 {
				t.Errorf("replica %d starts %d calls in the 5 s from %d s on, of about 20", replica, n, 5*slice)
			}
		}
	}
	if m.Waiting > 0 || m.WaitP99 > 20 {
		t.Errorf("%d calls wait at the end, and 1 in 100 has waited for %v s", m.Waiting, m.WaitP99)
	}
}

// A store that goes down during bursts finds replicas with a part of what their calls need.
func TestBurstsDoNotEndWithTheStore(t *testing.T) {
	t.Parallel()
	for _, m := range []Mode{Leased, Central, Static} {
		cfg := Config{
			Replicas: 8, Mode: m, Load: 0.4, Seed: 1, Length: 6 * time.Minute, DownFrom: 3 * time.Minute, DownTo: 5 * time.Minute,
		}
		l := play(t, cfg)
		started := 0
		for i := range l.Calls {
			if at := l.Calls[i].Started; at >= 200*time.Second && at < 300*time.Second {
				started++
			}
		}
		if r := Measure(l); r.Throttled > 0 || r.MaxUse > 1 || started < 1200 {
			t.Errorf("%v: %v of the attempts were refused, the largest use is %v, and %d calls were sent while the store was down", m, r.Throttled, r.MaxUse, started)
		}
	}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	ok := Config{Replicas: 2}
	if _, err := ok.WithDefaults(); err != nil {
		t.Fatal(err)
	}
	for field, c := range map[string]Config{
		"Replicas":   {},
		"Users":      {Replicas: 2, Users: 1},
		"Mode":       {Replicas: 2, Mode: 9},
		"Shape":      {Replicas: 2, Shape: 9},
		"Rate":       {Replicas: 2, Rate: -1},
		"Load":       {Replicas: 2, Load: -1},
		"Window":     {Replicas: 2, Window: engine.Daily},
		"Length":     {Replicas: 2, Length: -1},
		"Tokens":     {Replicas: 2, Tokens: 0.5},
		"On":         {Replicas: 2, On: 1},
		"Slots":      {Replicas: 2, Slots: -1},
		"MaxWait":    {Replicas: 2, MaxWait: -1},
		"First":      {Replicas: 2, First: Spread{Median: -1}},
		"Error":      {Replicas: 2, Error: 4},
		"Changes[1]": {Replicas: 2, Changes: []Change{{At: 2}, {At: 1}}},
		"Changes[0]": {Replicas: 2, Changes: []Change{{At: 1, Kill: 2}}},
		"Changes:":   {Replicas: 2, Changes: []Change{{At: 1, Join: 2}}},

		"Changes[0].Kill is 10, but 8 replicas live then":               {Replicas: 8, Changes: []Change{{Kill: 10, Join: 10}}},
		"Changes[1].Kill is 3, but 2 replicas live then":                {Replicas: 4, Changes: []Change{{At: 1, Kill: 2}, {At: 2, Kill: 3, Join: 3}}},
		"Changes[0].Kill is -1":                                         {Replicas: 2, Changes: []Change{{Kill: -1}}},
		"Changes[0].Kill is 9223372036854775807, must be at most 10000": {Replicas: 2, Changes: []Change{{Kill: math.MaxInt}}},
		"Changes[1].Join is 9223372036854775807":                        {Replicas: 2, Changes: []Change{{Join: 1}, {Join: math.MaxInt}}},
		"DownTo is 40m0s, must be from DownFrom (30m0s) to Length (1m0": {Replicas: 2, Length: time.Minute, DownFrom: 30 * time.Minute, DownTo: 40 * time.Minute},
		"DownFrom is -1ns":                           {Replicas: 2, DownFrom: -1, DownTo: 1},
		"DownTo is 1ns, must be from DownFrom (2ns)": {Replicas: 2, DownFrom: 2, DownTo: 1},
	} {
		if _, err := Run(c); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestAWholeFleetCanBeReplacedAtOnce(t *testing.T) {
	t.Parallel()
	cfg := exact(4, Leased, 0.3)
	cfg.Changes = []Change{{At: 30 * time.Second, Kill: 4, Join: 4}}
	lost, served := 0, 0
	for _, r := range play(t, cfg).Calls {
		switch {
		case r.Outcome == Lost && r.Asked < 30*time.Second:
			lost++
		case r.Outcome == Lost:
			t.Fatalf("a call that was asked for at %v was lost", r.Asked)
		case r.Outcome == Served && r.Asked >= 30*time.Second:
			served++
		}
	}
	if lost == 0 || served < 200 {
		t.Errorf("%d calls were lost, and %d served afterwards", lost, served)
	}
}
