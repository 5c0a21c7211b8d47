package fleet

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// play runs a fleet, or ends the test.
func play(t *testing.T, cfg Config) *Log {
	t.Helper()
	l, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// rough is a short run in which everything happens.
func rough(m Mode, w engine.WindowModel) Config {
	return Config{
		Replicas: 5, Users: 40, Mode: m, Shape: Skewed, Window: w, Rate: 4, Load: 3, Length: 2 * time.Minute, Seed: 7, Error: 0.3,
		MaxWait: 20 * time.Second, DownFrom: 70 * time.Second, DownTo: 85 * time.Second,
		Changes: []Change{{At: 20 * time.Second, Kill: 2}, {At: 40 * time.Second, Join: 1}, {At: 60 * time.Second, Join: 2}},
	}
}

func TestTheSameSeedGivesTheSameRunAndAnotherOneAnother(t *testing.T) {
	t.Parallel()
	for _, m := range Modes() {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			cfg := rough(m, engine.Sliding)
			one, two := play(t, cfg), play(t, cfg)
			if !reflect.DeepEqual(one, two) {
				t.Error("two runs with one seed differ")
			}
			cfg.Seed++
			if reflect.DeepEqual(one.Calls, play(t, cfg).Calls) {
				t.Error("two seeds give the same calls")
			}
		})
	}
}

func TestTheTrafficDoesNotDependOnTheModeOfSharing(t *testing.T) {
	t.Parallel()
	type made struct {
		asked  time.Duration
		user   int32
		tokens int64
	}
	var first []made
	for _, m := range Modes() {
		var list []made
		for _, r := range play(t, rough(m, engine.Bucket)).Calls {
			list = append(list, made{r.Asked, r.User, r.Tokens})
		}
		if first == nil {
			first = list
		}
		if !reflect.DeepEqual(list, first) {
			t.Errorf("%v meets other calls than %v", m, Modes()[0])
		}
	}
}

func TestEveryCallEndsOnceHoweverItEnds(t *testing.T) {
	t.Parallel()
	for _, w := range []engine.WindowModel{engine.Sliding, engine.Fixed, engine.Bucket} {
		for _, m := range Modes() {
			t.Run(fmt.Sprintf("%v/%v", w, m), func(t *testing.T) {
				t.Parallel()
				l := play(t, rough(m, w))
				x := Measure(l)
				if n := x.Served + x.Expired + x.Failed + x.Lost + x.Waiting + x.Flying; n != x.Calls {
					t.Errorf("%d calls have an outcome, of %d", n, x.Calls)
				}
				if x.Served == 0 || x.Lost == 0 || x.Expired+x.Failed == 0 {
					t.Errorf("%d served, %d lost, %d expired, %d failed: not everything happens here", x.Served, x.Lost, x.Expired, x.Failed)
				}
				attempts := int64(0)
				for i, r := range l.Calls {
					attempts += int64(r.Attempts)
					over := r.Outcome != Waiting && r.Outcome != Flying
					switch {
					case over != (r.Ended >= 0):
						t.Errorf("call %d is %v, and ended at %v", i, r.Outcome, r.Ended)
					case r.Outcome == Served && !(r.Asked <= r.Started && r.Started <= r.Counted && r.Counted <= r.Ended):
						t.Errorf("call %d was asked for, started, counted and ended at %v, %v, %v, %v", i, r.Asked, r.Started, r.Counted, r.Ended)
					case r.Outcome == Expired && r.Counted >= 0:
						t.Errorf("call %d has given up, and was let in at %v", i, r.Counted)
					}
				}
				// What was sent just before the end has not arrived.
				if d := attempts - l.Attempts; d < 0 || d > int64(x.Flying) {
					t.Errorf("%d attempts were made, and %d came to the provider", attempts, l.Attempts)
				}
			})
		}
	}
}
