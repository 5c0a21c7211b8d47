package sqlledger_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/headgate-go/headgate/internal/servers"
)

func TestMain(m *testing.M) {
	// Each step waits for a disk or a server. The flag on the command line wins.
	if err := flag.Set("rapid.checks", "25"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(servers.StopAfter(m),
		// The genai SDK's authentication library starts it when it is linked in.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}
