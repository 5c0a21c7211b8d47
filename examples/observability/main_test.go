// Package observability holds the dashboard and the alert rules beside it to what
// Headgate exports: its tests are all that is in it.
package observability

import (
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/headgate-go/headgate/internal/servers"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(servers.StopAfter(m),
		// The genai SDK's authentication library starts it when it is linked in.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// program finds a program of Debian's package prometheus. Without it the test is
// skipped, or fails where all programs must be there.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	missing := "there is no " + name + " in PATH; on Debian: apt-get install --no-install-recommends prometheus"
	if os.Getenv("HEADGATE_REQUIRE_SERVERS") == "1" {
		t.Fatal(missing + " (HEADGATE_REQUIRE_SERVERS=1 requires it)")
	}
	t.Skip(missing)
	return ""
}
