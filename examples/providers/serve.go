package main

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A host serves a handler and says how to reach it. The program has loopback.
type host func(http.Handler) (hosted, error)

// hosted is a handler that is served.
type hosted struct {
	transport http.RoundTripper
	url       string
	close     func()
}

// loopback serves on a free port of this machine.
func loopback(handler http.Handler) (hosted, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return hosted{}, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // returns when the server is closed
	transport := &http.Transport{MaxIdleConnsPerHost: 1000}
	return hosted{transport, "http://" + listener.Addr().String(), func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		serving.Wait()
	}}, nil
}

// genuine reaches a real endpoint.
func genuine(url string) hosted {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 1000
	return hosted{transport, url, transport.CloseIdleConnections}
}

// counting counts the answers of an API that refuse a call.
type counting struct {
	http.RoundTripper
	refused atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c *counting) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusTooManyRequests {
		c.refused.Add(1)
	}
	return resp, err
}

// quiet is a logger for gates: what they have to say is in the table.
var quiet = slog.New(slog.DiscardHandler)
