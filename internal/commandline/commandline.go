// Package commandline reads the command lines of this module's programs alike:
// flags only, help on request, and every error in one line.
package commandline

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// Parse parses args with f. With -h it prints head, the flags and foot to out and
// returns [flag.ErrHelp]. Any other error is one line that names what is wrong: a
// flag and its value, or an argument, of which there may be none. The output and
// the usage function of f are Parse's own.
func Parse(f *flag.FlagSet, args []string, out io.Writer, head, foot string) error {
	f.SetOutput(io.Discard) // errors are printed once, by the caller
	f.Usage = func() {}
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, head)
		f.SetOutput(out)
		f.PrintDefaults()
		fmt.Fprint(out, foot)
		return flag.ErrHelp
	case err != nil:
		return errors.New(strings.ReplaceAll(err.Error(), "\n", " "))
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return nil
}
