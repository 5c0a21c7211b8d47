package servers

import (
	"os"
	"path/filepath"
	"sync"
)

// folders are where the servers of this test binary keep their files: all in
// one folder, which goes with the last of them.
var folders struct {
	mu   sync.Mutex // guards all below
	root string     // "" while there is none
	lock *os.File   // held while root is used
	n    int        // folders in root
}

const (
	folderPrefix = "headgate-servers-"
	lockName     = "lock"
)

// makeFolder makes an empty folder that every account may enter.
func makeFolder(kind string) (string, error) {
	folders.mu.Lock()
	defer folders.mu.Unlock()
	if folders.root == "" {
		base := publicTemp(os.TempDir())
		removeAbandoned(base)
		root, lock, err := makeRoot(base)
		if err != nil {
			return "", err
		}
		folders.root, folders.lock = root, lock
	}
	dir, err := os.MkdirTemp(folders.root, kind+"-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	folders.n++
	return dir, nil
}

// makeRoot makes a folder for those of one test binary, with a lock that says
// that it lives.
func makeRoot(base string) (root string, lock *os.File, err error) {
	root, err = os.MkdirTemp(base, folderPrefix)
	if err != nil {
		return "", nil, err
	}
	if err := os.Chmod(root, 0o755); err != nil {
		return "", nil, err
	}
	// The lock is taken before the file has the name that others look for.
	unnamed := filepath.Join(root, "new")
	lock, err = os.Create(unnamed)
	if err != nil {
		return "", nil, err
	}
	lockFile(lock)
	if err := os.Rename(unnamed, filepath.Join(root, lockName)); err != nil {
		return "", nil, err
	}
	return root, lock, nil
}

// removeFolder removes a folder and what is in it.
func removeFolder(dir string) error {
	folders.mu.Lock()
	defer folders.mu.Unlock()
	err := os.RemoveAll(dir)
	folders.n--
	if folders.n == 0 {
		_ = os.RemoveAll(folders.root)
		_ = folders.lock.Close()
		folders.root, folders.lock = "", nil
	}
	return err
}

// removeAbandoned removes the folders of test binaries that were killed, and
// could not do it themselves: nobody holds their locks.
func removeAbandoned(base string) {
	locks, _ := filepath.Glob(filepath.Join(base, folderPrefix+"*", lockName))
	for _, name := range locks {
		f, err := os.Open(name)
		if err != nil {
			continue // gone, or another user's
		}
		if lockFile(f) {
			_ = os.RemoveAll(filepath.Dir(name))
		}
		_ = f.Close()
	}
}

// publicTemp returns dir as an absolute path if every account may enter it, and
// /tmp otherwise: a server that runs as another user must reach its folder.
func publicTemp(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "/tmp"
	}
	for d := dir; ; d = filepath.Dir(d) {
		info, err := os.Stat(d)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return "/tmp"
		}
		if d == filepath.Dir(d) {
			return dir
		}
	}
}
