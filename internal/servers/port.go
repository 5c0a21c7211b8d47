package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below those that systems give to outgoing connections
// (Linux from 32768, ip(7); macOS and Windows from 49152): such a connection
// could sit on the port of a server that is to be restarted, and one to a dead
// server of this machine could even be given the same port and connect to
// itself.
const (
	firstPort = 20000
	lastPort  = 31999
)

// port is a TCP port of 127.0.0.1 that is kept for one server, also while that
// server is dead. Whoever holds the UDP port of the same number has it, which
// all test binaries of a machine agree on, and which ends with the process.
type port struct {
	number int
	token  net.PacketConn
}

// claimPort returns a port that nobody listens on.
func claimPort() (*port, error) {
	var errs []error
	for range 100 {
		n := firstPort + rand.IntN(lastPort-firstPort+1)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(n))
		token, err := net.ListenPacket("udp4", addr)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		probe, err := net.Listen("tcp4", addr)
		if err != nil {
			_ = token.Close()
			errs = append(errs, err)
			continue
		}
		_ = probe.Close()
		return &port{number: n, token: token}, nil
	}
	return nil, fmt.Errorf("no free port: %w", errors.Join(errs[max(0, len(errs)-3):]...))
}

// addr returns "127.0.0.1:port".
func (p *port) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

// release gives the port back.
func (p *port) release() { _ = p.token.Close() }
