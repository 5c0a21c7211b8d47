package quotaconfig_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/quotaconfig"
)

// disk is a directory whose files can be changed while they are watched.
type disk struct {
	mu    sync.Mutex
	files fstest.MapFS
	opens int
}

func (d *disk) Open(name string) (fs.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opens++
	return d.files.Open(name)
}

// Stat is not counted as opening.
func (d *disk) Stat(name string) (fs.FileInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files.Stat(name)
}

// write puts a file there, with the time of writing.
func (d *disk) write(name, content string) { d.writeAt(time.Now(), name, content) }

func (d *disk) writeAt(at time.Time, name, content string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[name] = &fstest.MapFile{Data: []byte(content), ModTime: at}
}

func (d *disk) remove(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, name)
}

func (d *disk) opened() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.opens
	d.opens = 0
	return n
}

// calls is a file with so many calls a day.
func calls(n string) string {
	return "version: 1\nlimits: [{ scope: user, window: day, max: { calls: " + n + " } }]\n"
}

// callsIn are the calls a day of a configuration.
func callsIn(c *quotaconfig.Config) int64 {
	return c.Limits.For(quota.Subject{})[0].Max[quota.Calls]
}

// watched watches a file, and what it has told.
type watched struct {
	*quotaconfig.Watcher
	told []string // errors, or "ok"
}

// watch begins to watch quota.yaml, every 5 s. It ends with the test.
func watch(t *testing.T, d *disk) *watched {
	t.Helper()
	w := &watched{}
	var err error
	w.Watcher, err = quotaconfig.Loader{Files: d}.Watch(t.Context(), "quota.yaml", func(c *quotaconfig.Config, err error) {
		switch {
		case (c == nil) == (err == nil):
			t.Errorf("told both or none of %v and %v", c, err)
		case err != nil:
			w.told = append(w.told, err.Error())
		case c != w.Config():
			t.Error("told of a configuration that is not in force")
		default:
			w.told = append(w.told, "ok")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// expect waits until everything must have been seen, and checks what was told
// since the last time, and what is in force.
func (w *watched) expect(t *testing.T, calls int64, told ...string) {
	t.Helper()
	time.Sleep(11 * time.Second)
	synctest.Wait()
	if len(w.told) != len(told) {
		t.Fatalf("told %q, want %q", w.told, told)
	}
	for i := range told {
		if !strings.Contains(w.told[i], told[i]) {
			t.Errorf("told %q, want %q", w.told[i], told[i])
		}
	}
	w.told = nil
	if got := callsIn(w.Config()); got != calls {
		t.Errorf("%d calls are in force, want %d", got, calls)
	}
}

func TestChangeIsTakenAndAnErrorKeepsTheOldConfiguration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{files: fstest.MapFS{}}
		d.write("quota.yaml", calls("1"))
		w := watch(t, d)
		w.expect(t, 1)
		d.write("quota.yaml", calls("2"))
		w.expect(t, 2, "ok")
		d.write("quota.yaml", calls("-3"))
		w.expect(t, 2, "line 2: limits[0].max.calls: must not be negative: -3")
		w.expect(t, 2) // once, and not each time
		d.remove("quota.yaml")
		w.expect(t, 2, "not exist")
		w.expect(t, 2)
		d.write("quota.yaml", calls("4"))
		w.expect(t, 4, "ok")
		d.write("quota.yaml", calls("4")) // written again, but not changed
		w.expect(t, 4)
	})
}

// A change that leaves time and size as they are is seen while the time is so
// young that the file system's clock may not have ticked since.
func TestChangeWithinATickOfTheFileSystemIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{files: fstest.MapFS{}}
		at := time.Now()
		d.write("quota.yaml", calls("1"))
		w := watch(t, d)
		time.Sleep(time.Second)
		d.writeAt(at, "quota.yaml", calls("2"))
		w.expect(t, 2, "ok")
	})
}

// A file that was not written to is not read.
func TestFileThatRestsIsOnlyLookedAt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{files: fstest.MapFS{}}
		d.write("quota.yaml", calls("1"))
		w := watch(t, d)
		w.expect(t, 1)
		d.opened()
		time.Sleep(time.Hour)
		if n := d.opened(); n != 0 {
			t.Errorf("it was opened %d times in an hour", n)
		}
	})
}

// An older file that is put in the place of a newer one is a change, too.
func TestOlderFileInThePlaceOfANewerOneIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{files: fstest.MapFS{}}
		d.write("old.yaml", calls("1"))
		time.Sleep(time.Hour)
		d.write("quota.yaml", calls("2"))
		w := watch(t, d)
		w.expect(t, 2)
		d.mu.Lock()
		d.files["quota.yaml"] = d.files["old.yaml"]
		d.mu.Unlock()
		w.expect(t, 1, "ok")
	})
}

