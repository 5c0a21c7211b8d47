package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAsAProcess is run by the tests below as a process of its own.
func TestAsAProcess(t *testing.T) {
	if !Respawned(t) {
		t.Skip("runs as a process of other tests")
	}
	switch what := os.Getenv("HEADGATE_TEST_DO"); what {
	case "pass":
		fmt.Println("passing")
	case "fail":
		fmt.Fprintln(os.Stderr, "the reason")
		t.Fail()
	case "chatter":
		for i := range chatterLines {
			fmt.Printf("line %d of much text that nobody reads for now, so that a pipe would soon be full\n", i)
		}
		if err := os.WriteFile(os.Getenv("HEADGATE_TEST_FILE"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		fmt.Print("torn")
		select {}
	case "count":
		for i := 0; ; i++ {
			fmt.Println(i)
			time.Sleep(time.Millisecond)
		}
	default:
		t.Errorf("HEADGATE_TEST_DO is %q", what)
	}
}

const chatterLines = 5000

func TestAProcessEndsAsItsTestDoes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		do     string
		first  string
		passes bool
	}{
		{"pass", "passing", true},
		{"fail", "--- FAIL: TestAsAProcess", false},
		{"nothing of these", "--- FAIL: TestAsAProcess", false},
	} {
		t.Run(tt.do, func(t *testing.T) {
			t.Parallel()
			p := Respawn(t, "TestAsAProcess", "HEADGATE_TEST_DO="+tt.do)
			first, ok := <-p.Lines()
			if !ok || !strings.HasPrefix(first, tt.first) {
				t.Errorf("the first line is %q, want %q", first, tt.first)
			}
			if err := p.Wait(); (err == nil) != tt.passes {
				t.Errorf("it ended with %v, want it to pass: %v", err, tt.passes)
			}
			p.Kill() // changes nothing
		})
	}
}

func TestWhatAProcessPrintsAsAnErrorIsShownIfTheTestFails(t *testing.T) {
	t.Parallel()
	r := record(t, func(t testing.TB) {
		if err := Respawn(t, "TestAsAProcess", "HEADGATE_TEST_DO=fail").Wait(); err != nil {
			t.Error(err)
		}
	})
	if !strings.Contains(r.text(), "the reason") {
		t.Errorf("said %q, want the reason in it", r.text())
	}
}

func TestAKilledProcessHasSaidAllThatItPrintedAndNothingTorn(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "printed")
	p := Respawn(t, "TestAsAProcess", "HEADGATE_TEST_DO=chatter", "HEADGATE_TEST_FILE="+file)
	// It has printed everything although nobody has read a line.
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			break
		}
		if time.Since(began) > startLimit {
			t.Fatal("it waits for a reader")
		}
	}
	time.Sleep(50 * time.Millisecond) // what is torn follows
	p.Kill()
	var lines []string
	for line := range p.Lines() {
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		t.Fatal("no line is left of what it printed")
	}
	if len(lines) != chatterLines || !strings.HasPrefix(lines[len(lines)-1], fmt.Sprintf("line %d ", chatterLines-1)) {
		t.Errorf("%d lines, the last is %q, want %d", len(lines), lines[len(lines)-1], chatterLines)
	}
	if err := p.Wait(); err == nil {
		t.Error("a killed process ended well")
	}
}

func TestAPausedProcessDoesNothingUntilItIsResumed(t *testing.T) {
	t.Parallel()
	p := Respawn(t, "TestAsAProcess", "HEADGATE_TEST_DO=count")
	<-p.Lines()
	p.Pause()
	for pending := true; pending; { // what it printed before
		select {
		case <-p.Lines():
		case <-time.After(100 * time.Millisecond):
			pending = false
		}
	}
	select {
	case line := <-p.Lines():
		t.Errorf("paused, it printed %q", line)
	case <-time.After(100 * time.Millisecond):
	}
	p.Resume()
	if _, ok := <-p.Lines(); !ok {
		t.Error("resumed, it has ended")
	}
}

func TestAProcessEndsWithItsTest(t *testing.T) {
	t.Parallel()
	var p *Process
	t.Run("its test", func(t *testing.T) {
		p = Respawn(t, "TestAsAProcess", "HEADGATE_TEST_DO=count")
		<-p.Lines()
	})
	if err := p.Wait(); err == nil {
		t.Error("it ended well, want it killed")
	}
	for range p.Lines() { // is closed
	}
}

func TestThisProcessWasNotRespawned(t *testing.T) {
	t.Parallel()
	if Respawned(t) {
		t.Error("it says that it was")
	}
}
