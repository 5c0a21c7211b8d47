package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
	"github.com/headgate-go/headgate/internal/servers"
)

// shared are the stores that several servers can share, each with what the command line
// is to say about it.
var shared = map[string]func(t *testing.T) []string{
	"sqlite": func(t *testing.T) []string {
		return []string{"-store", "sqlite", "-dsn", filepath.Join(t.TempDir(), "spend.db")}
	},
	"postgres": func(t *testing.T) []string {
		return []string{"-store", "postgres", "-dsn", servers.SharedPostgres(t).NewDatabase(t)}
	},
	"redis": func(t *testing.T) []string {
		return []string{"-store", "redis", "-dsn", "redis://" + servers.StartRedis(t, servers.RedisOptions{}).Addr()}
	},
}

// served says where a server is that says so in its first line.
func served(t *testing.T, lines <-chan string) (url string) {
	t.Helper()
	select {
	case line := <-lines:
		at, ok := strings.CutPrefix(strings.TrimSpace(line), "support: ")
		if !ok {
			t.Fatalf("the server says %q", line)
		}
		return strings.TrimSuffix(at, "/")
	case <-time.After(30 * time.Second):
		t.Fatal("the server does not begin")
	}
	return ""
}

// beginServer runs the program until the test ends.
func beginServer(t *testing.T, args ...string) (url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	in, out := io.Pipe()
	var stderr lockedBuffer
	var ended sync.WaitGroup
	ended.Go(func() {
		defer out.Close()
		if code := run(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), out, &stderr); code != exitOK {
			t.Errorf("the server ended with %d: %s", code, stderr.String())
		}
	})
	t.Cleanup(func() { cancel(); ended.Wait() })
	lines := make(chan string, 1)
	go func() {
		defer close(lines)
		buf := make([]byte, 200)
		n, _ := in.Read(buf)
		lines <- string(buf[:n])
		_, _ = io.Copy(io.Discard, in)
	}()
	return served(t, lines)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// send sends a message of a user.
func send(ctx context.Context, url, user string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/chat", strings.NewReader("Where is my parcel?"))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set(userHeader, user)
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

func mustGet(t *testing.T, url string, status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != status {
		t.Errorf("%s: %s, want %d", url, resp.Status, status)
	}
}

// alone are metrics that only one of the stores has.
var alone = map[string][]string{
	"sqlite":   {`headgate_sqlledger_transaction_operations_count{ledger="sqlite"}`},
	"postgres": {`headgate_sqlledger_transaction_operations_count{ledger="postgres"}`},
	"redis":    {`headgate_redisledger_round_trips_total{ledger="redis"}`, `headgate_blocks_reservations_total{ledger="blocks",way="waited"}`},
}

// text is what a server answers.
func text(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// Two servers on one store are one budget, and it is still there after both have ended.
func TestServersThatShareAStoreShareEveryBudget(t *testing.T) {
	t.Parallel()
	for kind, where := range shared {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			args := append(where(t), "-latency", "50ms")
			chats := func(t *testing.T, urls []string, want ...int) {
				for i, status := range want {
					got, body, err := sendUntilAnswered(t, urls[i%len(urls)], "alice")
					if err != nil || got != status {
						t.Fatalf("message %d got %d, %v: %s; want %d", i+1, got, err, body, status)
					}
				}
			}
			t.Run("two servers", func(t *testing.T) {
				chats(t, []string{beginServer(t, args...), beginServer(t, args...)}, 200, 200, 200, 429, 429)
			})
			t.Run("after both", func(t *testing.T) {
				url := beginServer(t, args...)
				chats(t, []string{url}, 429)
				if got, body, err := sendUntilAnswered(t, url, "bob"); err != nil || got != http.StatusOK {
					t.Errorf("bob got %d, %v: %s", got, err, body)
				}
				metrics := text(t, url+"/metrics")
				for _, want := range append([]string{`headgate_store_operations_total{ledger="` + kind + `",operation="settle",outcome="ok"}`}, alone[kind]...) {
					if !strings.Contains(metrics, want) {
						t.Errorf("the metrics lack %s", want)
					}
				}
			})
		})
	}
}

