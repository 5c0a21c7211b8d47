package gemini

import (
	"fmt"
	"math"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// Defaults of Config fields that are left at zero.
const (
	// DefaultChunkTokens is about what gemini-2.5-flash sends in a chunk.
	DefaultChunkTokens = 48
	// DefaultOutputTokens is the length of an answer.
	DefaultOutputTokens = 256
	// DefaultWindowLength is the minute of RPM and TPM.
	DefaultWindowLength = time.Minute
)

// Window is the way in which RPM and TPM renew themselves.
type Window = engine.WindowModel

// The window models.
const (
	// Sliding is an exact log: no window, wherever it starts, holds more than
	// the quota.
	Sliding = engine.Sliding
	// Fixed starts from zero at every multiple of the window's length.
	Fixed = engine.Fixed
	// Bucket refills continuously, up to the quota.
	Bucket = engine.Bucket
)

// CountAt is the instant at which a call is counted.
type CountAt = engine.CountAt

// The counting instants.
const (
	// AtArrival counts a call as it is admitted.
	AtArrival = engine.AtArrival
	// AtCompletion counts it when it ends, so that a burst goes past a quota.
	AtCompletion = engine.AtCompletion
)

// Form is how much a refusal by a quota tells. Real ones come in all forms.
type Form string

// The forms of a refusal.
const (
	// FormAuto is FormDetails on the paths of the Gemini API and FormBare on
	// those of Vertex AI, as the two do it.
	FormAuto Form = ""
	// FormDetails carries QuotaFailure, Help and RetryInfo.
	FormDetails Form = "details"
	// FormHelp carries Help only.
	FormHelp Form = "help"
	// FormHeader carries no details but a Retry-After header, in whole seconds
	// rounded up.
	FormHeader Form = "header"
	// FormBare carries a message only.
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
	// CountRefused counts refused calls against RPM and RPD, too: a client that
	// hammers keeps itself out. The bucket window goes into debt. Defaults to
	// false.
	CountRefused bool
	// Faults are the faults to commit, in the form of FaultHelp. A call carries
	// the first one that befalls it. Defaults to none.
	Faults []string
	// FunctionCalls is the number of function calls with which a request that
	// declares functions is answered, unless it ends with function responses.
	// Defaults to 0: text only.
	FunctionCalls int
	// Latency is the median total time of a call, whatever its length. Above 0
	// it stands instead of TTFT and TokensPerSecond. Defaults to 0.
	Latency time.Duration
	// LatencySigma is the standard deviation of the logarithm of Latency, or of
	// TTFT, from 0 to 3. Defaults to 0: every call takes the median.
	LatencySigma float64
	// OutputSigma is the standard deviation of the logarithm of OutputTokens
	// and of Thoughts, from 0 to 3. Defaults to 0: every answer has the median
	// length.
	OutputSigma float64
	// OutputTokens is the median length of an answer, without thoughts. The
	// request's maxOutputTokens bounds answer and thoughts together. Defaults
	// to DefaultOutputTokens.
	OutputTokens int
	// RefusalForm is how much refusals by a quota tell. Defaults to FormAuto.
	RefusalForm Form
	// RisingPrompt is the number of tokens by which the prompt count rises in
	// the last chunk of a stream, which then is an empty one, as Gemini 3 does
	// when thoughts of earlier turns come back. It is reported, not counted
	// against TPM. Defaults to 0.
	RisingPrompt int
	// RPD is the quota of requests per day, from midnight to midnight Pacific
	// time. Defaults to 0, no limit.
	RPD int64
	// RPM is the quota of requests per window. Defaults to 0, no limit.
	RPM int64
	// Seed is the seed of everything random. Defaults to 0.
	Seed uint64
	// Speed divides all durations, from 0.001 to 1,000,000. Defaults to 1.
	Speed float64
	// Thoughts is the median number of tokens that are thought before an
	// answer. Requests with includeThoughts see them; thinkingBudget bounds
	// them. Defaults to 0.
	Thoughts int
	// TokensPerSecond is the number of tokens, thoughts inside, that come in a
	// second after the first. Defaults to 0: all at once.
	TokensPerSecond float64
	// TPM is the quota of input tokens per window. Defaults to 0, no limit.
	TPM int64
	// TTFT is the median time to the first token. Defaults to 0.
	TTFT time.Duration
	// TTFTShare is the part of Latency that passes before the first token, from
	// 0 to 1. Defaults to 0.
	TTFTShare float64
	// Window is how RPM and TPM renew themselves. Defaults to Sliding.
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
	}{
		{"ChunkTokens", c.ChunkTokens, 1},
		{"FunctionCalls", c.FunctionCalls, 0},
		{"OutputTokens", c.OutputTokens, 0},
		{"RisingPrompt", c.RisingPrompt, 0},
		{"Thoughts", c.Thoughts, 0},
	} {
		if f.value < f.least || f.value > maxTokens {
			return fmt.Errorf("%s %d: must be from %d to %d", f.name, f.value, f.least, maxTokens)
		}
	}
	if !(c.OutputSigma >= 0 && c.OutputSigma <= 3) {
		return fmt.Errorf("OutputSigma %v: must be from 0 to 3", c.OutputSigma)
	}
	switch c.RefusalForm {
	case FormAuto, FormDetails, FormHelp, FormHeader, FormBare:
	default:
		return fmt.Errorf("RefusalForm %q: must be details, help, header or bare, or empty", string(c.RefusalForm))
	}
	if c.Window > Bucket {
		return fmt.Errorf("Window %v: must be Sliding, Fixed or Bucket", c.Window)
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
	pacific, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		return engine.Config{}, fmt.Errorf("the zone of RPD: %w", err)
	}
	limit := func(name string, amount int64, d engine.Dimension) engine.Limit {
		return engine.Limit{
			Name: name, Amount: amount, Dimension: d, CountAt: c.CountAt,
			Model: c.Window, Length: c.WindowLength, Offset: c.WindowOffset,
		}
	}
	daily := limit(quotaRPD, c.RPD, engine.Requests)
	daily.Model, daily.Zone, daily.Length, daily.Offset = engine.Daily, pacific, 0, 0
	cfg := engine.Config{
		Concurrency:  c.Concurrency,
		CountRefused: c.CountRefused,
		Jitter:       c.ArrivalJitter,
		Latency: engine.Latency{
			First: c.TTFT, FirstShare: c.TTFTShare, PerSecond: c.TokensPerSecond, Sigma: c.LatencySigma, Total: c.Latency,
		},
		Limits: []engine.Limit{limit(quotaRPM, c.RPM, engine.Requests), limit(quotaTPM, c.TPM, engine.InputTokens), daily},
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
