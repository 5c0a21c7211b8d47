package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// day is the time that one file has records of, at most.
const day = 24 * time.Hour

// file is a file of an audit. Its name is audit-20061102-000001.jsonl: the day of its
// records in UTC, and a number that rises within the day.
type file struct {
	path string
	day  time.Time
	n    int
}

const (
	filePrefix = "audit-"
	fileSuffix = ".jsonl"
	fileDay    = "20060102"
	// halfSuffix stands behind the name of a file that is being rewritten. Such a name
	// is none of an audit, so that nobody reads the file before it is complete.
	halfSuffix = ".erasing"
)

func fileName(day time.Time, n int) string {
	return fmt.Sprintf("%s%s-%06d%s", filePrefix, day.Format(fileDay), n, fileSuffix)
}

// fileOf reads a file's name; ok is false if it is not one of an audit.
func fileOf(dir, name string) (f file, ok bool) {
	rest, ok1 := strings.CutPrefix(name, filePrefix)
	rest, ok2 := strings.CutSuffix(rest, fileSuffix)
	date, number, ok3 := strings.Cut(rest, "-")
	if !ok1 || !ok2 || !ok3 || len(number) < 6 || strings.Trim(number, "0123456789") != "" {
		return file{}, false
	}
	at, err := time.Parse(fileDay, date)
	if err != nil {
		return file{}, false
	}
	n, err := strconv.Atoi(number)
	if err != nil {
		return file{}, false
	}
	return file{filepath.Join(dir, name), at, n}, true
}

// removeHalf removes what erasures that were broken off by a crash have left behind, of
// days that have ended before an instant; the zero time is all of it. It names people.
func removeHalf(dir string, before time.Time) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	var errs []error
	for _, e := range entries {
		name, half := strings.CutSuffix(e.Name(), halfSuffix)
		f, ok := fileOf(dir, name)
		if !half || !ok || !before.IsZero() && f.day.Add(day).After(before) {
			continue
		}
		if err := os.Remove(f.path + halfSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("audit: %w", err))
		}
	}
	return errors.Join(errs...)
}

// list are the files of an audit in the order in which they were begun.
func list(dir string) ([]file, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	var all []file
	for _, e := range entries {
		if f, ok := fileOf(dir, e.Name()); ok && e.Type().IsRegular() {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b file) int { return cmp.Or(a.day.Compare(b.day), cmp.Compare(a.n, b.n)) })
	return all, nil
}

// create begins a file for the records of a day, after all others of that day. Only
// the owner may read it: it names people.
func create(dir string, at time.Time) (*os.File, error) {
	all, err := list(dir)
	if err != nil {
		return nil, err
	}
	n := 1
	for _, f := range all {
		if f.day.Equal(at) {
			n = max(n, f.n+1)
		}
	}
	for ; ; n++ {
		f, err := os.OpenFile(filepath.Join(dir, fileName(at, n)), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
		switch {
		case errors.Is(err, fs.ErrExist):
			continue
		case err != nil:
			return nil, fmt.Errorf("audit: %w", err)
		}
		return f, syncDir(dir)
	}
}

// syncDir makes the names in a directory durable, where the system can.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// syncDirOf is syncDir for the directory of a file.
func syncDirOf(path string) error { return syncDir(filepath.Dir(path)) }

// Expire removes the files of an audit whose records are all from before an instant,
// and returns how many. Files are of one day in UTC, so a record may stay up to a day
// longer. It may be called while a [Sink] writes.
func Expire(dir string, before time.Time) (removed int, err error) {
	all, err := list(dir)
	if err != nil {
		return 0, err
	}
	errs := []error{removeHalf(dir, before)}
	for _, f := range all {
		if f.day.Add(day).After(before) {
			continue
		}
		if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("audit: %w", err))
			continue
		}
		removed++
	}
	return removed, errors.Join(errs...)
}
