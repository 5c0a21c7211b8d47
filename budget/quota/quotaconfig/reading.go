package quotaconfig

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// reading is what was read of some files, and how they were found.
type reading struct {
	files fs.FS // nil is none
	found map[string]finding
}

// finding is how a file was found.
type finding struct {
	sum  [sha256.Size]byte // of its content, or of the error without it
	most int64             // of what was read
	size int64
	mod  time.Time
	// settled is true if the file had not been written to for a while, so that a
	// later change must show in its time.
	settled bool
}

// quiet is how long a file must not have been written to for its time to be relied
// on: longer than the clock of any file system ticks (FAT's has 2 s).
const quiet = 3 * time.Second

func newReading(files fs.FS) *reading { return &reading{files, map[string]finding{}} }

// file reads a file of at most so many bytes.
func (r *reading) file(name string, most int64) ([]byte, error) {
	if r.files == nil {
		return nil, fmt.Errorf("%q: there is no directory to read from", clip(name))
	}
	data, f, err := r.find(name, most)
	r.found[name] = f
	return data, err
}

// find reads a file, or finds that it cannot be read.
func (r *reading) find(name string, most int64) ([]byte, finding, error) {
	data, f, err := r.read(name, most)
	if err != nil {
		return nil, finding{sum: sha256.Sum256([]byte("error: " + err.Error())), most: most}, err
	}
	return data, f, nil
}

func (r *reading) read(name string, most int64) ([]byte, finding, error) {
	now := time.Now()
	file, err := r.files.Open(name)
	if err != nil {
		return nil, finding{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, finding{}, err
	}
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, finding{}, err
	}
	if int64(len(data)) > most {
		return nil, finding{}, fmt.Errorf("%q has more than %d bytes", clip(name), most)
	}
	return data, finding{
		sum: sha256.Sum256(data), most: most,
		size: info.Size(), mod: info.ModTime(), settled: now.Sub(info.ModTime()) > quiet,
	}, nil
}

// unchanged reports whether the files still have the content that was found. It
// reads only files whose time or size has changed, or had not settled.
func (r *reading) unchanged() bool {
	for name, was := range r.found {
		if was.settled {
			info, err := fs.Stat(r.files, name)
			if err == nil && info.Size() == was.size && info.ModTime().Equal(was.mod) {
				continue
			}
		}
		_, f, _ := r.find(name, was.most)
		if f.sum != was.sum {
			return false
		}
		r.found[name] = f
	}
	return true
}

// same reports whether two readings found the same content.
func (r *reading) same(other *reading) bool {
	if len(r.found) != len(other.found) {
		return false
	}
	for name, f := range r.found {
		if o, ok := other.found[name]; !ok || o.sum != f.sum {
			return false
		}
	}
	return true
}
