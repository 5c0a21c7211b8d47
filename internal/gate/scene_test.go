package gate

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// A package that the provider's SDK imports starts this one when it is loaded.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// scene plays a small story on a Core: calls are asked for by name, and the Core
// is polled after everything that happens and whenever it wants to be.
type scene struct {
	t     *testing.T
	core  *Core
	start time.Time
	now   time.Time
	next  time.Time
	ids   map[string]ID
	names map[ID]string
	order []string // in which calls were started
	fails map[string]Failure
}

func newScene(t *testing.T, cfg Config) *scene {
	t.Helper()
	if cfg.Classes == nil {
		cfg.Classes = []Class{{Weight: 1}}
	}
	start := time.Unix(1_700_000_000, 0)
	return &scene{
		t: t, core: New(cfg), start: start, now: start,
		ids: make(map[string]ID), names: make(map[ID]string), fails: make(map[string]Failure),
	}
}

// perMinute is a limit of so many units in any minute.
func perMinute(t *testing.T, limit int64) Dim {
	t.Helper()
	w, err := budget.NewWindowBudget(budget.WindowBudgetConfig{Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	return Dim{Limiter: w, Window: time.Minute}
}

// refilled is a bucket of so many units a minute that holds so many.
func refilled(t *testing.T, limit, burst int64) Dim {
	t.Helper()
	b, err := budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: limit, Burst: burst})
	if err != nil {
		t.Fatal(err)
	}
	return Dim{Limiter: b, Window: time.Minute}
}

// ask puts a call in line.
func (s *scene) ask(name string, spec Spec) {
	s.t.Helper()
	if refused := s.try(name, spec); refused.Err != nil {
		s.t.Fatalf("%s was refused: %v", name, refused.Err)
	}
}

// try puts a call in line unless it is refused.
func (s *scene) try(name string, spec Spec) Refusal {
	s.t.Helper()
	if spec.Slots == 0 {
		spec.Slots = 1
	}
	id, granted, refused := s.core.Enqueue(s.now, spec)
	if refused.Err == nil {
		s.ids[name], s.names[id] = id, name
	}
	if granted {
		s.order = append(s.order, name)
	}
	s.poll()
	return refused
}

func (s *scene) poll() {
	s.t.Helper()
	grants, failed, next := s.core.Poll(s.now)
	for _, id := range grants {
		s.order = append(s.order, s.names[id])
	}
	for _, f := range failed {
		s.fails[s.names[f.ID]] = f
	}
	if !next.IsZero() && !next.After(s.now) {
		s.t.Fatalf("at %v the Core wants to be polled again at %v", s.now.Sub(s.start), next.Sub(s.start))
	}
	s.next = next
	if err := s.core.intact(); err != nil {
		s.t.Fatal(err)
	}
}

// pass lets time go by, with a Poll whenever the Core wants one.
func (s *scene) pass(d time.Duration) {
	s.t.Helper()
	end := s.now.Add(d)
	for !s.next.IsZero() && !s.next.After(end) {
		s.now = s.next
		s.poll()
	}
	s.now = end
}

// done ends a call; what it used is what it had taken unless it is given.
func (s *scene) done(name string, actual ...int64) {
	s.t.Helper()
	if len(actual) > 0 {
		s.core.Settle(s.now, s.id(name), actual)
	}
	if !s.core.End(s.now, s.id(name)) {
		s.t.Fatalf("%s had ended before", name)
	}
	s.poll()
}

func (s *scene) id(name string) ID {
	s.t.Helper()
	id, ok := s.ids[name]
	if !ok {
		s.t.Fatalf("there is no call %s", name)
	}
	return id
}

// want checks which calls run, of all that were named so far; the others must
// wait.
func (s *scene) want(running ...string) {
	s.t.Helper()
	runs := make(map[string]bool)
	for _, name := range running {
		runs[name] = true
		if s.id(name).running() == nil {
			s.t.Errorf("after %v %s does not run", s.now.Sub(s.start), name)
		}
	}
	for name, id := range s.ids {
		if !runs[name] && id.running() != nil {
			s.t.Errorf("after %v %s runs", s.now.Sub(s.start), name)
		}
	}
	if s.t.Failed() {
		s.t.FailNow()
	}
}

// wantNext checks when the Core wants to be polled, counted from now; 0 is
// never.
func (s *scene) wantNext(d time.Duration) {
	s.t.Helper()
	switch {
	case d == 0 && !s.next.IsZero():
		s.t.Fatalf("the Core wants to be polled in %v, want never", s.next.Sub(s.now))
	case d > 0 && !s.next.Equal(s.now.Add(d)):
		s.t.Fatalf("the Core wants to be polled in %v, want %v", s.next.Sub(s.now), d)
	}
}

// wantEmpty checks that nothing is remembered once all calls have ended.
func (s *scene) wantEmpty() {
	s.t.Helper()
	if err := s.core.empty(); err != nil {
		s.t.Fatal(err)
	}
}

func tokens(n ...int64) []int64 { return n }
