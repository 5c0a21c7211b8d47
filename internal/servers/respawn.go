package servers

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// respawnVariable tells a test function that it runs in a process of its own.
const respawnVariable = "HEADGATE_RESPAWNED"

// Process is the test binary once more, running one test function as a process
// that can be killed, as a caller is that dies. Make it with [Respawn].
type Process struct {
	t     testing.TB
	proc  *process
	out   *os.File // what it prints
	queue queue    // what was read from out
	lines chan string
	stop  chan struct{} // closed when nobody reads lines any more
	// pumps counts the goroutines from out to queue and from queue to lines.
	pumps sync.WaitGroup
}

// Respawn runs the test function of this name, a top-level one of this package,
// in a new process of the test binary. It ends with the test at the latest. env
// are "NAME=value" pairs that the process gets in addition.
//
// The function looks whether it was respawned, prints what it has to say to
// standard output, one line with each write, and may run until it is killed:
//
//	func TestCaller(t *testing.T) {
//		if !servers.Respawned(t) {
//			t.Skip("runs as a process of TestCallersMayDie")
//		}
//		for {
//			…
//			fmt.Println("settled", id)
//		}
//	}
func Respawn(t testing.TB, name string, env ...string) *Process {
	t.Helper()
	dir, err := makeFolder("process")
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{t: t, lines: make(chan string), stop: make(chan struct{})}
	if err := p.start(dir, name, env); err != nil {
		t.Fatal(errors.Join(fmt.Errorf("respawn %s: %w", name, err), removeFolder(dir)))
	}
	t.Cleanup(func() {
		p.Kill()
		close(p.stop)
		_ = p.out.Close() // a child of the process may still hold the other end
		p.pumps.Wait()
		if text, err := os.ReadFile(filepath.Join(dir, "log")); err == nil && t.Failed() && len(text) > 0 {
			t.Logf("the end of what %s printed as an error:\n%s", name, tail(string(text), logLines))
		}
		if err := removeFolder(dir); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Respawned reports whether this process is one that [Respawn] has started for
// the test.
func Respawned(t testing.TB) bool { return os.Getenv(respawnVariable) == t.Name() }

func (p *Process) start(dir, name string, env []string) error {
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	path, err := os.Executable()
	if err != nil {
		return errors.Join(err, out.Close())
	}
	// One run, without what the flags of this run write to files. A process
	// that the system does not end with us ends by itself.
	cmd := exec.Command(path, "-test.run=^"+name+"$", "-test.count=1", "-test.timeout=10m")
	cmd.Env = append(append(os.Environ(), respawnVariable+"="+name), env...)
	cmd.Stdout, cmd.Stderr = in, log
	if p.proc, err = launch(cmd, syscall.SIGKILL); err != nil {
		return errors.Join(err, out.Close())
	}
	p.out = out
	p.queue.init()
	p.pumps.Go(func() { p.queue.fill(out) })
	p.pumps.Go(func() { p.queue.drain(p.lines, p.stop) })
	return nil
}

// Lines returns what the process prints to its standard output, line by line,
// also after it was killed; the channel is closed after the last line. The
// process never waits for a reader. A last line without a line break is left
// out: the process was killed while it wrote it. The last lines of one that was
// not killed are those of the testing package.
func (p *Process) Lines() <-chan string { return p.lines }

// Kill ends the process at once, as kill -9 does, and returns when it is gone.
// One that has ended is left alone.
func (p *Process) Kill() {
	p.t.Helper()
	if err := p.proc.kill(); err != nil {
		p.t.Errorf("Kill: %v", err)
	}
}

// Wait waits until the process has ended by itself and returns nil if its test
// passed.
func (p *Process) Wait() error {
	<-p.proc.done
	return p.proc.err
}

// Pause stops the process where it is (SIGSTOP), and returns when it does not
// run.
func (p *Process) Pause() {
	p.t.Helper()
	if err := p.proc.pauseAll(); err != nil {
		p.t.Errorf("Pause: %v", err)
	}
}

// Resume has a paused process go on.
func (p *Process) Resume() {
	p.t.Helper()
	if err := p.proc.resumeAll(); err != nil {
		p.t.Errorf("Resume: %v", err)
	}
}

// queue holds lines without a bound, so that who prints them is not slowed by
// who reads.
type queue struct {
	mu    sync.Mutex // guards all below
	more  *sync.Cond
	lines []string
	ended bool
}

func (q *queue) init() { q.more = sync.NewCond(&q.mu) }

// fill reads lines until the end.
func (q *queue) fill(r io.Reader) {
	for b := bufio.NewReader(r); ; {
		line, err := b.ReadString('\n')
		q.mu.Lock()
		if err == nil {
			q.lines = append(q.lines, strings.TrimRight(line, "\r\n"))
		} else {
			q.ended = true
		}
		q.more.Signal()
		q.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// drain sends lines on until there is no more to come, or nobody to read them.
func (q *queue) drain(to chan<- string, stop <-chan struct{}) {
	defer close(to)
	for {
		q.mu.Lock()
		for len(q.lines) == 0 && !q.ended {
			q.more.Wait()
		}
		lines := q.lines
		q.lines = nil
		q.mu.Unlock()
		if len(lines) == 0 {
			return
		}
		for _, line := range lines {
			select {
			case to <- line:
			case <-stop:
				return
			}
		}
	}
}
