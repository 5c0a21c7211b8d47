package anthropic

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// Headers by which a request overrules the configuration for itself.
const (
	// HeaderOutput demands a number of output tokens, without thoughts.
	HeaderOutput = "X-Double-Output"
	// HeaderThoughts demands a number of thought tokens.
	HeaderThoughts = "X-Double-Thoughts"
	// HeaderLatency demands a total time, before the speed is applied.
	HeaderLatency = "X-Double-Latency"
	// HeaderCalls demands tool calls: their number, or the names of tools
	// separated by commas. 0 demands text.
	HeaderCalls = "X-Double-Calls"
	// HeaderFault demands a fault, in the form of FaultHelp.
	HeaderFault = "X-Double-Fault"
)

// demand is what the headers of one request ask for. What is absent is nil.
type demand struct {
	output   *int
	thoughts *int
	latency  *time.Duration
	calls    []string // names of tools
	noCalls  bool     // 0 calls
	fault    *engine.Fault
}

// maxCalls bounds the tool calls of one answer.
const maxCalls = 128

// parseDemand reads the headers. Its errors name the header and the value.
func parseDemand(h http.Header, p *prompt) (d demand, err error) {
	read := func(header string, parse func(string) error) {
		value := h.Get(header)
		if value == "" || err != nil {
			return
		}
		if e := parse(value); e != nil {
			err = fmt.Errorf("header %s %q: %w", header, value, e)
		}
	}
	read(HeaderOutput, func(v string) (err error) { d.output, err = parseTokens(v); return })
	read(HeaderThoughts, func(v string) (err error) { d.thoughts, err = parseTokens(v); return })
	read(HeaderLatency, func(v string) error {
		l, err := time.ParseDuration(v)
		if err != nil || l < 0 {
			return fmt.Errorf("must be a duration, not negative, like 8s")
		}
		d.latency = &l
		return nil
	})
	read(HeaderFault, func(v string) error {
		f, err := faultKinds.Parse(v)
		d.fault = &f
		return err
	})
	read(HeaderCalls, func(v string) error { return d.parseCalls(v, p) })
	return d, err
}

func parseTokens(text string) (*int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > maxTokens {
		return nil, fmt.Errorf("must be a whole number from 0 to %d", maxTokens)
	}
	return &n, nil
}

func (d *demand) parseCalls(text string, p *prompt) error {
	if n, err := strconv.Atoi(text); err == nil {
		if n < 0 || n > maxCalls {
			return fmt.Errorf("must be from 0 to %d, or names of tools", maxCalls)
		}
		d.noCalls = n == 0
		if d.calls = p.callable(n); len(d.calls) < n {
			return fmt.Errorf("the request declares no tools")
		}
		return nil
	}
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if p.declared(name) == nil {
			return fmt.Errorf("the request declares no tool %q", name)
		}
		if d.calls = append(d.calls, name); len(d.calls) > maxCalls {
			return fmt.Errorf("must be at most %d tools", maxCalls)
		}
	}
	return nil
}

// callable returns the names of n tools to call, going round the declared ones;
// none where none is declared.
func (p *prompt) callable(n int) (names []string) {
	for i := range n {
		if len(p.tools) == 0 {
			return nil
		}
		names = append(names, p.tools[i%len(p.tools)].name)
	}
	return names
}

// declared returns the declaration of a tool, or nil.
func (p *prompt) declared(name string) *declaration {
	for i := range p.tools {
		if p.tools[i].name == name {
			return &p.tools[i]
		}
	}
	return nil
}
