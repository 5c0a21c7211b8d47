package httpgate

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
)

// payload is the body of a request, and how it can be had again.
type payload struct {
	read int64 // bytes that were read to estimate it
	size int64 // that it has; -1 if that is not known

	first  io.ReadCloser                 // for the first attempt; nil if it was used
	reopen func() (io.ReadCloser, error) // for a further one; nil if there is none
	length int64                         // Content-Length of the request
}

// pieces are buffers for reading bodies.
var pieces = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// prepare lets the estimator read the body.
//
// A body that can be had again is read from a copy, in pieces, and nothing of it
// is kept. Any other is read into memory, up to most bytes; where there is more,
// only that much is estimated, and what was read is sent before the rest.
func (p *payload) prepare(req *http.Request, e *estimator, most int64) error {
	p.size, p.length = req.ContentLength, req.ContentLength
	if req.Body == nil || req.Body == http.NoBody {
		p.size, p.length, p.reopen = 0, 0, func() (io.ReadCloser, error) { return nil, nil }
		return nil
	}
	if p.size == 0 {
		p.size = -1 // there is a body: its length is not known
	}
	p.first = req.Body
	if req.GetBody != nil {
		if body, err := req.GetBody(); err == nil && body != nil {
			err = p.scan(body, e)
			_ = body.Close()
			if err != nil {
				p.close()
				return fmt.Errorf("httpgate: reading the request's body: %w", err)
			}
			p.size, p.reopen = p.read, req.GetBody
			return nil
		}
	}
	return p.buffer(req, e, most)
}

// scan gives the body to the estimator.
func (p *payload) scan(body io.Reader, e *estimator) error {
	buf := pieces.Get().(*[32 << 10]byte)
	defer pieces.Put(buf)
	for {
		n, err := body.Read(buf[:])
		p.read += int64(n)
		e.feed(buf[:n])
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// buffer reads the body, or its beginning, into memory. The end of the request's
// context closes the body, as it does in net/http.
func (p *payload) buffer(req *http.Request, e *estimator, most int64) error {
	ctx, body := req.Context(), req.Body
	stop := context.AfterFunc(ctx, func() { _ = body.Close() })
	var data bytes.Buffer
	room := most
	if room < math.MaxInt64 {
		room++ // to see whether there is more
	}
	n, err := io.Copy(&data, io.LimitReader(body, room))
	stop()
	if err != nil {
		p.close()
		if ended := ctx.Err(); ended != nil {
			err = ended
		}
		return fmt.Errorf("httpgate: reading the request's body: %w", err)
	}
	p.read = n
	e.feed(data.Bytes())
	if n > most {
		p.first = &rejoined{Reader: io.MultiReader(&data, body), Closer: body}
		return nil
	}
	p.size = n
	p.reopen = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data.Bytes())), nil }
	p.first = nil
	return body.Close()
}

// rejoined is a body of which a part was read.
type rejoined struct {
	io.Reader
	io.Closer
}

// again reports whether the body can be sent more than once.
func (p *payload) again() bool { return p.reopen != nil }

// request is the request to send, with its body.
func (p *payload) request(req *http.Request, ctx context.Context) (*http.Request, error) {
	out := req.WithContext(ctx)
	out.Body = p.first
	if p.first == nil && p.reopen != nil {
		body, err := p.reopen()
		if err != nil {
			return nil, fmt.Errorf("httpgate: GetBody: %w", err)
		}
		out.Body = body
	}
	p.first = nil
	if out.GetBody == nil && p.reopen != nil {
		out.GetBody = p.reopen // net/http may send it again on another connection
	}
	if req.Body == nil || req.Body == http.NoBody {
		out.Body = req.Body
	}
	return out, nil
}

// close closes the body if it was not sent.
func (p *payload) close() {
	if p.first != nil {
		_ = p.first.Close()
		p.first = nil
	}
}
