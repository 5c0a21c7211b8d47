package redisledger_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/headgate-go/headgate/internal/servers"
)

func TestMain(m *testing.M) {
	fewer()
	redis.SetLogger(quiet{}) // servers are killed here all the time
	goleak.VerifyTestMain(servers.StopAfter(m),
		// The genai SDK's authentication library starts it when it is linked in.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
