package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
)

// provider is all that the program knows of a provider.
type provider struct {
	name    string // of -provider
	api     string // what it is called in a sentence
	model   string // unless -model says another
	key     string // environment variable that holds the key
	path    string // of the API's base below the address of its double
	address string // of the real API, for the help

	// counts says in words what a call takes of the quota.
	counts string
	// double makes a double of the API, with the quota of the options.
	double func(o options) (double, error)
	// profile is that of the API with the same quota, in real time.
	profile func(o options) ratelimited.Profile
	// agent makes an agent that asks the API at an endpoint, through a gate.
	agent func(at endpoint, model string, gate *ratelimited.Gate, opts []ratelimited.Option) (reporter, error)
}

// endpoint is where an API is reached.
type endpoint struct {
	url       string // as the SDK wants it
	key       string
	transport http.RoundTripper
}

// client sends to the endpoint.
func (e endpoint) client() *http.Client { return &http.Client{Transport: e.transport} }

// double is a double of an API.
type double interface {
	http.Handler
	// Reset starts its windows anew.
	Reset()
}

// providers are those that -provider knows, in the order in which they run.
var providers = []provider{gemini, openAI, openAIResponses, anthropic}

// Shape of the calls at the doubles. Latencies and lengths spread, and a call
// says its first word early, as real ones do.
const (
	latency      = 8 * time.Second // median
	latencySigma = 0.2
	firstShare   = 0.1
	outputTokens = 400 // median
	outputSigma  = 0.3
	chunkTokens  = 20
	seed         = 1
)

// maxOutputTokens is the limit that every request sets on its output. Models that
// think first need room for that.
const maxOutputTokens = 2000

// headroom is the part of a double's quota that the gate uses. That quota is all
// ours, so that nothing is kept back for other programs, as the library's default
// does and as a real API gets. The rest is for what a client cannot know exactly:
// how many tokens the provider will count, and when a request arrives.
const headroom = 0.97

// slots is the number of calls that the gate lets be under way at a time.
const slots = 30

// newGate makes the gate that mirrors the provider's quota, at the double's speed.
func (p provider) newGate(o options) (*ratelimited.Gate, error) {
	profile := p.profile(o)
	for i := range profile.Dimensions {
		d := &profile.Dimensions[i]
		if d.Window == 0 {
			d.Window = time.Minute
		}
		d.Window, d.Burst = o.scaled(d.Window), o.scaled(d.Burst)
	}
	cfg := ratelimited.Config{Headroom: headroom, Profile: profile, Slots: slots, Logger: quiet}
	if o.url != "" {
		cfg.Headroom = ratelimited.DefaultHeadroom
	}
	return ratelimited.NewGate(cfg)
}

// newOpenGate makes a gate that has no limits: it only keeps the books.
func newOpenGate(o options) (*ratelimited.Gate, error) {
	return ratelimited.NewGate(ratelimited.Config{Name: "open", Slots: int64(o.calls()), Logger: quiet})
}

// find is the provider of that name.
func find(name string) (provider, error) {
	for _, p := range providers {
		if p.name == name {
			return p, nil
		}
	}
	return provider{}, fmt.Errorf("-provider %q: must be gemini, openai, openai-responses, anthropic or all", name)
}
