package fleet

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// tenCalls is a provider with 15000 tokens and 13 requests a minute.
func tenCalls(t *testing.T, w engine.WindowModel) *provider {
	t.Helper()
	c, err := (Config{Replicas: 1, Rate: 1. / 12, Load: 0.5, Window: w}).WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	p, err := newProvider(&c)
	if err != nil {
		t.Fatal(err)
	}
	if p.limits != [dims]int64{15000, 13} {
		t.Fatalf("the quota is %v", p.limits)
	}
	return p
}

func TestTheProviderRefusesWhatItsWindowDoesNotHoldAndSaysWhenItWould(t *testing.T) {
	t.Parallel()
	type step struct {
		at     time.Duration
		tokens int64
		wait   time.Duration
		over   [dims]bool
	}
	tokens, requests := [dims]bool{tokensDim: true}, [dims]bool{requestsDim: true}
	sec := time.Second
	for _, c := range []struct {
		window engine.WindowModel
		steps  []step
	}{
		{engine.Sliding, []step{{10 * sec, 10000, 0, [dims]bool{}}, {20 * sec, 5000, 0, [dims]bool{}}, {30 * sec, 1, 40 * sec, tokens},
			{30 * sec, 10001, 50 * sec, tokens}, {70 * sec, 10000, 0, [dims]bool{}}, {70 * sec, 15001, hour, tokens}}},
		{engine.Fixed, []step{{59 * sec, 15000, 0, [dims]bool{}}, {59 * sec, 1, 1 * sec, tokens}, {60 * sec, 15000, 0, [dims]bool{}}}},
		{engine.Bucket, []step{{0, 15000, 0, [dims]bool{}}, {4 * sec, 1500, 2 * sec, tokens}, {6 * sec, 1500, 0, [dims]bool{}}}},
		{engine.Sliding, []step{{0, 1, 0, [dims]bool{}}, {1 * sec, 1, 0, [dims]bool{}}, {2 * sec, 1, 0, [dims]bool{}}, {3 * sec, 1, 0, [dims]bool{}},
			{4 * sec, 1, 0, [dims]bool{}}, {5 * sec, 1, 0, [dims]bool{}}, {6 * sec, 1, 0, [dims]bool{}}, {7 * sec, 1, 0, [dims]bool{}},
			{8 * sec, 1, 0, [dims]bool{}}, {9 * sec, 1, 0, [dims]bool{}}, {10 * sec, 1, 0, [dims]bool{}}, {11 * sec, 1, 0, [dims]bool{}},
			{12 * sec, 1, 0, [dims]bool{}}, {13 * sec, 1, 47 * sec, requests}}},
	} {
		p := tenCalls(t, c.window)
		for i, s := range c.steps {
			wait, over, ok := p.arrive(int64(s.at), [dims]int64{s.tokens, 1})
			if wait != s.wait || over != s.over || ok != (s.wait == 0) {
				t.Errorf("%v, step %d: %v, %v, %v, want %v, %v", c.window, i, wait, over, ok, s.wait, s.over)
			}
		}
	}
}

func TestTheLargestUseCountsWhatWasRefusedToo(t *testing.T) {
	t.Parallel()
	for _, w := range []engine.WindowModel{engine.Sliding, engine.Fixed, engine.Bucket} {
		p := tenCalls(t, w)
		for range 3 {
			p.arrive(int64(time.Second), [dims]int64{7500, 1})
		}
		if p.use != 1.5 {
			t.Errorf("%v: a use of %v, want 1.5", w, p.use)
		}
	}
}
