package openai

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
	// HeaderOutput demands a number of output tokens, without reasoning.
	HeaderOutput = "X-Double-Output"
	// HeaderReasoning demands a number of tokens of reasoning.
	HeaderReasoning = "X-Double-Reasoning"
	// HeaderCached demands a number of prompt tokens to be reported as cached.
	HeaderCached = "X-Double-Cached"
	// HeaderLatency demands a total time, before the speed is applied.
	HeaderLatency = "X-Double-Latency"
	// HeaderCalls demands function calls: their number, or their names
	// separated by commas. 0 demands text.
	HeaderCalls = "X-Double-Calls"
	// HeaderFault demands a fault, in the form of FaultHelp.
	HeaderFault = "X-Double-Fault"
)

// demand is what the headers of one request ask for. What is absent is nil.
type demand struct {
	output    *int
	reasoning *int
	cached    *int
	latency   *time.Duration
	calls     []string // names of functions
	noCalls   bool     // 0 calls
	fault     *engine.Fault
}

// parseDemand reads the headers. Its errors name the header and the value.
func parseDemand(h http.Header, p *prompt) (d demand, err error) {
	read := func(header string, parse func(string) error) {
		value := h.Get(header)
		if value == "" || err != nil {
			return
		}
		if e := parse(value); e != nil {
			err = &invalid{message: fmt.Sprintf("header %s %q: %v", header, value, e), param: header}
		}
	}
	read(HeaderOutput, func(v string) (err error) { d.output, err = parseTokens(v); return })
	read(HeaderReasoning, func(v string) (err error) { d.reasoning, err = parseTokens(v); return })
	read(HeaderCached, func(v string) (err error) { d.cached, err = parseTokens(v); return })
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
			return fmt.Errorf("must be from 0 to %d, or names of functions", maxCalls)
		}
		d.noCalls = n == 0
		d.calls = p.callable(n)
		if len(d.calls) < n {
			return fmt.Errorf("the request declares no functions")
		}
		return nil
	}
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if p.declared(name) == nil {
			return fmt.Errorf("the request declares no function %q", name)
		}
		if d.calls = append(d.calls, name); len(d.calls) > maxCalls {
			return fmt.Errorf("must be at most %d functions", maxCalls)
		}
	}
	return nil
}