// A Redis that has forgotten everything, as after a failover to a replica that was empty, is told again
// what was spent by the server that has a journal of it.
func TestAStoreThatHasLostItsDataIsToldAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		journal bool
		want    int // for a fourth message
	}{{"with a journal", true, http.StatusTooManyRequests}, {"without", false, http.StatusOK}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			redis := servers.StartRedis(t, servers.RedisOptions{})
			args := []string{"-store", "redis", "-dsn", "redis://" + redis.Addr(), "-latency", "50ms"}
			dir := filepath.Join(t.TempDir(), "journal")
			if c.journal {
				args = append(args, "-journal", dir)
			}
			t.Run("before", func(t *testing.T) {
				url := beginServer(t, args...)
				for i := range 3 {
					if got, body, err := sendUntilAnswered(t, url, "alice"); err != nil || got != http.StatusOK {
						t.Fatalf("message %d got %d, %v: %s", i+1, got, err, body)
					}
				}
			})
			if err := redis.Client().FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			t.Run("after", func(t *testing.T) {
				got, body, err := sendUntilAnswered(t, beginServer(t, args...), "alice")
				if err != nil || got != c.want {
					t.Errorf("a fourth message got %d, %v: %s; want %d", got, err, body, c.want)
				}
			})
			if !c.journal {
				return
			}
			spent := int64(0)
			for r, err := range journal.All(dir) {
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range r.Charges() {
					if c.Counter.Unit == quota.Money && strings.Contains(c.Counter.Key, "alice") {
						spent += c.Amount
					}
				}
			}
			if spent < 30_000 || spent > 35_000 { // three answers
				t.Errorf("by the journal alice has spent %d micro-dollars", spent)
			}
		})
	}
}

// The same without a restart of the server: here Redis dies, and comes back with nothing. A server
// that is idle meanwhile has nothing that fails.
func TestAServerTellsAStoreThatIsBackWhatItHasLost(t *testing.T) {
	t.Parallel()
	for name, idle := range map[string]bool{"after an outage": false, "that was idle": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := servers.StartRedis(t, servers.RedisOptions{})
			url := beginServer(t, "-store", "redis", "-dsn", "redis://"+redis.Addr(), "-latency", "50ms",
				"-journal", filepath.Join(t.TempDir(), "journal"))
			for i := range 3 {
				if got, body, err := sendUntilAnswered(t, url, "alice"); err != nil || got != http.StatusOK {
					t.Fatalf("message %d got %d, %v: %s", i+1, got, err, body)
				}
			}
			redis.Kill()
			if !idle {
				if got, _, err := send(t.Context(), url, "alice"); err != nil || got != http.StatusServiceUnavailable {
					t.Fatalf("without a store a message got %d, %v", got, err)
				}
			}
			redis.Restart()
			for begin := time.Now(); !idle; time.Sleep(200 * time.Millisecond) {
				got, body, err := send(t.Context(), url, "bob") // whoever comes first finds that it is back
				if err == nil && got == http.StatusOK {
					break
				}
				if time.Since(begin) > 30*time.Second {
					t.Fatalf("the store is back, and a message gets %d, %v: %s", got, err, body)
				}
			}
			kept := redis.Client()
			for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
				if n, err := kept.Exists(t.Context(), "headgate:{tenant=acme}:a:tenant=acme/user=alice").Result(); err == nil && n > 0 {
					break
				}
				if time.Since(begin) > 30*time.Second {
					keys, err := kept.Keys(t.Context(), "*").Result()
					t.Fatalf("the store is not told again what alice has spent: %q, %v", keys, err)
				}
			}
			for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
				if spent, _ := standing(t, url, "alice", "daily"); spent >= 30_000 { // three answers
					break
				}
				if time.Since(begin) > 20*time.Second {
					t.Fatal("the store is not told again all that alice has spent")
				}
			}
			if got, body, err := sendUntilAnswered(t, url, "alice"); err != nil || got != http.StatusTooManyRequests {
				t.Errorf("a fourth message got %d, %v: %s; want 429", got, err, body)
			}
		})
	}
}

