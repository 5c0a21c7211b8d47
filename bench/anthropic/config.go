package anthropic

import (
	"fmt"
	"math"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// Defaults of Config fields that are left at zero.
const (
	// DefaultChunkTokens is the number of tokens in a delta of a stream.
	DefaultChunkTokens = 16
	// DefaultOutputTokens is the length of an answer.
	DefaultOutputTokens = 256
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
	// CallLog is the number of ended calls to remember for Calls and /calls,
	// the latest ones. Defaults to 0.
	CallLog int
	// ChunkTokens is the number of tokens in a delta of a stream. Defaults to
	// DefaultChunkTokens.
	ChunkTokens int
	// Concurrency is the largest number of calls in flight; a call beyond it is
	// refused. Defaults to 0, no limit.
	Concurrency int
	// CountCached counts what is read from the cache against InputTPM, too, as
	// the API does for some older models. Defaults to false.
	CountCached bool
	// CountRefused counts refused calls against RPM, too. Defaults to false.
	CountRefused bool
	// Faults are the faults to commit, in the form of FaultHelp. A call carries
	// the first one that befalls it. Defaults to none.
	Faults []string
	// InputTPM is the quota of input tokens per minute. Defaults to 0, no limit.
	InputTPM int64
	// Latency is the median total time of a call, whatever its length. Above 0
	// it stands instead of TTFT and TokensPerSecond. Defaults to 0.
	Latency time.Duration
	// LatencySigma is the standard deviation of the logarithm of Latency, or of
	// TTFT, from 0 to 3. Defaults to 0: every call takes the median.
	LatencySigma float64
	// OutputSigma is the standard deviation of the logarithm of OutputTokens
	// and of Thoughts, from 0 to 3. Defaults to 0.
	OutputSigma float64
	// OutputTokens is the median length of an answer, without thoughts.
	// max_tokens bounds answer and thoughts together. Defaults to
	// DefaultOutputTokens.
	OutputTokens int
	// OutputTPM is the quota of output tokens per minute. Defaults to 0, no
	// limit.
	OutputTPM int64
	// RequestBurst is the time over which RPM is checked besides the minute: at
	// one second, 60 a minute are one a second. Defaults to 0, no such check.
	RequestBurst time.Duration
	// RPM is the quota of requests per minute. Defaults to 0, no limit.
	RPM int64
	// Seed is the seed of everything random. Defaults to 0.
	Seed uint64
	// Speed divides all durations, from 0.001 to 1,000,000. Defaults to 1.
	Speed float64
	// Thoughts is the median number of tokens that are thought before an answer,
	// by requests that turn thinking on; their budget bounds them. Defaults to 0.
	Thoughts int
	// TokensPerSecond is the number of tokens, thoughts inside, that come in a
	// second after the first. Defaults to 0: all at once.
	TokensPerSecond float64
	// ToolCalls is the number of tool calls with which a request that declares
	// tools is answered, unless it ends with results. Defaults to 0: text only.
	ToolCalls int
	// TTFT is the median time to the first token. Defaults to 0.
	TTFT time.Duration
	// TTFTShare is the part of Latency that passes before the first token, from
	// 0 to 1. Defaults to 0.
	TTFTShare float64
}

// Names of the quotas in Stats.
const (
	quotaRPM   = "rpm"
	quotaBurst = "rpm-burst"
	quotaITPM  = "itpm"
	quotaOTPM  = "otpm"
)

// maxTokens bounds configured and demanded lengths. It keeps an answer within
// memory: it is 4 MB of text.
const maxTokens = 1 << 20

// validate fills in defaults. Its error names a field and its value.
func (c *Config) validate() error {
	if c.ChunkTokens == 0 {
		c.ChunkTokens = DefaultChunkTokens
	}
	if c.OutputTokens == 0 {
		c.OutputTokens = DefaultOutputTokens
	}
	for _, f := range []struct {
		name  string
		value int
		least int
		most  int
	}{
		{"ChunkTokens", c.ChunkTokens, 1, maxTokens},
		{"OutputTokens", c.OutputTokens, 0, maxTokens},
		{"Thoughts", c.Thoughts, 0, maxTokens},
		{"ToolCalls", c.ToolCalls, 0, maxCalls},
	} {
		if f.value < f.least || f.value > f.most {
			return fmt.Errorf("%s %d: must be from %d to %d", f.name, f.value, f.least, f.most)
		}
	}
	if !(c.OutputSigma >= 0 && c.OutputSigma <= 3) {
		return fmt.Errorf("OutputSigma %v: must be from 0 to 3", c.OutputSigma)
	}
	if c.RequestBurst < 0 || c.RequestBurst > time.Minute {
		return fmt.Errorf("RequestBurst %v: must be from 0 to a minute", c.RequestBurst)
	}
	return nil
}

// engine translates the configuration for the engine, which checks what
// validate did not.
func (c *Config) engine() (engine.Config, error) {
	limit := func(name string, amount int64, d engine.Dimension) engine.Limit {
		return engine.Limit{Name: name, Amount: amount, Dimension: d, Model: engine.Bucket, Length: time.Minute}
	}
	output := limit(quotaOTPM, c.OutputTPM, engine.OutputTokens)
	output.CountAt = engine.AtCompletion
	limits := []engine.Limit{limit(quotaRPM, c.RPM, engine.Requests), limit(quotaITPM, c.InputTPM, engine.InputTokens), output}
	if c.RequestBurst > 0 && c.RPM > 0 {
		burst := limit(quotaBurst, max(int64(float64(c.RPM)*c.RequestBurst.Minutes()), 1), engine.Requests)
		// The rate stays that of RPM where a burst holds less than one request.
		burst.Length = time.Duration(float64(burst.Amount) / float64(c.RPM) * float64(time.Minute))
		limits = append(limits, burst)
	}
	cfg := engine.Config{
		Concurrency:  c.Concurrency,
		CountRefused: c.CountRefused,
		Jitter:       c.ArrivalJitter,
		Latency: engine.Latency{
			First: c.TTFT, FirstShare: c.TTFTShare, PerSecond: c.TokensPerSecond, Sigma: c.LatencySigma, Total: c.Latency,
		},
		Limits: limits,
		Log:    c.CallLog,
		Seed:   c.Seed,
		Speed:  c.Speed,
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
