package chaos_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/headgate-go/headgate/internal/servers"
)

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{}) // servers are killed here all the time
	goleak.VerifyTestMain(servers.StopAfter(m),
		// The genai SDK's authentication library starts it when it is linked in.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// silent is for what is expected to complain.
var silent = slog.New(slog.NewTextHandler(io.Discard, nil))

// havocFor is how long a test makes havoc, which HEADGATE_CHAOS may make longer.
func havocFor(t *testing.T, usual time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv("HEADGATE_CHAOS")
	if text == "" {
		return usual
	}
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = errors.New("must be positive")
	}
	if err != nil {
		t.Fatalf("HEADGATE_CHAOS=%s: %v", text, err)
	}
	return d
}

// chance is where a test takes its choices from. The seed is shown if the test fails.
func chance(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("HEADGATE_CHAOS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("HEADGATE_CHAOS_SEED=%s: %v", text, err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("HEADGATE_CHAOS_SEED=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// between is a duration from low to high.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)+1))
}
