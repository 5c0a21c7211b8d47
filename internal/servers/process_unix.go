//go:build unix && !solaris && !aix

package servers

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// status is one row of the table of processes.
type status struct {
	parent int
	state  byte // 'T' is stopped, 'Z' has ended and was not waited for
}

// ended reports whether the process does nothing any more.
func (s status) ended() bool { return s.state == 'Z' || s.state == 'X' }

func ownGroup(attr *syscall.SysProcAttr) { attr.Setpgid = true }

// quit asks the program to end.
func (p *process) quit() error { return p.cmd.Process.Signal(syscall.SIGQUIT) }

// pauseAll stops the program and all of its children until resumeAll. It
// returns when none of them runs.
func (p *process) pauseAll() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop process %d: %w", p.pid(), err)
	}
	stopped := func(s status) bool { return s.state == 'T' || s.state == 't' || s.ended() }
	if err := await(stopped, p.pid()); err != nil {
		return err
	}
	// From here on it neither starts a child nor waits for one, so that the ids
	// of its children stay theirs.
	children, err := descendants(p.pid())
	if err != nil {
		return err
	}
	if err := signalEach(syscall.SIGSTOP, children); err != nil {
		return err
	}
	return await(stopped, children...)
}

// resumeAll has the program and its children go on.
func (p *process) resumeAll() error {
	children, err := descendants(p.pid())
	if err != nil {
		return err
	}
	if err := signalEach(syscall.SIGCONT, children); err != nil {
		return err
	}
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("resume process %d: %w", p.pid(), err)
	}
	return nil
}

// killAll ends the program and all of its children at once, and returns when
// they are gone: none of them has a chance to write anything, or to see the
// others go.
func (p *process) killAll() error {
	if p.hasEnded() {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		if errors.Is(err, os.ErrProcessDone) {
			return p.wait(endLimit)
		}
		return fmt.Errorf("stop process %d: %w", p.pid(), err)
	}
	if err := await(func(s status) bool { return s.state == 'T' || s.state == 't' || s.ended() }, p.pid()); err != nil {
		return err
	}
	children, err := descendants(p.pid())
	if err != nil {
		return err
	}
	if err := signalEach(syscall.SIGKILL, children); err != nil {
		return err
	}
	// Children are waited for before their parent dies: until then their ids
	// cannot be given to others.
	if err := await(status.ended, children...); err != nil {
		return err
	}
	return p.kill()
}

// signalEach sends a signal to processes, some of which may have ended.
func signalEach(sig syscall.Signal, pids []int) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("send %v to process %d: %w", sig, pid, err)
		}
	}
	return nil
}

// await waits until a condition holds for each process that there still is.
func await(cond func(status) bool, pids ...int) error {
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		table, err := processTable()
		if err != nil {
			return err
		}
		pending := 0
		for _, pid := range pids {
			if s, ok := table[pid]; ok && !cond(s) {
				pending = pid
			}
		}
		if pending == 0 {
			return nil
		}
		if time.Since(began) > endLimit {
			return fmt.Errorf("process %d does not heed a signal: it is in state %c", pending, table[pending].state)
		}
	}
}

// descendants returns the children of a process, and theirs.
func descendants(pid int) ([]int, error) {
	table, err := processTable()
	if err != nil {
		return nil, err
	}
	found := []int{pid}
	for i := 0; i < len(found); i++ {
		for child, s := range table {
			if s.parent == found[i] {
				found = append(found, child)
			}
		}
	}
	return found[1:], nil
}

// lockFile takes an advisory lock on an open file, and reports whether it
// could. The lock is gone when the file is closed, also by the end of the
// process.
func lockFile(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// account is whom a server runs as.
type account struct{ uid, gid int }

// ordinaryAccount returns an account for servers that do not run as root; ok is
// false where we are not root, and need none.
func ordinaryAccount() (a account, ok bool, err error) {
	if os.Geteuid() != 0 {
		return account{}, false, nil
	}
	a, err = lookupAccount()
	return a, err == nil, err
}

var lookupAccount = sync.OnceValues(func() (account, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.Atoi(u.Uid)
		gid, errGID := strconv.Atoi(u.Gid)
		if errUID == nil && errGID == nil && uid != 0 {
			return account{uid, gid}, nil
		}
	}
	return account{}, errors.New("we are root, and there is neither an account named postgres nor one named nobody")
})

// runAs has a program run as the account.
func (a account) runAs(attr *syscall.SysProcAttr) {
	attr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
}
