// Fleet is one replica of a program that runs in many copies, which share a provider's
// quota through Redis. Start a double of the Gemini API and a Redis, and then as many
// replicas as you like, in as many terminals:
//
//	go run ./bench/gemini/serve -addr 127.0.0.1:8089 -rpm 120 -tpm 60000
//	redis-server --port 6379
//	go run ./examples/fleet -redis 127.0.0.1:6379 -double http://127.0.0.1:8089 -name one
//	go run ./examples/fleet -redis 127.0.0.1:6379 -double http://127.0.0.1:8089 -name two
//
// Each has -users who call one after another, as fast as they are answered. However many
// replicas there are, and whenever one is killed or started, the double refuses no call,
// and what a replica does not use the others have. Stop Redis while they run: each goes
// on with its part of the quota, says so once, and comes back by itself. What the double
// has seen is at http://127.0.0.1:8089/stats.
//
// A replica prints a line for each call, and in the end, after -for or when it is
// interrupted, what became of all of them. It lets calls end that were made, and those
// that wait for a store that is down never do: interrupt it again then. The exit code is
// 0 if all calls were answered, 1 if one was not, and 2 for a command line that makes no
// sense.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // who interrupts it again does not wait for calls
	logging.Disable()            // of each connection that fails; what matters is said by the gate
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// run runs one replica until its time is over or ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "fleet: %v\n", err)
		return exitUsage
	}
	r, err := newReplica(ctx, o, stdout, slog.New(slog.NewTextHandler(stderr, nil)))
	if err != nil {
		fmt.Fprintf(stderr, "fleet: %v\n", err)
		return exitFailed
	}
	r.serve(ctx)
	if err := r.close(); err != nil {
		fmt.Fprintf(stderr, "fleet: %v\n", err)
	}
	if failed := r.report(); failed > 0 {
		return exitFailed
	}
	return exitOK
}
