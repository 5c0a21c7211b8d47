package redisledger_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/redisledger"
	"github.com/headgate-go/headgate/internal/servers"
)

func TestConfigErrorsNameEveryField(t *testing.T) {
	t.Parallel()
	_, err := redisledger.New(t.Context(), redisledger.Config{Forget: time.Hour, KeepWindows: -1, Prefix: "a{b", Remember: time.Minute, Timeout: -1})
	for _, want := range []string{
		"Config.Client is nil", "Config.Forget is 1h0m0s", "Config.KeepWindows is -1", `Config.Prefix is "a{b"`, "Config.Remember is 1m0s", "Config.Timeout is -1ns",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want one with %q", err, want)
		}
	}
}

// A client in whose place a constructor has returned nothing is none.
func TestANilPointerIsNoClient(t *testing.T) {
	t.Parallel()
	for _, client := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil)} {
		_, err := redisledger.New(t.Context(), redisledger.Config{Client: client})
		if err == nil || !strings.Contains(err.Error(), "Config.Client is nil") {
			t.Errorf("with a %T: error is %v", client, err)
		}
	}
}

// serve is a server that knows some commands only.
func serve(t *testing.T, answers map[string]string) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			wg.Go(func() { answer(conn, answers) })
		}
	})
	return listener.Addr().String()
}

// answer answers commands, of which each is an array of texts.
func answer(conn net.Conn, answers map[string]string) {
	r := bufio.NewReader(conn)
	number := func() int {
		line, err := r.ReadString('\n')
		if err != nil || len(line) < 4 {
			return -1
		}
		n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
		return n
	}
	for {
		n := number()
		if n < 0 {
			return
		}
		var words []string
		for range n {
			text := make([]byte, number()+2)
			if _, err := io.ReadFull(r, text); err != nil {
				return
			}
			words = append(words, string(text[:len(text)-2]))
		}
		reply, ok := answers[strings.ToLower(words[0])]
		if !ok {
			reply = fmt.Sprintf("-ERR unknown command '%s'", words[0])
		}
		if _, err := io.WriteString(conn, reply+"\r\n"); err != nil {
			return
		}
	}
}

func TestServersThatWillNotDoAreToldAtStart(t *testing.T) {
	t.Parallel()
	const pong, new7 = "+PONG", "$8\r\n7.0.15 8"
	for name, c := range map[string]struct {
		answers map[string]string
		want    string
	}{
		"that refuses scripts":        {map[string]string{"ping": pong}, "refuses EVAL"},
		"that keeps no scripts":       {map[string]string{"ping": pong, "eval": new7}, "refuses SCRIPT LOAD"},
		"that is too old":             {map[string]string{"ping": pong, "eval": "$2\r\n 8"}, "older than 7.0"},
		"that says it is too old":     {map[string]string{"ping": pong, "eval": "$7\r\n6.2.1 8"}, "Redis is 6.2.1, and 7.0 is the oldest"},
		"for 32 bits":                 {map[string]string{"ping": pong, "eval": "$8\r\n7.0.15 4"}, "less than 64 bits"},
		"that names scripts its way":  {map[string]string{"ping": pong, "eval": new7, "script": "$1\r\nx"}, `SCRIPT LOAD answers "x"`},
		"that wants another password": {map[string]string{}, "refuses PING"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redis.NewClient(&redis.Options{Addr: serve(t, c.answers), Protocol: 2, DisableIdentity: true})
			defer client.Close()
			_, err := redisledger.New(t.Context(), redisledger.Config{Client: client})
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, quota.ErrUnavailable) {
				t.Errorf("error is %v, want one with %q", err, c.want)
			}
		})
	}
}

// The rights of a user can be less than the server's.
func TestUserWhoMayNotRunScriptsIsToldAtStart(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, servers.RedisOptions{Config: []string{
		"user noeval on nopass ~* +@all -eval", "user noscript on nopass ~* +@all -script", "user all on nopass ~* +@all",
	}})
	for user, want := range map[string]string{"noeval": "refuses EVAL", "noscript": "refuses SCRIPT LOAD", "all": ""} {
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: user, Password: "any"})
		defer client.Close()
		_, err := redisledger.New(t.Context(), redisledger.Config{Client: client})
		switch {
		case want == "" && err != nil:
			t.Errorf("user %s: %v", user, err)
		case want != "" && (!errors.Is(err, quota.ErrUnavailable) || !strings.Contains(err.Error(), want)):
			t.Errorf("user %s: %v, want an error with %q", user, err, want)
		}
	}
}

// Many do not give their users the right to INFO, which is none that is needed otherwise.
func TestWhoWantsToKnowOfReplacedServersMustBeAllowedToAsk(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, servers.RedisOptions{Config: []string{"user noinfo on nopass ~* +@all -info"}})
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "noinfo", Password: "any"})
	defer client.Close()
	if err := open(t, client).Healthy(t.Context()); err != nil {
		t.Error(err)
	}
	_, err := redisledger.New(t.Context(), redisledger.Config{Client: client, Replaced: func(time.Time) {}})
	if err == nil || !strings.Contains(err.Error(), "refuses INFO") || !errors.Is(err, quota.ErrUnavailable) {
		t.Errorf("error is %v, want one with %q", err, "refuses INFO")
	}
}

func TestServerThatCannotBeReachedIsUnavailable(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close() // nobody listens there
	client := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	_, err = redisledger.New(t.Context(), redisledger.Config{Client: client})
	unavailable(t, "New", err)
	if err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("error is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := redisledger.New(ctx, redisledger.Config{Client: client}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

func TestNamesThatAreTooLongAreErrorsThatNameTheField(t *testing.T) {
	t.Parallel()
	l := open(t, shared(t), prefix(t))
	long := strings.Repeat("x", 4097)
	e := hourly("u", quota.Hold, 1, 10)
	window := e
	window.Window = long
	ctx := t.Context()
	reserve := func(r quota.Reserve) error { r.ID = "x"; _, err := l.Reserve(ctx, r); return err }
	for want, err := range map[string]error{
		"Tree has 4097 bytes":                   reserve(quota.Reserve{Tree: long}),
		"Entries[1].Counter has a name of 4097": reserve(quota.Reserve{Entries: []quota.Entry{e, hourly(long, quota.Hold, 1, 10)}}),
		"Entries[0].Counter has a name of 4097": reserve(quota.Reserve{Entries: []quota.Entry{window}}),
		"Exclusive has 4097 bytes":              reserve(quota.Reserve{Exclusive: long}),
		"More[0].Counter has a name":            func() error { _, err := l.Settle(ctx, quota.Settle{ID: "x", More: []quota.Entry{window}}); return err }(),
		"entries[0].Counter has a name":         func() error { _, err := l.Status(ctx, "t", window); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, quota.ErrUnavailable) {
			t.Errorf("error is %v, want one with %q", err, want)
		}
	}
}
