package servers

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// once returns a client that sends every command once, and gives up soon.
func once(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: noNotifications(),
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestAKilledRedisHasWhatItsOptionsSay(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		appendOnly string
		keeps      bool
	}{
		{"always", true},
		{"everysec", true}, // the data is with the kernel, which lives
		{"no", true},
		{"", false},
	} {
		t.Run("appendonly "+tt.appendOnly, func(t *testing.T) {
			t.Parallel()
			r := StartRedis(t, RedisOptions{AppendOnly: tt.appendOnly})
			addr := r.Addr()
			c := once(t, addr)

			// Calls are under way when the server dies.
			var acknowledged atomic.Int64
			writer := make(chan error, 1)
			go func() {
				for {
					n, err := c.Incr(t.Context(), "n").Result()
					if err != nil {
						writer <- err
						return
					}
					acknowledged.Store(n)
				}
			}()
			for acknowledged.Load() < 50 {
				time.Sleep(time.Millisecond)
			}
			r.Kill()
			if err := <-writer; err == nil {
				t.Error("a killed server answers")
			}
			r.Restart()

			if r.Addr() != addr {
				t.Errorf("restarted at %s, was at %s", r.Addr(), addr)
			}
			n, err := once(t, addr).Get(t.Context(), "n").Int64()
			if !tt.keeps {
				if !errors.Is(err, redis.Nil) {
					t.Errorf("kept %d (%v), want nothing", n, err)
				}
				return
			}
			// One more than was acknowledged may have been done.
			if err != nil || n < acknowledged.Load() || n > acknowledged.Load()+1 {
				t.Errorf("counter is %d (%v), %d were acknowledged", n, err, acknowledged.Load())
			}
		})
	}
}

func TestAPausedRedisAnswersNobodyAndThenEverybody(t *testing.T) {
	t.Parallel()
	r := StartRedis(t, RedisOptions{})
	c := once(t, r.Addr())
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r.Pause()

	for name, c := range map[string]*redis.Client{"old": c, "new": once(t, r.Addr())} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := c.Incr(ctx, name).Err(); !errors.Is(err, context.DeadlineExceeded) && !isTimeout(err) {
			t.Errorf("over the %s connection: %v, want a time-out", name, err)
		}
		cancel()
	}
	waiting := make(chan error, 1)
	conn, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatalf("a new connection: %v, want one that nobody answers", err)
	}
	defer conn.Close()
	go func() {
		_, err := conn.Write([]byte("PING\r\n"))
		if err == nil {
			_, err = conn.Read(make([]byte, 7))
		}
		waiting <- err
	}()

	r.Resume()
	if err := <-waiting; err != nil {
		t.Errorf("who waited got %v", err)
	}
	if n, err := once(t, r.Addr()).Incr(t.Context(), "old").Result(); err != nil || n != 2 {
		t.Errorf("the counter is %d (%v), want 2: what was sent to a paused server is done later", n, err)
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func TestKillAndRestartDoNotDependOnTheState(t *testing.T) {
	t.Parallel()
	r := StartRedis(t, RedisOptions{AppendOnly: "always"})
	for i, f := range []func(){
		func() { r.Restart() },           // runs
		func() { r.Kill(); r.Restart() }, // is dead
		func() { r.Kill(); r.Kill(); r.Restart() },
		func() { r.Pause(); r.Restart() },
		func() { r.Pause(); r.Kill(); r.Restart() },
		func() { r.Pause(); r.Pause(); r.Resume(); r.Resume() },
		func() { // ends by itself
			_ = once(t, r.Addr()).ShutdownNoSave(t.Context()).Err()
			r.Kill()
			r.Restart()
		},
	} {
		f()
		if n, err := once(t, r.Addr()).Incr(t.Context(), "n").Result(); err != nil || n != int64(i+1) {
			t.Fatalf("after step %d the counter is %d (%v), want %d", i, n, err, i+1)
		}
	}
	r.Pause() // and is ended all the same
}

func TestADeadServerCannotBePausedOrResumed(t *testing.T) {
	t.Parallel()
	r := record(t, func(t testing.TB) {
		r := StartRedis(t, RedisOptions{})
		r.Kill()
		r.Pause()
		r.Resume()
	})
	for _, want := range []string{"Pause of redis-server: it does not run", "Resume of redis-server: it does not run"} {
		if !strings.Contains(r.text(), want) {
			t.Errorf("said %q, which lacks %q", r.text(), want)
		}
	}
}

func TestOptionsWinOverWhatIsSet(t *testing.T) {
	t.Parallel()
	r := StartRedis(t, RedisOptions{Config: []string{"maxmemory 3mb", "rename-command SCRIPT \"\"", "databases 3"}})
	c := r.Client()
	if got, err := c.ConfigGet(t.Context(), "maxmemory").Result(); err != nil || got["maxmemory"] != strconv.Itoa(3<<20) {
		t.Errorf("maxmemory is %v (%v)", got, err)
	}
	if got, err := c.ConfigGet(t.Context(), "databases").Result(); err != nil || got["databases"] != "3" {
		t.Errorf("databases is %v (%v)", got, err)
	}
	if err := c.ScriptLoad(t.Context(), "return 1").Err(); err == nil || !strings.Contains(err.Error(), "unknown command") {
		t.Errorf("a command that was renamed: %v", err)
	}
}

func TestAServerThatDoesNotStartFailsTheTestWithItsLog(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		start func(t testing.TB)
		want  string
	}{
		{
			"redis, a line of its configuration",
			func(t testing.TB) { StartRedis(t, RedisOptions{Config: []string{"no-such-line 1"}}) },
			"no-such-line",
		},
		{
			"redis, an option",
			func(t testing.TB) { StartRedis(t, RedisOptions{AppendOnly: "sometimes"}) },
			`RedisOptions.AppendOnly is "sometimes"`,
		},
		{
			"postgres, a setting",
			func(t testing.TB) { StartPostgres(t, PostgresOptions{Config: []string{"no_such_setting=1"}}) },
			`unrecognized configuration parameter "no_such_setting"`,
		},
		{
			"postgres, a setting without a value",
			func(t testing.TB) { StartPostgres(t, PostgresOptions{Config: []string{"fsync"}}) },
			`PostgresOptions.Config has "fsync"`,
		},
		{
			"cluster, its size",
			func(t testing.TB) { StartRedisCluster(t, 0, 1, RedisOptions{}) },
			"0 masters",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := record(t, tt.start)
			if r.skipped {
				t.Skip(r.text())
			}
			if !r.failed || !strings.Contains(r.text(), tt.want) {
				t.Errorf("failed: %v; said %q, want %q in it", r.failed, r.text(), tt.want)
			}
		})
	}
}

