package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/headgate-go/headgate/bench/openai"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// run serves until ctx ends and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	var double *openai.Server
	if err == nil {
		double, err = openai.New(o.config)
	}
	if err != nil {
		fmt.Fprintf(stderr, "serve: %v (run with -h for help)\n", err)
		return exitUsage
	}
	listener, err := net.Listen("tcp", o.addr)
	if err != nil {
		fmt.Fprintf(stderr, "serve: %v\n", err)
		return exitFailed
	}
	fmt.Fprintf(stdout, "A double of OpenAI's API listens on http://%s\n", listener.Addr())
	err = serve(ctx, listener, double, o.grace)
	if e := double.Stats().WriteTable(stdout); err == nil {
		err = e
	}
	if err != nil {
		fmt.Fprintf(stderr, "serve: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// serve serves until ctx ends. Calls under way then have the grace to end;
// after it their connections break.
func serve(ctx context.Context, listener net.Listener, double *openai.Server, grace time.Duration) error {
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
