package virtual_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/bench/internal/virtual"
)

func TestAnHourTakesAMoment(t *testing.T) {
	t.Parallel()
	real := time.Now()
	var slept time.Duration
	err := virtual.Run(func() {
		began := time.Now()
		time.Sleep(time.Hour)
		slept = time.Since(began)
	})
	if err != nil || slept != time.Hour {
		t.Errorf("slept %v, error %v; want 1h0m0s and none", slept, err)
	}
	if took := time.Since(real); took > time.Minute {
		t.Errorf("an hour took %v of real time", took)
	}
}

func TestRunsDoNotShareTheirTime(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			want := time.Duration(i+1) * time.Minute
			var slept time.Duration
			err := virtual.Run(func() {
				began := time.Now()
				time.Sleep(want)
				slept = time.Since(began)
			})
			if err != nil || slept != want {
				t.Errorf("slept %v, error %v; want %v and none", slept, err, want)
			}
		})
	}
	all.Wait()
}

func TestWhatGoesWrongComesBackAsAnError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		f    func()
		want string
	}{
		{"panic", func() { panic("out of ink") }, "out of ink"},
		{"deadlock", func() { <-make(chan int) }, "deadlock"},
		{"goroutine that is left behind", func() { go time.Sleep(time.Hour) }, "deadlock"},
		{"end of the goroutine", runtime.Goexit, "ended its goroutine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := virtual.Run(c.f)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; want one that says %q", err, c.want)
			}
		})
	}
}

func TestAnOrdinaryProgramHasVirtualTime(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds a program")
	}
	program := filepath.Join(t.TempDir(), "program")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./testdata/program").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(ctx, program, "-unknown", "argument").CombinedOutput()
	if err != nil {
		t.Fatalf("run: %v\n%s", err, out)
	}
	const want = `arguments 2
slept 1h0m0s
error <nil>
slept 2h0m0s
error <nil>
panic caught true
at once [1m0s 2m0s]
arguments 2 quick true
`
	if string(out) != want {
		t.Errorf("the program prints\n%s\nwant\n%s", out, want)
	}
}
