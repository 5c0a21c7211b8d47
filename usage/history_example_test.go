package usage_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/usage"
)

// A request that allows 8192 tokens of output is answered with some 400. After
// a few dozen calls no more than that is held for it.
func ExampleHistory() {
	history, err := usage.NewHistory(usage.HistoryConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	estimate := usage.Usage{Input: 1000, Output: 8192, Flags: usage.Estimated}

	for call := range 1000 {
		held := history.Factor("gemini-3-pro-preview", "writer", usage.P95, now).Apply(estimate, 8192)
		if call == 0 || call == 999 {
			fmt.Printf("call %d: hold %v\n", call, held)
		}
		// … the call is made, and settled with what was reported …
		settled := usage.Usage{Input: 900, Output: 400}
		history.Observe("gemini-3-pro-preview", "writer", estimate, settled, now)
		now = now.Add(time.Second)
	}

	snapshot, err := json.Marshal(history.Snapshot()) // to be merged after a restart
	fmt.Println(len(snapshot) > 0, err)
	// Output:
	// call 0: hold input=1000 output=8192 total=9192 estimated
	// call 999: hold input=907 output=442 total=1349 estimated
	// true <nil>
}
