package audit

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

func TestTurnsThatAreOverDoNotStayInMemory(t *testing.T) {
	t.Parallel()
	var under turns
	at := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	most := 0
	for i := range 100_000 { // 600 an hour
		at = at.Add(6 * time.Second)
		if !under.begin(&Record{Kind: quota.KindCall, At: at, Turn: strconv.Itoa(i)}) {
			t.Fatalf("turn %d is taken for another", i)
		}
		if i%10 == 0 {
			under.sweep(at)
		}
		most = max(most, len(under.seen))
	}
	if idle := int(turnIdle / (6 * time.Second)); most < idle || most > 3*idle {
		t.Errorf("up to %d turns were known at a time, of which %d may go on", most, idle)
	}
}
