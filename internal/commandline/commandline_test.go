package commandline_test

import (
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/internal/commandline"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		n    int    // where there is no error
		err  string // what the error says, in one line; "" is none
	}{
		{"flags", []string{"-n", "3"}, 3, ""},
		{"nothing", nil, 1, ""},
		{"a value that is none", []string{"-n", "x\ny"}, 0, `"x\ny"`},
		{"a flag that there is not", []string{"-m\nm"}, 0, "-m m"},
		{"an argument", []string{"-n", "3", "more"}, 0, `unexpected argument "more"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := flag.NewFlagSet("program", flag.ContinueOnError)
			n := f.Int("n", 1, "`number` of things")
			var out strings.Builder
			err := commandline.Parse(f, c.args, &out, "head\n", "foot\n")
			switch {
			case c.err == "" && err != nil, c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("%v, want one that says %q", err, c.err)
			case err != nil && strings.Contains(err.Error(), "\n"):
				t.Errorf("%q has more than one line", err)
			}
			if err == nil && *n != c.n {
				t.Errorf("n is %d, want %d", *n, c.n)
			}
			if out.Len() > 0 {
				t.Errorf("printed %q without being asked", out.String())
			}
		})
	}
}

func TestHelpIsPrintedOnceAndToItsWriter(t *testing.T) {
	t.Parallel()
	f := flag.NewFlagSet("program", flag.ContinueOnError)
	f.Int("n", 1, "`number` of things")
	var out strings.Builder
	if err := commandline.Parse(f, []string{"-h"}, &out, "head\n", "foot\n"); !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("%v, want %v", err, flag.ErrHelp)
	}
	help := out.String()
	if !strings.HasPrefix(help, "head\n") || !strings.HasSuffix(help, "foot\n") || strings.Count(help, "-n number") != 1 {
		t.Errorf("help is %q", help)
	}
}
