package adaptive

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

func mustRun(t *testing.T, s Setting) Result {
	t.Helper()
	res, err := Run(s)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// What Headgate promises who does not know the quota: ten calls a second, a bucket
// that is a minute deep, measured for two hours after half an hour. The opponents'
// rows of the same table are printed by bench/adaptive.
func TestAQuotaThatNobodyHasToldIsFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		clients    int
		fails      bool
		goodput    float64 // at least
		throttled  float64 // at most
		jain       float64 // at least
		seedsTried uint64
	}{
		{1, false, 0.95, 0.025, 1, 2},
		{10, false, 0.90, 0.03, 0.9, 2},
		{1, true, 0.95, 0.025, 1, 2},
		{10, true, 0.90, 0.03, 0.9, 2},
	} {
		for seed := range c.seedsTried {
			r := mustRun(t, Setting{
				Policy: Headgate, Clients: c.clients, Rate: 10, Window: engine.Bucket, FailuresCount: c.fails,
				WarmUp: 30 * time.Minute, Span: 2 * time.Hour, Seed: seed + 1,
			})
			if r.Goodput < c.goodput || r.Throttled > c.throttled || r.Jain < c.jain {
				t.Errorf("%d clients, failures count %v, seed %d: goodput %.3f, 429 %.2f %%, Jain %.3f, want %v, %.1f %%, %v",
					c.clients, c.fails, seed+1, r.Goodput, 100*r.Throttled, r.Jain, c.goodput, 100*c.throttled, c.jain)
			}
		}
	}
}

// Other settings than those that the constants were promised for, so that they are
// not for one alone. The bounds are what was measured, and a little room.
func TestTheSearchIsNotForOneSettingAlone(t *testing.T) {
	t.Parallel()
	minutes := func(s Setting) Setting {
		s.Policy, s.WarmUp, s.Span, s.Seed = Headgate, 30*time.Minute, 20*time.Minute, 1
		return s
	}
	for name, c := range map[string]struct {
		setting            Setting
		goodput, throttled float64
	}{
		"sliding minute":       {minutes(Setting{Clients: 1, Rate: 10, Window: engine.Sliding}), 0.9, 0.03},
		"fixed minute":         {minutes(Setting{Clients: 1, Rate: 10, Window: engine.Fixed}), 0.9, 0.03},
		"ten, a fixed minute":  {minutes(Setting{Clients: 10, Rate: 10, Window: engine.Fixed}), 0.85, 0.05},
		"hints":                {minutes(Setting{Clients: 1, Rate: 10, Window: engine.Bucket, Hints: true}), 0.95, 0.025},
		"a hundred":            {minutes(Setting{Clients: 100, Callers: 400, Rate: 30, Window: engine.Bucket}), 0.85, 0.05},
		"a bucket of a second": {minutes(Setting{Clients: 1, Rate: 10, Window: engine.Bucket, Depth: time.Second}), 0.85, 0.05},
		"three calls a minute": {minutes(Setting{Clients: 1, Rate: 0.05, Window: engine.Bucket}), 0.85, 0.2},
		"a hundred per second": {minutes(Setting{Clients: 1, Callers: 600, Rate: 100, Window: engine.Bucket}), 0.9, 0.01},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r := mustRun(t, c.setting); r.Goodput < c.goodput || r.Throttled > c.throttled {
				t.Errorf("goodput %.3f, 429 %.2f %%, want %v and %.1f %%", r.Goodput, 100*r.Throttled, c.goodput, 100*c.throttled)
			}
		})
	}
}

func TestAQuotaThatIsRaisedIsFoundAgain(t *testing.T) {
	t.Parallel()
	for _, step := range []float64{5, 20} {
		r := mustRun(t, Setting{
			Policy: Headgate, Clients: 1, Rate: 10, Window: engine.Bucket, Seed: 1,
			Steps: []Step{{At: 20 * time.Minute, Rate: step}}, WarmUp: 50 * time.Minute, Span: time.Hour,
		})
		if r.Goodput < 0.9 || r.Throttled > 0.03 {
			t.Errorf("half an hour after a change from 10 to %v: goodput %.3f, 429 %.2f %%", step, r.Goodput, 100*r.Throttled)
		}
	}
}

func TestASeedDecidesEverything(t *testing.T) {
	t.Parallel()
	for _, policy := range Policies() {
		s := Setting{Policy: policy, Clients: 3, Rate: 5, Window: engine.Bucket, WarmUp: time.Minute, Span: 5 * time.Minute, Seed: 4}
		first, again := mustRun(t, s), mustRun(t, s)
		s.Seed = 5
		if other := mustRun(t, s); first != again || first == other {
			t.Errorf("%s: %+v, then %+v, and with another seed %+v", policy, first, again, other)
		}
	}
}

// The provider grants what it says in every window, however many ask.
func TestTheProviderGrantsItsQuotaAndNoMore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		window Window
		most   float64 // calls in ten minutes at one per second, of which there always are more
	}{
		{engine.Bucket, 60 + 600}, {engine.Sliding, 600}, {engine.Fixed, 600},
	} {
		s := Setting{Rate: 1, Depth: time.Minute, Window: c.window}
		p := newProvider(&s)
		served := 0.0
		for at := time.Duration(0); at < 10*time.Minute; at += 100 * time.Millisecond {
			ok, hint := p.arrive(at)
			if ok {
				served++
				p.end(at)
				continue
			}
			if later, _ := (*p).take2(at + hint + time.Microsecond); !later {
				t.Fatalf("%v: at %v it hinted at %v, and had nothing then", c.window, at, hint)
			}
		}
		if math.Abs(served-c.most) > 1 {
			t.Errorf("%v: %v calls were served, want %v", c.window, served, c.most)
		}
	}
}

// take2 asks a copy.
func (p provider) take2(now time.Duration) (bool, time.Duration) {
	p.log = slices.Clone(p.log)
	return p.take(now)
}

func TestRefusedCallsCountWhereTheProviderSaysSo(t *testing.T) {
	t.Parallel()
	s := Setting{Rate: 1, Depth: 10 * time.Second, Window: engine.Bucket, FailuresCount: true}
	p := newProvider(&s)
	for range 14 {
		p.arrive(0)
	}
	if p.level != -4 {
		t.Errorf("after ten calls that were served and four that were not, %v are left of ten, want -4", p.level)
	}
}

func TestPlacesAreTakenAtATime(t *testing.T) {
	t.Parallel()
	s := Setting{Places: 2}
	p := newProvider(&s)
	var got []bool
	for _, end := range []bool{false, false, false, true} {
		if end {
			p.end(0)
		}
		ok, _ := p.arrive(0)
		got = append(got, ok)
	}
	if want := []bool{true, true, false, true}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTheTableHasEveryPolicyBesideTheOthers(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	settings := Settings(9)
	var rows []Row
	for _, s := range settings {
		if err := s.Validate(); err != nil || s.Seed != 9 {
			t.Errorf("%+v: %v", s, err)
		}
		rows = append(rows, Row{s, Result{Goodput: 0.5, Throttled: 0.25, Jain: 1}})
	}
	if err := Print(&out, rows); err != nil {
		t.Fatal(err)
	}
	for _, policy := range Policies() {
		if n := strings.Count(out.String(), policy+"    0.500  25.00 %"); n < 4 {
			t.Errorf("%s has %d rows in\n%s", policy, n, &out)
		}
	}
}
