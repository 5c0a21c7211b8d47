package httpgate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
)

// DefaultMaxBuffered is how much of a request's body is kept in memory, in
// bytes, where the body cannot be had a second time: 8 MiB.
const DefaultMaxBuffered = 8 << 20

// DefaultFree are the requests that pass a [Transport] without a place in line,
// because they use no tokens: what models, files and cached contents there are, a
// file's content, and an answer that is fetched once more.
func DefaultFree() []string {
	return []string{
		"GET models", "GET models/*",
		"GET files", "GET files/*", "GET files/*/content",
		"GET cachedContents", "GET cachedContents/*",
		"GET responses/*",
	}
}

// Unknown is what becomes of a request that a [Transport] does not know.
type Unknown uint8

const (
	// Refuse fails it with a [RouteError].
	Refuse Unknown = iota
	// Pass sends it on, past the gate: nothing counts it.
	Pass
)

// Refusal is the form in which a refusal of Headgate's own reaches the client.
type Refusal uint8

const (
	// AsError makes it the round tripper's error, which an http.Client wraps in a
	// url.Error: errors.As finds a ratelimited.WaitError, a
	// ratelimited.NeverFitsError or a budget.DeniedError in it. SDKs that retry
	// on their own take it for a broken connection and try again.
	AsError Refusal = iota
	// AsResponse makes it a response in the provider's own error format: 429, or
	// 503 where the gate is closed, with a Retry-After if it is known when to try
	// again; 400 for a call that can never fit. x-should-retry is false where
	// another try is no use soon, which the SDKs of OpenAI and Anthropic heed. The
	// end of the caller's context stays an error.
	AsResponse
)

// Config describes a [Transport]. The zero Config is ready to use.
type Config struct {
	// Budgets are customer budgets: what the caller may spend. They are reserved
	// in this order before the gate, as with ratelimited.WithBudgets. Defaults to
	// none.
	Budgets []budget.Budget
	// Free are the requests that pass without a place in line: a method and the
	// end of a path, where * stands for one segment without a colon. nil is
	// DefaultFree; an empty list is none.
	Free []string
	// Logger for what nobody could be told otherwise. Defaults to slog.Default.
	// Neither requests nor answers are logged.
	Logger *slog.Logger
	// MaxBuffered bounds the memory, in bytes, for the body of a request that has
	// no GetBody. A longer one is estimated by its beginning and its length, and
	// is not retried. Defaults to DefaultMaxBuffered.
	MaxBuffered int64
	// MaxTokensReserved makes the estimate of a call's output the limit that its
	// request sets, in place of a typical answer, and keeps it there whatever is
	// learned about answers; a request without a limit is estimated as ever. It
	// belongs to a provider that sets the limit aside when it admits a call and
	// gives the rest back, as Amazon Bedrock does, behind a gateway or at its own
	// endpoint for messages: with a smaller estimate the gate would send calls that
	// are refused there. OpenAI's API counts the limit, too, so that requests in its
	// format are estimated at it in any case; the profiles for OpenAI and Azure keep
	// it (ratelimited.Dimension.KeepsLimit), a profile of one's own may need this.
	// Neither Anthropic's own API nor Google's counts it.
	//
	// A gate never lowers the output of an estimate below the part of it that is
	// marked as thoughts, so the estimate marks all of it. Budgets hold the limit
	// then, too, until the call has ended.
	MaxTokensReserved bool
	// NoRetries passes every refusal of the provider on to the client, and only
	// tells the gate of it. Without it, the gate's retry policy decides, as for a
	// RateLimitedModel.
	NoRetries bool
	// Refusals is the form of Headgate's own refusals. Defaults to AsError.
	Refusals Refusal
	// ReleaseInterrupted makes the Budgets charge nothing for a call that was sent
	// and then broken off before its usage was reported; see
	// ratelimited.WithReleaseInterrupted.
	ReleaseInterrupted bool
	// Slots is the number of slots that a request takes. 0 is 1.
	Slots int
	// TypicalOutput is the number of tokens that an answer is expected to have,
	// without a thinking budget that the request sets, before anything was learned
	// about it. A limit in a request of OpenAI's format takes its place; others
	// bound it. Defaults to usage.DefaultTypicalOutput.
	TypicalOutput int64
	// Unknown is what becomes of requests to other paths than those of the
	// package's description. Defaults to Refuse. Live sessions are refused in any
	// case.
	Unknown Unknown
}

// Transport is an http.RoundTripper that puts every model call of an HTTP client
// behind a [ratelimited.Gate]. Make it with [New]; the description of the package
// says what it does.
//
// It is safe for concurrent use. It does not modify requests; it closes their
// bodies, as a round tripper must. What it returns is the response of the round
// tripper below it, with its status, its headers and its body byte for byte.
type Transport struct {
	base   http.RoundTripper
	sender *retry.Transport // base, with word of when a request was written
	gate   *ratelimited.Gate
	cfg    Config
	free   []pattern
	opts   []ratelimited.Option

	models sync.Map // modelKey → *wrapped, of the first maxModels
	known  int      // guarded by mu
	mu     sync.Mutex
}

// wrapped is a model behind the gate, whose calls are requests.
type wrapped = ratelimited.RateLimitedModel[*exchange, *event]

type modelKey struct {
	name string
	once bool
}

// maxModels is how many models are kept ready. For others one is made each time.
const maxModels = 256

