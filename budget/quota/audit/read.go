package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"
)

// LineError says that a line of an audit is no record. Its text shows nothing of the
// line.
type LineError struct {
	// File is the path, and Line the number of the line, from 1.
	File string
	Line int
	// Err is what is wrong with it.
	Err error
}

// Error names the file, the line and what is wrong with it.
func (e *LineError) Error() string {
	return fmt.Sprintf("audit: %s, line %d: %v", filepath.Base(e.File), e.Line, e.Err)
}

// Unwrap is what is wrong with the line.
func (e *LineError) Unwrap() error { return e.Err }

// Read reads the records of an audit from one instant until before another, in the
// order in which they were written, which is nearly that of time. A zero from or to
// is no bound. The files are read as the sequence is ranged, each time anew, a line at
// a time; a [Sink] may write meanwhile.
//
// A last line of a file that does not end was torn, and is passed over without an
// error. Any other line that is no record yields a [*LineError], after which the
// sequence goes on. Any other error ends it.
func Read(dir string, from, to time.Time) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		all, err := list(dir)
		if err != nil {
			yield(Record{}, err)
			return
		}
		for _, f := range all {
			// A file has nothing from after its day, and hardly anything from before.
			if !from.IsZero() && !f.day.Add(day).After(from) || !to.IsZero() && f.day.Add(-day).After(to) {
				continue
			}
			if !readFile(f.path, func(r Record, err error) bool {
				if err == nil && (!from.IsZero() && r.At.Before(from) || !to.IsZero() && !r.At.Before(to)) {
					return true
				}
				return yield(r, err)
			}) {
				return
			}
		}
	}
}

// Whole passes over lines that are no records, and tells of each; nil tells nobody. A
// report of a file that is damaged somewhere is better than none, if its reader knows.
func Whole(records iter.Seq2[Record, error], told func(*LineError)) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for r, err := range records {
			var line *LineError
			if errors.As(err, &line) {
				if told != nil {
					told(line)
				}
				continue
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// readFile reads one file. It returns false if yield did, or after an error that was
// not one of a line.
func readFile(path string, yield func(Record, error) bool) bool {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // it has just expired
		return true
	case err != nil:
		yield(Record{}, fmt.Errorf("audit: %w", err))
		return false
	}
	defer f.Close()
	return ReadFrom(f, path, yield)
}

// ReadFrom reads records from r, such as a file that was moved elsewhere; name stands
// for it in errors. It calls yield as [Read] does, and returns false if yield did, or
// if r could not be read, which yield was told before.
func ReadFrom(r io.Reader, name string, yield func(Record, error) bool) bool {
	lines := lineReader{r: bufio.NewReaderSize(r, 64<<10)}
	for {
		line, err := lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return true
		case errors.Is(err, errLong):
			if !yield(Record{}, &LineError{File: name, Line: lines.n, Err: err}) {
				return false
			}
			continue
		case err != nil:
			yield(Record{}, fmt.Errorf("audit: %w", err))
			return false
		}
		record, err := parse(line)
		if err != nil {
			err = &LineError{File: name, Line: lines.n, Err: err}
		}
		if !yield(record, err) {
			return false
		}
	}
}

var errLong = fmt.Errorf("%w: it has more than %d bytes", errLine, MaxLine)

// lineReader reads lines of a bounded length.
type lineReader struct {
	r   *bufio.Reader
	buf []byte
	n   int // the number of the last line
}

// next is the next line that ends, without its end. It is valid until the next call.
// The error is io.EOF at the end, and errLong for a line that was passed over.
func (l *lineReader) next() ([]byte, error) {
	l.buf = l.buf[:0]
	l.n++
	for long := false; ; {
		part, err := l.r.ReadSlice('\n')
		if !long {
			l.buf = append(l.buf, part...)
			long = len(l.buf) > MaxLine
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return nil, err // also of a line that does not end
		case long:
			return nil, errLong
		default:
			return l.buf[:len(l.buf)-1], nil
		}
	}
}
