package httpgate

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
)

// coding is how a body is compressed.
type coding uint8

const (
	plainCoding coding = iota
	gzipCoding
	otherCoding // in a way that is not read
)

// codingOf is what a response's headers say of that.
func codingOf(h http.Header) coding {
	switch strings.ToLower(strings.TrimSpace(strings.Join(h["Content-Encoding"], ","))) {
	case "", "identity":
		return plainCoding
	case "gzip", "x-gzip":
		return gzipCoding
	}
	return otherCoding
}

// gunzip decompresses a copy of a body that comes in pieces. The decompressor
// pulls, so it has a goroutine, which runs only while feed or end waits for it:
// when feed returns, all that the piece holds has been given to out.
type gunzip struct {
	out    func([]byte)
	more   chan []byte // the next piece; closed at the end
	hungry chan bool   // it wants the next piece; false if it wants none any more
	piece  []byte
	done   bool
}

// newGunzip starts one; end must be called.
func newGunzip(out func([]byte)) *gunzip {
	g := &gunzip{out: out, more: make(chan []byte), hungry: make(chan bool)}
	go g.run()
	g.done = !<-g.hungry
	return g
}

func (g *gunzip) run() {
	defer func() {
		// What is no gzip is no answer that could be read; nothing else here can
		// fail but out, which is ours.
		g.hungry <- false
	}()
	z, err := gzip.NewReader(g)
	if err != nil {
		return
	}
	buf := make([]byte, 4<<10)
	for {
		n, err := z.Read(buf)
		if n > 0 {
			g.out(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// Read implements [io.Reader] for the decompressor.
func (g *gunzip) Read(p []byte) (int, error) {
	for len(g.piece) == 0 {
		g.hungry <- true
		piece, ok := <-g.more
		if !ok {
			return 0, io.EOF
		}
		g.piece = piece
	}
	n := copy(p, g.piece)
	g.piece = g.piece[n:]
	return n, nil
}

// feed decompresses the next piece.
func (g *gunzip) feed(p []byte) {
	if g.done || len(p) == 0 {
		return
	}
	g.more <- p
	g.done = !<-g.hungry
}

// end ends the goroutine.
func (g *gunzip) end() {
	if !g.done {
		g.done = true
		close(g.more)
		for <-g.hungry {
		}
	}
}
