// Package serving is what the programs that run a double have in common: they
// listen, serve until they are interrupted, and say what happened.
package serving

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// Exit codes.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// Double is a double of an API. Close breaks the calls that are under way.
type Double interface {
	http.Handler
	Close()
	Stats() engine.Stats
}

// Program is what differs between the programs.
type Program struct {
	// Addr is the address to listen on; port 0 picks a free one.
	Addr string
	// Grace is how long calls under way may go on after an interrupt.
	Grace time.Duration
	// Title names the double: "A double of the … API".
	Title string
}

// Run serves the double until ctx ends, writes the counters to stdout, and returns
// the exit code. err is what was wrong with the command line, if anything was:
// then nothing is served. Errors go to stderr, a line each.
func Run(ctx context.Context, p Program, double Double, err error, stdout, stderr io.Writer) int {
	if errors.Is(err, flag.ErrHelp) {
		return ExitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "serve: %v (run with -h for help)\n", err)
		return ExitUsage
	}
	listener, err := net.Listen("tcp", p.Addr)
	if err != nil {
		fmt.Fprintf(stderr, "serve: %v\n", err)
		return ExitFailed
	}
	fmt.Fprintf(stdout, "%s listens on http://%s\n", p.Title, listener.Addr())
	err = serve(ctx, listener, double, p.Grace)
	if e := double.Stats().WriteTable(stdout); err == nil {
		err = e
	}
	if err != nil {
		fmt.Fprintf(stderr, "serve: %v\n", err)
		return ExitFailed
	}
	return ExitOK
}

// serve serves until ctx ends. Calls under way then have the grace to end;
// after it their connections break.
func serve(ctx context.Context, listener net.Listener, double Double, grace time.Duration) error {
	server := &http.Server{Handler: double, ReadHeaderTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if server.Shutdown(patience) != nil {
		double.Close()
		// Handlers return now; a client that does not read is cut off.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(last) != nil {
			_ = server.Close()
		}
	}
	<-failed // http.ErrServerClosed
	return nil
}
