// Report plays burst shapes through admission policies, in virtual time, and
// writes what happened as one page that explains itself:
//
//	go run ./bench/report -out report/
//
// The folder then holds index.html, which needs neither a network nor scripts;
// plots/, the same pictures as SVG and PNG files; and results.json. Run it with
// -h for everything that it can do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/headgate-go/headgate/bench/internal/burst"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, everything()))
}

// everything is all that there is to run.
func everything() catalogue {
	return catalogue{shapes: burst.Shapes(), policies: burst.Policies(), windows: burst.Windows(), run: burst.Run}
}

// run makes the report that args ask for and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, c catalogue) int {
	o, err := parseFlags(args, stdout, c)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err == nil && o.out != "" {
		err = checkFolder(o.out)
	}
	if err != nil {
		fmt.Fprintf(stderr, "report: %v (run with -h for help)\n", err)
		return exitUsage
	}
	results, err := runCells(ctx, o, c.run, stderr)
	if err == nil && o.json {
		err = writeJSON(stdout, results)
	}
	if err == nil && o.out != "" {
		err = writeFolder(o.out, newReport(o, c, results), stderr)
	}
	if err != nil {
		fmt.Fprintf(stderr, "report: %v\n", err)
		return exitFailed
	}
	return exitOK
}
