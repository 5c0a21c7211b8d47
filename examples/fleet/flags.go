package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/internal/commandline"
	"github.com/headgate-go/headgate/ratelimited"
)

// options is what the command line says.
type options struct {
	double   string
	headroom float64
	last     time.Duration
	mode     share.Mode
	name     string
	quota    string
	redis    string
	rpm      int64
	slots    int64
	tokens   int
	tpm      int64
	ttl      time.Duration
	users    int
	window   time.Duration
}

const usageHead = `Usage: fleet -redis HOST:PORT -double URL [flags]

One replica of a program whose copies share a provider's quota through Redis. All
replicas must be told the same quota: -rpm, -tpm, -window and -slots are those of
all together.

Flags:
`

const usageFoot = `
A double of the Gemini API to call:
  go run ./bench/gemini/serve -addr 127.0.0.1:8089 -rpm 120 -tpm 60000
`

// parseFlags reads the command line. With -h it prints help to out and returns
// flag.ErrHelp.
func parseFlags(args []string, out io.Writer) (options, error) {
	o := options{}
	f := flag.NewFlagSet("fleet", flag.ContinueOnError)
	f.StringVar(&o.double, "double", "", "`URL` of a double of the Gemini API, or of the API itself (with its key in GEMINI_API_KEY)")
	f.DurationVar(&o.last, "for", 0, "`time` after which no more calls are made (default until it is interrupted)")
	f.Float64Var(&o.headroom, "headroom", ratelimited.DefaultHeadroom, "`part` of the quota that is used")
	mode := f.String("mode", share.Leased.String(), "how the quota is shared: leased, central or static")
	f.StringVar(&o.name, "name", "", "`name` of the replica, the same after a restart (default: a random one)")
	f.StringVar(&o.quota, "quota", "fleet", "`name` of the quota in Redis")
	f.StringVar(&o.redis, "redis", "", "`address` of Redis")
	f.Int64Var(&o.rpm, "rpm", 120, "requests per window")
	f.Int64Var(&o.slots, "slots", 20, "calls in flight")
	f.IntVar(&o.tokens, "tokens", 400, "tokens of a prompt, at most")
	f.Int64Var(&o.tpm, "tpm", 60_000, "input tokens per window")
	f.DurationVar(&o.ttl, "ttl", share.DefaultTTL, "`time` for which a replica may use what it was granted")
	f.IntVar(&o.users, "users", 8, "users, each of whom makes one call after another")
	f.DurationVar(&o.window, "window", time.Minute, "`length` of the quota's window")
	if err := commandline.Parse(f, args, out, usageHead, usageFoot); err != nil {
		return o, err
	}
	var err error
	if o.mode, err = share.ParseMode(*mode); err != nil {
		return o, fmt.Errorf("-mode is %q, want leased, central or static", *mode)
	}
	u, err := url.Parse(o.double)
	switch {
	case o.redis == "":
		return o, errors.New("-redis is not set")
	case o.double == "":
		return o, errors.New("-double is not set")
	case err != nil || u.Host == "":
		return o, fmt.Errorf("-double is %q, want a URL such as http://127.0.0.1:8089", o.double)
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"rpm", o.rpm},
		{"slots", o.slots},
		{"tokens", int64(o.tokens)},
		{"tpm", o.tpm},
		{"users", int64(o.users)},
	} {
		if n.value <= 0 {
			return o, fmt.Errorf("-%s is %v, must be above 0", n.name, n.value)
		}
	}
	if o.window <= 0 {
		return o, fmt.Errorf("-window is %v, must be above 0", o.window)
	}
	if o.last < 0 {
		return o, fmt.Errorf("-for is %v, must not be negative", o.last)
	}
	if int64(o.tokens) > o.tpm {
		return o, fmt.Errorf("-tokens is %d, must not be above -tpm (%d)", o.tokens, o.tpm)
	}
	if o.name == "" {
		o.name = "replica-" + strings.ToLower(rand.Text()[:8])
	}
	return o, nil
}

// apiKey is the key of the API. The double accepts any.
func apiKey() string { return cmp.Or(os.Getenv("GEMINI_API_KEY"), "none") }
