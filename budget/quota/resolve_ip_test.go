package quota_test

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/budget/quota"
)

func prefixes(t testing.TB, all ...string) (ps []netip.Prefix) {
	t.Helper()
	for _, s := range all {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	return ps
}

func TestClientIsTheFirstAddressFromTheRightThatIsNotTrusted(t *testing.T) {
	t.Parallel()
	const xff, fwd = "X-Forwarded-For", "Forwarded"
	for _, c := range []struct {
		what    string
		header  string
		trusted string
		remote  string
		headers []string
		want    string // without "ip:"; "" if there is no id
	}{
		{"direct", "", "", "203.0.113.7:1234", nil, "203.0.113.7"},
		{"direct, claims another", "", "", "203.0.113.7:1234", []string{xff, "198.51.100.1"}, "203.0.113.7"},
		{"not a trusted proxy", "", "10.0.0.0/8", "203.0.113.7:1234", []string{xff, "198.51.100.1"}, "203.0.113.7"},
		{"trusted proxy", "", "10.0.0.0/8", "10.0.0.1:1234", []string{xff, "203.0.113.7"}, "203.0.113.7"},
		{"client claims another", "", "10.0.0.0/8", "10.0.0.1:1234", []string{xff, "198.51.100.1, 203.0.113.7"}, "203.0.113.7"},
		{"client claims a trusted one", "", "10.0.0.0/8", "10.0.0.1:1234", []string{xff, "10.0.0.9, 203.0.113.7"}, "203.0.113.7"},
		{"two proxies", "", "10.0.0.0/8", "10.0.0.1:1234", []string{xff, "198.51.100.1, 203.0.113.7, 10.0.0.2"}, "203.0.113.7"},
		{"two lines", "", "10.0.0.0/8", "10.0.0.1:1234", []string{xff, "198.51.100.1, 203.0.113.7", xff, "10.0.0.2"}, "203.0.113.7"},
		{"an inner client", "", "10.0.0.0/8", "10.0.0.1:1234", []string{xff, "10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"proxy says nothing", "", "10.0.0.0/8", "10.0.0.1:1234", nil, "10.0.0.1"},
		{"proxy says unknown", "", "10.0.0.0/8", "10.0.0.1:1234", []string{xff, "198.51.100.1, unknown"}, "10.0.0.1"},
		{"second proxy says garbage", "", "10.0.0.0/8", "10.0.0.1:1234", []string{xff, "1.2.3, 10.0.0.2"}, "10.0.0.2"},
		{"empty elements", "", "10.0.0.0/8", "10.0.0.1:1234", []string{xff, ", 203.0.113.7, ,", xff, ""}, "203.0.113.7"},
		{"with a port", "", "10.0.0.0/8", "10.0.0.1:1234", []string{xff, "203.0.113.7:5678"}, "203.0.113.7"},
		{"IPv6 with a port", "", "10.0.0.0/8", "10.0.0.1:1234", []string{xff, "[2001:db8:1:2:3::4]:5678"}, "2001:db8:1:2::/64"},
		{"IPv6 in brackets", "", "10.0.0.0/8", "10.0.0.1:1234", []string{xff, "[2001:db8:1:2:3::4]"}, "2001:db8:1:2::/64"},
		{"IPv4 in brackets", "", "10.0.0.0/8", "10.0.0.1:1234", []string{xff, "[203.0.113.7]"}, "10.0.0.1"},
		{"IPv6", "", "", "[2001:db8:1:2:3::4]:1234", nil, "2001:db8:1:2::/64"},
		{"IPv6 with a zone", "", "", "[fe80::1%eth0]:1234", nil, "fe80::/64"},
		{"IPv4 in IPv6", "", "10.0.0.0/8", "[::ffff:10.0.0.1]:1234", []string{xff, "::ffff:203.0.113.7"}, "203.0.113.7"},
		{"IPv4 in IPv6 trusted", "", "::ffff:10.0.0.0/104", "10.0.0.1:1234", []string{xff, "203.0.113.7"}, "203.0.113.7"},
		{"translated IPv4", "", "", "[64:ff9b::203.0.113.7]:1234", nil, "203.0.113.7"},
		{"IPv6 proxy", "", "2001:db8::/32", "[2001:db8::1]:1234", []string{xff, "203.0.113.7"}, "203.0.113.7"},
		{"IPv6 proxy with a zone", "", "fe80::/10", "[fe80::1%eth0]:1234", []string{xff, "203.0.113.7"}, "203.0.113.7"},
		{"Unix socket", "", "10.0.0.0/8", "@", []string{xff, "203.0.113.7"}, ""},
		{"no address", "", "", "", nil, ""},

		{"the other header is not read", "", "10.0.0.0/8", "10.0.0.1:1234", []string{fwd, "for=198.51.100.1"}, "10.0.0.1"},
		{"the other header is not read", fwd, "10.0.0.0/8", "10.0.0.1:1234", []string{xff, "198.51.100.1"}, "10.0.0.1"},
		{"forwarded", fwd, "10.0.0.0/8", "10.0.0.1:1234", []string{fwd, "for=203.0.113.7"}, "203.0.113.7"},
		{"lower case", "forwarded", "10.0.0.0/8", "10.0.0.1:1234", []string{fwd, "proto=https; FOR = 203.0.113.7 ;by=10.0.0.1"}, "203.0.113.7"},
		{"quoted IPv6", fwd, "10.0.0.0/8", "10.0.0.1:1234", []string{fwd, `For="[2001:db8:1:2::5]:4711"`}, "2001:db8:1:2::/64"},
		{"chain", fwd, "10.0.0.0/8", "10.0.0.1:1234", []string{fwd, `for=198.51.100.1, for=203.0.113.7;by="a,b;for=1.1.1.1"`, fwd, "for=10.0.0.2"}, "203.0.113.7"},
		{"quote left open by the client", fwd, "10.0.0.0/8", "10.0.0.1:1234", []string{fwd, `for="198.51.100.1, for=203.0.113.7`}, "203.0.113.7"},
		{"escaped quotes", fwd, "10.0.0.0/8", "10.0.0.1:1234", []string{fwd, `for=198.51.100.1, for=203.0.113.7;ext="a\", for=1.1.1.1;\\"`}, "203.0.113.7"},
		{"hidden", fwd, "10.0.0.0/8", "10.0.0.1:1234", []string{fwd, "for=198.51.100.1, for=_hidden"}, "10.0.0.1"},
		{"no for", fwd, "10.0.0.0/8", "10.0.0.1:1234", []string{fwd, "for=198.51.100.1, by=10.0.0.1"}, "10.0.0.1"},
		{"for twice", fwd, "10.0.0.0/8", "10.0.0.1:1234", []string{fwd, "for=198.51.100.1;for=203.0.113.7"}, "10.0.0.1"},
	} {
		cfg := quota.ClientIPConfig{Header: c.header}
		if c.trusted != "" {
			cfg.TrustedProxies = prefixes(t, c.trusted)
		}
		resolver, err := quota.ClientIP(cfg)
		if err != nil {
			t.Fatal(err)
		}
		r := request(c.headers...)
		r.RemoteAddr = c.remote
		want := quota.Subject{}
		if c.want != "" {
			want.User = "ip:" + c.want
		}
		got, ok, err := resolver.Resolve(r)
		if err != nil || ok != (c.want != "") || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v, %v; want %v", c.what, got, ok, err, want)
		}
	}
}

func TestClientIPFollowsItsConfig(t *testing.T) {
	t.Parallel()
	for bits, want := range map[int]string{0: "ip:2001:db8:1:2::/64", 1: "ip:::/1", 48: "ip:2001:db8:1::/48", 56: "ip:2001:db8:1::/56", 128: "ip:2001:db8:1:2:3::4"} {
		resolver, err := quota.ClientIP(quota.ClientIPConfig{IPv6Prefix: bits, Scope: quota.Session})
		if err != nil {
			t.Fatal(err)
		}
		r := request()
		r.RemoteAddr = "[2001:db8:1:2:3::4]:1"
		if got, ok, err := resolver.Resolve(r); err != nil || !ok || !reflect.DeepEqual(got, quota.Subject{Session: want}) {
			t.Errorf("%d bits: %v, %v, %v; want the session %s", bits, got, ok, err, want)
		}
	}
	for want, cfg := range map[string]quota.ClientIPConfig{
		`Header "X-Real-IP" is neither`:     {Header: "X-Real-IP"},
		"IPv6Prefix -1 is not one of":       {IPv6Prefix: -1},
		"IPv6Prefix 129 is not one of":      {IPv6Prefix: 129},
		`Scope: scope "global" has no ids`:  {Scope: quota.Global},
		`Scope: scope "User" has a name`:    {Scope: "User"},
		"TrustedProxies[1] invalid Prefix":  {TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), {}}},
		"IPv6Prefix 200 is not one of 1 to": {IPv6Prefix: 200, Header: "X"},
	} {
		resolver, err := quota.ClientIP(cfg)
		if err == nil || resolver != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v; want %s", resolver, err, want)
		}
	}
}

