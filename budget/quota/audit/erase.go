package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/headgate-go/headgate/budget/quota"
)

// Erasure says who is to be forgotten.
type Erasure struct {
	// Hierarchy are the scopes; nil is [quota.DefaultHierarchy].
	Hierarchy *quota.Hierarchy
	// Scope and Subject say who: all records whose subject has, in this scope, the same
	// key as Subject. A user is somebody of a tenant, so for a user there must be both.
	Scope   quota.Scope
	Subject quota.Subject
	// Remove removes the records. Otherwise they stay, for the sums of the team, the
	// tenant and the provider's bill, without anything that leads to the subject: its
	// id, those of scopes within it, the ids of turns and calls, and its counters.
	Remove bool
}

// key is the key of who is to be forgotten.
func (e *Erasure) key() (string, error) {
	key, ok := e.Hierarchy.Key(e.Subject, e.Scope)
	switch {
	case e.Scope == quota.Global:
		return "", errors.New("audit: Erasure.Scope is global, which is everybody")
	case !ok:
		return "", fmt.Errorf("audit: Erasure.Subject has no id in the scope %.40q", string(e.Scope))
	}
	return key, nil
}

// apply takes the subject out of a record. keep is false if the record goes as a
// whole, changed is false if it has nothing to do with the subject.
func (e *Erasure) apply(r *Record, key string) (keep, changed bool) {
	own := func(k string) bool { return k == key || strings.HasPrefix(k, key+"/") }
	if k, ok := e.Hierarchy.Key(r.Subject, e.Scope); !ok || k != key {
		return !own(r.Key), own(r.Key)
	}
	if e.Remove || own(r.Key) {
		return false, true
	}
	for _, scope := range e.Hierarchy.Scopes() {
		if slices.Contains(e.Hierarchy.Path(scope), e.Scope) {
			forget(&r.Subject, scope)
		}
	}
	r.Turn, r.Call, r.Erased = "", "", true
	r.Counted = slices.DeleteFunc(r.Counted, func(c Counted) bool { return own(c.Key) })
	return true, true
}

// forget takes the id of a scope out of a subject.
func forget(s *quota.Subject, scope quota.Scope) {
	switch scope {
	case quota.User:
		s.User = ""
	case quota.Team:
		s.Team = ""
	case quota.Tenant:
		s.Tenant = ""
	case quota.Session:
		s.Session = ""
	default:
		delete(s.Other, scope)
		if len(s.Other) == 0 {
			s.Other = nil
		}
	}
}

// Erase forgets a subject in all that was written so far, and returns how many records
// were changed or removed. Each file is rewritten as a whole and replaced in one step,
// so that a crash leaves it as it was or as it should be; erasing again does what is
// missing, and [Open] and [Expire] remove what was half written. Lines that are no records cannot be told to be about somebody else, and are
// removed, too. What is still in the queue of a bus is not written yet: call
// [quota.Bus.Flush] before, and stop serving the subject.
//
// The sink goes on meanwhile, with a new file. To erase in files that no sink writes
// to, use [EraseIn].
func (s *Sink) Erase(e Erasure) (erased int64, err error) {
	s.erasing.Lock()
	defer s.erasing.Unlock()
	s.mu.Lock()
	err = s.flush()
	s.abandon()
	files, listErr := list(s.cfg.Dir)
	s.mu.Unlock()
	if err := errors.Join(err, listErr); err != nil {
		return 0, err
	}
	return eraseIn(files, e)
}

// EraseIn is [Sink.Erase] for the files of a directory to which nobody writes.
func EraseIn(dir string, e Erasure) (erased int64, err error) {
	files, err := list(dir)
	if err != nil {
		return 0, err
	}
	return eraseIn(files, e)
}

func eraseIn(files []file, e Erasure) (erased int64, err error) {
	key, err := e.key()
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, f := range files {
		n, err := e.rewrite(f.path, key)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it has just expired
			errs = append(errs, fmt.Errorf("audit: %w", err))
		}
		erased += n
	}
	return erased, errors.Join(errs...)
}

// rewrite takes the subject out of a file. One that has nothing of it is not touched.
func (e *Erasure) rewrite(path, key string) (erased int64, err error) {
	erased, err = e.copy(io.Discard, path, key)
	if err != nil || erased == 0 {
		return 0, err
	}
	to, err := os.OpenFile(path+halfSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	defer os.Remove(to.Name()) // there is none after the renaming
	w := bufio.NewWriterSize(to, 64<<10)
	erased, err = e.copy(w, path, key)
	if err = errors.Join(err, w.Flush(), to.Sync(), to.Close()); err != nil {
		return 0, err
	}
	if err := os.Rename(to.Name(), path); err != nil {
		return 0, err
	}
	return erased, syncDirOf(path)
}

// copy copies a file without the subject.
func (e *Erasure) copy(w io.Writer, path, key string) (erased int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := lineReader{r: bufio.NewReaderSize(f, 64<<10)}
	var out []byte
	for {
		line, err := lines.next()
		switch {
		case errors.Is(err, io.EOF):
			if len(lines.buf) > 0 { // a torn line
				erased++
			}
			return erased, nil
		case errors.Is(err, errLong):
			erased++
			continue
		case err != nil:
			return erased, err
		}
		r, err := parse(line)
		if err != nil {
			erased++
			continue
		}
		keep, changed := e.apply(&r, key)
		if changed {
			erased++
		}
		if !keep {
			continue
		}
		// Lines that stay as they are may have fields that are not known here.
		out = append(append(out[:0], line...), '\n')
		if changed {
			if out, err = r.appendTo(out[:0]); err != nil {
				return erased, err
			}
		}
		if _, err := w.Write(out); err != nil {
			return erased, err
		}
	}
}
