package httpgate

import (
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// body is the body of an answer: the provider's, byte for byte and at once,
// while a copy of it is read for what it tells of the call. What it tells is
// known to the gate before the bytes are handed to the reader.
//
// Read and Close may be called at the same time, as with the bodies of net/http;
// two Reads may not.
type body struct {
	x     *exchange
	resp  *http.Response
	src   io.ReadCloser
	yield func(*event, error) bool
	ended chan struct{} // closed when the call is to end

	mu sync.Mutex
	// mu guards all that follows. Whoever holds it has the part of the goroutine
	// that ranges over the model's sequence.
	answer *answer
	over   bool // the call has ended or is about to
	item   event
}

func newBody(x *exchange, resp *http.Response, yield func(*event, error) bool) *body {
	return &body{
		x: x, resp: resp, src: resp.Body, yield: yield, ended: make(chan struct{}),
		answer: newAnswer(&x.route, resp, x.choices),
	}
}

// answered is the response with this body.
func (b *body) answered() *http.Response {
	b.resp.Body = b
	return b.resp
}

// wait waits until the call ends: by its reader, or with its context.
func (b *body) wait(ctx context.Context) {
	select {
	case <-b.ended:
	case <-ctx.Done():
		b.mu.Lock()
		defer b.mu.Unlock()
		b.finish()
	}
}

// finish ends the call, once, without waiting for the end. mu is held.
func (b *body) finish() bool {
	if b.over {
		return false
	}
	b.over = true
	b.answer.close()
	close(b.ended)
	return true
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (n int, err error) {
	ended, returned := false, false
	defer func() {
		if !returned { // somebody's code has panicked
			ended = b.end()
		}
		if ended {
			<-b.x.done
		}
	}()
	n, err = b.src.Read(p)
	ended = b.note(p[:max(0, min(n, len(p)))], err)
	returned = true
	return n, err
}

// note reads a copy of what is about to be handed out; it reports whether that
// was the end of the call.
func (b *body) note(p []byte, err error) (ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return false
	}
	b.answer.feed(p)
	if err != nil {
		b.answer.end(err == io.EOF)
	}
	if news, ok := b.answer.take(); ok {
		if news.failure != nil {
			news.progress = ratelimited.More
			b.tell(news)
			b.yield(nil, newEventError(b.x, news.failure))
			return b.finish()
		}
		b.tell(news)
	}
	if err == nil {
		return false
	}
	if err != io.EOF {
		b.yield(nil, err)
	}
	return b.finish()
}

// tell gives the model what the answer has told: what was reported, and after it
// what was generated since, because a report covers all that came before. mu is
// held.
func (b *body) tell(n report) {
	if n.output == 0 {
		if !n.usage.IsZero() || n.progress != ratelimited.More {
			b.pass(event{usage: n.usage, progress: n.progress})
		}
		return
	}
	if !n.usage.IsZero() {
		b.pass(event{usage: n.usage})
	}
	b.pass(event{usage: usage.Usage{Output: n.output, Flags: usage.Estimated}, progress: n.progress})
}

// pass gives an item to the model. mu is held.
func (b *body) pass(e event) {
	b.item = e
	b.yield(&b.item, nil)
}

// end ends the call; it reports whether it had not ended yet.
func (b *body) end() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.finish()
}

// Close implements [io.Closer]. When it returns, nothing is held for the call.
func (b *body) Close() error {
	err := b.src.Close()
	b.hangUp()
	return err
}

// hangUp ends a call that its reader wants no more of.
func (b *body) hangUp() {
	b.mu.Lock()
	defer func() {
		ended := b.finish()
		b.mu.Unlock()
		if ended {
			<-b.x.done
		}
	}()
	if !b.over {
		b.pass(event{stop: true})
	}
}