// Half a file may be a valid one that limits less; it is not taken while it grows.
func TestHalfWrittenFileIsNotTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{files: fstest.MapFS{}}
		d.write("quota.yaml", calls("1"))
		w := watch(t, d)
		w.expect(t, 1)
		content := "version: 1\nlimits:\n"
		for _, window := range []string{"day", "hour", "week", "month", "minute"} {
			content += "  - { scope: user, window: " + window + ", max: { calls: 5 } }\n"
			d.write("quota.yaml", content)
			time.Sleep(200 * time.Millisecond)
		}
		w.expect(t, 5, "ok")
		if n := len(w.Config().Limits.For(quota.Subject{})); n != 5 {
			t.Errorf("%d limits are in force, want all 5", n)
		}
	})
}

// What changes and changes back is no news.
func TestChangeThatIsTakenBackIsNotTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{files: fstest.MapFS{}}
		d.write("quota.yaml", calls("1"))
		w := watch(t, d)
		w.expect(t, 1) // up to 1 s after a look, at 5 n
		time.Sleep(3900 * time.Millisecond)
		d.write("quota.yaml", calls("2"))
		time.Sleep(200 * time.Millisecond) // it was looked at 100 ms ago
		d.write("quota.yaml", calls("1"))
		w.expect(t, 1)
	})
}

func TestPriceListsAreWatchedToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		list := func(price string) string {
			return "version: 1\nas_of: 2026-11-30\nmodels: [{ name: m, prices: [{ input: " + price + " }] }]\n"
		}
		d := &disk{files: fstest.MapFS{}}
		d.write("quota.yaml", calls("1")+"prices: { lists: [{ file: prices.yaml }] }\n")
		d.write("prices.yaml", list("1"))
		w := watch(t, d)
		w.expect(t, 1)
		d.write("prices.yaml", list("2"))
		w.expect(t, 1, "ok")
		price, err := w.Config().Catalog.Price("m", time.Now(), "")
		if err != nil || price.Input.String() != "$2.00" {
			t.Errorf("input costs %v, %v", price.Input, err)
		}
		d.remove("prices.yaml")
		w.expect(t, 1, "line 3: prices.lists[0].file: ")
		d.write("prices.yaml", list("-2"))
		w.expect(t, 1, "prices.yaml: line 3: models[0].prices[0].input: ")
		d.write("prices.yaml", list("3"))
		w.expect(t, 1, "ok")
	})
}

func TestWatchingEndsWithItsContextAndWithClose(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*quotaconfig.Watcher, context.CancelFunc){
		"context": func(_ *quotaconfig.Watcher, cancel context.CancelFunc) { cancel() },
		"close":   func(w *quotaconfig.Watcher, _ context.CancelFunc) { w.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := &disk{files: fstest.MapFS{}}
				d.write("quota.yaml", calls("1"))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w, err := quotaconfig.Loader{Files: d}.Watch(ctx, "quota.yaml", func(*quotaconfig.Config, error) { t.Error("told") })
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(5*time.Second - 1)
				d.write("quota.yaml", calls("2"))
				time.Sleep(100 * time.Millisecond) // in the middle of a change
				end(w, cancel)
				time.Sleep(time.Minute)
				if got := callsIn(w.Config()); got != 1 {
					t.Errorf("%d calls are in force, want 1", got)
				}
				w.Close()
			})
		})
	}
}

func TestWatchDoesNotBeginWithAnError(t *testing.T) {
	t.Parallel()
	never := func(*quotaconfig.Config, error) { t.Error("told") }
	d := &disk{files: fstest.MapFS{"bad.yaml": {Data: []byte("version: 9")}, "good.yaml": {Data: []byte("version: 1")}}}
	if _, err := (quotaconfig.Loader{Files: d}).Watch(t.Context(), "none.yaml", never); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := (quotaconfig.Loader{Files: d}).Watch(t.Context(), "bad.yaml", never); err == nil || !strings.Contains(err.Error(), "9 is not 1") {
		t.Errorf("a bad file: %v", err)
	}
	if _, err := (quotaconfig.Loader{Files: d}).Watch(t.Context(), "good.yaml", nil); err == nil || !strings.Contains(err.Error(), "changed is nil") {
		t.Errorf("nobody to tell: %v", err)
	}
	if _, err := (quotaconfig.Loader{Files: d, Every: -1}).Watch(t.Context(), "good.yaml", never); err == nil || !strings.Contains(err.Error(), "Every must not be negative: -1ns") {
		t.Errorf("negative pause: %v", err)
	}
}

// On a real file system: a link that is turned to another directory, as clusters
// replace mounted configuration.
func TestLinkTurnedToAnotherFileIsSeen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, n := range map[string]string{"a": "1", "b": "2"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "quota.yaml"), []byte(calls(n)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "data")
	if err := os.Symlink("a", link); err != nil {
		t.Skip(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w, err := quotaconfig.Watch(t.Context(), filepath.Join(link, "quota.yaml"), func(_ *quotaconfig.Config, err error) {
			if err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if err := os.Symlink("b", link+"2"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link+"2", link); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if got := callsIn(w.Config()); got != 2 {
			t.Errorf("%d calls are in force, want 2", got)
		}
	})
}
