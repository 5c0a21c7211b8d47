package quota

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ClientIPConfig says how the address of a client is found.
type ClientIPConfig struct {
	// TrustedProxies are the addresses of your own load balancers and proxies. What
	// such a one says about where a request came from is believed; what anyone else
	// says is not. Defaults to none: then the client is whoever has connected.
	TrustedProxies []netip.Prefix
	// Header is what these proxies add to: "X-Forwarded-For", the default, or
	// "Forwarded" (RFC 7239). Only one is read, because a proxy that keeps the one
	// may pass on the other as the client has sent it.
	Header string
	// IPv6Prefix is how many leading bits of an IPv6 address make the id, 1 to 128.
	// Defaults to 64: one site, and often one person, has all addresses of such a
	// network (RFC 6177, RFC 7421), and would have as many budgets.
	IPv6Prefix int
	// Scope is whose id it is. Defaults to [User].
	Scope Scope
}

const (
	forwardedFor      = "X-Forwarded-For"
	forwardedRFC7239  = "Forwarded"
	defaultIPv6Prefix = 64
)

// ClientIP takes the client's address for an id, such as "ip:203.0.113.7" or
// "ip:2001:db8:1:2::/64", so that visitors without a login have a budget each.
// Everyone behind one office network or mobile gateway then shares one. Put it
// last in a [Chain].
//
// The header is read from its right end, where the nearest proxy has written, and
// only as long as what is read was written by a trusted proxy. The first address
// that is not a trusted proxy's is the client's; if all are, it is the leftmost
// one. What stands further left was sent by the client and may be anything. Where
// an entry is no address, such as "unknown", the id is that of the proxy that has
// written it.
//
// A request whose own remote address is none, such as one over a Unix socket, gets
// no id. The error names the field of the config that is wrong.
func ClientIP(cfg ClientIPConfig) (Resolver, error) {
	var errs []error
	c := clientIP{header: http.CanonicalHeaderKey(cfg.Header), bits: cfg.IPv6Prefix, scope: cfg.Scope}
	switch c.header {
	case "":
		c.header = forwardedFor
	case forwardedFor, forwardedRFC7239:
	default:
		errs = append(errs, fmt.Errorf("quota: ClientIPConfig.Header %q is neither %s nor %s", cfg.Header, forwardedFor, forwardedRFC7239))
	}
	if c.bits == 0 {
		c.bits = defaultIPv6Prefix
	}
	if c.bits < 1 || c.bits > 128 {
		errs = append(errs, fmt.Errorf("quota: ClientIPConfig.IPv6Prefix %d is not one of 1 to 128", cfg.IPv6Prefix))
	}
	if c.scope == "" {
		c.scope = User
	}
	if _, err := subjectWith(c.scope, ""); err != nil {
		errs = append(errs, fmt.Errorf("quota: ClientIPConfig.Scope: %w", err))
	}
	for i, p := range cfg.TrustedProxies {
		if !p.IsValid() {
			errs = append(errs, fmt.Errorf("quota: ClientIPConfig.TrustedProxies[%d] %v is no prefix", i, p))
			continue
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		c.trusted = append(c.trusted, p.Masked())
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return c, nil
}

type clientIP struct {
	trusted []netip.Prefix
	header  string
	bits    int
	scope   Scope
}

// Resolve is the client's address as an id.
func (c clientIP) Resolve(r *http.Request) (Subject, bool, error) {
	addr, ok := c.client(r)
	if !ok {
		return Subject{}, false, nil
	}
	s, err := subjectWith(c.scope, c.id(addr))
	return s, err == nil, err
}

// client finds the address.
func (c clientIP) client(r *http.Request) (netip.Addr, bool) {
	client, ok := parseNode(r.RemoteAddr)
	if !ok {
		return netip.Addr{}, false
	}
	for _, line := range slices.Backward(r.Header.Values(c.header)) {
		for more := true; more; {
			if !c.isTrusted(client) {
				return client, true
			}
			var entry string
			line, entry, more = c.cutLast(line)
			if entry == "" {
				continue // an empty element of a list means nothing (RFC 9110 §5.6.1)
			}
			addr, ok := c.parseEntry(entry)
			if !ok {
				return client, true
			}
			client = addr
		}
	}
	return client, true
}

func (c clientIP) isTrusted(a netip.Addr) bool {
	return slices.ContainsFunc(c.trusted, func(p netip.Prefix) bool { return p.Contains(a) })
}

// cutLast cuts the last entry off a line. more is false once nothing is left.
func (c clientIP) cutLast(line string) (rest, entry string, more bool) {
	i := strings.LastIndexByte(line, ',')
	if c.header == forwardedRFC7239 {
		i = lastOutsideQuotes(line, ',')
	}
	if i < 0 {
		return "", strings.Trim(line, " \t"), false
	}
	return line[:i], strings.Trim(line[i+1:], " \t"), true
}

func (c clientIP) parseEntry(entry string) (netip.Addr, bool) {
	if c.header == forwardedRFC7239 {
		return parseForwarded(entry)
	}
	return parseNode(entry)
}

// id names the network of one client.
func (c clientIP) id(a netip.Addr) string {
	if nat64.Contains(a) {
		// Behind a translator from IPv4 each address is a client of its own.
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	if a.Is4() {
		return "ip:" + a.String()
	}
	if p, err := a.Prefix(c.bits); err == nil && c.bits < 128 {
		return "ip:" + p.String()
	}
	return "ip:" + a.String()
}

// nat64 is the well-known prefix of RFC 6052 §2.1, whose last 32 bits are an IPv4
// address.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// parseNode reads an address with or without a port and brackets. Zones, which are
// names on one machine, are dropped, and IPv4 addresses in IPv6 ones are IPv4.
func parseNode(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		inner, ok := strings.CutPrefix(s, "[")
		if inner, bare := strings.CutSuffix(inner, "]"); ok && bare {
			addr, err = netip.ParseAddr(inner)
			if err != nil || addr.Is4() {
				return netip.Addr{}, false
			}
		} else {
			port, err := netip.ParseAddrPort(s)
			if err != nil {
				return netip.Addr{}, false
			}
			addr = port.Addr()
		}
	}
	return addr.WithZone("").Unmap(), true
}

// parseForwarded finds the address of the parameter "for" in one element of a
// Forwarded header (RFC 7239 §4). A parameter that stands twice makes the element
// void.
func parseForwarded(element string) (addr netip.Addr, ok bool) {
	found := false
	for rest, more := element, true; more; {
		var pair string
		if i := lastOutsideQuotes(rest, ';'); i < 0 {
			pair, more = rest, false
		} else {
			pair, rest = rest[i+1:], rest[:i]
		}
		name, value, _ := strings.Cut(pair, "=")
		if !strings.EqualFold(strings.Trim(name, " \t"), "for") {
			continue
		}
		if found {
			return netip.Addr{}, false
		}
		found = true
		value = strings.Trim(value, " \t")
		if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
			value = value[1 : n-1] // an address has nothing that must be escaped
		}
		addr, ok = parseNode(value)
	}
	return addr, ok
}

// lastOutsideQuotes is the last index of a byte that is not in a quoted string, or
// −1. It looks from the right end, so that quotes that a client has left open on
// the left do not swallow what proxies have written behind them.
func lastOutsideQuotes(s string, c byte) int {
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch {
		case s[i] == '"' && !(quoted && escaped(s, i)):
			quoted = !quoted
		case s[i] == c && !quoted:
			return i
		}
	}
	return -1
}

// escaped reports whether an odd number of backslashes stands before s[i].
func escaped(s string, i int) bool {
	n := 0
	for n < i && s[i-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}
