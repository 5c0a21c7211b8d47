package quota_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"pgregory.net/rapid"
)

var silent = slog.New(slog.NewTextHandler(io.Discard, nil))

// call is an event of a user's n-th call.
func call(user string, n int) quota.CallSettled {
	return quota.CallSettled{
		Occasion: quota.Occasion{Subject: quota.Subject{User: user}, Call: fmt.Sprint(n)},
		Outcome:  quota.CallCharged,
	}
}

// heard is a listener that remembers.
type heard struct {
	mu     sync.Mutex
	events []quota.Event
}

func (h *heard) listen(e quota.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

func (h *heard) all() []quota.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]quota.Event(nil), h.events...)
}

func closeBus(t *testing.T, b *quota.Bus) {
	t.Helper()
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestEventsOfASubjectKeepTheirOrderWhoeverPublishesBesides(t *testing.T) {
	t.Parallel()
	const users, each = 8, 500
	var h heard
	b := quota.NewBus(quota.BusConfig{Listeners: []quota.Listener{h.listen}, Queue: users * each, Logger: silent})
	var all sync.WaitGroup
	for u := range users {
		all.Go(func() {
			for i := range each {
				b.Publish(call(fmt.Sprint(u), i))
			}
		})
	}
	all.Wait()
	closeBus(t, b)
	next := map[string]int{}
	for _, e := range h.all() {
		about := e.About()
		if want := fmt.Sprint(next[about.Subject.User]); about.Call != want {
			t.Fatalf("user %s: call %s came, want %s", about.Subject.User, about.Call, want)
		}
		next[about.Subject.User]++
	}
	for u := range users {
		if n := next[fmt.Sprint(u)]; n != each {
			t.Errorf("user %d: %d events came, want %d", u, n, each)
		}
	}
}

func TestAListenerThatHangsBlocksNobodyAndLosesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const queue, sent = 10, 100
		var h heard
		var log bytes.Buffer
		release := make(chan struct{})
		b := quota.NewBus(quota.BusConfig{
			Listeners: []quota.Listener{func(quota.Event) { <-release }, h.listen},
			Queue:     queue, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		began := time.Now()
		for i := range sent {
			b.Publish(call("alice", i))
			synctest.Wait() // the other one keeps up
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("publishing waited %v", waited)
		}
		if n := len(h.all()); n != sent {
			t.Errorf("the listener that does not hang was told of %d events, want %d", n, sent)
		}
		// One is with the listener that hangs, and its queue is full.
		want := quota.BusStats{Delivered: sent + 1, Dropped: sent - queue - 1, Queued: queue}
		if got := b.Stats(); got != want {
			t.Errorf("stats are %+v, want %+v", got, want)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("drops made %d log lines, want 1:\n%s", n, &log)
		}
		close(release)
		closeBus(t, b)
		if got := b.Stats(); got.Delivered != 2*sent-got.Dropped || got.Queued != 0 {
			t.Errorf("after closing, stats are %+v: something is missing", got)
		}
	})
}

func TestAPanicIsLoggedOncePerKindAndTheNextEventComes(t *testing.T) {
	t.Parallel()
	var h heard
	var log bytes.Buffer
	b := quota.NewBus(quota.BusConfig{
		Listeners: []quota.Listener{func(e quota.Event) {
			h.listen(e)
			panic("not today " + strings.Repeat("x", 1000))
		}},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	for i := range 5 {
		b.Publish(call("alice", i))
		b.Publish(quota.Overage{})
	}
	closeBus(t, b)
	if n := len(h.all()); n != 10 {
		t.Errorf("%d events came, want 10", n)
	}
	if got := b.Stats(); got.Panics != 10 || got.Delivered != 10 {
		t.Errorf("stats are %+v, want 10 panics", got)
	}
	text := log.String()
	if n := strings.Count(text, "\n"); n != 2 || !strings.Contains(text, "event=call") || !strings.Contains(text, "event=overage") {
		t.Errorf("want one line for each of two kinds, got %d:\n%s", n, text)
	}
	if len(text) > 1000 {
		t.Errorf("the log has %d bytes of what a listener panicked with", len(text))
	}
}

func TestAnEventThatIsNoneEndsNoProgram(t *testing.T) {
	t.Parallel()
	var h heard
	b := quota.NewBus(quota.BusConfig{Logger: silent, Listeners: []quota.Listener{func(e quota.Event) {
		_ = e.Kind()
		h.listen(e)
	}}})
	b.Publish((*quota.Denied)(nil))
	b.Publish(call("alice", 1))
	closeBus(t, b)
	if n := len(h.all()); n != 1 || b.Stats().Panics != 1 {
		t.Errorf("%d events came, want 1; stats are %+v", n, b.Stats())
	}
}

func TestAListenerThatEndsItsGoroutineIsToldOfTheNextEvent(t *testing.T) {
	t.Parallel()
	var h heard
	b := quota.NewBus(quota.BusConfig{Logger: silent, Listeners: []quota.Listener{func(e quota.Event) {
		h.listen(e)
		runtime.Goexit()
	}}})
	for i := range 3 {
		b.Publish(call("alice", i))
	}
	closeBus(t, b)
	if n := len(h.all()); n != 3 {
		t.Errorf("%d events came, want 3", n)
	}
}

func TestClosingDrainsWhatWasPublishedAndTakesNothingMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h heard
		b := quota.NewBus(quota.BusConfig{Logger: silent, Listeners: []quota.Listener{func(e quota.Event) {
			time.Sleep(time.Second)
			h.listen(e)
		}}})
		for i := range 20 {
			b.Publish(call("alice", i))
		}
		closeBus(t, b)
		if n := len(h.all()); n != 20 {
			t.Errorf("%d events came by the end of Close, want 20", n)
		}
		b.Publish(call("alice", 20))
		closeBus(t, b) // again
		time.Sleep(time.Minute)
		if n := len(h.all()); n != 20 {
			t.Errorf("%d events came, want 20: one was taken after Close", n)
		}
		if got := b.Stats(); got.Dropped != 1 {
			t.Errorf("stats are %+v, want one dropped", got)
		}
	})
}

