//go:build !windows && (!unix || solaris || aix)

package journal

import "os"

// lockFile opens a file. These systems have no lock that ends with the process and
// that the standard library can take, so that nothing keeps two of them apart.
func lockFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

// unlockFile closes the file.
func unlockFile(f *os.File) error { return f.Close() }
