// Package counttokens asks the provider how many tokens a request has, before
// it is sent: countTokens of the Gemini API and of Vertex AI, count_tokens of
// Anthropic, or any other function.
//
// Such a count is exact, but it is a call of its own: it takes some hundred
// milliseconds, has a quota, and fails when the provider does. A [Counter] makes
// it harmless. It remembers counts, asks once for requests that are the same,
// waits no longer than a time limit, and falls back to an offline estimate
// whenever there is no count. An endpoint that fails again and again is left
// alone for a while, in which nobody waits for it.
//
//	counter, err := counttokens.New(counttokens.GenAI(client, usage.Estimator{}))
//	…
//	u, exact := counter.Estimate(ctx, counttokens.Request{Model: "gemini-2.5-flash", Contents: contents})
//
// For Gemini there is [GenAI]; the examples of [New] show Anthropic's SDK, and
// any other function.
//
// Most programs do not need it: the estimates of package usage are off by some
// per cent, and the gate corrects what they are off in a model's favour or
// disfavour by the usage that is reported. It is for requests that are large
// and unlike each other, such as media and long documents.
package counttokens

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate-go/headgate/usage"
	"golang.org/x/sync/singleflight"
)

// Defaults of a [Config].
const (
	DefaultTimeout   = 500 * time.Millisecond
	DefaultCacheSize = 4096
	DefaultMaxBytes  = 1 << 20
	DefaultFailures  = 3
	DefaultPause     = 30 * time.Second
)

// maxPause is how long an endpoint that goes on failing is left alone at most;
// until then each pause is twice as long as the one before.
const maxPause = 5 * time.Minute

// Config says how a [Counter] counts requests of type Req.
type Config[Req any] struct {
	// Count asks the provider for the input tokens of a request, what is cached
	// left out. It must end when its context does, may be called from several
	// goroutines, which are the Counter's own, and only reads the request. A panic
	// counts as an error, since some SDKs panic over an answer of the wrong form.
	// Required.
	Count func(ctx context.Context, req Req) (int64, error)

	// Clone makes a copy of a request that shares nothing with it that may change.
	// Count is given the copy, because it can go on reading after Estimate has
	// returned, when the request belongs to the caller again: it is sent, and SDKs
	// and agents write to requests. nil gives Count the request itself, which then
	// must not change until Timeout has passed after Estimate was called. That is
	// for requests that never change, such as strings and structs of strings.
	Clone func(req Req) Req

	// Estimate is the offline estimate, which stands in where there is no count
	// and says everything else that a request will use. Required.
	Estimate func(req Req) usage.Usage

	// Failure reports whether an error of Count is a failure of the endpoint, and
	// not one of the request, such as a refusal of its form. Only failures
	// count towards a pause. nil takes every error for one.
	Failure func(err error) bool

	// Timeout is how long a caller waits for a count, and how long a call of
	// Count may take. Defaults to DefaultTimeout.
	Timeout time.Duration

	// CacheSize is how many counts are remembered; of more, those not asked for
	// the longest are forgotten. A count takes some 200 bytes, whatever the size
	// of its request, of which only a hash is kept. Defaults to DefaultCacheSize.
	CacheSize int

	// MaxBytes is how large a request may be, as JSON, to be sent for a count;
	// larger ones, whose media would be sent twice, are estimated. Defaults to
	// DefaultMaxBytes.
	MaxBytes int

	// Failures is after how many failures in a row the endpoint is left alone.
	// Defaults to DefaultFailures.
	Failures int

	// Pause is how long it is then left alone. After that one request tries it,
	// for whose count nobody waits; while that fails, pauses double, up to 5
	// minutes or Pause, whichever is longer. Defaults to DefaultPause.
	Pause time.Duration

	// decode, if Clone is nil, makes the copy for Count of the request's JSON.
	decode func(data []byte) (Req, error)
}

// validate sets defaults and names what is wrong.
func (c *Config[Req]) validate() error {
	switch {
	case c.Count == nil:
		return errors.New("counttokens: Config.Count is nil, must be set")
	case c.Estimate == nil:
		return errors.New("counttokens: Config.Estimate is nil, must be set")
	}
	if c.Failure == nil {
		c.Failure = func(error) bool { return true }
	}
	return errors.Join(
		setDefault("Timeout", &c.Timeout, DefaultTimeout),
		setDefault("CacheSize", &c.CacheSize, DefaultCacheSize),
		setDefault("MaxBytes", &c.MaxBytes, DefaultMaxBytes),
		setDefault("Failures", &c.Failures, DefaultFailures),
		setDefault("Pause", &c.Pause, DefaultPause),
	)
}

func setDefault[T int | time.Duration](name string, field *T, value T) error {
	if *field < 0 {
		return fmt.Errorf("counttokens: Config.%s is %v, must not be negative", name, *field)
	}
	if *field == 0 {
		*field = value
	}
	return nil
}

