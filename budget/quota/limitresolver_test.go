package quota_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget/quota"
)

var errDown = errors.New("contracts are down")

// contracts is a slow table of how many calls a day everybody may make.
type contracts struct {
	mu    sync.Mutex
	calls map[string]int64 // by user and plan
	err   error
	delay time.Duration
	asked []quota.Subject
}

func (c *contracts) Limits(ctx context.Context, s quota.Subject) ([]quota.Limit, error) {
	c.mu.Lock()
	most, err, delay := c.calls[s.User+s.Plan], c.err, c.delay
	c.asked = append(c.asked, s)
	c.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return []quota.Limit{{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Calls: most}}}, nil
}

func (c *contracts) set(user string, calls int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = map[string]int64{}
	}
	c.calls[user], c.err = calls, err
}

func (c *contracts) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.asked)
}

func mustCache(t testing.TB, config quota.LimitCacheConfig) *quota.LimitCache {
	t.Helper()
	c, err := quota.NewLimitCache(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// callsOf asks a cache for a user's daily calls.
func callsOf(c *quota.LimitCache, s quota.Subject) (int64, error) {
	limits, err := c.Limits(context.Background(), s)
	if err != nil {
		return 0, err
	}
	if len(limits) != 1 {
		return 0, fmt.Errorf("there are %d limits", len(limits))
	}
	return limits[0].Max[quota.Calls], nil
}

func TestLimitCacheAsksAgainAfterTTLAndServesStaleUpToMaxStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &contracts{}
		source.set("alice", 10, nil)
		c := mustCache(t, quota.LimitCacheConfig{
			Source: source, TTL: time.Minute, MaxStale: 10 * time.Minute, RetryAfter: 5 * time.Second,
		})
		begin, alice := time.Now(), quota.Subject{User: "alice"}
		for _, step := range []struct {
			at    time.Duration // since the beginning
			calls int64         // what the table says from then on
			down  error
			want  int64
			err   error
			asked int // look-ups up to then
		}{
			{0, 10, nil, 10, nil, 1},
			{time.Minute - 1, 20, nil, 10, nil, 1},
			{time.Minute, 20, nil, 20, nil, 2},
			{2 * time.Minute, 20, errDown, 20, nil, 3},                                // stale
			{2*time.Minute + 5*time.Second - 1, 20, errDown, 20, nil, 3},              // and left alone
			{2*time.Minute + 5*time.Second, 20, errDown, 20, nil, 4},                  // and tried again
			{11*time.Minute - 1, 20, errDown, 20, nil, 5},                             // as old as it may get
			{11 * time.Minute, 20, errDown, 0, errDown, 5},                            // too old, and left alone
			{11*time.Minute + 5*time.Second - 1, 30, nil, 30, nil, 6},                 // back
			{12*time.Minute + 5*time.Second - 1 - 1, 40, errDown, 30, nil, 6},         // fresh: not asked
			{12*time.Minute + 5*time.Second - 1, 40, errDown, 30, nil, 7},             // stale again
			{21*time.Minute + 5*time.Second - 2, 40, errDown, 30, nil, 8},             // as old as it may get
			{21*time.Minute + 5*time.Second - 1, 40, errDown, 0, errDown, 8},          // too old
			{21*time.Minute + 10*time.Second - 2, 40, nil, 40, nil, 9},                // back
			{24 * time.Hour, 50, errDown, 0, errDown, 10},                             // nobody asked for long
			{24*time.Hour + 5*time.Second, 0, nil, 0, nil, 11},                        // 0 is an answer
			{24*time.Hour + 5*time.Second + time.Minute - 1, 99, errDown, 0, nil, 11}, // and kept as one
		} {
			time.Sleep(time.Until(begin.Add(step.at)))
			source.set("alice", step.calls, step.down)
			got, err := callsOf(c, alice)
			if got != step.want || !errors.Is(err, step.err) {
				t.Errorf("after %v: %d, %v; want %d, %v", step.at, got, err, step.want, step.err)
			}
			if n := source.count(); n != step.asked {
				t.Errorf("after %v the source was asked %d times, want %d", step.at, n, step.asked)
			}
		}
	})
}

// The age of an answer counts from when it was asked for, for the source may have
// read what it says right then.
func TestLimitCacheCountsAgeFromTheBeginningOfALookUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &contracts{delay: 40 * time.Second}
		c := mustCache(t, quota.LimitCacheConfig{Source: source, TTL: time.Minute, Timeout: time.Minute})
		for range 2 { // 40 s after the first look-up began, and 60 s
			if _, err := callsOf(c, quota.Subject{User: "u"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
		}
		if n := source.count(); n != 2 {
			t.Errorf("the source was asked %d times, want 2", n)
		}
	})
}

func TestLimitCacheAsksOnceForManyCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &contracts{delay: time.Second}
		source.set("alice", 7, nil)
		c := mustCache(t, quota.LimitCacheConfig{Source: source})
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if got, err := callsOf(c, quota.Subject{User: "alice"}); got != 7 || err != nil {
					t.Errorf("%d, %v", got, err)
				}
			})
		}
		wg.Wait()
		if n := source.count(); n != 1 {
			t.Errorf("the source was asked %d times for 50 callers", n)
		}
	})
}

// Who gives up leaves at once, and takes nothing away from the others.
func TestLimitCacheCallerThatGivesUpDoesNotEndTheLookUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &contracts{delay: time.Second}
		source.set("alice", 7, nil)
		c := mustCache(t, quota.LimitCacheConfig{Source: source})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		begin := time.Now()
		_, err := c.Limits(ctx, quota.Subject{User: "alice"})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 10*time.Millisecond {
			t.Errorf("the first caller gets %v after %v", err, time.Since(begin))
		}
		if got, err := callsOf(c, quota.Subject{User: "alice"}); got != 7 || err != nil || time.Since(begin) != time.Second {
			t.Errorf("the second caller gets %d, %v after %v; want 7 after 1 s", got, err, time.Since(begin))
		}
		if n := source.count(); n != 1 {
			t.Errorf("the source was asked %d times, want 1", n)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Limits(over, quota.Subject{User: "bob"}); !errors.Is(err, context.Canceled) || source.count() != 1 {
			t.Errorf("a call that is over already gets %v, and the source was asked %d times", err, source.count())
		}
	})
}

func TestLimitCacheEndsALookUpThatTakesTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &contracts{delay: time.Hour}
		c := mustCache(t, quota.LimitCacheConfig{Source: source, Timeout: 3 * time.Second})
		begin := time.Now()
		if _, err := callsOf(c, quota.Subject{User: "u"}); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 3*time.Second {
			t.Errorf("%v after %v, want a deadline after 3 s", err, time.Since(begin))
		}
	})
}

// A broken answer, and a broken source, are failures and never "no limits".
func TestLimitCacheTakesNoBrokenAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		source quota.LimitResolverFunc
		want   string
	}{
		{"invalid limit", func(context.Context, quota.Subject) ([]quota.Limit, error) {
			return []quota.Limit{{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: -5}}}, nil
		}, "limits[0].max.tokens: must not be negative: -5"},
		{"two for one window", func(context.Context, quota.Subject) ([]quota.Limit, error) {
			l := quota.Limit{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 5}}
			return []quota.Limit{l, l}, nil
		}, "limits[1]: is for user/day, and so is limits[0]"},
		{"error beside limits", func(context.Context, quota.Subject) ([]quota.Limit, error) {
			return []quota.Limit{{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 5}}}, errDown
		}, "contracts are down"},
		{"panic", func(context.Context, quota.Subject) ([]quota.Limit, error) { panic("boom") }, "boom"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			limits, err := mustCache(t, quota.LimitCacheConfig{Source: c.source}).Limits(t.Context(), quota.Subject{User: "u"})
			if limits != nil || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %v; want an error with %q", limits, err, c.want)
			}
		})
	}
}

