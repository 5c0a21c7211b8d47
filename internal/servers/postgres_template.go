package servers

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// initLimit is how long initdb may take; it takes a second.
const initLimit = 2 * time.Minute

// postgresTemplate is the folder that initdb made, once for the test binary. A
// server gets a copy, which takes a tenth of the time.
var postgresTemplate template

type template struct {
	mu   sync.Mutex // guards all below
	dir  string     // "" before initdb has run
	data string     // in dir
	err  error      // why it could not run; nobody tries again
}

// copyTo makes the folder of a new server.
func (t *template) copyTo(data string, programs postgresPrograms) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dir == "" && t.err == nil {
		t.err = t.make(programs)
	}
	if t.err != nil {
		return t.err
	}
	return copyFolder(data, t.data)
}

// make runs initdb.
func (t *template) make(programs postgresPrograms) (err error) {
	dir, err := makeFolder("initdb")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeFolder(dir))
		}
	}()
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if err := giveAway(data); err != nil {
		return err
	}
	cmd, err := ordinaryCommand(dir, programs.initdb,
		"-D", data, "-U", postgresUser, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions")
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	p, err := launch(cmd, syscall.SIGKILL)
	if err == nil {
		if err = p.wait(initLimit); err != nil {
			err = errors.Join(err, p.killAll())
		} else {
			err = p.err
		}
	}
	if err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("initdb: %w; it printed:\n%s", err, tail(string(text), logLines))
	}
	t.dir, t.data = dir, data
	return nil
}

// remove removes the template; the next server has another one made.
func (t *template) remove() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dir != "" {
		_ = removeFolder(t.dir) // the next test binary removes what is left
	}
	t.dir, t.data, t.err = "", "", nil
}

// copyFolder copies a folder of files and folders with their modes, for the
// account that servers run as.
func copyFolder(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		target := to + strings.TrimPrefix(path, from)
		switch {
		case d.IsDir():
			err = os.Mkdir(target, info.Mode().Perm())
		case d.Type().IsRegular():
			err = copyFile(target, path, info.Mode().Perm())
		default:
			err = fmt.Errorf("%s is neither a file nor a folder", path)
		}
		if err != nil {
			return err
		}
		return giveAway(target)
	})
}

func copyFile(to, from string, mode fs.FileMode) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// giveAway gives a file to the account that servers run as, where that is not
// ours.
func giveAway(path string) error {
	account, ok, err := ordinaryAccount()
	if err != nil || !ok {
		return err
	}
	return os.Lchown(path, account.uid, account.gid)
}