// Stats are what a [Counter] has done since it was made.
type Stats struct {
	Remembered int64 // estimates with a count that was remembered
	Counted    int64 // estimates with a count that was asked for
	Estimated  int64 // estimates without a count
	Asked      int64 // calls of Count
	Failed     int64 // of these, how many gave an error or no time was left
	Paused     bool  // the endpoint is being left alone
}

// Counter estimates requests with the help of a provider's counts. It is made
// by [New]. Its methods may be called from several goroutines.
type Counter[Req any] struct {
	cfg    Config[Req]
	flight singleflight.Group

	// mu guards what follows.
	mu      sync.Mutex
	cache   cache
	breaker breaker
	stats   Stats
}

// New returns a Counter. An error names the field of the Config that is wrong.
func New[Req any](cfg Config[Req]) (*Counter[Req], error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Counter[Req]{
		cfg:     cfg,
		cache:   newCache(cfg.CacheSize),
		breaker: breaker{failures: cfg.Failures, first: cfg.Pause},
	}, nil
}

// Estimate estimates a request: its Input is the provider's count and what the
// offline estimate takes for cached, and everything else is the offline estimate.
// Without a count in time all of it is the offline estimate, and exact is false.
// It returns after Timeout at the latest, and at once when ctx ends. The flag
// [usage.Estimated] is set in both cases, since the output is not known.
//
// A call of Count that is under way when the caller stops waiting goes on until
// Timeout, so that the next request of the kind finds its count. It reads a copy
// of the request; see [Config.Clone].
func (c *Counter[Req]) Estimate(ctx context.Context, req Req) (u usage.Usage, exact bool) {
	u = c.cfg.Estimate(req)
	n, how := c.count(ctx, req)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch how {
	case remembered:
		c.stats.Remembered++
	case counted:
		c.stats.Counted++
	case estimated:
		c.stats.Estimated++
		return u, false
	}
	u.Input = n
	if cached := max(u.CachedInput, 0); n <= 1<<62 && cached <= 1<<62 {
		u.Input += cached
	}
	return u, true
}

// Stats tells what the Counter has done.
func (c *Counter[Req]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Paused = c.breaker.open
	return s
}

// outcome is where a count comes from.
type outcome uint8

const (
	estimated outcome = iota // there is none
	remembered
	counted
)

func (c *Counter[Req]) count(ctx context.Context, req Req) (int64, outcome) {
	if ctx.Err() != nil {
		return 0, estimated
	}
	key, data, ok := keyOf(req, c.cfg.MaxBytes)
	if !ok {
		return 0, estimated
	}
	c.mu.Lock()
	n, ok := c.cache.get(key)
	may := verdict(closed)
	if !ok {
		may = c.breaker.ask(time.Now())
	}
	c.mu.Unlock()
	switch {
	case ok && n > 0:
		return n, remembered
	case ok || may == paused:
		return 0, estimated
	}

	// The call outlives a caller who stops waiting, but keeps its values.
	shared, own := context.WithoutCancel(ctx), c.copy(req, data)
	result := c.flight.DoChan(string(key[:]), func() (any, error) {
		return c.ask(shared, key, own)
	})
	if may == probe {
		return 0, estimated
	}
	timer := time.NewTimer(c.cfg.Timeout)
	defer timer.Stop()
	select {
	case r := <-result:
		if r.Err == nil {
			return r.Val.(int64), counted
		}
	case <-timer.C:
	case <-ctx.Done():
	}
	return 0, estimated
}

// What can be wrong with a call of Count beside its error.
var (
	errNoCount = errors.New("counttokens: the count is not above 0")
	errPanic   = errors.New("counttokens: Count or Clone panicked")
	errNoCopy  = errors.New("counttokens: the request cannot be copied by way of JSON")
)

// copy is how Count comes by a request that its caller can no longer change. It
// is called while the caller waits; what it returns, when no caller may.
func (c *Counter[Req]) copy(req Req, data []byte) (own func() (Req, error)) {
	switch {
	case c.cfg.Clone != nil:
		defer func() {
			if recover() != nil {
				own = func() (none Req, err error) { return none, errPanic }
			}
		}()
		req = c.cfg.Clone(req)
	case c.cfg.decode != nil:
		return func() (Req, error) { return c.cfg.decode(data) }
	}
	return func() (Req, error) { return req, nil }
}

// ask calls Count, and remembers what it said.
func (c *Counter[Req]) ask(ctx context.Context, key key, own func() (Req, error)) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = errPanic // what p says may quote the request
		}
		failure := err != nil && c.cfg.Failure(err)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stats.Asked++
		switch {
		case err == nil:
			c.cache.put(key, n)
		case !failure:
			c.cache.put(key, 0) // it would be refused again
			fallthrough
		default:
			c.stats.Failed++
		}
		c.breaker.tell(time.Now(), failure)
	}()
	req, err := own()
	if err != nil {
		return 0, err
	}
	n, err = c.cfg.Count(ctx, req)
	if err == nil && n <= 0 {
		err = errNoCount
	}
	return n, err
}
