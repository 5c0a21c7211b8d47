package redisbudget_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/headgate-go/headgate/internal/servers"
)

func TestMain(m *testing.M) {
	// Nearly all that tests do is to wait for windows to go by.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		os.Exit(2)
	}
	goleak.VerifyTestMain(servers.StopAfter(m),
		// The genai SDK's authentication library starts it when it is linked in.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}
