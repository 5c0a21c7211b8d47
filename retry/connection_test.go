package retry_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/retry"
)

// post makes a request that net/http does not repeat by itself, and returns its
// error.
func post(ctx context.Context, transport *http.Transport, url string) error {
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, io.NopCloser(strings.NewReader("{}")))
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: &retry.Transport{Base: transport}}).Do(req)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// quietTLS is a TLS server that does not log the handshakes that fail.
func quietTLS(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(s.Close)
	return s
}

func TestCallThatFoundNoConnectionIsNotSent(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(t *testing.T) error{
		"connection refused": func(t *testing.T) error {
			l := listen(t)
			l.Close()
			return post(t.Context(), &http.Transport{}, "http://"+l.Addr().String())
		},
		"name not found": func(t *testing.T) error {
			resolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
				return nil, errors.New("no name server")
			}}
			dialer := &net.Dialer{Resolver: resolver}
			return post(t.Context(), &http.Transport{DialContext: dialer.DialContext}, "http://model.invalid")
		},
		"dialer's own time limit": func(t *testing.T) error {
			dialer := &net.Dialer{Timeout: 1}
			err := post(t.Context(), &http.Transport{DialContext: dialer.DialContext}, "http://127.0.0.1:9")
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v: package net no longer calls this a context's deadline; the case is void", err)
			}
			return err
		},
		"proxy refused": func(t *testing.T) error {
			l := listen(t)
			l.Close()
			proxy := &url.URL{Scheme: "http", Host: l.Addr().String()}
			return post(t.Context(), &http.Transport{Proxy: http.ProxyURL(proxy)}, "https://model.invalid")
		},
		"certificate of an unknown authority": func(t *testing.T) error {
			s := quietTLS(t)
			s.StartTLS()
			return post(t.Context(), &http.Transport{}, s.URL)
		},
		"certificate of another host": func(t *testing.T) error {
			s := quietTLS(t)
			s.StartTLS()
			config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			config.ServerName = "other.test"
			return post(t.Context(), &http.Transport{TLSClientConfig: config}, s.URL)
		},
		"server refuses the handshake": func(t *testing.T) error {
			s := quietTLS(t)
			s.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
			s.StartTLS()
			config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			config.MaxVersion = tls.VersionTLS12
			return post(t.Context(), &http.Transport{TLSClientConfig: config}, s.URL)
		},
		"server without TLS": func(t *testing.T) error {
			s := quietTLS(t)
			s.Start()
			return post(t.Context(), &http.Transport{}, "https"+strings.TrimPrefix(s.URL, "http"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := fail(t)
			if err == nil {
				t.Fatal("the call succeeded")
			}
			if got, want := retry.Classify(err), (retry.Verdict{Class: retry.NotSent}); got != want {
				t.Errorf("%v (%T): verdict %+v, want not sent", err, err, got)
			}
		})
	}
}

func TestConnectionErrorsAreKnownByTheirTypes(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"lookup":           &net.DNSError{Err: "no such host", Name: "model.invalid", IsNotFound: true},
		"lookup in a dial": &url.Error{Op: "Post", Err: &net.OpError{Op: "dial", Err: &net.DNSError{IsTimeout: true}}},
		"refused":          fmt.Errorf("send: %w", syscall.ECONNREFUSED),
		"unreachable":      &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ENETUNREACH},
		"SOCKS proxy":      &net.OpError{Op: "socks connect", Net: "tcp", Err: errors.New("not allowed")},
		"no TLS":           &url.Error{Op: "Post", Err: tls.RecordHeaderError{Msg: "first record"}},
		"verification":     &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
		"authority":        x509.UnknownAuthorityError{},
		"host name":        x509.HostnameError{Certificate: &x509.Certificate{}, Host: "model.invalid"},
		"expired":          x509.CertificateInvalidError{Reason: x509.Expired},
		"no roots":         x509.SystemRootsError{},
		"joined":           errors.Join(errors.New("clean-up"), &net.OpError{Op: "dial", Err: syscall.ETIMEDOUT}),
	} {
		if got := retry.Classify(err); got != (retry.Verdict{Class: retry.NotSent}) {
			t.Errorf("%s: verdict %+v, want not sent", name, got)
		}
	}
}

func TestTLSHandshakeThatTakesTooLongIsNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer server.Close()
		go io.Copy(io.Discard, server) // hears the greeting, says nothing
		err := post(t.Context(), &http.Transport{
			DialContext:         func(context.Context, string, string) (net.Conn, error) { return client, nil },
			TLSHandshakeTimeout: 10 * time.Second,
		}, "https://10.0.0.1")
		if got := retry.Classify(err).Class; got != retry.NotSent {
			t.Errorf("%v: %v, want not sent", err, got)
		}
	})
}

func TestCallersDeadlineDuringADialIsNotRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err := post(ctx, &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				<-ctx.Done() // a host that drops packets
				return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
			},
		}, "http://10.0.0.1")
		if got := retry.Classify(err); err == nil || got != (retry.Verdict{}) {
			t.Errorf("%v: verdict %+v, want not retryable", err, got)
		}
	})
}

func TestConnectionThatBreaksAfterTheRequestIsNotRetried(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*net.TCPConn){
		"closed": func(c *net.TCPConn) { c.Close() },
		"reset":  func(c *net.TCPConn) { c.SetLinger(0); c.Close() },
		"cut answer": func(c *net.TCPConn) {
			io.WriteString(c, "HTTP/1.1 200")
			c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := listen(t)
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				if req, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					io.Copy(io.Discard, req.Body)
				}
				end(c.(*net.TCPConn))
			}()
			err := post(t.Context(), &http.Transport{}, "http://"+l.Addr().String())
			if got := retry.Classify(err); err == nil || got != (retry.Verdict{}) {
				t.Errorf("%v: verdict %+v, want not retryable", err, got)
			}
		})
	}
}