func TestAPortThatAnotherProgramTookIsGivenUp(t *testing.T) {
	t.Parallel()
	redisServer, programs := requireRedis(t), requirePostgres(t)
	for name, prepare := range map[string]func() (*server, error){
		"redis":    func() (*server, error) { return newRedis(redisServer, RedisOptions{}) },
		"postgres": func() (*server, error) { return newPostgres(programs, PostgresOptions{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := prepare()
			if err != nil {
				t.Fatal(err)
			}
			s.closeAfter(t)
			// Between the choice of a port and its use another program takes
			// the port.
			var taken string
			command := s.command
			s.command = func(s *server) (*exec.Cmd, error) {
				if taken == "" {
					taken = s.addr()
					other, err := net.Listen("tcp4", taken)
					if err != nil {
						return nil, err
					}
					t.Cleanup(func() { _ = other.Close() })
				}
				return command(s)
			}
			if err := s.startNew(1); err != nil {
				t.Fatal(err)
			}
			if s.addr() == taken {
				t.Errorf("runs at %s, which another program has", taken)
			}
		})
	}
}

func TestRestartWaitsForItsPort(t *testing.T) {
	t.Parallel()
	r := StartRedis(t, RedisOptions{})
	r.Kill()
	other, err := net.Listen("tcp4", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(200*time.Millisecond, func() { _ = other.Close() })
	r.Restart()
	if err := r.Client().Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

func TestPortsAreGivenOnce(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 200 {
		p, err := claimPort()
		if err != nil {
			t.Fatal(err)
		}
		defer p.release()
		if seen[p.number] {
			t.Fatalf("port %d was given twice", p.number)
		}
		if p.number < firstPort || p.number > lastPort {
			t.Errorf("port %d is not in %d..%d", p.number, firstPort, lastPort)
		}
		seen[p.number] = true
	}
}
