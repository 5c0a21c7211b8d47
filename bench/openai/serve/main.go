// Serve runs a double of OpenAI's API for load tests, for clients in any
// language:
//
//	go run ./bench/openai/serve -addr 127.0.0.1:8090 -rpm 500 -tpm 200000
//
// It prints where it listens and, when it is interrupted, what happened. Run it
// with -h for everything that it can do.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal kills: it finds the default behaviour restored.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
