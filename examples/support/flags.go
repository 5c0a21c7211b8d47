package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/headgate-go/headgate/internal/commandline"
)

// options is what the command line says.
type options struct {
	addr       string
	adminToken string
	latency    time.Duration
	store, dsn string
	journal    string
	lease      time.Duration
	failOpen   bool
}

const usageHead = `Usage: support [flags]

A chat server whose users have budgets: alice, bob and carol, told apart by the
header X-User-Id, which this demo believes. A double of the Gemini API answers.

Flags:
`

// defaultAdminToken is a token that everybody knows.
const defaultAdminToken = "demo"

// parseFlags reads the command line. With -h it prints help to out and returns
// flag.ErrHelp. Any other error is one line that names the flag and the value.
func parseFlags(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("support", flag.ContinueOnError)
	f.StringVar(&o.addr, "addr", "127.0.0.1:18099", "`host:port` to listen on; port 0 is any that is free")
	f.StringVar(&o.adminToken, "admin-token", defaultAdminToken, "`token` that opens /admin/")
	f.DurationVar(&o.latency, "latency", 800*time.Millisecond, "median `time` that an answer takes")
	f.StringVar(&o.store, "store", "memory", "where spend is kept: memory, sqlite, postgres or redis")
	f.StringVar(&o.dsn, "dsn", "", "`where` the store is: a file of SQLite (default "+stores["sqlite"].at+"), or a URL\n"+
		"(default "+stores["postgres"].at+", "+stores["redis"].at+")")
	f.StringVar(&o.journal, "journal", "", "`directory` of this server for what was spent, told again to a store that has lost it")
	f.DurationVar(&o.lease, "lease", 30*time.Second, "`time` after which the chats of a server that was killed are over")
	f.BoolVar(&o.failOpen, "fail-open", false, "start and go on while the store cannot be reached, with a rough check in this process")
	if err := commandline.Parse(f, args, out, usageHead, ""); err != nil {
		return o, err
	}
	return o, o.validate()
}

func (o *options) validate() error {
	if _, _, err := net.SplitHostPort(o.addr); err != nil {
		return fmt.Errorf("-addr %q: must be host:port", o.addr)
	}
	switch _, known := stores[o.store]; {
	case !known:
		return fmt.Errorf("-store %q: must be memory, sqlite, postgres or redis", o.store)
	case o.store == "memory" && o.dsn != "":
		return errors.New("-dsn is for the stores sqlite, postgres and redis") // and may hold a password
	case o.store == "memory" && o.journal != "":
		return fmt.Errorf("-journal %q: is for the stores sqlite, postgres and redis", o.journal)
	case o.store == "memory" && o.failOpen:
		return errors.New("-fail-open is for the stores sqlite, postgres and redis")
	case o.lease < time.Second || o.lease > time.Hour:
		return fmt.Errorf("-lease %v: must be 1s to 1h", o.lease)
	case o.adminToken == "" || strings.ContainsFunc(o.adminToken, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("-admin-token must be ASCII without spaces, and not empty") // and is not shown
	case o.latency <= 0 || o.latency > 20*time.Second:
		return fmt.Errorf("-latency %v: must be above 0 and at most 20s", o.latency)
	}
	return nil
}

// open reports whether an address can be reached from other machines.
func open(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return !ok || !tcp.IP.IsLoopback()
}
