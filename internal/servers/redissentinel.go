package servers

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// StartRedisSentinel starts a Redis Sentinel for this test, which watches a server
// under a name and decides alone. It finds the replicas that the server has when it
// starts. Its Addr is for clients that ask where the server of that name is.
func StartRedisSentinel(t testing.TB, name string, master *Redis) *Redis {
	t.Helper()
	binary := requireRedis(t)
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	s, err := newRedis(binary, RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.program = "redis-sentinel"
	s.command = func(s *server) (*exec.Cmd, error) {
		conf := filepath.Join(s.dir, "redis.conf")
		text := fmt.Sprintf("bind 127.0.0.1\nport %d\nsentinel monitor %s %s %s 1\n", s.ports[0].number, name, host, port)
		if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
			return nil, err
		}
		cmd := exec.Command(binary, conf, "--sentinel")
		cmd.Dir = s.dir
		return cmd, nil
	}
	s.closeAfter(t)
	if err := s.startNew(1); err != nil {
		t.Fatal(err)
	}
	return &Redis{handle{t: t, server: s}}
}
