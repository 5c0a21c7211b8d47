package main

import (
	"context"
	"io"

	"github.com/headgate-go/headgate/bench/gemini"
	"github.com/headgate-go/headgate/bench/internal/serving"
)

// Exit codes.
const (
	exitOK     = serving.ExitOK
	exitFailed = serving.ExitFailed
	exitUsage  = serving.ExitUsage
)

// run serves until ctx ends and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, stdout)
	var double *gemini.Server
	if err == nil {
		double, err = gemini.New(o.config)
	}
	p := serving.Program{Addr: o.addr, Grace: o.grace, Title: "A double of the Gemini API"}
	return serving.Run(ctx, p, double, err, stdout, stderr)
}
