package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/headgate-go/headgate/internal/servers"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(servers.StopAfter(m),
		// A package that the genai SDK pulls in starts it when it is linked in.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}
