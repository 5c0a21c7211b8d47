package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

const (
	passed  = "-test.shuffle 7\nok  \texample.org/a\t1.2s\n"
	untried = "?   \texample.org/none\t[no test files]\n"
	crashed = "-test.shuffle 8\nThreadSanitizer: CHECK failed: tsan_rtl.cpp:346 \"((exiting)) != (0)\" (0x0, 0x0) (tid=13367)\nFAIL\texample.org/b\t5.6s\n"
	failed  = "--- FAIL: TestX (0.00s)\n    x_test.go:1: no\nFAIL\nFAIL\texample.org/c\t0.1s\n"
	leaked  = "PASS\ngoleak: Errors on successful test run: found unexpected goroutines:\nFAIL\texample.org/c\t0.1s\n"
	unbuilt = "# example.org/c\nc.go:1:1: expected 'package'\nFAIL\texample.org/c [build failed]\n"
	raced   = "==================\nWARNING: DATA RACE\nThreadSanitizer: CHECK failed\nFAIL\texample.org/c\t0.1s\n"
	both    = "    --- FAIL: TestX/y (0.00s)\nThreadSanitizer: CHECK failed\nFAIL\texample.org/c\t0.1s\n"
	silent  = "exit status 1\nFAIL\texample.org/c\t0.1s\n"
	end     = "FAIL\n"
)

func TestOnlyWhatTheRaceDetectorHasEndedIsRunAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		output string
		want   []string
	}{
		"nothing else has failed":       {passed + crashed + untried + end, []string{"example.org/b"}},
		"two of them":                   {crashed + passed + strings.ReplaceAll(crashed, "/b", "/d") + end, []string{"example.org/b", "example.org/d"}},
		"nothing was ended":             {passed + failed + end, nil},
		"a test failed elsewhere":       {crashed + failed + end, nil},
		"a test failed elsewhere first": {failed + crashed + end, nil},
		"goroutines leaked elsewhere":   {crashed + leaked + end, nil},
		"a package was not built":       {crashed + unbuilt + end, nil},
		"there was a race, too":         {raced + end, nil},
		"a test failed before":          {both + end, nil},
		"nobody knows why":              {crashed + silent + end, nil},
		"a panic of no package":         {crashed + "panic: no\n", nil},
	} {
		if got := ended(tt.output); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestTheExitCodeIsThatOfTheLastRun(t *testing.T) {
	t.Parallel()
	type answer struct {
		output string
		code   int
		err    error
	}
	broken := errors.New("no such command")
	for name, tt := range map[string]struct {
		answers []answer
		code    int
		err     error
	}{
		"all pass":               {[]answer{{passed, 0, nil}}, 0, nil},
		"a test fails":           {[]answer{{failed + end, 1, nil}}, 1, nil},
		"it passes then":         {[]answer{{crashed + end, 1, nil}, {strings.ReplaceAll(passed, "/a", "/b"), 0, nil}}, 0, nil},
		"it is ended again":      {[]answer{{crashed + end, 1, nil}, {crashed + end, 1, nil}}, 1, nil},
		"a test fails then":      {[]answer{{crashed + end, 1, nil}, {failed + end, 1, nil}}, 1, nil},
		"there is no go command": {[]answer{{"", 0, broken}}, 0, broken},
	} {
		var stdout strings.Builder
		var runs [][]string
		code, err := run([]string{"./..."}, &stdout, func(packages []string, output io.Writer) (int, error) {
			a := tt.answers[len(runs)]
			runs = append(runs, packages)
			_, _ = io.WriteString(output, a.output)
			return a.code, a.err
		})
		if code != tt.code || !errors.Is(err, tt.err) || len(runs) != len(tt.answers) {
			t.Errorf("%s: exit code %d, %v after %d runs, want %d, %v after %d", name, code, err, len(runs), tt.code, tt.err, len(tt.answers))
		}
		if len(runs) == 2 && !slices.Equal(runs[1], []string{"example.org/b"}) {
			t.Errorf("%s: %q were run again", name, runs[1])
		}
		for _, a := range tt.answers {
			if !strings.Contains(stdout.String(), a.output) {
				t.Errorf("%s: %q was not shown", name, a.output)
			}
		}
	}
}
