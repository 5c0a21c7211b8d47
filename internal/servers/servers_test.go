package servers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestAMissingProgramSkipsOrFailsAndSaysWhatToInstall(t *testing.T) {
	for _, tt := range []struct {
		required string // HEADGATE_REQUIRE_SERVERS
		fails    bool
	}{
		{"", false},
		{"0", false},
		{"1", true},
	} {
		t.Run("required "+tt.required, func(t *testing.T) {
			t.Setenv("HEADGATE_REQUIRE_SERVERS", tt.required)
			r := record(t, func(t testing.TB) { Require(t, "no-such-program", "the-package") })
			if r.failed != tt.fails || r.skipped == tt.fails {
				t.Errorf("failed %v and skipped %v, want failed %v and skipped %v", r.failed, r.skipped, tt.fails, !tt.fails)
			}
			for _, want := range []string{"no-such-program", "apt-get install the-package"} {
				if !strings.Contains(r.text(), want) {
					t.Errorf("said %q, which lacks %q", r.text(), want)
				}
			}
		})
	}
}

func TestTheNewestInstalledVersionIsTaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{
		"9.6/bin/prog":   0o755,
		"14/bin/prog":    0o755,
		"15/bin/prog":    0o755,
		"16/bin/prog":    0o644, // cannot be run
		"17/bin/another": 0o755,
		"x/bin/prog":     0o755,
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	want := filepath.Join(dir, "15", "bin", "prog")
	if path, ok := find("prog", filepath.Join(dir, "*", "bin")); !ok || path != want {
		t.Errorf("found %q, %v, want %q", path, ok, want)
	}
	if path, ok := find("neither", filepath.Join(dir, "*", "bin")); ok {
		t.Errorf("found %q, which is not there", path)
	}
}

func TestAProgramInPathComesFirst(t *testing.T) {
	dir := t.TempDir()
	inPath, elsewhere := filepath.Join(dir, "path", "prog"), filepath.Join(dir, "15", "bin", "prog")
	for _, path := range []string{inPath, elsewhere} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", filepath.Dir(inPath))
	if path, ok := find("prog", filepath.Join(dir, "*", "bin")); !ok || path != inPath {
		t.Errorf("found %q, %v, want %q", path, ok, inPath)
	}
}

// A go-redis client of a server that is dead sees up to a second late that it
// was closed, longer than goleak waits. One that was not closed is never over.
func TestAClosedClientOfADeadServerIsWaitedFor(t *testing.T) {
	dead, err := claimPort()
	if err != nil {
		t.Fatal(err)
	}
	defer dead.release()
	client := redis.NewClient(&redis.Options{Addr: dead.addr(), PoolSize: 1, MaxRetries: -1, DialerRetries: 1})
	if err := client.Ping(t.Context()).Err(); err == nil {
		t.Fatal("a server that is not there has answered")
	}
	if !settle(1200 * time.Millisecond) {
		t.Error("an open client does not dial any more: nothing would be waited for")
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if settle(30 * time.Second) {
		t.Error("a closed client still dials")
	}
}