func TestClosingInTimeDropsTheRestAndSaysHowMuch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h heard
		b := quota.NewBus(quota.BusConfig{Logger: silent, Listeners: []quota.Listener{func(e quota.Event) {
			time.Sleep(time.Second)
			h.listen(e)
		}}})
		for i := range 10 {
			b.Publish(call("alice", i))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		err := b.Close(ctx) // three are done, the fourth is under way
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "6 events") {
			t.Errorf("Close says %v, want that 6 events were dropped at the deadline", err)
		}
		time.Sleep(time.Minute)
		if n, got := len(h.all()), b.Stats(); n != 4 || got.Dropped != 6 || got.Queued != 0 {
			t.Errorf("%d events came, stats are %+v; want 4 and 6 dropped", n, got)
		}
	})
}

func TestAListenerCanPublishAndComeAndGo(t *testing.T) {
	t.Parallel()
	var echo, late heard
	b := quota.NewBus(quota.BusConfig{Logger: silent})
	b.Subscribe(nil)
	b.Subscribe(func(e quota.Event) {
		echo.listen(e)
		if _, ok := e.(quota.CallSettled); ok {
			b.Publish(quota.Overage{})
		}
	})
	b.Publish(call("alice", 1))
	if err := b.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop := b.Subscribe(late.listen)
	b.Publish(call("alice", 2))
	if err := b.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	stop()
	heardBefore := len(late.all())
	b.Publish(call("alice", 3))
	closeBus(t, b)
	if n := len(late.all()); n != heardBefore || n == 0 {
		t.Errorf("a listener heard %d events before it stopped, and %d after", heardBefore, n)
	}
	calls := 0
	for _, e := range echo.all() {
		if e.Kind() == quota.KindCall {
			calls++
		}
	}
	if calls != 3 {
		t.Errorf("the first listener heard %d calls, want 3", calls)
	}
}

func TestABusWithoutAnybodyAndNoBusTakeEverything(t *testing.T) {
	t.Parallel()
	var none *quota.Bus
	for _, b := range []*quota.Bus{none, quota.NewBus(quota.BusConfig{})} {
		b.Publish(call("alice", 1))
		b.Publish(nil)
		b.Subscribe(nil)()
		if err := errors.Join(b.Flush(t.Context()), b.Close(t.Context())); err != nil {
			t.Error(err)
		}
	}
	if got := none.Stats(); got != (quota.BusStats{}) {
		t.Errorf("no bus counts %+v", got)
	}
}

// Whatever is published, flushed, stopped and closed: every event of a listener is
// delivered or dropped once, in order, and nothing of either is invented.
func TestEveryEventIsDeliveredOrDropped(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		queue := rapid.IntRange(1, 5).Draw(rt, "queue")
		var h heard
		gate := make(chan struct{}, 1000)
		b := quota.NewBus(quota.BusConfig{Queue: queue, Logger: silent, Listeners: []quota.Listener{func(e quota.Event) {
			<-gate
			h.listen(e)
		}}})
		sent := 0
		rt.Repeat(map[string]func(*rapid.T){
			"publish": func(*rapid.T) { b.Publish(call("alice", sent)); sent++ },
			"let one": func(*rapid.T) { gate <- struct{}{} },
			"": func(rt *rapid.T) {
				if s := b.Stats(); s.Queued > int64(queue) || s.Delivered+s.Dropped+s.Queued > int64(sent) {
					rt.Fatalf("of %d events, stats are %+v", sent, s)
				}
			},
		})
		close(gate)
		if err := b.Close(context.Background()); err != nil {
			rt.Fatal(err)
		}
		s := b.Stats()
		if s.Delivered+s.Dropped != int64(sent) || int(s.Delivered) != len(h.all()) {
			rt.Fatalf("of %d events %d came, and stats are %+v", sent, len(h.all()), s)
		}
		last := -1
		for _, e := range h.all() {
			var n int
			if _, err := fmt.Sscan(e.About().Call, &n); err != nil || n <= last {
				rt.Fatalf("event %d came after %d", n, last)
			}
			last = n
		}
	})
}

func BenchmarkPublish(b *testing.B) {
	for _, listeners := range []int{0, 1, 2} {
		b.Run(fmt.Sprintf("listeners=%d", listeners), func(b *testing.B) {
			bus := quota.NewBus(quota.BusConfig{Logger: silent, Queue: 1 << 16})
			for range listeners {
				bus.Subscribe(func(quota.Event) {})
			}
			var e quota.Event = call("alice", 1)
			b.ReportAllocs()
			for b.Loop() {
				bus.Publish(e)
			}
			b.StopTimer()
			if err := bus.Close(context.Background()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(bus.Stats().Dropped)/float64(b.N), "dropped/op")
		})
	}
}
