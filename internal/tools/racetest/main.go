// Command racetest runs go test and, where the race detector itself has ended a test binary, those packages once
// more.
//
//	go run ./internal/tools/racetest go test -race -shuffle=on -timeout 10m -- ./...
//
// The race detector of Go 1.26 fails a check of its own, rarely and on a busy machine, in tests that run in a
// testing/synctest bubble (https://go.dev/issue/78156: "ThreadSanitizer: CHECK failed"). That is no finding about
// the tests, and it ends the whole binary. Only a package that has failed in this way and in no other is run again,
// and only where every package that failed did so: a test that fails, a data race, a panic, a leaked goroutine or a
// package that does not build stays what it is. The exit code is that of the last run of go test.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

func main() {
	i := slices.Index(os.Args, "--")
	if i < 2 || i == len(os.Args)-1 {
		fmt.Fprintln(os.Stderr, "usage: racetest go test [flags] -- packages")
		os.Exit(2)
	}
	command, packages := os.Args[1:i], os.Args[i+1:]
	code, err := run(packages, os.Stdout, func(packages []string, output io.Writer) (code int, err error) {
		cmd := exec.Command(command[0], slices.Concat(command[1:], packages)...)
		cmd.Stdout, cmd.Stderr = output, output
		err = cmd.Run()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
			return exit.ExitCode(), nil
		}
		return 0, err
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "racetest: %v\n", err)
		os.Exit(1)
	}
	os.Exit(code)
}

// run tests the packages, and once more those that the race detector has ended if no other has failed.
func run(packages []string, stdout io.Writer, test func(packages []string, output io.Writer) (code int, err error)) (code int, err error) {
	var text bytes.Buffer
	code, err = test(packages, io.MultiWriter(stdout, &text))
	if code == 0 || err != nil {
		return code, err
	}
	again := ended(text.String())
	if len(again) == 0 {
		return code, nil
	}
	fmt.Fprintf(stdout, "racetest: the race detector itself has ended the tests of %s: once more\n", strings.Join(again, ", "))
	return test(again, stdout)
}

// check is what the race detector prints when it fails a check of its own.
const check = "ThreadSanitizer: CHECK failed"

// other is what a package prints that has failed in another way.
var other = regexp.MustCompile(`(?m)^\s*--- FAIL|WARNING: DATA RACE|^panic: |^fatal error: |goleak: |^FAIL\s.*\[(build|setup) failed\]`)

// result is the line with which go test ends what it says of a package.
var result = regexp.MustCompile(`^(ok  |FAIL|\?   )\t(\S+)`)

// ended returns the packages that the race detector has ended, and nothing if any package has failed otherwise.
func ended(output string) (packages []string) {
	var block strings.Builder
	for line := range strings.Lines(output) {
		block.WriteString(line)
		end := result.FindStringSubmatch(line)
		if end == nil {
			continue
		}
		said := block.String()
		block.Reset()
		if end[1] != "FAIL" {
			continue
		}
		if !strings.Contains(said, check) || other.MatchString(said) {
			return nil
		}
		packages = append(packages, end[2])
	}
	if other.MatchString(block.String()) { // of no package
		return nil
	}
	return packages
}
