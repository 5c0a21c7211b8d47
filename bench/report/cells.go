package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/headgate-go/headgate/bench/internal/burst"
)

// cell is one thing to run: a shape, through a policy, before a kind of window.
type cell struct {
	shape  burst.Shape
	policy burst.Policy
	window burst.Window
}

// String names the cell.
func (c cell) String() string {
	return fmt.Sprintf("%s / %s / %s", c.shape.Name, c.policy.Name, c.window)
}

// cells are those that the options ask for, by shape, then window, then policy.
func (o options) cells() []cell {
	var all []cell
	for _, s := range o.shapes {
		for _, w := range o.windows {
			for _, p := range o.policies {
				all = append(all, cell{s, p, w})
			}
		}
	}
	return all
}

// runCells runs all cells, as many at once as there are processors, and reports
// on each to progress. The results are in the order of the cells, whoever was
// done first. A cell that cannot be run stops it all; so does the end of ctx.
func runCells(ctx context.Context, o options, play runner, progress io.Writer) ([]burst.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cells := o.cells()
	results := make([]burst.Result, len(cells))
	next := make(chan int)
	began := time.Now()
	var mu sync.Mutex // guards done and progress
	done := 0
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(cells)) {
		workers.Go(func() {
			for i := range next {
				c, start := cells[i], time.Now()
				r, err := play(c.shape, c.policy, c.window, o.seed)
				if err != nil {
					cancel(fmt.Errorf("%v: %w", c, err))
					continue
				}
				results[i] = r
				mu.Lock()
				done++
				fmt.Fprintf(progress, "%3d of %d  %5.1fs  %s  %s\n", done, len(cells),
					time.Since(began).Seconds(), c, inShort(r, time.Since(start)))
				mu.Unlock()
			}
		})
	}
feed:
	for i := range cells {
		select {
		case next <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	workers.Wait()
	return results, context.Cause(ctx)
}

// inShort says in one line how a cell went, and what it cost.
func inShort(r burst.Result, took time.Duration) string {
	if r.Err != "" {
		return "no result: " + r.Err
	}
	m := r.Metrics
	return fmt.Sprintf("%d of %d calls, %d x 429, in %.1fs", m.Completed, m.Calls, m.Throttled, took.Seconds())
}

// writeJSON writes the results as one array.
func writeJSON(w io.Writer, results []burst.Result) error {
	return json.NewEncoder(w).Encode(results)
}
