//go:build unix && !solaris && !aix

package journal

import (
	"errors"
	"os"
	"syscall"
)

// lockFile opens a file and locks it for as long as it is open. It returns errInUse
// if it is locked already.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errInUse
		}
		return nil, &os.PathError{Op: "flock", Path: path, Err: err}
	}
}

// unlockFile unlocks a file and closes it. Closing it would not do: a program that is
// being started at the same time has it open for a moment, too.
func unlockFile(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}