// TestServerThatIsKilled is the server of the next test.
func TestServerThatIsKilled(t *testing.T) {
	if !servers.Respawned(t) {
		t.Skip("runs as a process of its own")
	}
	os.Exit(run(t.Context(), strings.Fields(os.Getenv("SUPPORT_ARGS")), os.Stdout, os.Stderr))
}

// A user may have two chats open. Those of a server that was killed in their middle are
// over when their leases are, and none before.
func TestTheChatsOfAServerThatWasKilledComeBack(t *testing.T) {
	t.Parallel()
	for kind, where := range shared {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const lease = 3 * time.Second
			args := append(where(t), "-lease", lease.String())
			dying := servers.Respawn(t, "TestServerThatIsKilled",
				"SUPPORT_ARGS="+strings.Join(append([]string{"-addr", "127.0.0.1:0", "-latency", "20s"}, args...), " "))
			url := served(t, dying.Lines())
			living := beginServer(t, append(args, "-latency", "50ms")...)

			var open sync.WaitGroup
			for range 2 {
				open.Go(func() { _, _, _ = send(t.Context(), url, "carol") })
			}
			for begin := time.Now(); openChats(t, living, "carol") < 2; time.Sleep(50 * time.Millisecond) {
				if time.Since(begin) > 20*time.Second {
					t.Fatal("two chats do not begin")
				}
			}
			third := func() int {
				status, body, err := sendUntilAnswered(t, living, "carol")
				if err != nil || status == http.StatusTooManyRequests && !strings.Contains(body, "open-chats") {
					t.Fatalf("carol got %d, %v: %s", status, err, body)
				}
				return status
			}
			if got := third(); got != http.StatusTooManyRequests {
				t.Fatalf("beside two open chats a third got %d", got)
			}
			killed := time.Now()
			dying.Kill()
			open.Wait()
			if n := openChats(t, living, "carol"); n >= 0 && n != 2 && time.Since(killed) < lease/2 {
				t.Errorf("%d chats of a server that was killed just now are open, want 2", n)
			}
			for openChats(t, living, "carol") != 0 {
				if time.Since(killed) > 3*lease {
					t.Fatalf("%v after the server was killed its chats are still open", time.Since(killed))
				}
				time.Sleep(100 * time.Millisecond)
			}
			if got := third(); got != http.StatusOK {
				t.Errorf("then a chat got %d", got)
			}
		})
	}
}

// sendUntilAnswered sends a message again while the store is too slow, as it may be on a
// machine with much else to do.
func sendUntilAnswered(t *testing.T, url, user string) (status int, body string, err error) {
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		status, body, err = send(t.Context(), url, user)
		if err != nil || status != http.StatusServiceUnavailable || time.Since(begin) > 20*time.Second {
			return status, body, err
		}
	}
}

// openChats is how many turns of a user are open, or -1 if nobody knows.
func openChats(t *testing.T, url, user string) int64 {
	t.Helper()
	_, open := standing(t, url, user, "open-chats")
	return open
}

// standing is what a user has spent and holds of a limit, or -1 if nobody knows.
func standing(t *testing.T, url, user, limit string) (committed, reserved int64) {
	t.Helper()
	return standingOf(t, url, "acme", user, limit)
}

// standingOf is the same for a user of any company.
func standingOf(t *testing.T, url, tenant, user, limit string) (committed, reserved int64) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/admin/status?tenant="+tenant+"&user="+user, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+defaultAdminToken)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var status struct {
		Limits []struct {
			Limit     string `json:"limit"`
			Committed int64  `json:"committed"`
			Reserved  int64  `json:"reserved"`
		} `json:"limits"`
	}
	if resp.StatusCode == http.StatusServiceUnavailable {
		return -1, -1
	}
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", resp.Status, err)
	}
	for _, l := range status.Limits {
		if l.Limit == limit {
			return l.Committed, l.Reserved
		}
	}
	t.Fatalf("there is no limit %s in %+v", limit, status)
	return 0, 0
}

