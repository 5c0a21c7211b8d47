package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// startLimit is how long a server may take until it answers, on a machine
	// with much else to do.
	startLimit = 60 * time.Second
	// askLimit is how long one question to a server may take that may not be
	// ready yet.
	askLimit = time.Second
	// logLines is how much of a server's log a failure shows.
	logLines = 30
)

// server is a program that listens on ports of its own, and can be killed and
// started again on the same ports and files.
type server struct {
	program string
	dir     string
	ports   []*port
	// command makes the command that starts the program on the ports.
	command func(s *server) (*exec.Cmd, error)
	// ready returns nil when it is this server that answers, and not another
	// one.
	ready func(ctx context.Context, s *server) error
	// death is the signal that ends the program when the test binary has ended.
	death syscall.Signal
	// tidy removes what the program leaves in the system if it was killed.
	tidy func(s *server) error

	mu     sync.Mutex // guards all below
	proc   *process   // nil before the first start
	paused bool
}

// errInUse says that somebody else listens on the port.
var errInUse = errors.New("the port is in use")

// startNew starts the server for the first time, on n ports.
func (s *server) startNew(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for try := 1; ; try++ {
		for range n {
			p, err := claimPort()
			if err != nil {
				return err
			}
			s.ports = append(s.ports, p)
		}
		err := s.run()
		if err == nil {
			return nil
		}
		// A program that knows nothing of our tokens may have been faster.
		if !errors.Is(err, errInUse) || try == 5 {
			return err
		}
		s.releasePorts()
	}
}

// run starts the program and waits until it is ready.
func (s *server) run() error {
	log, err := os.OpenFile(s.logName(), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	begin, err := log.Seek(0, 2)
	if err != nil {
		return err
	}
	cmd, err := s.command(s)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	proc, err := launch(cmd, s.death)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.program, err)
	}
	err = s.awaitReady(proc)
	if err == nil {
		s.proc, s.paused = proc, false
		return nil
	}
	_ = proc.killAll()
	text, _ := os.ReadFile(s.logName())
	text = text[min(int64(len(text)), begin):]
	if bytes.Contains(text, []byte("Address already in use")) {
		err = fmt.Errorf("%w: %w", errInUse, err)
	}
	return fmt.Errorf("start %s: %w; its log:\n%s", s.program, err, tail(string(text), logLines))
}

// awaitReady asks a server that was started until it answers.
func (s *server) awaitReady(proc *process) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for {
		err := s.ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-proc.done:
			return fmt.Errorf("it has ended (%v)", proc.err)
		case <-ctx.Done():
			return fmt.Errorf("it is not ready after %v: %w", startLimit, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (s *server) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	return s.ready(ctx, s)
}

// kill ends the server at once. One that does not run is left alone.
func (s *server) kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.killLocked()
}

func (s *server) killLocked() error {
	if s.proc == nil {
		return nil
	}
	s.paused = false
	return s.proc.killAll()
}

// restart starts the server again where it was; one that still runs is killed
// first.
func (s *server) restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.killLocked(); err != nil {
		return err
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		err := s.run()
		if err == nil || !errors.Is(err, errInUse) || time.Since(began) > startLimit {
			return err
		}
	}
}

// pause stops the server as it stands: connections stay open, new ones are
// taken by the kernel, and nobody answers.
func (s *server) pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.running(); err != nil {
		return err
	}
	s.paused = true
	return s.proc.pauseAll()
}

// resume has a paused server go on.
func (s *server) resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.running(); err != nil {
		return err
	}
	s.paused = false
	return s.proc.resumeAll()
}

// running returns an error if the server has ended.
func (s *server) running() error {
	if s.proc == nil || s.proc.hasEnded() {
		return errors.New("it does not run")
	}
	return nil
}

// answers reports whether the server runs and is not paused.
func (s *server) answers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running() == nil && !s.paused
}

// close ends the server for good and removes its files.
func (s *server) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.endLocked()
	if s.tidy != nil {
		err = errors.Join(err, s.tidy(s))
	}
	s.releasePorts()
	return errors.Join(err, removeFolder(s.dir))
}

// endLocked ends the program, and gives one that would otherwise leave
// something in the system a moment to do it itself.
func (s *server) endLocked() error {
	if s.proc != nil && !s.proc.hasEnded() && s.death != syscall.SIGKILL && !s.paused {
		if s.proc.quit() == nil && s.proc.wait(endLimit/3) == nil {
			return nil
		}
	}
	return s.killLocked()
}

func (s *server) releasePorts() {
	for _, p := range s.ports {
		p.release()
	}
	s.ports = nil
}

func (s *server) addr() string { return s.ports[0].addr() }

func (s *server) logName() string { return filepath.Join(s.dir, "log") }

// log returns the end of the server's log.
func (s *server) log() string {
	text, err := os.ReadFile(s.logName())
	if err != nil {
		return err.Error()
	}
	return tail(string(text), logLines)
}

// closeAfter closes the server when the test is over, and shows the end of its
// log if the test failed.
func (s *server) closeAfter(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the log of %s in %s:\n%s", s.program, s.dir, s.log())
		}
		if err := s.close(); err != nil {
			t.Errorf("end %s: %v", s.program, err)
		}
	})
}

// handle is a server as one test holds it.
type handle struct {
	t testing.TB
	*server
	isShared bool
}

// Kill ends the server at once, all of its processes, as kill -9 does, and
// returns when they are gone. A server that does not run is left alone.
func (h *handle) Kill() { h.do("Kill", h.kill) }

// Restart starts the server again on the same port and files, and returns when
// it answers. One that still runs is killed first.
func (h *handle) Restart() { h.do("Restart", h.restart) }

// Pause stops all processes of the server where they are (SIGSTOP), and returns
// when none of them runs. Connections stay open and new ones seem to come
// about, but nobody answers.
func (h *handle) Pause() { h.do("Pause", h.pause) }

// Resume has a paused server go on where it stopped.
func (h *handle) Resume() { h.do("Resume", h.resume) }

func (h *handle) do(what string, f func() error) {
	h.t.Helper()
	if h.isShared {
		h.t.Errorf("%s of the shared %s, which other tests use: start one for this test", what, h.program)
		return
	}
	if err := f(); err != nil {
		h.t.Errorf("%s of %s: %v", what, h.program, err)
	}
}
