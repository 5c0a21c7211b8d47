package fleet

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// A module that the genai SDK needs starts this goroutine when it is loaded.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}
