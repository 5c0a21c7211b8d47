package blocks_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
	"github.com/headgate-go/headgate/usage"
)

// callAs makes calls, some at a time, until the returned function is called.
func (w *world) callAs(e *quota.Enforcer, s quota.Subject, at int, slow *atomic.Int64) (stop func()) {
	ctx, cancel := context.WithCancel(quota.WithSubject(context.Background(), s))
	var all sync.WaitGroup
	for i := range at {
		all.Go(func() {
			time.Sleep(time.Duration(i) * 170 * time.Millisecond)
			for ctx.Err() == nil {
				begun := time.Now()
				r, err := e.Budget().Reserve(context.WithoutCancel(ctx), budget.Call{ID: budget.NewID(), Model: "m", Usage: usage.Usage{Input: 100}})
				if err != nil {
					w.Error(err)
					return
				}
				if time.Since(begun) > 0 {
					slow.Add(1)
				}
				time.Sleep(time.Second)
				if err := r.Settle(context.WithoutCancel(ctx), usage.Usage{Input: 100}); err != nil {
					w.Error(err)
				}
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// What is answered from blocks says nothing about the store. While it hangs, and there is
// still something leased, only the first few callers wait for it, and nobody is told that
// it is back.
func TestAnOutageIsCheapAndToldOnceWhileBlocksAreSpent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Min: quota.Amounts{quota.Tokens: 1e5}})
		limit := func(name string, scope quota.Scope) quota.Limit {
			return quota.Limit{
				Name: name, Scope: scope, Window: quota.Day, Max: quota.Max{quota.Tokens: 1e9}, Failure: quota.Open, Missing: quota.Skip,
			}
		}
		limits, err := quota.NewLimits(quota.LimitsConfig{Limits: []quota.Limit{limit("mine", quota.User), limit("ours", quota.Global)}})
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		e, err := quota.New(quota.Config{Ledger: w.replicas[0], Limits: limits, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		var slow, others atomic.Int64
		nobody := w.callAs(e, quota.Subject{}, 8, &others) // under the limit of everybody only
		stop := w.callAs(e, quota.Subject{Tenant: "acme", User: "ann"}, 8, &slow)
		time.Sleep(10 * time.Second)
		slow.Store(0)
		resume := w.links[0].stall()
		time.Sleep(10 * time.Second)
		if w.replicas[0].Stats().Leased[quota.Tokens] == 0 {
			t.Error("nothing is leased any more: nothing was tested")
		}
		if n := slow.Load(); n < 1 || n > 12 {
			t.Errorf("%d calls waited for a store that hangs, want a few at first, and some that tried it", n)
		}
		if n := strings.Count(log.String(), "can be reached again"); n != 0 {
			t.Errorf("it was told %d times that the store is back, which hangs", n)
		}
		resume()
		time.Sleep(20 * time.Second)
		nobody()
		stop()
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
		began, ended := strings.Count(log.String(), "cannot be reached"), strings.Count(log.String(), "can be reached again")
		if began != 1 || ended != 1 {
			t.Errorf("one outage was told of %d times at its start and %d times at its end:\n%s", began, ended, &log)
		}
	})
}

// What is leased is served until it ends, to callers who must not go on without the store,
// too; also when others have found out that it hangs, and it is not asked any more.
func TestWhatIsLeasedIsServedWhileTheStoreIsNotAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Idle: time.Minute, TTL: 30 * time.Second, Min: quota.Amounts{quota.Tokens: 1e6}})
		limits, err := quota.NewLimits(quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "mine", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1e9}, Failure: quota.Closed, Missing: quota.Skip},
			{Name: "ours", Scope: quota.Global, Window: quota.Day, Max: quota.Max{quota.Tokens: 1e9}, Failure: quota.Closed},
		}})
		if err != nil {
			t.Fatal(err)
		}
		var paused atomic.Bool
		e, err := quota.New(quota.Config{
			Ledger: w.replicas[0], Limits: limits, Logger: slog.New(slog.DiscardHandler), Hooks: quota.Hooks{Paused: paused.Store},
		})
		if err != nil {
			t.Fatal(err)
		}
		call := func(s quota.Subject) error {
			ctx := quota.WithSubject(context.Background(), s)
			r, err := e.Budget().Reserve(ctx, budget.Call{ID: budget.NewID(), Model: "m", Usage: usage.Usage{Input: 100}})
			if err != nil {
				return err
			}
			return r.Settle(ctx, usage.Usage{Input: 100})
		}
		ann, nobody := quota.Subject{Tenant: "acme", User: "ann"}, quota.Subject{}
		for _, s := range []quota.Subject{ann, nobody} {
			if err := call(s); err != nil {
				t.Fatal(err)
			}
		}
		resume := w.links[0].stall()
		for range 8 { // her own limit is not leased
			if err := call(ann); !errors.Is(err, quota.ErrUnavailable) {
				t.Fatalf("a call under a limit that is not leased: %v, want %v", err, quota.ErrUnavailable)
			}
		}
		before := w.replicas[0].Stats()
		for i := range 10 {
			if !paused.Load() {
				t.Fatal("the store is still asked: nothing is tested")
			}
			begun := time.Now()
			if err := call(nobody); err != nil {
				t.Errorf("call %d under a limit that is leased: %v", i, err)
			}
			if err := call(ann); !errors.Is(err, quota.ErrUnavailable) {
				t.Errorf("call %d under one that is not: %v, want %v", i, err, quota.ErrUnavailable)
			}
			if took := time.Since(begun); took > 500*time.Millisecond { // one of hers may try it
				t.Errorf("call %d of both took %v", i, took)
			}
			time.Sleep(time.Second)
		}
		if after := w.replicas[0].Stats(); after.Passed-before.Passed > 10 || after.Local-before.Local < 8 {
			t.Errorf("%d operations were passed on and %d reservations served, want few and most", after.Passed-before.Passed, after.Local-before.Local)
		}
		time.Sleep(30 * time.Second)
		if err := call(nobody); !errors.Is(err, quota.ErrUnavailable) {
			t.Errorf("after the block has ended: %v, want %v", err, quota.ErrUnavailable)
		}
		resume()
		time.Sleep(20 * time.Second)
		for _, s := range []quota.Subject{ann, nobody} {
			if err := call(s); err != nil {
				t.Errorf("when the store is back: %v", err)
			}
		}
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
