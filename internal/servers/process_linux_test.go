package servers

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTheKernelsRowOfAProcessIsRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want status
		err  string
	}{
		{"17 (postgres) S 1 17 17 0 -1", status{1, 'S'}, ""},
		{"17 (a) T 4 5) R 16 17 17", status{16, 'R'}, ""},
		{"17 (\n) Z 3 4", status{3, 'Z'}, ""},
		{"17 (x) S", status{}, "no state and parent"},
		{"", status{}, "no state and parent"},
		{"17 (x) S x 4", status{}, `parent is "x"`},
	} {
		got, err := parseStat([]byte(tt.text))
		if tt.err == "" && (err != nil || got != tt.want) {
			t.Errorf("%q is %v (%v), want %v", tt.text, got, err, tt.want)
		}
		if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%q: %v, want an error that says %q", tt.text, err, tt.err)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("postgres: writer", byte('S'), 17, "1 2 3")
	f.Add(") T 4 (", byte('Z'), 0, "")
	f.Fuzz(func(t *testing.T, name string, state byte, parent int, rest string) {
		if state <= ' ' || state == ')' || state > '~' || strings.Contains(rest, ")") {
			t.Skip("not what the kernel writes")
		}
		text := fmt.Sprintf("17 (%s) %c %d %s", name, state, parent, rest)
		if got, err := parseStat([]byte(text)); err != nil || got != (status{parent, state}) {
			t.Errorf("%q is %v (%v)", text, got, err)
		}
	})
}

func TestKillLeavesNoProcessAndNoSharedMemory(t *testing.T) {
	t.Parallel()
	p := StartPostgres(t, PostgresOptions{})
	connect(t, p.DSN())
	if uid := owner(t, filepath.Join(p.dir, "data", "postmaster.pid")); os.Geteuid() == 0 && uid == 0 {
		t.Error("Postgres runs as root")
	}
	for _, paused := range []bool{false, true} {
		processes, err := descendants(p.proc.pid())
		if err != nil {
			t.Fatal(err)
		}
		if len(processes) < 3 {
			t.Fatalf("processes are %v, want more", processes)
		}
		processes = append(processes, p.proc.pid())
		if paused {
			p.Pause()
		}
		p.Kill()
		if left := alive(t, processes); len(left) > 0 {
			t.Errorf("paused %v: processes %v live on", paused, left)
		}
		p.Restart()
	}

	pid, err := os.ReadFile(filepath.Join(p.dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	id := strings.Fields(strings.Split(string(pid), "\n")[6])[1]
	if !hasSegment(t, id) {
		t.Fatalf("there is no segment %s of shared memory", id)
	}
	p.Kill()
	if !hasSegment(t, id) {
		t.Fatalf("segment %s went with the process: then there is nothing to remove", id)
	}
	if err := tidyPostgres(p.server); err != nil {
		t.Error(err)
	}
	if hasSegment(t, id) {
		t.Errorf("segment %s of shared memory is left", id)
	}
	if err := tidyPostgres(p.server); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func owner(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

// hasSegment looks for a segment of shared memory; the second column of the
// table is its id.
func hasSegment(t *testing.T, id string) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[1] == id {
			return true
		}
	}
	return false
}

// alive returns the processes that still do something.
func alive(t *testing.T, pids []int) (left []int) {
	t.Helper()
	table, err := processTable()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if s, ok := table[pid]; ok && !s.ended() {
			left = append(left, pid)
		}
	}
	return left
}

// TestServersOfABinary is run by the next test as a process of its own, which
// ends as HEADGATE_TEST_END says. Where it is killed its servers are paused.
func TestServersOfABinary(t *testing.T) {
	if !Respawned(t) {
		t.Skip("runs as a process of TestServersEndWithTheTestBinary")
	}
	end := os.Getenv("HEADGATE_TEST_END")
	servers := []*server{
		StartRedis(t, RedisOptions{AppendOnly: "always"}).server,
		StartPostgres(t, PostgresOptions{}).server,
	}
	for _, s := range servers {
		children, err := descendants(s.proc.pid())
		if err != nil {
			t.Fatal(err)
		}
		if end == "kill" {
			if err := s.pause(); err != nil {
				t.Fatal(err)
			}
		}
		for _, pid := range append(children, s.proc.pid()) {
			fmt.Println("pid", pid)
		}
	}
	fmt.Println("folder", folders.root)
	fmt.Println("ready")
	if end == "panic" {
		go panic("as asked")
	}
	select {}
}

func TestServersEndWithTheTestBinary(t *testing.T) {
	t.Parallel()
	requireRedis(t)
	requirePostgres(t)
	for _, end := range []string{"kill", "panic"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			p := Respawn(t, "TestServersOfABinary", "HEADGATE_TEST_END="+end)
			var pids []int
			var folder string
			for line := range p.Lines() {
				what, value, _ := strings.Cut(line, " ")
				switch what {
				case "pid":
					pid, err := strconv.Atoi(value)
					if err != nil {
						t.Fatal(err)
					}
					pids = append(pids, pid)
				case "folder":
					folder = value
				case "ready":
					if end == "kill" {
						p.Kill()
					}
				}
			}
			if err := p.Wait(); err == nil {
				t.Error("the process ended well")
			}
			if len(pids) < 5 {
				t.Fatalf("processes are %v, want those of two servers", pids)
			}
			deadline := time.Now().Add(startLimit)
			left := pids
			for len(left) > 0 && time.Now().Before(deadline) {
				time.Sleep(20 * time.Millisecond)
				left = alive(t, pids)
			}
			if len(left) > 0 {
				t.Errorf("processes %v live on", left)
			}
			removeAbandoned(filepath.Dir(folder)) // as the next test binary does
			if _, err := os.Stat(folder); !os.IsNotExist(err) {
				t.Errorf("folder %s: %v, want it gone", folder, err)
			}
		})
	}
}

func TestALinkOfTheProxyIsNoFileDescriptorLeak(t *testing.T) {
	// Not parallel: it counts what the process has open.
	target := echo(t)
	p := NewProxy(t, target)
	count := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	before := count()
	for range 50 {
		c := dial(t, p.Addr())
		if _, err := fmt.Fprintln(c, "hello"); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	err := poll(ctx, func(context.Context) error {
		if n := count(); n > before+5 {
			return fmt.Errorf("%d files are open, were %d", n, before)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
