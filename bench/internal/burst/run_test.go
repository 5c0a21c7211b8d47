package burst

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestTheSeedAloneMakesTheCallsOfAShape(t *testing.T) {
	t.Parallel()
	for _, s := range Shapes() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			if !reflect.DeepEqual(s.jobs(7), s.jobs(7)) {
				t.Error("one seed made two scripts")
			}
			if reflect.DeepEqual(s.jobs(7), s.jobs(8)) {
				t.Error("two seeds made one script")
			}
		})
	}
}

func TestShapesAndPoliciesCanBeToldApartAndExplainThemselves(t *testing.T) {
	t.Parallel()
	names := make(map[string]bool)
	check := func(name, title string) {
		if name == "" || title == "" || names[name] || strings.ContainsAny(name, " ,/") {
			t.Errorf("%q, titled %q: need a title, and a name that is its own", name, title)
		}
		names[name] = true
	}
	for _, s := range Shapes() {
		check(s.Name, s.Title)
		if err := s.validate(); err != nil {
			t.Error(err)
		}
	}
	for _, p := range Policies() {
		check(p.Name, p.Title)
		if p.Settings == "" {
			t.Errorf("%s does not say what it is set to", p.Name)
		}
	}
}

// chain is two calls one after the other, beside one after a pause.
func chain() Shape {
	s := *plain(4)
	s.script = func(*rand.Rand) []job {
		c := func(takes time.Duration) plan {
			return one(call{flow: "a", group: "g", tokens: 100, estimate: 100, takes: takes})
		}
		return []job{at(time.Second, together(
			inOrder(c(2*time.Second), c(3*time.Second)),
			inOrder(pause(10*time.Second), c(4*time.Second)),
		))}
	}
	return s
}

func TestWorkIsDoneInItsOrder(t *testing.T) {
	t.Parallel()
	s := chain()
	calls, end := s.releases(s.jobs(1))
	var starts []time.Duration
	for _, c := range calls {
		starts = append(starts, c.at)
	}
	if want := []time.Duration{time.Second, 3 * time.Second, 11 * time.Second}; !reflect.DeepEqual(starts, want) || end != 15*time.Second {
		t.Errorf("calls are released at %v until %v, want %v until 15s", starts, end, want)
	}
	for _, p := range Policies() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			r, err := Run(s, p, slidingWindow, 1)
			if err != nil {
				t.Fatal(err)
			}
			if m := r.Metrics; m.Completed != 3 || m.Attempts != 3 {
				t.Fatalf("%d of 3 calls were completed in %d attempts", m.Completed, m.Attempts)
			}
			// The smooth rate limiters hold the second call back a little; nothing else waits.
			if m := r.Metrics; m.Makespan < 14 || m.Makespan > 14.1 || m.LowerBound != 14 {
				t.Errorf("makespan %v s, bound %v s; want 14 and 14", m.Makespan, m.LowerBound)
			}
		})
	}
}

func TestAStreamEndsWithWhatHasBegun(t *testing.T) {
	t.Parallel()
	s := chain()
	s.Stream = 3 * time.Second // the second call would begin now
	r, err := Run(s, none(), bucketWindow, 1)
	if err != nil || r.Metrics.Calls != 1 || r.Metrics.Completed != 1 {
		t.Errorf("%d calls, %d completed, error %v; want 1, 1 and none", r.Metrics.Calls, r.Metrics.Completed, err)
	}
}

func TestWhatCannotBePlayedIsNamed(t *testing.T) {
	t.Parallel()
	changed := func(change func(*Shape)) Shape {
		s := chain()
		change(&s)
		return s
	}
	for _, c := range []struct {
		name   string
		shape  Shape
		policy Policy
		window Window
		want   string
	}{
		{"no shape", Shape{Name: "x"}, none(), slidingWindow, `"x"`},
		{"no policy", chain(), Policy{Name: "y"}, slidingWindow, `"y"`},
		{"window", chain(), none(), 3, "window"},
		{"tokens", changed(func(s *Shape) { s.TokensPerMinute = 0 }), none(), slidingWindow, "TokensPerMinute is 0"},
		{"requests", changed(func(s *Shape) { s.RequestsPerMinute = -1 }), none(), slidingWindow, "RequestsPerMinute is -1"},
		{"slots", changed(func(s *Shape) { s.Slots = 0 }), none(), slidingWindow, "Slots is 0"},
		{"granted", changed(func(s *Shape) { s.Granted = 2 }), none(), slidingWindow, "Granted is 2"},
		{"concurrency", changed(func(s *Shape) { s.Concurrency = -1 }), none(), slidingWindow, "concurrency -1"},
		{"maximal wait", changed(func(s *Shape) { s.MaxWait = -1 }), none(), slidingWindow, "MaxWait is -1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := Run(c.shape, c.policy, c.window, 1)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one that says %s", err, c.want)
			}
		})
	}
}

func TestTheOracleSaysWhereItCannotKnow(t *testing.T) {
	t.Parallel()
	r, err := Run(jittered(), oracle(), slidingWindow, 1)
	if err != nil || r.Err == "" || r.Metrics.Calls != 0 {
		t.Errorf("result %+v, error %v; want a reason and no figures", r, err)
	}
}

func TestTheOracleIsNeverRefused(t *testing.T) {
	t.Parallel()
	for _, w := range Windows() {
		for _, s := range []Shape{reviewTen(), herd(), throttled(), brownout()} {
			r, err := Run(s, oracle(), w, 3)
			if err != nil || r.Metrics.Throttled > 0 || r.Metrics.Failed > 0 {
				t.Errorf("%s, %v: %d × 429, %d failed, error %v", s.Name, w, r.Metrics.Throttled, r.Metrics.Failed, err)
			}
		}
	}
}
