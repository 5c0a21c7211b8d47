package openai

import (
	"fmt"
	"math"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// Defaults of Config fields that are left at zero.
const (
	// DefaultChunkTokens is the number of tokens in a chunk of a stream.
	DefaultChunkTokens = 16
	// DefaultOutputTokens is the length of an answer.
	DefaultOutputTokens = 256
	// DefaultWindowLength is the minute of RPM and TPM.
	DefaultWindowLength = time.Minute
)

// Window is the way in which RPM and TPM renew themselves.
type Window string

// The window models.
const (
	// Bucket refills continuously, up to the quota, which is what OpenAI's
	// headers tell of its limits.
	Bucket Window = ""
	// Fixed starts from zero at every multiple of the window's length, as Azure's
	// counters do.
	Fixed Window = "fixed"
	// Sliding is an exact log: no window, wherever it starts, holds more than
	// the quota.
	Sliding Window = "sliding"
)

var windows = map[Window]engine.WindowModel{Bucket: engine.Bucket, Fixed: engine.Fixed, Sliding: engine.Sliding}

// CountAt is the instant at which a call is counted.
type CountAt = engine.CountAt

// The counting instants.
const (
	// AtArrival counts a call as it is admitted.
	AtArrival = engine.AtArrival
	// AtCompletion counts it when it ends, so that a burst goes past a quota.
	AtCompletion = engine.AtCompletion
)

// TokenCount is what a call takes of TPM and TPD when it arrives.
type TokenCount string

// The ways to count tokens.
const (
	// CountLarger takes the larger of the output limit and the prompt, as OpenAI
	// does.
	CountLarger TokenCount = ""
	// CountSum takes the prompt and the output limit together, as Azure does.
	CountSum TokenCount = "sum"
)

// Form is how much a refusal by a quota tells in its headers.
type Form string

// The forms of a refusal.
const (
	// FormFull has retry-after, retry-after-ms and the x-ratelimit headers.
	FormFull Form = ""
	// FormSeconds has retry-after, in whole seconds, and the x-ratelimit headers.
	FormSeconds Form = "seconds"
	// FormReset has the x-ratelimit headers only.
	FormReset Form = "reset"
	// FormBare has none of them.
	FormBare Form = "bare"
)

// Config is what a Server is made of. The zero value has no quotas, no faults,
// and answers at once with 256 tokens. Durations are given before Speed.
type Config struct {
	// Answer may change the answer that is about to be given, which it gets as
	// planned from configuration and headers. It may be called from several
	// goroutines at once. Defaults to changing nothing.
	Answer func(Request, *Answer)
	// ArrivalJitter bounds the delay, uniform from 0, between the arrival of a
	// request and the instant at which the quotas look at it. Defaults to 0.
	ArrivalJitter time.Duration
	// CachedShare is the part of every prompt, from 0 to 1, that is reported as
	// cached. It counts against the quotas all the same. Defaults to 0.
	CachedShare float64
	// CallLog is the number of ended calls to remember for Calls and /calls,
	// the latest ones. Defaults to 0.
	CallLog int
	// ChunkTokens is the number of tokens in a chunk of a stream. Defaults to
	// DefaultChunkTokens.
	ChunkTokens int
	// Concurrency is the largest number of calls in flight; a call beyond it is
	// refused. Defaults to 0, no limit.
	Concurrency int
	// CountAt is the instant at which calls are counted. Defaults to AtArrival.
	CountAt CountAt
	// CountRefused counts refused calls against RPM and RPD, too, as OpenAI
	// does: a client that hammers keeps itself out. Defaults to false.
	CountRefused bool
	// CountTokens is what a call takes of TPM and TPD. Defaults to CountLarger.
	CountTokens TokenCount
	// Faults are the faults to commit, in the form of FaultHelp. A call carries
	// the first one that befalls it. Defaults to none.
	Faults []string
	// FunctionCalls is the number of function calls with which a request that
	// declares functions is answered, unless it ends with their results.
	// Defaults to 0: text only.
	FunctionCalls int
	// Latency is the median total time of a call, whatever its length. Above 0
	// it stands instead of TTFT and TokensPerSecond. Defaults to 0.
	Latency time.Duration
	// LatencySigma is the standard deviation of the logarithm of Latency, or of
	// TTFT, from 0 to 3. Defaults to 0: every call takes the median.
	LatencySigma float64
	// OutputSigma is the standard deviation of the logarithm of OutputTokens and
	// of Reasoning, from 0 to 3. Defaults to 0: every answer has the median
	// length.
	OutputSigma float64
	// OutputTokens is the median length of an answer, without reasoning. The
	// request's limit bounds both together. Defaults to DefaultOutputTokens.
	OutputTokens int
	// Reasoning is the median number of tokens of reasoning before an answer.
	// Defaults to 0.
	Reasoning int
	// RefusalForm is how much refusals by a quota tell. Defaults to FormFull.
	RefusalForm Form
	// RPD is the quota of requests per day, which begins at midnight UTC.
	// Defaults to 0, no limit.
	RPD int64
	// RPM is the quota of requests per window. Defaults to 0, no limit.
	RPM int64
	// Seed is the seed of everything random. Defaults to 0.
	Seed uint64
	// Speed divides all durations, from 0.001 to 1,000,000. Defaults to 1.
	Speed float64
	// TokensPerSecond is the number of tokens, reasoning inside, that come in a
	// second after the first. Defaults to 0: all at once.
	TokensPerSecond float64
	// TPD is the quota of tokens per day, which begins at midnight UTC. Defaults
	// to 0, no limit.
	TPD int64
	// TPM is the quota of tokens per window. Defaults to 0, no limit.
	TPM int64
	// TTFT is the median time to the first token. Defaults to 0.
	TTFT time.Duration
	// TTFTShare is the part of Latency that passes before the first token, from
	// 0 to 1. Defaults to 0.
	TTFTShare float64
	// Window is how RPM and TPM renew themselves. Defaults to Bucket.
	Window Window
	// WindowLength is the length of the windows of RPM and TPM. Defaults to
	// DefaultWindowLength.
	WindowLength time.Duration
	// WindowOffset is how long after the start the first border of a Fixed
	// window falls. Defaults to 0.
	WindowOffset time.Duration
}

// Names of the quotas in Stats.
const (
	quotaRPM = "rpm"
	quotaTPM = "tpm"
	quotaRPD = "rpd"
	quotaTPD = "tpd"
)

// maxTokens bounds configured and demanded lengths. It keeps an answer within
// memory: it is 4 MB of text.
const maxTokens = 1 << 20

// validate fills in defaults. Its error names a field and its value.
func (c *Config) validate() error {
	setDefault(&c.ChunkTokens, DefaultChunkTokens)
	setDefault(&c.OutputTokens, DefaultOutputTokens)
	setDefault(&c.WindowLength, DefaultWindowLength)
	for _, f := range []struct {
		name  string
		value int
		least int
		most  int
	}{
		{"ChunkTokens", c.ChunkTokens, 1, maxTokens},
		{"FunctionCalls", c.FunctionCalls, 0, maxCalls},
		{"OutputTokens", c.OutputTokens, 0, maxTokens},
		{"Reasoning", c.Reasoning, 0, maxTokens},
	} {
		if f.value < f.least || f.value > f.most {
			return fmt.Errorf("%s %d: must be from %d to %d", f.name, f.value, f.least, f.most)
		}
	}
	if !(c.OutputSigma >= 0 && c.OutputSigma <= 3) {
		return fmt.Errorf("OutputSigma %v: must be from 0 to 3", c.OutputSigma)
	}
	if !(c.CachedShare >= 0 && c.CachedShare <= 1) {
		return fmt.Errorf("CachedShare %v: must be from 0 to 1", c.CachedShare)
	}
	switch c.RefusalForm {
	case FormFull, FormSeconds, FormReset, FormBare:
	default:
		return fmt.Errorf("RefusalForm %q: must be seconds, reset or bare, or empty", string(c.RefusalForm))
	}
	switch c.CountTokens {
	case CountLarger, CountSum:
	default:
		return fmt.Errorf("CountTokens %q: must be sum, or empty", string(c.CountTokens))
	}
	if _, ok := windows[c.Window]; !ok {
		return fmt.Errorf("Window %q: must be fixed or sliding, or empty", string(c.Window))
	}
	return nil
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// engine translates the configuration for the engine, which checks what
// validate did not.
func (c *Config) engine() (engine.Config, error) {
	limit := func(name string, amount int64, d engine.Dimension) engine.Limit {
		return engine.Limit{
			Name: name, Amount: amount, Dimension: d, CountAt: c.CountAt,
			Model: windows[c.Window], Length: c.WindowLength, Offset: c.WindowOffset,
		}
	}
	daily := func(name string, amount int64, d engine.Dimension) engine.Limit {
		return engine.Limit{Name: name, Amount: amount, Dimension: d, CountAt: c.CountAt, Model: engine.Daily, Zone: time.UTC}
	}
	cfg := engine.Config{
		Concurrency:  c.Concurrency,
		CountRefused: c.CountRefused,
		Jitter:       c.ArrivalJitter,
		Latency: engine.Latency{
			First: c.TTFT, FirstShare: c.TTFTShare, PerSecond: c.TokensPerSecond, Sigma: c.LatencySigma, Total: c.Latency,
		},
		Limits: []engine.Limit{
			limit(quotaRPM, c.RPM, engine.Requests), limit(quotaTPM, c.TPM, engine.TotalTokens),
			daily(quotaRPD, c.RPD, engine.Requests), daily(quotaTPD, c.TPD, engine.TotalTokens),
		},
		Log:   c.CallLog,
		Seed:  c.Seed,
		Speed: c.Speed,
	}
	for _, text := range c.Faults {
		f, err := faultKinds.Parse(text)
		if err != nil {
			return engine.Config{}, err
		}
		cfg.Faults = append(cfg.Faults, f)
	}
	return cfg, nil
}

// round converts a drawn length to whole tokens.
func round(tokens float64) int { return int(math.Round(min(max(tokens, 0), maxTokens))) }
