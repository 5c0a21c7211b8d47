//go:build !unix || solaris || aix

package servers

import (
	"errors"
	"os"
	"syscall"
)

// errSystem is what this system cannot do. Tests that get so far are rare on
// it, for neither server is made for Windows.
var errSystem = errors.New("cannot be done on this system")

func ownGroup(*syscall.SysProcAttr) {}

func signalAtDeath(*syscall.SysProcAttr, syscall.Signal) {}

func (p *process) quit() error      { return errSystem }
func (p *process) pauseAll() error  { return errSystem }
func (p *process) resumeAll() error { return errSystem }
func (p *process) killAll() error   { return p.kill() }

// lockFile locks nothing, so that no folder is ever taken for one that was
// left.
func lockFile(*os.File) bool { return false }

// account is whom a server runs as.
type account struct{ uid, gid int }

func ordinaryAccount() (account, bool, error) { return account{}, false, nil }

func (account) runAs(*syscall.SysProcAttr) {}

func removeSharedMemory(int) error { return nil }