// New returns a transport that sends through base, or an error that names the
// argument or the field of the Config that is wrong, and its value. A nil base is
// http.DefaultTransport.
func New(base http.RoundTripper, gate *ratelimited.Gate, cfg Config) (*Transport, error) {
	if base == nil {
		base = http.DefaultTransport
	}
	if gate == nil {
		return nil, errors.New("httpgate: gate is nil")
	}
	if t, ok := base.(*Transport); ok && t != nil && t.holds(gate) {
		return nil, fmt.Errorf("httpgate: base is behind the gate %q already", gate.Name())
	}
	if cfg.Free == nil {
		cfg.Free = DefaultFree()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.MaxBuffered == 0 {
		cfg.MaxBuffered = DefaultMaxBuffered
	}
	switch {
	case cfg.MaxBuffered < 0:
		return nil, fmt.Errorf("httpgate: Config.MaxBuffered is %d, must not be negative", cfg.MaxBuffered)
	case cfg.Refusals > AsResponse:
		return nil, fmt.Errorf("httpgate: Config.Refusals is %d, want AsError or AsResponse", cfg.Refusals)
	case cfg.Slots < 0:
		return nil, fmt.Errorf("httpgate: Config.Slots is %d, must not be negative", cfg.Slots)
	case cfg.TypicalOutput < 0:
		return nil, fmt.Errorf("httpgate: Config.TypicalOutput is %d, must not be negative", cfg.TypicalOutput)
	case cfg.Unknown > Pass:
		return nil, fmt.Errorf("httpgate: Config.Unknown is %d, want Refuse or Pass", cfg.Unknown)
	}
	for i, b := range cfg.Budgets {
		if b == nil {
			return nil, fmt.Errorf("httpgate: Config.Budgets[%d] is nil", i)
		}
	}
	t := &Transport{base: base, gate: gate, cfg: cfg, sender: &retry.Transport{Base: plain{base}}}
	for i, s := range cfg.Free {
		p, err := parsePattern(s)
		if err != nil {
			return nil, fmt.Errorf("httpgate: Config.Free[%d] is %q: %w", i, s, err)
		}
		t.free = append(t.free, p)
	}
	t.opts = []ratelimited.Option{
		ratelimited.WithTransport(), ratelimited.WithSlots(cfg.Slots), ratelimited.WithBudgets(cfg.Budgets...),
	}
	if cfg.ReleaseInterrupted {
		t.opts = append(t.opts, ratelimited.WithReleaseInterrupted())
	}
	// A mistake in the options shows with the first model.
	first, err := t.wrap(modelKey{})
	if err != nil {
		return nil, fmt.Errorf("httpgate: Config: %w", err)
	}
	t.models.Store(modelKey{}, first)
	return t, nil
}

// holds reports whether calls through t get a permit of the gate.
func (t *Transport) holds(gate *ratelimited.Gate) bool {
	if t.gate == gate {
		return true
	}
	inner, ok := t.base.(*Transport)
	return ok && inner != nil && inner.holds(gate)
}

// Gate is the gate that the requests go through.
func (t *Transport) Gate() *ratelimited.Gate { return t.gate }

// CloseIdleConnections closes the idle connections of the round tripper below, if
// it has such a method. [http.Client.CloseIdleConnections] calls it.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip implements [http.RoundTripper]. A request that takes a place in line
// waits until the gate lets it through, within the request's context and the
// gate's MaxWait; a http.Client's Timeout covers the wait. It returns when the
// headers of the answer are there, or a refusal that is not worth another try.
// The body must be read to its end or closed, or the context must end; then the
// call is over for the gate.
//
// Besides the errors of the round tripper below, it returns a
// ratelimited.WaitError, a ratelimited.NeverFitsError, the denial of a budget, or
// a [RouteError]; nothing was sent then.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL == nil {
		closeBody(req)
		return nil, errors.New("httpgate: the request's URL is nil")
	}
	r, kind := match(req, t.free)
	switch {
	case kind == live, kind == unknown && t.cfg.Unknown == Refuse:
		closeBody(req)
		return nil, &RouteError{Method: req.Method, Path: req.URL.Path, Live: kind == live}
	case kind != gated, HasPermit(req.Context(), t.gate):
		return t.base.RoundTrip(req)
	}
	x, err := t.newExchange(req, r)
	if err != nil {
		return nil, err
	}
	return x.roundTrip()
}

// model is the model of that name behind the gate.
func (t *Transport) model(name string, once bool) (*wrapped, error) {
	k := modelKey{name, once}
	if m, ok := t.models.Load(k); ok {
		return m.(*wrapped), nil
	}
	m, err := t.wrap(k)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known < maxModels {
		t.known++
		t.models.Store(k, m)
	}
	return m, nil
}

func (t *Transport) wrap(k modelKey) (*wrapped, error) {
	opts := t.opts
	if k.once {
		opts = append(slices.Clone(opts), ratelimited.WithoutRetries())
	}
	return ratelimited.NewMetered(requests{t, k.name}, t.gate, meter{}, opts...)
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

type permitKey struct{ gate *ratelimited.Gate }

// WithPermit marks ctx as that of a call which holds a permit of the gate
// already, so that a [Transport] behind the same gate sends its requests on
// without another one. Use it where a program takes the permit by itself, with
// Gate.Acquire, and speaks to the provider through a client that has a Transport.
// Identities that an agent framework's context answers to are pinned, as by
// ratelimited.Pin.
func WithPermit(ctx context.Context, gate *ratelimited.Gate) context.Context {
	return context.WithValue(ratelimited.Pin(ctx), permitKey{gate}, true)
}

// HasPermit reports whether ctx is that of a call which holds a permit of the
// gate: one that was marked, or that a model behind the gate makes (see
// ratelimited.Holds).
func HasPermit(ctx context.Context, gate *ratelimited.Gate) bool {
	return ctx.Value(permitKey{gate}) != nil || ratelimited.Holds(ctx, gate)
}
