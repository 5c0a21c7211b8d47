package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// RedisOptions say how a Redis server is to run. The zero value is one that
// keeps nothing on disk.
type RedisOptions struct {
	// AppendOnly is when what was written reaches the disk (appendfsync):
	// "always", "everysec" or "no". "" is never: a killed server has lost
	// everything.
	AppendOnly string
	// Config are lines of redis.conf, such as "maxmemory 1mb". They come last,
	// so that they win over what is set here.
	Config []string
}

// Redis is a running redis-server.
type Redis struct{ handle }

// StartRedis starts a redis-server for this test, which ends with it.
func StartRedis(t testing.TB, o RedisOptions) *Redis {
	t.Helper()
	s, err := newRedis(requireRedis(t), o)
	if err != nil {
		t.Fatal(err)
	}
	s.closeAfter(t)
	if err := s.startNew(1); err != nil {
		t.Fatal(err)
	}
	return &Redis{handle{t: t, server: s}}
}

// Addr returns host:port of the server, which stays the same for its life.
func (r *Redis) Addr() string { return r.addr() }

// Client returns a new client of the server, which is closed when the test is
// over. It has the defaults of go-redis: among them, it repeats a command that
// failed for the network up to three times.
func (r *Redis) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: r.Addr(), MaintNotificationsConfig: noNotifications()})
	r.t.Cleanup(func() { _ = c.Close() }) // fails if the test has closed it
	return c
}

// noNotifications turns off what only Redis Enterprise answers.
func noNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

func requireRedis(t testing.TB) string {
	t.Helper()
	return Require(t, "redis-server", "redis-server")
}

// newRedis prepares a server; more are lines of configuration that come before
// those of the options.
func newRedis(binary string, o RedisOptions, more ...func(s *server) string) (*server, error) {
	appendOnly := "appendonly no"
	switch o.AppendOnly {
	case "":
	case "always", "everysec", "no":
		appendOnly = "appendonly yes\nappendfsync " + o.AppendOnly
	default:
		return nil, fmt.Errorf("RedisOptions.AppendOnly is %q, want always, everysec, no or nothing", o.AppendOnly)
	}
	dir, err := makeFolder("redis")
	if err != nil {
		return nil, err
	}
	return &server{
		program: "redis-server",
		dir:     dir,
		death:   syscall.SIGKILL,
		ready:   redisReady,
		command: func(s *server) (*exec.Cmd, error) {
			lines := []string{
				"bind 127.0.0.1",
				"port " + strconv.Itoa(s.ports[0].number),
				"daemonize no",
				`save ""`, // no snapshots: the options say what is kept
				appendOnly,
				// A replica starts to copy its master at once, and not after
				// the default of 5 s.
				"repl-diskless-sync-delay 0",
			}
			for _, f := range more {
				lines = append(lines, f(s))
			}
			lines = append(lines, o.Config...)
			conf := filepath.Join(s.dir, "redis.conf")
			if err := os.WriteFile(conf, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
				return nil, err
			}
			cmd := exec.Command(binary, conf)
			cmd.Dir = s.dir // where it keeps its data
			return cmd, nil
		},
	}, nil
}

// redisReady returns nil if the server answers, has loaded its data, and is the
// process that was started rather than one that had the port before.
func redisReady(ctx context.Context, s *server) error {
	if _, err := askRedis(ctx, s.addr(), "PING"); err != nil {
		return err
	}
	info, err := askRedis(ctx, s.addr(), "INFO", "server")
	if err != nil {
		return err
	}
	if !strings.Contains(info, "\r\nconfig_file:"+filepath.Join(s.dir, "redis.conf")+"\r\n") {
		return fmt.Errorf("another server answers at %s", s.addr())
	}
	return nil
}