// The source sees what the key is made of, and nothing else, so one subject's
// answer cannot become another's.
func TestLimitCacheGivesTheSourceOnlyWhatTheAnswerIsKeptFor(t *testing.T) {
	t.Parallel()
	hierarchy, err := quota.NewHierarchy(append(quota.DefaultScopes(), quota.ScopeSpec{Scope: "project", Within: quota.Tenant})...)
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	source := quota.LimitResolverFunc(func(ctx context.Context, s quota.Subject) ([]quota.Limit, error) {
		inside, _ := quota.SubjectFrom(ctx)
		asked = append(asked, fmt.Sprintf("%s/%s/%s/%s/%s/%s", s.Tenant, s.Team, s.User, s.Session, s.Other["project"], s.Plan))
		if fmt.Sprint(inside) != fmt.Sprint(s) {
			t.Errorf("the context says %v, the argument %v", inside, s)
		}
		return nil, nil
	})
	c := mustCache(t, quota.LimitCacheConfig{Source: source, Hierarchy: hierarchy, By: []quota.Scope{quota.Tenant, "project"}})
	for _, s := range []quota.Subject{
		{Tenant: "acme", Team: "a", User: "alice", Session: "1"},
		{Tenant: "acme", Team: "b", User: "bob", Session: "2"},
		{Tenant: "acme", User: "bob", Plan: "pro"},
		{Tenant: "acme", Other: map[quota.Scope]string{"project": "x", "more": "y"}},
		{Tenant: "acme", Other: map[quota.Scope]string{"project": "x"}},
	} {
		if _, err := c.Limits(quota.WithSubject(t.Context(), s), s); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := strings.Join(asked, " "), "acme///// acme/////pro acme////x/"; got != want {
		t.Errorf("the source was asked for %s, want %s", got, want)
	}
}

func TestLimitCacheTellsUsersOfTheSameNameApart(t *testing.T) {
	t.Parallel()
	source := quota.LimitResolverFunc(func(_ context.Context, s quota.Subject) ([]quota.Limit, error) {
		return []quota.Limit{{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Calls: int64(len(s.Tenant))}}}, nil
	})
	c := mustCache(t, quota.LimitCacheConfig{Source: source, By: []quota.Scope{quota.User}})
	for _, tenant := range []string{"acme", "globex"} {
		s := quota.Subject{Tenant: tenant, User: "alice", Session: "1"}
		if calls, err := callsOf(c, s); err != nil || calls != int64(len(tenant)) {
			t.Errorf("alice of %s has the limits of somebody else: %d calls, %v", tenant, calls, err)
		}
	}
}

// Subjects that look alike when their ids are put together have limits of their
// own.
func TestLimitCacheTellsLookAlikesApart(t *testing.T) {
	t.Parallel()
	source := &contracts{}
	c := mustCache(t, quota.LimitCacheConfig{Source: source})
	alike := []quota.Subject{
		{User: "a:b", Team: "c"},
		{User: "a", Team: "b:c"},
		{User: "a", Tenant: "b:c"},
		{User: "A", Team: "b:c"},
		{User: "a", Team: "b:c", Plan: "p"},
		{User: "a", Team: "b", Session: "c"},
		{Other: map[quota.Scope]string{"x": "1:y1:z"}},
		{Other: map[quota.Scope]string{"x": "1", "y": "z"}},
		{Other: map[quota.Scope]string{"x": ""}},
		{},
	}
	for range 2 {
		for _, s := range alike {
			if _, err := c.Limits(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The last two are the same: an empty id is none.
	if n := source.count(); n != len(alike)-1 {
		t.Errorf("the source was asked %d times for %d subjects", n, len(alike)-1)
	}
}

func TestLimitCacheIsBounded(t *testing.T) {
	t.Parallel()
	source := &contracts{}
	c := mustCache(t, quota.LimitCacheConfig{Source: source, MaxEntries: 3})
	ask := func(users ...string) {
		for _, u := range users {
			if _, err := callsOf(c, quota.Subject{User: u}); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask("a", "b", "c", "a", "d") // b was not asked for the longest
	if got := c.Stats(); got.Entries != 3 || got.Evicted != 1 || source.count() != 4 {
		t.Errorf("%+v and %d look-ups, want 3 entries, 1 evicted and 4 look-ups", got, source.count())
	}
	ask("a", "c", "d")
	if n := source.count(); n != 4 {
		t.Errorf("%d look-ups, want 4: those that were asked for lately are kept", n)
	}
	ask("b")
	if n := source.count(); n != 5 {
		t.Errorf("%d look-ups, want 5: the evicted one is looked up again", n)
	}
}

func TestForgottenLimitsAreLookedUpAfresh(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(*quota.LimitCache){
		"forget": func(c *quota.LimitCache) { c.Forget(quota.Subject{User: "alice"}) },
		"purge":  func(c *quota.LimitCache) { c.Purge() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				source := &contracts{delay: time.Second}
				source.set("alice", 1, nil)
				c := mustCache(t, quota.LimitCacheConfig{Source: source})
				var wg sync.WaitGroup
				defer wg.Wait()
				expect := func(want int64) {
					if got, err := callsOf(c, quota.Subject{User: "alice"}); got != want || err != nil {
						t.Errorf("%d, %v; want %d", got, err, want)
					}
				}
				wg.Go(func() { expect(1) }) // asked before the change
				synctest.Wait()
				time.Sleep(time.Second / 2)
				source.set("alice", 2, nil)
				forget(c)
				expect(2) // asks anew, and does not wait for the first look-up
				expect(2) // and the first one did not overwrite it
				source.set("alice", 3, nil)
				forget(c)
				expect(3)
			})
		})
	}
}

func TestAForgottenLookUpKeepsNothingAndForgetsNobodyElses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &contracts{delay: time.Second}
		source.set("alice", 1, nil)
		c := mustCache(t, quota.LimitCacheConfig{Source: source})
		alice := quota.Subject{User: "alice"}
		ask := func(want int64) {
			if got, err := callsOf(c, alice); got != want || err != nil {
				t.Errorf("%d, %v; want %d", got, err, want)
			}
		}
		var wg sync.WaitGroup
		change := func(to int64) {
			synctest.Wait()
			time.Sleep(time.Second / 4)
			source.set("alice", to, nil)
			c.Forget(alice)
		}
		wg.Go(func() { ask(1) })
		change(2)
		time.Sleep(2 * time.Second) // the answer is there, and nobody has asked since
		ask(2)

		c.Forget(alice)
		wg.Go(func() { ask(2) })
		change(3)
		wg.Go(func() { ask(3) })
		synctest.Wait()
		time.Sleep(7 * time.Second / 8) // the first of the two has ended
		source.set("alice", 4, nil)
		c.Forget(alice)
		wg.Wait()
		ask(4)
	})
}

