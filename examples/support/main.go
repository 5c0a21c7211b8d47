// Support is a chat server whose users have budgets:
//
//	go run ./examples/support -addr 127.0.0.1:18099
//
//	curl -i -H 'X-User-Id: alice' -d 'Where is my parcel?' http://127.0.0.1:18099/chat
//
// Alice gets three answers, and then 429 until her day is over. Bob is served, for his
// budget is his own. Carol is on a plan with ten times as much, but alice and she are
// of one company, which has a budget too. README.md goes through it by curl, and
// http://127.0.0.1:18099/ shows it live.
//
// The model is a double of the Gemini API in this process, so nothing is spent and no
// key is needed; everything else is as in a real server: the real SDK, a gate before
// the model, an enforcer before the gate, limits and prices from a file (limits.yaml,
// embedded), metrics, and an API for those who look after the limits.
//
//	POST /chat      the message as the body; the answer as text
//	GET  /          the page
//	GET  /events    what the page shows, as server-sent events
//	GET  /metrics   Prometheus metrics
//	GET  /healthz   200 while limits can be checked
//	GET  /readyz    200 while somebody can be served, checked or not
//	     /admin/    status, top-up and more, with "Authorization: Bearer demo"
//
// Two things are for the demo only: the program believes whoever sends the header
// X-User-Id, and it shows everybody what everybody uses. So it listens on this machine
// unless it is told otherwise.
//
// Spend is kept in memory, and forgotten at the end; with -store sqlite, postgres or
// redis it stays, and several servers share it. With -journal a server keeps what was spent
// in files, too, and tells it again to a store that has lost it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	log.SetOutput(io.Discard) // the SDK logs errors that it also returns
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal finds the default behaviour
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// grace is how long answers that are under way may take when the program is told to
// end.
const grace = 5 * time.Second

// run is the program. It serves until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "support: %s (run with -h for help)\n", oneLine(err))
		return exitUsage
	}
	if err := serve(ctx, o, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "support: %s\n", oneLine(err))
		return exitFailed
	}
	return exitOK
}

// oneLine is the text of an error without its line breaks, which those of the API
// have.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// serve serves until ctx ends, and then lets what is under way end.
func serve(ctx context.Context, o options, stdout, stderr io.Writer) error {
	listener, err := net.Listen("tcp", o.addr)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	a, err := newApp(appConfig{
		adminToken: o.adminToken, host: loopback, latency: o.latency, limits: limitsFile, logger: logger,
		store: o.store, dsn: o.dsn, journal: o.journal, lease: o.lease, failOpen: o.failOpen,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	if open(listener.Addr()) {
		logger.Warn("support: other machines can reach this, and are believed to be whoever they say",
			slog.Bool("default_admin_token", o.adminToken == defaultAdminToken))
	}
	server := &http.Server{
		Handler: a.handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	fmt.Fprintf(stdout, "support: http://%s/\n", listener.Addr())
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case <-ctx.Done():
		err = nil
	case err = <-failed:
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	a.board.end() // event streams never end by themselves
	return errors.Join(err, server.Shutdown(ending), a.close(ending))
}
