package main

import (
	"bytes"
	_ "embed" // for the prices
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/headgate-go/headgate/internal/commandline"
	"github.com/headgate-go/headgate/usage"
	"github.com/headgate-go/headgate/usage/pricefile"
)

// options is what the command line says.
type options struct {
	json     bool
	model    string
	otpm     int64
	prices   string
	provider string
	rpm      int64
	speed    float64
	tpm      int64
	url      string
	users    int
}

const usageHead = `Usage: providers [flags]

Users ask for a report at once; each report takes four researchers side by side
and a writer. The same agent code runs over Gemini, OpenAI and Anthropic, each
against a double of its API, without and with Headgate.

Flags:
`

const usageFoot = `
For the real APIs, which cost money:
  -provider gemini    -url https://generativelanguage.googleapis.com
  -provider openai    -url https://api.openai.com/v1
  -provider anthropic -url https://api.anthropic.com
`

// Bounds of the quotas: leastTPM has room for one call, whatever its estimate,
// and maxQuota is what the doubles take and more than any provider gives.
const (
	leastTPM = 10_000
	maxQuota = 1_000_000_000_000
)

// all is the -provider that means each of them.
const all = "all"

// parseFlags reads the command line. With -h it prints help to out and returns
// flag.ErrHelp. Any other error is one line that names the flag and the value.
func parseFlags(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("providers", flag.ContinueOnError)
	f.BoolVar(&o.json, "json", false, "print one JSON object on one line instead of tables")
	f.StringVar(&o.model, "model", "", "`name` of the model; only with one -provider (default that of the provider)")
	f.Int64Var(&o.otpm, "otpm", 8000, "quota of output `tokens` a minute at Anthropic, 0 for no limit")
	f.StringVar(&o.prices, "prices", "", "`file` of prices, in the form of package pricefile (default examples that come with the program)")
	f.StringVar(&o.provider, "provider", all, "`name` of the provider: gemini, openai, openai-responses, anthropic or all")
	f.Int64Var(&o.rpm, "rpm", 300, "quota of `requests` a minute, 0 for no limit")
	f.Float64Var(&o.speed, "speed", 20, "`factor` by which the doubles' time is faster than real time")
	f.Int64Var(&o.tpm, "tpm", 40_000, "quota of `tokens` a minute, counted as the provider does, 0 for no limit")
	f.StringVar(&o.url, "url", "", "`address` of a real endpoint to send to through Headgate only, with the key from the environment; costs money")
	f.IntVar(&o.users, "users", 5, "`number` of users who ask for a report")
	if err := commandline.Parse(f, args, out, usageHead, usageFoot); err != nil {
		return o, err
	}
	if err := o.validate(); err != nil {
		return o, err
	}
	if o.url == "" {
		return o, nil
	}
	return o, forReal(f, &o)
}

func (o *options) validate() error {
	if o.provider != all {
		if _, err := find(o.provider); err != nil {
			return err
		}
	}
	switch {
	case o.model != "" && o.provider == all:
		return fmt.Errorf("-model %q: name the -provider that has it", o.model)
	case strings.ContainsAny(o.model, " ?#%"):
		return fmt.Errorf("-model %q: must be the name of a model", o.model)
	case o.otpm != 0 && o.otpm < leastTPM/5 || o.otpm > maxQuota:
		return fmt.Errorf("-otpm %d: must be 0, or from %d to %d", o.otpm, leastTPM/5, int64(maxQuota))
	case o.rpm < 0 || o.rpm > maxQuota:
		return fmt.Errorf("-rpm %d: must be from 0 to %d", o.rpm, int64(maxQuota))
	case !(o.speed >= 0.1 && o.speed <= 1000):
		return fmt.Errorf("-speed %v: must be from 0.1 to 1000", o.speed)
	case o.tpm != 0 && o.tpm < leastTPM || o.tpm > maxQuota:
		return fmt.Errorf("-tpm %d: must be 0, or from %d (room for a call) to %d", o.tpm, leastTPM, int64(maxQuota))
	case o.users < 1 || o.users > 1000:
		return fmt.Errorf("-users %d: must be from 1 to 1000", o.users)
	}
	return nil
}

// forReal checks what only a double knows, and what only a real endpoint needs.
func forReal(f *flag.FlagSet, o *options) error {
	p, err := find(o.provider)
	if err != nil {
		return fmt.Errorf("-url %q: name the -provider that is there", o.url)
	}
	if u, err := url.Parse(o.url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return errors.New("-url: must be an address such as " + p.address) // the one given may hold a key
	}
	f.Visit(func(given *flag.Flag) {
		if given.Name == "speed" {
			err = fmt.Errorf("-speed %v beside -url: it is a property of the doubles", o.speed)
		}
	})
	if err == nil && os.Getenv(p.key) == "" {
		err = fmt.Errorf("-url: the environment variable %s is not set", p.key)
	}
	o.speed = 1
	return err
}

// chosen are the providers of the options.
func (o *options) chosen() []provider {
	if p, err := find(o.provider); err == nil {
		return []provider{p}
	}
	return providers
}

// modelOf is the name of the model to ask of a provider.
func (o *options) modelOf(p provider) string {
	if o.model != "" {
		return o.model
	}
	return p.model
}

// calls is the number of calls of the whole burst.
func (o *options) calls() int { return o.users * (len(questions) + 1) }

// scaled returns how long a time of an API is at its double.
func (o *options) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) / o.speed)
}

// virtual returns how long a measured time is at the API.
func (o *options) virtual(d time.Duration) time.Duration {
	return time.Duration(float64(d) * o.speed)
}

//go:embed prices.yaml
var examplePrices []byte

// catalog reads the prices.
func (o *options) catalog() (*usage.Catalog, error) {
	data := examplePrices
	if o.prices != "" {
		var err error
		if data, err = os.ReadFile(o.prices); err != nil {
			return nil, fmt.Errorf("-prices: %w", err)
		}
	}
	list, _, err := pricefile.Parse(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("-prices %q: %w", o.prices, err)
	}
	return usage.NewCatalog(usage.CatalogConfig{Lists: []usage.PriceList{list}})
}
