package servers

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	logging.Disable() // clients of servers that are dead say so on standard error
	goleak.VerifyTestMain(StopAfter(m))
}

// recorder is a test that remembers how it failed or was skipped instead of
// doing it.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	skipped  bool
	said     []string
	cleanups []func()
}

// record runs f with a recorder, and then its cleanups.
func record(t testing.TB, f func(t testing.TB)) *recorder {
	r := &recorder{TB: t}
	run := func(f func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			f()
		}()
		<-done
	}
	run(func() { f(r) })
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		run(r.cleanups[i])
	}
	return r
}

func (r *recorder) say(text string, failed, skipped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, text)
	r.failed = r.failed || failed
	r.skipped = r.skipped || skipped
}

func (r *recorder) text() string { return strings.Join(r.said, "\n") }

func (r *recorder) Helper()                        {}
func (r *recorder) Cleanup(f func())               { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Failed() bool                   { return r.failed }
func (r *recorder) Log(args ...any)                { r.say(fmt.Sprint(args...), false, false) }
func (r *recorder) Logf(format string, a ...any)   { r.say(fmt.Sprintf(format, a...), false, false) }
func (r *recorder) Error(args ...any)              { r.say(fmt.Sprint(args...), true, false) }
func (r *recorder) Errorf(format string, a ...any) { r.say(fmt.Sprintf(format, a...), true, false) }
func (r *recorder) Fatal(args ...any)              { r.say(fmt.Sprint(args...), true, false); runtime.Goexit() }
func (r *recorder) Fatalf(format string, a ...any) {
	r.say(fmt.Sprintf(format, a...), true, false)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, a ...any) {
	r.say(fmt.Sprintf(format, a...), false, true)
	runtime.Goexit()
}
