package route

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
)

// Defaults of a [Config].
const (
	// DefaultName is the name of a pool that has none.
	DefaultName = "default"
	// DefaultPatience is how much longer a call with a key may wait for its own
	// route. A prompt that is found in a provider's cache costs a tenth and starts
	// seconds sooner (prompt caching pages of the Gemini, OpenAI and Anthropic docs):
	// it is worth seconds, but not a minute's window.
	DefaultPatience = 5 * time.Second
)

// Config describes a [Pool]. The zero Config is usable.
type Config struct {
	// Classifiers tell what errors of the routes mean, before the rules of
	// retry.Classify are asked; see retry.Policy. A class that it calls throttled,
	// out of quota, overloaded or not sent lets a call go to another route.
	Classifiers []retry.Classifier
	// Logger is told when a route is left out, and when it is back. Defaults to
	// slog.Default.
	Logger *slog.Logger
	// MaxWait bounds how long a call waits in line, at all routes together. nil is
	// the bound of the gate that the call comes to first; 0 is not to wait at all.
	// ratelimited.WithMaxWait overrides it for a call.
	MaxWait *time.Duration
	// Name of the pool in metrics and logs. Defaults to DefaultName.
	Name string
	// Patience is how long a call with a key ([Sticky]) waits for its own route
	// before it goes where the wait is shortest. Defaults to DefaultPatience; negative is
	// none: it goes there as soon as it would wait at all.
	Patience time.Duration
	// Registerer for the Prometheus metrics. Defaults to none.
	Registerer prometheus.Registerer
	// Spill is the longest predicted wait for which a call stays in a tier. Defaults
	// to 0: the next tier is used as soon as a call would wait at all.
	Spill time.Duration
}

// Route is one way that calls may take.
type Route[Req, Resp any] struct {
	// Gate is what the model's calls go through. Defaults to the model's own, that
	// its method Gate returns.
	Gate *ratelimited.Gate
	// Model is a wrapped model, from ratelimited.New. One that wraps such a model
	// again should have its method ExpectedWait, too: without it the wait is
	// predicted by the Gate alone, which does not know how large a call is.
	Model ratelimited.Model[Req, Resp]
	// Name of the route in metrics and logs, and for the keys of [Sticky].
	Name string
	// Rewrite makes of a request the one for this route: it sets the name of the
	// model in it. It is called for every attempt, and must return a copy: the
	// caller's request may go to another route afterwards, and is the caller's.
	// Required where the model's name is not the pool's; elsewhere it defaults to the
	// request as it is.
	Rewrite func(Req) Req
	// Tier is the rank of the route: lower ones are used first. Not negative.
	Tier int
	// Weight is the route's share of its tier's calls while none has to wait, and of
	// keys. Defaults to 1.
	Weight float64
}

// maxRoutes bounds the routes of a pool, so that a choice needs no memory.
const maxRoutes = 32

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Name == "" {
		c.Name = DefaultName
	}
	if c.Patience == 0 {
		c.Patience = DefaultPatience
	}
	c.Patience = max(c.Patience, 0)
	if isNil(c.Registerer) {
		c.Registerer = nil
	}
	return c
}

func (c Config) validate() error {
	switch {
	case !utf8.ValidString(c.Name):
		return fmt.Errorf("route: Config.Name is %q, must be valid UTF-8", c.Name)
	case c.MaxWait != nil && *c.MaxWait < 0:
		return fmt.Errorf("route: Config.MaxWait is %v, must not be negative", *c.MaxWait)
	case c.Spill < 0:
		return fmt.Errorf("route: Config.Spill is %v, must not be negative", c.Spill)
	}
	policy := retry.Policy{Classifiers: c.Classifiers}
	if err := policy.Validate(); err != nil {
		return fmt.Errorf("route: Config.Classifiers: %w", err)
	}
	return nil
}

// complete fills in the defaults of the i-th route, and checks it.
func (r *Route[Req, Resp]) complete(i int) error {
	field := fmt.Sprintf("Routes[%d]", i)
	switch {
	case r.Name == "":
		return fmt.Errorf("route: %s.Name is empty", field)
	case !utf8.ValidString(r.Name):
		return fmt.Errorf("route: %s.Name is %q, must be valid UTF-8", field, r.Name)
	case isNil(r.Model):
		return fmt.Errorf("route: %s.Model is nil (route %q)", field, r.Name)
	case r.Tier < 0:
		return fmt.Errorf("route: %s.Tier is %d, must not be negative (route %q)", field, r.Tier, r.Name)
	case !(r.Weight >= 0) || math.IsInf(r.Weight, 0):
		return fmt.Errorf("route: %s.Weight is %v, must be finite and not negative (route %q)", field, r.Weight, r.Name)
	}
	if r.Weight == 0 {
		r.Weight = 1
	}
	own, ok := r.Model.(interface{ Gate() *ratelimited.Gate })
	switch {
	case r.Gate == nil && (!ok || own.Gate() == nil):
		return fmt.Errorf("route: %s.Gate is nil, and the model has none: wrap it with ratelimited.New (route %q)", field, r.Name)
	case r.Gate == nil:
		r.Gate = own.Gate()
	case ok && own.Gate() != r.Gate:
		return fmt.Errorf("route: %s.Gate is not that of its model (route %q)", field, r.Name)
	}
	return nil
}

// completeAll is a checked copy of the routes, with their defaults.
func completeAll[Req, Resp any](routes []Route[Req, Resp]) ([]Route[Req, Resp], error) {
	switch {
	case len(routes) == 0:
		return nil, errors.New("route: Routes is empty")
	case len(routes) > maxRoutes:
		return nil, fmt.Errorf("route: Routes has %d entries, at most %d", len(routes), maxRoutes)
	}
	routes = append([]Route[Req, Resp](nil), routes...)
	seen := make(map[string]bool)
	for i := range routes {
		r := &routes[i]
		if err := r.complete(i); err != nil {
			return nil, err
		}
		if seen[r.Name] {
			return nil, fmt.Errorf("route: Routes[%d].Name is %q, which is taken", i, r.Name)
		}
		seen[r.Name] = true
		if first, name := routes[0].Model.Name(), r.Model.Name(); r.Rewrite == nil && name != first {
			return nil, fmt.Errorf("route: Routes[%d].Rewrite is nil, but its model is %q, and requests to the pool name %q (route %q)", i, name, first, r.Name)
		}
	}
	return routes, nil
}

// isNil reports whether v is nil or holds a nil pointer.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Slice, reflect.Chan:
		return r.IsNil()
	default:
		return false
	}
}
