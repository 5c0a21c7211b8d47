package quota_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"pgregory.net/rapid"
)

// topEntry is what the log is told.
type topEntry struct {
	Tokens int64
	Top    []struct {
		Key          string
		Tokens, Over int64
		Calls        int
	}
}

// topLog is a log that timers may write to.
type topLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *topLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *topLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func topEntries(t rapid.TB, log *topLog) (all []topEntry) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		var e topEntry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func spent(user string, tokens int64) quota.CallSettled {
	return quota.CallSettled{
		Occasion: quota.Occasion{Subject: quota.Subject{Tenant: "acme", User: user}},
		Charged:  quota.Amounts{quota.Tokens: tokens},
	}
}

func TestTheLogIsToldOfTheTopUsersOfEachInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log topLog
		top, err := quota.NewTopUsers(quota.TopConfig{Shown: 2, Interval: time.Minute, Logger: slog.New(slog.NewJSONHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range []quota.Event{
			spent("alice", 100), spent("bob", 300), spent("carol", 50), spent("alice", 250),
			quota.Overage{Occasion: quota.Occasion{Subject: quota.Subject{User: "dave"}}},
			spent("", 1000), spent("erin", 0),
		} {
			top.Listen(e)
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if log.String() != "" {
			t.Errorf("before the interval is over, the log has %s", &log)
		}
		time.Sleep(5 * time.Minute) // nothing happens in most of it
		synctest.Wait()
		top.Listen(spent("bob", 7))
		top.Close()
		top.Listen(spent("bob", 8)) // too late
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		got := topEntries(t, &log)
		if len(got) != 2 {
			t.Fatalf("the log has %d entries, want 2:\n%s", len(got), &log)
		}
		if s, want := fmt.Sprint(got[0]), "{700 [{tenant=acme/user=alice 350 0 2} {tenant=acme/user=bob 300 0 1}]}"; s != want {
			t.Errorf("the first is %s, want %s", s, want)
		}
		if s, want := fmt.Sprint(got[1]), "{7 [{tenant=acme/user=bob 7 0 1}]}"; s != want {
			t.Errorf("the second is %s, want %s", s, want)
		}
	})
}

func TestACorrectionCountsInTheTopByWhatItChanges(t *testing.T) {
	t.Parallel()
	var log topLog
	top, err := quota.NewTopUsers(quota.TopConfig{Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	more, less := spent("alice", 130), spent("bob", 20)
	more.Corrects, more.Before = true, quota.Amounts{quota.Tokens: 100}
	less.Corrects, less.Before = true, quota.Amounts{quota.Tokens: 50}
	for _, e := range []quota.Event{spent("alice", 100), spent("bob", 50), more, less} {
		top.Listen(e)
	}
	top.Close()
	want := "[{180 [{tenant=acme/user=alice 130 0 1} {tenant=acme/user=bob 50 0 1}]}]"
	if got := fmt.Sprint(topEntries(t, &log)); got != want {
		t.Errorf("the log has %s, want %s", got, want)
	}
}

// The guarantee of the sketch, against exact sums: whoever used more than the total
// divided by the counters is told, no count is too low, and none is too high by more
// than it says, which is never above that quotient.
func TestNobodyWhoUsesMuchIsMissedAndNoCountIsTooLow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		counters := rapid.IntRange(1, 8).Draw(rt, "counters")
		var log topLog
		top, err := quota.NewTopUsers(quota.TopConfig{
			Counters: counters, Shown: counters, Interval: time.Hour, Logger: slog.New(slog.NewJSONHandler(&log, nil)),
		})
		if err != nil {
			rt.Fatal(err)
		}
		exact, total := map[string]int64{}, int64(0)
		for _, u := range rapid.SliceOfN(rapid.IntRange(0, 30), 1, 200).Draw(rt, "users") {
			user, n := fmt.Sprint(u), rapid.Int64Range(1, 1000).Draw(rt, "tokens")
			exact["tenant=acme/user="+user] += n
			total += n
			top.Listen(spent(user, n))
		}
		top.Close()
		entry := topEntries(rt, &log)[0]
		if entry.Tokens != total || len(entry.Top) > counters {
			rt.Fatalf("the log has %+v, of %d tokens and %d counters", entry, total, counters)
		}
		told := map[string]bool{}
		for _, u := range entry.Top {
			told[u.Key] = true
			if is := exact[u.Key]; u.Tokens < is || u.Tokens-u.Over > is || u.Over > total/int64(counters) {
				rt.Fatalf("%s is told with %d, over by at most %d; it used %d of %d", u.Key, u.Tokens, u.Over, is, total)
			}
		}
		for key, n := range exact {
			if n > total/int64(counters) && !told[key] {
				rt.Fatalf("%s used %d of %d and is not told with %d counters", key, n, total, counters)
			}
		}
	})
}

func TestTopConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  quota.TopConfig
		want string
	}{
		{quota.TopConfig{Counters: -1}, "TopConfig.Counters is -1"},
		{quota.TopConfig{Shown: -2}, "TopConfig.Shown is -2"},
		{quota.TopConfig{Interval: -time.Second}, "TopConfig.Interval is -1s"},
		{quota.TopConfig{Scope: "project"}, `TopConfig.Scope is "project"`},
	} {
		if _, err := quota.NewTopUsers(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want %s", err, c.want)
		}
	}
}
