package retry

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"syscall"
)

// notSent reports whether err shows that no request can have reached the
// provider, because there was never a connection to carry it.
func notSent(err error) bool {
	unconnected, connected := false, false
	walk(err, func(err error) bool {
		e, isOperation := err.(*net.OpError)
		switch {
		case connecting(err):
			unconnected = true
			return false
		case isOperation:
			if handshakeAlert(e) {
				unconnected = true
			} else {
				connected = true
			}
			return false
		}
		unconnected = unconnected || err == syscall.ECONNREFUSED || handshakeError(err)
		return true
	})
	// Evidence of a connection wins: a second execution costs more than a
	// retry that was not made.
	return unconnected && !connected
}

// connecting reports whether err comes from a lookup or from making a
// connection. The names of the operations are those of package net and of the
// HTTP and SOCKS proxies of net/http.
func connecting(err error) bool {
	switch e := err.(type) {
	case *net.DNSError:
		return true
	case *net.OpError:
		return e.Op == "dial" || e.Op == "proxyconnect" || e.Op == "socks connect"
	}
	return false
}

// handshakeTimeout is the text of net/http's error for its
// TLSHandshakeTimeout, whose type is not exported.
const handshakeTimeout = "net/http: TLS handshake timeout"

// handshakeError reports whether err itself, not a cause of it, comes from a TLS
// handshake that failed on our side.
func handshakeError(err error) bool {
	switch err.(type) {
	case tls.RecordHeaderError, *tls.CertificateVerificationError, *tls.ECHRejectionError,
		x509.UnknownAuthorityError, x509.HostnameError, x509.CertificateInvalidError,
		x509.SystemRootsError, x509.InsecureAlgorithmError, x509.ConstraintViolationError,
		x509.UnhandledCriticalExtension:
		return true
	}
	// net/http puts ErrSchemeMismatch in the place of a RecordHeaderError when
	// the server answers in plain HTTP.
	if err == http.ErrSchemeMismatch {
		return true
	}
	e, ok := err.(net.Error)
	return ok && e.Timeout() && e.Error() == handshakeTimeout
}

// alertTexts holds the texts of the TLS alerts that are sent during a handshake
// only (RFC 8446, section 6.2, and RFC 7301 for 120). crypto/tls reports an
// alert in a type that is not exported, but with the text of its AlertError.
//
// In TLS 1.3 a client may have written its request before it learns that the
// server refused its certificate. The server drops what it was sent, because
// its handshake never finished.
var alertTexts = func() map[string]bool {
	texts := make(map[string]bool)
	for _, code := range []uint8{
		40,                     // handshake_failure
		42, 43, 44, 45, 46, 48, // certificates and their authorities
		70,  // protocol_version
		71,  // insufficient_security
		86,  // inappropriate_fallback
		109, // missing_extension
		110, // unsupported_extension
		112, // unrecognized_name
		116, // certificate_required
		120, // no_application_protocol
	} {
		texts[tls.AlertError(code).Error()] = true
	}
	return texts
}()

// handshakeAlert reports whether e is an alert that ended a TLS handshake, sent
// by either side.
func handshakeAlert(e *net.OpError) bool {
	alert := e.Op == "remote error" || e.Op == "local error"
	return alert && e.Err != nil && alertTexts[e.Err.Error()]
}