// Whether the program is healthy and whether it can serve are two questions while its
// store is gone.
func TestAServerWithoutItsStoreServesIfItIsToldTo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args         []string
		ready, chats int
	}{
		{nil, http.StatusServiceUnavailable, http.StatusServiceUnavailable},
		{[]string{"-fail-open"}, http.StatusOK, http.StatusOK},
	} {
		t.Run(fmt.Sprint(c.args), func(t *testing.T) {
			t.Parallel()
			redis := servers.StartRedis(t, servers.RedisOptions{})
			url := beginServer(t, append([]string{"-store", "redis", "-dsn", "redis://" + redis.Addr(), "-latency", "50ms"}, c.args...)...)
			mustGet(t, url+"/readyz", http.StatusOK)
			redis.Pause()
			mustGet(t, url+"/healthz", http.StatusServiceUnavailable)
			mustGet(t, url+"/readyz", c.ready)
			status, body, err := send(t.Context(), url, "bob")
			if err != nil || status != c.chats {
				t.Errorf("bob got %d, %v: %s; want %d", status, err, body, c.chats)
			}
			redis.Resume()
			for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
				status, body, err := send(t.Context(), url, "bob")
				if err == nil && status == http.StatusOK {
					break
				}
				if time.Since(begin) > 20*time.Second {
					t.Fatalf("the store is back, and bob gets %d, %v: %s", status, err, body)
				}
			}
			mustGet(t, url+"/healthz", http.StatusOK)
		})
	}
}

// A server that is to go on without its store begins without it, too; any other one says what is
// missing, and ends.
func TestAServerBeginsWithoutItsStoreIfItIsToldTo(t *testing.T) {
	t.Parallel()
	t.Run("not told", func(t *testing.T) {
		t.Parallel()
		redis := servers.StartRedis(t, servers.RedisOptions{})
		redis.Kill()
		var stdout, stderr lockedBuffer
		code := run(t.Context(), []string{"-addr", "127.0.0.1:0", "-store", "redis", "-dsn", "redis://" + redis.Addr()}, &stdout, &stderr)
		if got := stderr.String(); code != exitFailed || !strings.HasPrefix(got, "support: store redis: ") || !strings.Contains(got, "cannot be reached") {
			t.Errorf("it ended with %d: %s", code, got)
		}
		if got := stdout.String(); got != "" {
			t.Errorf("it says %q", got)
		}
	})
	for name, more := range map[string]func(t *testing.T) []string{
		"told":                func(t *testing.T) []string { return nil },
		"told, and a journal": func(t *testing.T) []string { return []string{"-journal", filepath.Join(t.TempDir(), "journal")} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := servers.StartRedis(t, servers.RedisOptions{})
			redis.Kill()
			url := beginServer(t, append(more(t), "-store", "redis", "-dsn", "redis://"+redis.Addr(), "-latency", "50ms", "-fail-open")...)
			mustGet(t, url+"/healthz", http.StatusServiceUnavailable)
			mustGet(t, url+"/readyz", http.StatusOK)
			if status, body, err := send(t.Context(), url, "bob"); err != nil || status != http.StatusOK {
				t.Errorf("bob got %d, %v: %s", status, err, body)
			}
			redis.Restart()
			for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
				if spent, _ := standingOf(t, url, "globex", "bob", "daily"); spent >= 10_000 { // what it was before is booked
					break
				}
				if time.Since(begin) > 30*time.Second {
					t.Fatal("the store is there, and does not know what bob has spent")
				}
			}
			mustGet(t, url+"/healthz", http.StatusOK)
			for _, want := range alone["redis"] {
				if !strings.Contains(text(t, url+"/metrics"), want) {
					t.Errorf("the metrics lack %s", want)
				}
			}
		})
	}
}
