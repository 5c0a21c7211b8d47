package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// outage is an event of an outage that ends now.
func outage(lasted time.Duration) quota.Event {
	return quota.OutageEnded{Occasion: quota.Occasion{At: time.Now()}, Lasted: lasted}
}

// healthy is what a store says that is in order.
func healthy(context.Context) error { return nil }

// A store that is told again takes its time, while more events come than wait for a listener.
func TestTheEndOfAnOutageWhileTheStoreIsToldAgainIsNotMissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := quota.NewBus(quota.BusConfig{Queue: 2})
		begin := time.Now()
		var told []string
		r := newReteller()
		r.begin(func(_ context.Context, since time.Time) bool {
			told = append(told, fmt.Sprintf("at %v since %v", time.Since(begin), since.Sub(begin)))
			time.Sleep(40 * time.Second)
			return true
		}, healthy)
		bus.Subscribe(r.listen)
		for _, e := range []quota.Event{
			outage(10 * time.Second), quota.Denied{}, quota.Denied{}, quota.Denied{},
			outage(5 * time.Second), quota.Denied{}, quota.Denied{}, outage(20 * time.Second), outage(time.Second),
		} {
			bus.Publish(e)
			synctest.Wait()
		}
		time.Sleep(2 * time.Minute)
		if dropped := bus.Stats().Dropped; dropped != 0 {
			t.Errorf("%d events were dropped", dropped)
		}
		if err := r.end(t.Context()); err != nil {
			t.Error(err)
		}
		// The first at once, and all others together, since the earliest of them.
		if want := []string{"at 0s since -1m10s", "at 40s since -1m20s"}; !slices.Equal(told, want) {
			t.Errorf("the store was told %q, want %q", told, want)
		}
		bus.Publish(outage(time.Second)) // who listens has ended
		if err := bus.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatTheStoreGaveNoAnswerToIsToldAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var told []string
		r := newReteller()
		r.begin(func(_ context.Context, since time.Time) bool {
			told = append(told, fmt.Sprintf("at %v since %v", time.Since(begin), since.Sub(begin)))
			return len(told) == 3
		}, healthy)
		r.ask(begin.Add(-time.Minute))
		time.Sleep(5 * time.Second)
		r.ask(begin) // changes nothing: what is asked for already is since an earlier instant
		time.Sleep(time.Minute)
		if err := r.end(t.Context()); err != nil {
			t.Error(err)
		}
		if want := []string{"at 0s since -1m0s", "at 10s since -1m0s", "at 20s since -1m0s"}; !slices.Equal(told, want) {
			t.Errorf("the store was told %q, want %q", told, want)
		}
	})
}

// A server that ends does not wait until the store was told everything.
func TestTellingTheStoreAgainEndsWithTheServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var begun, ended atomic.Bool
		r := newReteller()
		r.begin(func(ctx context.Context, _ time.Time) bool {
			begun.Store(true)
			<-ctx.Done()
			ended.Store(true)
			return false
		}, healthy)
		r.ask(time.Now())
		synctest.Wait()
		if !begun.Load() || ended.Load() {
			t.Fatalf("begun %v, ended %v", begun.Load(), ended.Load())
		}
		if err := r.end(t.Context()); err != nil || !ended.Load() {
			t.Errorf("end: %v, ended %v", err, ended.Load())
		}
	})
}
