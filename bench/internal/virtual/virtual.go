// Package virtual runs a function in virtual time, in tests and in ordinary
// programs alike: an hour of traffic takes a moment, and the libraries that
// make it run unmodified.
//
// It is a testing/synctest bubble. Time stands still while any goroutine of
// the function can run, and jumps to the next timer when none can. It begins at
// midnight UTC of 2000-01-01. The rules of package synctest hold: time stops for
// good when the function returns, so its goroutines must not wait for any after
// that; and what they wait for (channels, timers, wait groups) must have been
// made inside.
package virtual

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// Run runs f in virtual time and returns when f, and every goroutine that it
// has started, has ended. A panic of f comes back as an error that holds its
// value and its stack; so does a deadlock, and a goroutine of f that still waits
// when f has returned. A panic in another goroutine of f ends the program, as
// anywhere else.
//
// Run may be called from several goroutines at once; each has its own time. The
// first call in a program that is not a test sets up package testing, and
// changes os.Args and os.Stdout for a moment: make it before other goroutines
// use these.
func Run(f func()) error {
	if !testing.Testing() {
		if err := setUp(); err != nil {
			return err
		}
	}
	b := &bubble{f: f}
	ok := testing.RunTests(b.match, []testing.InternalTest{{Name: "virtual", F: b.test}})
	switch {
	case b.err != nil:
		return b.err
	case !b.began:
		return errors.New("virtual: the function was not run: the flag -test.skip excludes it")
	case !ok:
		return errors.New("virtual: package testing reports a failure")
	case !b.returned:
		return errors.New("virtual: the function ended its goroutine instead of returning")
	}
	return nil
}

// bubble is one run of a function.
type bubble struct {
	f               func()
	began, returned bool
	err             error
}

// match is asked by package testing whether patterns of the flags -test.run and
// -test.skip match the name of the test. The former must, the latter must not.
func (b *bubble) match(pattern, _ string) (bool, error) {
	skip := flag.Lookup("test.skip")
	return skip == nil || !strings.Contains(skip.Value.String(), pattern), nil
}

// test is the test that holds the bubble.
func (b *bubble) test(t *testing.T) {
	if b.began {
		return // the flags -test.count and -test.cpu repeat tests, but not this
	}
	b.began = true
	defer b.catch() // a deadlock panics here
	synctest.Test(t, func(*testing.T) {
		done := make(chan struct{})
		go func() { // one of its own, which it may end
			defer close(done)
			defer b.catch()
			b.f()
			b.returned = true
		}()
		<-done
	})
}

// catch notes a panic.
func (b *bubble) catch() {
	if p := recover(); p != nil && b.err == nil {
		b.err = fmt.Errorf("virtual: panic: %v\n%s", p, debug.Stack())
	}
}

// setUp makes package testing ready in a program that is not a test: it reads
// its flags, all of them at their defaults, and runs a test that does nothing.
var setUp = sync.OnceValue(func() error {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("virtual: %w", err)
	}
	defer null.Close()
	args, stdout := os.Args, os.Stdout
	os.Args, os.Stdout = args[:1], null // it parses the former and prints PASS to the latter
	defer func() { os.Args, os.Stdout = args, stdout }()
	testing.Init()
	nothing := []testing.InternalTest{{Name: "nothing", F: func(*testing.T) {}}}
	if code := testing.MainStart(deps{}, nothing, nil, nil, nil).Run(); code != 0 {
		return fmt.Errorf("virtual: package testing ended with code %d", code)
	}
	return nil
})
