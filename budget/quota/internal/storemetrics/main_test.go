package storemetrics_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The genai SDK's authentication library starts it when it is linked in.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}
