package share

import (
	"testing"
	"time"
)

// However long the store is down, a replica keeps no more of what its provider says than its
// window has.
func TestWhatOthersHaveUsedIsForgottenWithTheWindow(t *testing.T) {
	t.Parallel()
	l, err := NewLessee(LesseeConfig{Dims: []Dim{{Limit: 1000, Window: time.Minute}}, Mode: Central, Replica: "a"})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1e9, 0)
	l.at(now)
	l.replicas = 1
	l.fallBack()
	b := l.Limiter(0)
	for range 3600 {
		now = now.Add(time.Second)
		b.Lower(now, max(b.Level(now)-1, 0), 0)
	}
	if n := len(b.foreign); n == 0 || n > len(b.own.ring) {
		t.Errorf("after an hour it keeps %d bookings, want 1 to %d", n, len(b.own.ring))
	}
	l.comeBack()
	if b.own.advance(l.now); b.own.sum != 0 {
		t.Errorf("when the store is back %d are left of what others have used, want none", b.own.sum)
	}
}