func TestASourceThatHangsKeepsOneCallerWaitingAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &contracts{}
		source.set("alice", 1, nil)
		c := mustCache(t, quota.LimitCacheConfig{Source: source, TTL: time.Second, Timeout: 2 * time.Second})
		ask := func() {
			if got, err := callsOf(c, quota.Subject{User: "alice"}); got != 1 || err != nil {
				t.Errorf("%d, %v", got, err)
			}
		}
		ask()
		source.delay = time.Hour
		time.Sleep(2 * time.Second)
		ask() // fails
		time.Sleep(2 * time.Second)
		var wg sync.WaitGroup
		wg.Go(ask)
		synctest.Wait()
		begin := time.Now()
		for range 10 {
			ask()
		}
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("ten calls waited %v", waited)
		}
		wg.Wait()
	})
}

func TestLimitCacheHitAllocatesNothing(t *testing.T) {
	c := mustCache(t, quota.LimitCacheConfig{Source: &contracts{}, TTL: time.Hour})
	s, ctx := quota.Subject{Tenant: "acme", User: "alice"}, t.Context()
	if n := testing.AllocsPerRun(100, func() {
		if _, err := c.Limits(ctx, s); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("an answer from the cache allocates %v times", n)
	}
}

func TestLimitCacheConfigurationErrorsAreNamed(t *testing.T) {
	t.Parallel()
	_, err := quota.NewLimitCache(quota.LimitCacheConfig{
		TTL: -1, MaxStale: -2, Timeout: -3, RetryAfter: -4, MaxEntries: -5, Mode: 9, By: []quota.Scope{quota.User, quota.Global, "flat"},
	})
	want := `quota: LimitCacheConfig.Source is not set
quota: LimitCacheConfig.TTL must not be negative: -1ns
quota: LimitCacheConfig.MaxStale must not be negative: -2ns
quota: LimitCacheConfig.Timeout must not be negative: -3ns
quota: LimitCacheConfig.RetryAfter must not be negative: -4ns
quota: LimitCacheConfig.MaxEntries must not be negative: -5
quota: LimitCacheConfig.Mode: 9 is none of unset, off, observe, enforce
quota: LimitCacheConfig.By[1]: "global" is no scope with ids of the hierarchy
quota: LimitCacheConfig.By[2]: "flat" is no scope with ids of the hierarchy`
	if err == nil || err.Error() != want {
		t.Errorf("errors are\n%v\nwant\n%s", err, want)
	}
	_, err = quota.NewLimitCache(quota.LimitCacheConfig{Source: &contracts{}, TTL: time.Hour, MaxStale: time.Minute})
	if err == nil || !strings.Contains(err.Error(), "MaxStale is 1m0s, less than TTL, 1h0m0s") {
		t.Errorf("error is %v", err)
	}
}

// Whatever the order of changes, outages and time: an answer is one that the
// source has given, no older than it may be, and there is an error exactly if
// there is no such answer.
func TestLimitCacheNeverServesWhatIsTooOld(t *testing.T) {
	t.Parallel()
	const ttl, maxStale = 10, 30 // seconds
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) [3]int {
			return [3]int{rapid.IntRange(0, 12).Draw(rt, "pause"), rapid.IntRange(0, 3).Draw(rt, "down"), rapid.IntRange(0, 1).Draw(rt, "user")}
		}), 1, 40).Draw(rt, "steps")
		var problem string // told outside of the bubble
		synctest.Test(t, func(t *testing.T) {
			source := &contracts{}
			c := mustCache(t, quota.LimitCacheConfig{
				Source: source, TTL: ttl * time.Second, MaxStale: maxStale * time.Second, RetryAfter: time.Nanosecond,
			})
			begin := time.Now()
			last := map[string]int64{} // when the source was last up as the user asked
			for i, step := range steps {
				time.Sleep(time.Duration(step[0]) * time.Second)
				now := int64(time.Since(begin) / time.Second)
				user := string(rune('a' + step[2]))
				down := step[1] > 0
				var err error
				if down {
					err = errDown
				}
				source.set(user, now, err) // the answer is its own time
				asked := source.count()
				got, err := callsOf(c, quota.Subject{User: user})
				at, known := last[user]
				switch {
				case problem != "":
					return
				case known && now-at < ttl:
					if err != nil || got != at || source.count() != asked {
						problem = fmt.Sprintf("step %d at %d: %d, %v, want %d without a look-up", i, now, got, err, at)
					}
				case !down:
					if err != nil || got != now {
						problem = fmt.Sprintf("step %d at %d: %d, %v, want a new answer", i, now, got, err)
					}
					last[user] = now
				case known && now-at < maxStale:
					if err != nil || got != at {
						problem = fmt.Sprintf("step %d at %d: %d, %v, want the stale %d", i, now, got, err, at)
					}
				default:
					if !errors.Is(err, errDown) {
						problem = fmt.Sprintf("step %d at %d: %d, %v, want an error", i, now, got, err)
					}
				}
				time.Sleep(time.Nanosecond) // past RetryAfter
			}
		})
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}

