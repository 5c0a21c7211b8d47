// Package servers runs real servers for tests: Redis, a Redis Cluster, Redis
// Sentinel and Postgres, each a process of its own that a test can pause, kill and restart,
// a TCP proxy that breaks connections in known ways, and the test binary itself
// again, as a process to be killed.
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.StopAfter(m)) }
//
//	func TestX(t *testing.T) {
//		r := servers.SharedRedis(t)    // one for all tests of the binary
//		p := servers.NewProxy(t, r.Addr())
//		p.DropReplies(1)
//		…
//	}
//
// A server listens on 127.0.0.1 only, on a port that nobody else uses, keeps
// its files in a folder of its own and opens no socket file. It ends when its
// test does, and when the test binary ends in any other way: on Linux the
// kernel sees to it, elsewhere a binary that is killed leaves its servers
// behind.
//
// What cannot be run here skips the test and says what to install, and fails it
// where HEADGATE_REQUIRE_SERVERS=1 is set. A server that does not start fails
// the test with the end of its log; a test that fails shows that of its servers.
//
// Servers live in real time: start them outside of testing/synctest. Methods may
// be called from several goroutines, and what goes wrong in one fails the test
// without ending it. Only what takes a test, and the methods of a cluster that
// wait, may end it and belong to its own goroutine.
package servers

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Require returns the path of a program, from PATH or from where Debian keeps
// the programs of Postgres, the newest version first. Without it the test is
// skipped, with install as the names of the Debian packages to install, and
// fails where HEADGATE_REQUIRE_SERVERS=1 is set.
func Require(t testing.TB, binary, install string) (path string) {
	t.Helper()
	path, ok := find(binary, debianPostgres)
	if ok {
		return path
	}
	if os.Getenv("HEADGATE_REQUIRE_SERVERS") == "1" {
		t.Fatalf("%s is not installed (apt-get install %s), and HEADGATE_REQUIRE_SERVERS=1 requires it", binary, install)
	}
	t.Skipf("%s is not installed: apt-get install %s", binary, install)
	return ""
}

// debianPostgres is where Debian keeps the programs of each version of
// Postgres, for only its clients are in PATH.
const debianPostgres = "/usr/lib/postgresql/*/bin"

// find looks for a program in PATH and then in the folders that match a
// pattern, whose second last part is a version.
func find(binary, pattern string) (path string, ok bool) {
	if path, err := exec.LookPath(binary); err == nil {
		if path, err = filepath.Abs(path); err == nil {
			return path, true
		}
	}
	paths, _ := filepath.Glob(filepath.Join(pattern, binary)) // fails on a bad pattern only
	slices.SortFunc(paths, func(a, b string) int { return cmp.Compare(version(b), version(a)) })
	for _, path := range paths {
		if path, err := exec.LookPath(path); err == nil { // a file that may be run
			return path, true
		}
	}
	return "", false
}

// version reads the version from …/15/bin/postgres; -1 is none.
func version(path string) float64 {
	v, err := strconv.ParseFloat(filepath.Base(filepath.Dir(filepath.Dir(path))), 64)
	if err != nil {
		return -1
	}
	return v
}

// Stop ends the shared servers and removes what is left of their files. It is
// for the end of TestMain; see [StopAfter] for one that also looks for
// goroutines.
func Stop() {
	shared.stop()
	postgresTemplate.remove()
}

// StopAfter returns tests that call [Stop] when they have run, before anybody
// looks at what goroutines are left: those that wait for shared servers end
// then. It also gives closed clients of Redis the time that they need to end,
// see [settle].
func StopAfter(m Tests) Tests { return stopAfter{m} }

// Tests is a [testing.M], or what wraps one.
type Tests interface{ Run() (code int) }

type stopAfter struct{ Tests }

func (s stopAfter) Run() int {
	defer settle(5 * time.Second)
	defer Stop()
	return s.Tests.Run()
}

// dials is on the stack of a goroutine of a go-redis client whose server was
// not there: it tries once a second, and only then sees that its client was
// closed.
const dials = "go-redis/v9/internal/pool.(*ConnPool)"

// settle waits until no client of Redis is left that dials, for at most so
// long, and tells whether one is: that of a client that was not closed stays,
// for the test to find.
func settle(most time.Duration) (left bool) {
	for end := time.Now().Add(most); ; time.Sleep(20 * time.Millisecond) {
		left := strings.Contains(stacks(), dials)
		if !left || time.Now().After(end) {
			return left
		}
	}
}

// stacks are those of all goroutines.
func stacks() string {
	for size := 1 << 20; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size {
			return string(buf[:n])
		}
	}
}

// tail returns the last n lines of text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