// Whatever clients write to the left of what their proxy has written, the address
// is the one that the proxy saw.
func FuzzClientCannotChangeItsAddress(f *testing.F) {
	for _, s := range []string{"", "10.0.0.5", "1.1.1.1, ", `for="`, `for="\`, `",`, "for=10.0.0.1;", "\\", `"a", "b`, ";;,,"} {
		f.Add(s)
	}
	proxies := prefixes(f, "10.0.0.0/8")
	f.Fuzz(func(t *testing.T, claim string) {
		for header, written := range map[string]string{
			"X-Forwarded-For": "203.0.113.7, 10.0.0.2",
			"Forwarded":       `for=203.0.113.7;proto=https, for="10.0.0.2:80"`,
		} {
			resolver, err := quota.ClientIP(quota.ClientIPConfig{TrustedProxies: proxies, Header: header})
			if err != nil {
				t.Fatal(err)
			}
			// Proxies add a line, or go on in the last one.
			for _, headers := range [][]string{{header, claim, header, written}, {header, claim + ", " + written}, {header, claim + "," + written}} {
				r := request(headers...)
				r.RemoteAddr = "10.0.0.1:1234"
				if s, ok, err := resolver.Resolve(r); err != nil || !ok || s.User != "ip:203.0.113.7" {
					t.Fatalf("%q: %v, %v, %v", headers, s, ok, err)
				}
			}
		}
	})
}
