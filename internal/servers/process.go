package servers

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// endLimit is how long a process may take to end after it was killed. The
// kernel takes milliseconds, unless the disk is stuck.
const endLimit = 30 * time.Second

// process is a running program. One goroutine starts it, waits for it and ends
// with it.
type process struct {
	cmd *exec.Cmd
	// done is closed when the program has ended and was waited for.
	done chan struct{}
	// err says how the program ended, once done is closed.
	err error
}

// launch starts a program in a process group of its own, so that a Ctrl-C in a
// terminal does not reach it. Where the system can do that, death is sent to it
// when the test binary ends.
func launch(cmd *exec.Cmd, death syscall.Signal) (*process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	ownGroup(cmd.SysProcAttr)
	signalAtDeath(cmd.SysProcAttr, death)
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Linux sends the signal when the thread that started the program ends
		// (prctl(2), PR_SET_PDEATHSIG), so that thread must outlive the
		// program.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// pid returns the process id. It is nobody else's until done is closed.
func (p *process) pid() int { return p.cmd.Process.Pid }

// hasEnded reports whether the program has ended.
func (p *process) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// wait waits until the program has ended.
func (p *process) wait(limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("process %d has not ended %v later", p.pid(), limit)
	}
}

// kill ends the program alone, and at once; its children live on.
func (p *process) kill() error {
	// Fails if the program has ended, which is what is wanted.
	_ = p.cmd.Process.Kill()
	return p.wait(endLimit)
}
