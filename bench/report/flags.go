package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/headgate-go/headgate/bench/internal/burst"
	"github.com/headgate-go/headgate/internal/commandline"
)

// catalogue is all that can be run.
type catalogue struct {
	shapes   []burst.Shape
	policies []burst.Policy
	windows  []burst.Window
	run      runner
}

// runner plays a shape through a policy.
type runner func(burst.Shape, burst.Policy, burst.Window, uint64) (burst.Result, error)

// options is what the command line says, in the order of the catalogue.
type options struct {
	out      string
	json     bool
	seed     uint64
	shapes   []burst.Shape
	policies []burst.Policy
	windows  []burst.Window
}

const usageHead = `Usage: report -out FOLDER [flags]

Plays burst shapes through admission policies before three kinds of quota
windows, in virtual time, and writes a page with pictures and a table.

Examples:

  report -out report/
  report -out report/ -shape review -policy none,headgate-fair -window sliding
  report -json -shape review

Flags:
`

// parseFlags reads the command line. With -h it prints help to out and returns
// flag.ErrHelp. Any other error is one line that names the flag and the value.
func parseFlags(args []string, out io.Writer, c catalogue) (options, error) {
	o := options{shapes: c.shapes, policies: c.policies, windows: c.windows}
	f := flag.NewFlagSet("report", flag.ContinueOnError)
	f.StringVar(&o.out, "out", "", "`folder` to write to: a new one, an empty one, or one that holds a report")
	f.BoolVar(&o.json, "json", false, "print the results to stdout as one JSON array; without -out, nothing else is written")
	f.Uint64Var(&o.seed, "seed", 1, "`seed` of everything random")
	f.Func("shape", "`names` of shapes to run, with commas between, instead of all: "+names(c.shapes, shapeName), func(s string) (err error) {
		o.shapes, err = choose(s, c.shapes, shapeName)
		return err
	})
	f.Func("policy", "`names` of policies to run, instead of all: "+names(c.policies, policyName), func(s string) (err error) {
		o.policies, err = choose(s, c.policies, policyName)
		return err
	})
	f.Func("window", "`names` of kinds of windows, instead of all: "+names(c.windows, burst.Window.String), func(s string) (err error) {
		o.windows, err = choose(s, c.windows, burst.Window.String)
		return err
	})
	if err := commandline.Parse(f, args, out, usageHead, ""); err != nil {
		return o, err
	}
	if o.out == "" && !o.json {
		return o, errors.New("nothing to do: give -out, -json or both")
	}
	return o, nil
}

func shapeName(s burst.Shape) string   { return s.Name }
func policyName(p burst.Policy) string { return p.Name }

func names[T any](all []T, name func(T) string) string {
	var list []string
	for _, x := range all {
		list = append(list, name(x))
	}
	return strings.Join(list, ", ")
}

// choose returns those of all that a list names, in their own order.
func choose[T any](list string, all []T, name func(T) string) ([]T, error) {
	wanted := strings.Split(list, ",")
	for _, w := range wanted {
		if !slices.ContainsFunc(all, func(x T) bool { return name(x) == w }) {
			return nil, fmt.Errorf("unknown name %q: must be of %s", w, names(all, name))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(x T) bool { return !slices.Contains(wanted, name(x)) }), nil
}
