package main

import (
	"context"
	"io"

	"github.com/headgate-go/headgate/bench/internal/serving"
	"github.com/headgate-go/headgate/bench/openai"
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
	var double *openai.Server
	if err == nil {
		double, err = openai.New(o.config)
	}
	p := serving.Program{Addr: o.addr, Grace: o.grace, Title: "A double of OpenAI's API"}
	return serving.Run(ctx, p, double, err, stdout, stderr)
}
