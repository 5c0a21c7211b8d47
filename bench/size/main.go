// Size answers how much of a quota an agent needs before it goes live:
//
//	go run ./bench/size -users-per-min 40 -calls 5 -tokens 5800 -count total -headroom 0.9 \
//	    -latency 8s -rpm 1000 -tpm 1000000 -replicas 3
//
// It says which limit binds, how many calls and user requests a minute each
// replica can carry, how many slots its gate needs and how long calls will
// wait. Then it sends that traffic, in virtual time, through the gates of that
// plan to a provider that enforces the quota, and prints what was reckoned and
// what was measured side by side. Run it with -h for everything that it can do.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run sizes what args ask for and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "size: %v (run with -h for help)\n", err)
		return exitUsage
	}
	answer := reckon(o.question)
	check, err := simulate(o.question, answer, o.traffic)
	if err == nil {
		write := writeText
		if o.json {
			write = writeJSON
		}
		err = write(stdout, sizing{Question: o.question, Traffic: o.traffic, Reckoned: answer, Simulated: check})
	}
	if err != nil {
		fmt.Fprintf(stderr, "size: %v\n", err)
		return exitFailed
	}
	return exitOK
}
