package quotaconfig

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultEvery is how often a [Watcher] looks.
const DefaultEvery = 5 * time.Second

// settle is how long a file must stay as it is before it is taken: an editor may
// be in the middle of writing it, and half a file may be a valid one with fewer
// limits.
const settle = 250 * time.Millisecond

// Watcher reads a file again when it, or a price list that it refers to, has
// changed. It is safe for concurrent use.
type Watcher struct {
	config atomic.Pointer[Config]
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// Watch is [Loader.Watch] with the zero Loader.
func Watch(ctx context.Context, path string, changed func(*Config, error)) (*Watcher, error) {
	return Loader{}.Watch(ctx, path, changed)
}

// Watch reads a file and then looks, every now and then, whether it has changed:
// its time and size, and if these have changed or are too new to be relied on,
// its content. Files that are replaced, and links that are turned to other files,
// are seen, too.
//
// changed is called with each new configuration, or with what is wrong with it;
// then the last good one stays, and there is no further call until the file
// changes again. It is called from one goroutine, which ends with ctx or Close.
// The first configuration is not given to changed: it is [Watcher.Config], and an
// error in it is Watch's.
//
// A change is taken when the file has stayed as it is for a quarter of a second,
// so that half-written files are not.
//
// What changed does with a new configuration is up to the program. Weights and prices
// come first, because limits that need them are refused before:
//
//	func(c *quotaconfig.Config, err error) {
//		if err == nil && c.Credits != nil {
//			err = enforcer.ReloadCredits(*c.Credits)
//		}
//		if err == nil && c.PriceLists != nil {
//			err = catalog.Replace(c.PriceLists...)
//		}
//		if err == nil {
//			err = enforcer.Reload(c.Limits)
//		}
//		if err != nil {
//			logger.Error("limits were not reloaded", "error", err)
//		}
//	}
func (l Loader) Watch(ctx context.Context, path string, changed func(*Config, error)) (*Watcher, error) {
	switch {
	case changed == nil:
		return nil, errors.New("quotaconfig: Watch: changed is nil")
	case l.Every < 0:
		return nil, fmt.Errorf("quotaconfig: Loader.Every must not be negative: %v", l.Every)
	case l.Every == 0:
		l.Every = DefaultEvery
	}
	files, name := l.place(path)
	was := newReading(files)
	config, err := l.load(was, name)
	if err != nil {
		return nil, err
	}
	w := &Watcher{}
	w.config.Store(config)
	ctx, w.cancel = context.WithCancel(ctx)
	w.done.Go(func() { w.watch(ctx, l, was, name, changed) })
	return w, nil
}

// Config is the last good configuration.
func (w *Watcher) Config() *Config { return w.config.Load() }

// Close ends the watching, and waits until a call of changed that is under way has
// returned; so it must not be called from there.
func (w *Watcher) Close() {
	w.cancel()
	w.done.Wait()
}

// watch looks until ctx ends. was is what was read last, and told.
func (w *Watcher) watch(ctx context.Context, l Loader, was *reading, name string, changed func(*Config, error)) {
	for sleep(ctx, l.Every) {
		if was.unchanged() {
			continue
		}
		now, config, err := l.settled(ctx, was.files, name)
		if now == nil {
			return
		}
		same := now.same(was)
		was = now
		switch {
		case same: // it was another for a moment
		case err != nil:
			changed(nil, err)
		default:
			w.config.Store(config)
			changed(config, nil)
		}
	}
}

// settled loads a file that stays as it is for a while. The reading is nil if ctx
// ends first.
func (l Loader) settled(ctx context.Context, files fs.FS, name string) (*reading, *Config, error) {
	for {
		now := newReading(files)
		config, err := l.load(now, name)
		if !sleep(ctx, settle) {
			return nil, nil, nil
		}
		if now.unchanged() {
			return now, config, err
		}
	}
}

// sleep is false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
