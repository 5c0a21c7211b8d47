package blocks_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
	"github.com/headgate-go/headgate/budget/quota/redisledger"
	"github.com/headgate-go/headgate/internal/servers"
)

const (
	redisAt      = "HEADGATE_BLOCKS_REDIS"
	largestBlock = 40
	processLimit = 1500
)

// everybodys is an entry of a limit that never resets.
func everybodys(amount int64) quota.Entry {
	return quota.Entry{
		Counter: quota.Counter{Key: "global", Window: "ever", Unit: quota.Tokens},
		Kind:    quota.Hold, Amount: amount, Limit: processLimit, Ceiling: -1,
	}
}

func overRedis(t *testing.T, addr string) quota.Ledger {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	l, err := redisledger.New(t.Context(), redisledger.Config{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// One is killed, and one stands still for longer than its blocks live while others take
// what has lapsed, and goes on: the limit is passed by what that one had leased at most,
// and of what was spent less than what the other one had is missing.
func TestProcessesThatDieOrStandStillPassNoLimit(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, servers.RedisOptions{})
	passed := func(p *servers.Process, stop <-chan time.Time) (n int64, done bool) {
		for {
			select {
			case line, ok := <-p.Lines():
				switch {
				case !ok, line == "used up":
					return n, true
				case strings.HasPrefix(line, "passed "):
					more, _ := strconv.ParseInt(line[len("passed "):], 10, 64)
					n += more
				}
			case <-stop:
				return n, false
			}
		}
	}
	begin := func() *servers.Process {
		return servers.Respawn(t, "TestSpendsUntilItIsUsedUp", redisAt+"="+server.Addr())
	}
	dies, stands, lives := begin(), begin(), begin()
	killed, _ := passed(dies, time.After(time.Second))
	dies.Kill()
	rest, _ := passed(dies, nil)
	killed += rest
	stands.Pause()
	others, done := passed(lives, nil)
	if !done {
		t.Fatal("it does not end")
	}
	stands.Resume()
	paused, _ := passed(stands, nil)
	all := killed + paused + others
	// It may have gone on with a call just then, too.
	if most := int64(processLimit + 2*largestBlock + 5); all > most {
		t.Errorf("%d passed, of %d, want at most %d", all, processLimit, most)
	}
	if err := stands.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := lives.Wait(); err != nil {
		t.Fatal(err)
	}
	st, err := overRedis(t, server.Addr()).Status(t.Context(), "global", everybodys(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d, %d and %d passed; the ledger has %d committed and %d reserved", killed, paused, others, st[0].Committed, st[0].Reserved)
	if st[0].Reserved != 0 || st[0].Committed > all || st[0].Committed < all-2*largestBlock {
		t.Errorf("%d passed, and the ledger has %d committed and %d reserved", all, st[0].Committed, st[0].Reserved)
	}
	if paused == 0 || killed == 0 || others == 0 {
		t.Error("one did nothing")
	}
}

func TestSpendsUntilItIsUsedUp(t *testing.T) {
	if !servers.Respawned(t) {
		t.Skip("runs as a process of TestProcessesThatDieOrStandStillPassNoLimit")
	}
	l, err := blocks.New(overRedis(t, os.Getenv(redisAt)), blocks.Config{
		TTL: time.Second, Idle: 200 * time.Millisecond, Max: quota.Amounts{quota.Tokens: largestBlock},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for denied := 0; denied < 30; {
		id, n := budget.NewID(), int64(1+denied%5)
		res, err := l.Reserve(ctx, quota.Reserve{ID: id, Tree: "global", Entries: []quota.Entry{everybodys(n)}})
		switch {
		case err != nil:
			t.Log(err)
			time.Sleep(100 * time.Millisecond)
			continue
		case res.Denied >= 0: // others may still return something
			denied++
			time.Sleep(50 * time.Millisecond)
			continue
		}
		fmt.Println("passed", n)
		if _, err := l.Settle(ctx, quota.Settle{ID: id, Tree: "global", Actual: quota.Amounts{quota.Tokens: n}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond)
	}
	if err := l.Close(ctx); err != nil {
		t.Fatal(err)
	}
	fmt.Println("used up")
}
