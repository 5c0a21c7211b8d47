package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
)

// progress shows how a run is going: on a terminal as a line that changes,
// elsewhere as a line now and then.
type progress struct {
	w        io.Writer
	terminal bool
	width    int // of the last line on a terminal
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// Times between two lines.
const (
	terminalEvery = 100 * time.Millisecond
	plainEvery    = 2 * time.Second
)

// watch shows the run's state until stop is called, which shows the last one.
// gate is nil where there is none.
func (p *progress) watch(name string, o options, t *tally, gate *ratelimited.Gate) (stop func()) {
	start := time.Now()
	show := func(last bool) {
		line := fmt.Sprintf("%-9s %s  %s", name, clock(o.virtual(time.Since(start))), t.state(o, gate))
		switch {
		case !p.terminal:
			fmt.Fprintln(p.w, line)
		default:
			padding := strings.Repeat(" ", max(0, p.width-len(line)))
			p.width = len(line)
			fmt.Fprint(p.w, "\r", line, padding)
			if last {
				p.width = 0
				fmt.Fprintln(p.w)
			}
		}
	}
	every := plainEvery
	if p.terminal {
		every = terminalEvery
	}
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				show(false)
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		watching.Wait()
		show(true)
	}
}

// state says how far a run is.
func (t *tally) state(o options, gate *ratelimited.Gate) string {
	t.mu.Lock()
	underWay, waiting := t.calls-t.answered-t.failed, ""
	answered, failed, ok := t.answered, t.failed, t.reviewsOK
	t.mu.Unlock()
	if gate != nil {
		s := gate.Stats()
		underWay, waiting = s.Running, fmt.Sprintf("%d in line, ", s.Waiting)
	}
	return fmt.Sprintf("%s%d under way, %d answered, %d failed, %d/%d reviews", waiting, underWay, answered, failed, ok, o.users)
}

// clock writes a duration as minutes and seconds.
func clock(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// announce says what is about to be sent to the real API.
func announce(w io.Writer, o options) {
	fmt.Fprintf(w, "This sends %d requests to the Gemini API, model %s, at the cost of your key: about\n"+
		"%s input tokens and up to %s output tokens in all. They go through Headgate with a\n"+
		"quota of %s requests and %s input tokens a minute.\n",
		o.calls(), o.model, grouped(int64(o.calls())*promptTokens), grouped(int64(o.calls())*outputTokens), limitText(o.rpm), limitText(o.tpm))
}