// Limits that live elsewhere are laid over those of a file.
func ExampleLimitCache() {
	limits, err := quota.NewLimits(quota.LimitsConfig{Limits: []quota.Limit{
		{Scope: quota.Tenant, Window: quota.Month, Max: quota.Max{quota.Credits: 1_000_000}},
		{Scope: quota.Global, Window: quota.Month, Max: quota.Max{quota.Money: 200_000_000}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	contract := func(_ context.Context, s quota.Subject) ([]quota.Limit, error) {
		if s.Tenant != "acme" { // where a program asks its database
			return limits.For(s), nil
		}
		return quota.Overlay(limits.For(s), []quota.Limit{
			{Scope: quota.Tenant, Window: quota.Month, Max: quota.Max{quota.Credits: 50_000_000}},
		}), nil
	}
	cache, err := quota.NewLimitCache(quota.LimitCacheConfig{
		Source: quota.LimitResolverFunc(contract), By: []quota.Scope{quota.Tenant},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, tenant := range []string{"acme", "globex"} {
		limits, err := cache.Limits(context.Background(), quota.Subject{Tenant: tenant, User: "alice"})
		fmt.Println(tenant, limits, err)
	}
	// Output:
	// acme [tenant/month: 50000000 credits per tenant and month global/month: 200000000 money per global and month] <nil>
	// globex [tenant/month: 1000000 credits per tenant and month global/month: 200000000 money per global and month] <nil>
}

func ExampleNewLimits() {
	limits, err := quota.NewLimits(quota.LimitsConfig{
		Limits: []quota.Limit{
			{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Money: 1_000_000}},       // $1 a day
			{Scope: quota.Global, Window: quota.Month, Max: quota.Max{quota.Money: 200_000_000}}, // $200 for all together
		},
		Plans: []quota.Plan{{Name: "pro", Limits: []quota.Limit{
			{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Money: 10_000_000}},
			{Scope: quota.User, Window: quota.Minute, Max: quota.Max{quota.Tokens: 20_000}},
		}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, l := range limits.For(quota.Subject{User: "alice", Plan: "pro"}) {
		fmt.Println(l)
	}
	_, err = quota.NewLimits(quota.LimitsConfig{Limits: []quota.Limit{{Scope: quota.User, Max: quota.Max{quota.Tokens: -1}}}})
	fmt.Println(err)
	// Output:
	// user/day: 10000000 money per user and day
	// global/month: 200000000 money per global and month
	// user/minute: 20000 tokens per user and minute
	// quota: limits[0].window: is not set; only a limit of concurrent_turns alone has none
	// quota: limits[0].max.tokens: must not be negative: -1
}
