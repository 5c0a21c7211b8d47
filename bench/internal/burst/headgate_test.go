package burst

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
)

func TestTheGuardIsWhatTheLimitersState(t *testing.T) {
	t.Parallel()
	calls := []release{ // first items after 1 s and 3 s: 2.5 s by tokens
		{0, &call{tokens: 100, takes: 20 * time.Second}},
		{0, &call{tokens: 300, takes: 60 * time.Second}},
	}
	for _, c := range []struct {
		name   string
		policy Policy
		shape  Shape
		window Window
		want   float64
	}{
		{"no mirror", semaphoreOnly(), Shape{}, slidingWindow, 1},
		{"a window", headgateFair(), Shape{}, slidingWindow, 60 / 63.5},
		{"a fixed window is mirrored by a sliding one", headgateFair(), Shape{}, fixedWindow, 60 / 63.5},
		{"a window and calls on their way", headgateFair(), Shape{Delay: time.Second, Jitter: 2 * time.Second}, slidingWindow, 60 / 65.5},
		{"a bucket", headgateFair(), Shape{}, bucketWindow, 1},
		{"a bucket and jitter", headgateFair(), Shape{Jitter: 2 * time.Second}, bucketWindow, 60.0 / 62},
		{"the window profile before a bucket", headgateWindow(), Shape{}, bucketWindow, 60 / 63.5},
		{"a bucket with a pace", headgateFair(), Shape{Quantum: time.Second}, bucketWindow, 0.96},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			near(t, "guard", c.policy.guard(&c.shape, c.window, calls), c.want)
		})
	}
}

func TestTheProfileSaysWhatTheProviderPublishes(t *testing.T) {
	t.Parallel()
	s := Shape{TokensPerMinute: 7000, RequestsPerMinute: 70, Granted: 0.5, Quantum: time.Second}
	for _, w := range []Window{slidingWindow, bucketWindow} {
		for _, d := range profile(&s, w).Dimensions {
			want := map[string]int64{limitTokens: 7000, limitRequests: 70}[d.Name]
			if d.Limit != want || d.Burst != time.Second || (d.Shape == ratelimited.Bucket) != (w == bucketWindow) {
				t.Errorf("%v: dimension %q has limit %d, burst %v and shape %d", w, d.Name, d.Limit, d.Burst, d.Shape)
			}
		}
	}
}
