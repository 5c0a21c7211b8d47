package ratelimited_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genai"
)

// Every wrong field is an error that names it and its value.
func TestWrongConfigIsNamed(t *testing.T) {
	t.Parallel()
	type config = ratelimited.Config
	dim := func(change func(*ratelimited.Dimension)) config {
		d := ratelimited.Dimension{Name: "tokens", Limit: 10, Count: ratelimited.InputTokens}
		change(&d)
		return config{Slots: 1, Profile: ratelimited.Profile{Dimensions: []ratelimited.Dimension{d}}}
	}
	class := func(classes ...ratelimited.Class) config { return config{Slots: 4, Classes: classes} }
	many := func(n int, burst time.Duration) config {
		cfg := config{Slots: 1}
		for i := range n {
			cfg.Profile.Dimensions = append(cfg.Profile.Dimensions, ratelimited.Dimension{
				Name: fmt.Sprint("d", i), Limit: 100, Burst: burst, Count: ratelimited.OneRequest,
			})
		}
		return cfg
	}
	var crowd []ratelimited.Class
	for i := range 65 {
		crowd = append(crowd, ratelimited.Class{Name: fmt.Sprint("c", i)})
	}
	for i, test := range []struct {
		cfg  config
		want []string
	}{
		{config{}, []string{"Config.Slots", "0"}},
		{config{Slots: -3}, []string{"Config.Slots", "-3"}},
		{config{Slots: math.MaxInt64}, []string{"Config.Slots", fmt.Sprint(int64(math.MaxInt64))}},
		{config{Slots: 1, AgentLabels: -1}, []string{"Config.AgentLabels", "-1"}},
		{config{Slots: 1, Headroom: -0.5}, []string{"Config.Headroom", "-0.5"}},
		{config{Slots: 1, Headroom: 1.5}, []string{"Config.Headroom", "1.5"}},
		{config{Slots: 1, Headroom: math.NaN()}, []string{"Config.Headroom", "NaN"}},
		{config{Slots: 1, Headroom: math.Inf(1)}, []string{"Config.Headroom", "+Inf"}},
		{config{Slots: 1, MaxWait: ptr(-time.Second)}, []string{"Config.MaxWait", "-1s"}},
		{config{Slots: 1, MaxWaiting: -1}, []string{"Config.MaxWaiting", "-1"}},
		{config{Slots: 1, Order: 7}, []string{"Config.Order", "7"}},
		{config{Slots: 1, Name: "\xff"}, []string{"Config.Name", `"\xff"`}},
		{config{Slots: 1, PerFlow: ratelimited.Ceiling{Slots: -1}}, []string{"Config.PerFlow.Slots", "-1"}},
		{config{Slots: 1, PerFlow: ratelimited.Ceiling{Share: 1.1}}, []string{"Config.PerFlow.Share", "1.1"}},
		{config{Slots: 1, PerRequest: ratelimited.Ceiling{Share: -0.1}}, []string{"Config.PerRequest.Share", "-0.1"}},
		{config{Slots: 1, PerRequest: ratelimited.Ceiling{Share: math.NaN()}}, []string{"Config.PerRequest.Share", "NaN"}},
		{config{Slots: 1, Retry: retry.Policy{MaxAttempts: -1}}, []string{"Config.Retry", "MaxAttempts", "-1"}},
		{config{Slots: 1, Retry: retry.Policy{Classifiers: []retry.Classifier{nil}}}, []string{"Config.Retry", "Classifiers[0]", "nil"}},
		{class(ratelimited.Class{}), []string{"Config.Classes[0].Name", "empty"}},
		{class(ratelimited.Class{Name: "\xff"}), []string{"Config.Classes[0].Name", `"\xff"`}},
		{class(ratelimited.Class{Name: "a"}, ratelimited.Class{Name: "a"}), []string{"Config.Classes[1].Name", `"a"`}},
		{class(ratelimited.Class{Name: "a", Weight: -1}), []string{"Config.Classes[0].Weight", "-1", `"a"`}},
		{class(ratelimited.Class{Name: "a", Weight: math.NaN()}), []string{"Config.Classes[0].Weight", "NaN", `"a"`}},
		{class(ratelimited.Class{Name: "a", Weight: math.Inf(1)}), []string{"Config.Classes[0].Weight", "+Inf", `"a"`}},
		{class(ratelimited.Class{Name: "a", MaxSlots: -1}), []string{"Config.Classes[0].MaxSlots", "-1", `"a"`}},
		{class(ratelimited.Class{Name: "a", MinSlots: -1}), []string{"Config.Classes[0].MinSlots", "-1", `"a"`}},
		{class(ratelimited.Class{Name: "a", MinSlots: math.MaxInt64}), []string{"Config.Classes[0].MinSlots", fmt.Sprint(int64(math.MaxInt64)), `"a"`}},
		{class(ratelimited.Class{Name: "a", MinSlots: 2, MaxSlots: 1}), []string{"Config.Classes[0].MinSlots", "2", "MaxSlots 1"}},
		{class(ratelimited.Class{Name: "a", MinSlots: 3}, ratelimited.Class{Name: "b", MinSlots: 2}), []string{"MinSlots", "5", "Config.Slots 4"}},
		{class(crowd...), []string{"Config.Classes", "65"}},
		{dim(func(d *ratelimited.Dimension) { d.Name = "" }), []string{"Profile.Dimensions[0].Name", "empty"}},
		{dim(func(d *ratelimited.Dimension) { d.Name = "\xff" }), []string{"Profile.Dimensions[0].Name", `"\xff"`}},
		{dim(func(d *ratelimited.Dimension) { d.Count = nil }), []string{"Profile.Dimensions[0].Count", "nil", `"tokens"`}},
		{dim(func(d *ratelimited.Dimension) { d.Limit = -1 }), []string{"Profile.Dimensions[0].Limit", "-1", `"tokens"`}},
		{dim(func(d *ratelimited.Dimension) { d.Start = 5 }), []string{"Profile.Dimensions[0].Start", "5", `"tokens"`, "Unknown"}},
		{dim(func(d *ratelimited.Dimension) { d.Least = 5 }), []string{"Least", "5", `"tokens"`, "Unknown"}},
		{dim(func(d *ratelimited.Dimension) { d.Limit, d.Start = ratelimited.Unknown, -5 }), []string{"Profile.Dimensions[0].Start", "-5", `"tokens"`}},
		{dim(func(d *ratelimited.Dimension) { d.Limit, d.Least = ratelimited.Unknown, -5 }), []string{"Profile.Dimensions[0].Least", "-5", `"tokens"`}},
		{dim(func(d *ratelimited.Dimension) { d.Limit, d.Burst = ratelimited.Unknown, time.Second }), []string{"Profile.Dimensions[0].Burst", "1s", `"tokens"`, "Unknown"}},
		{dim(func(d *ratelimited.Dimension) { d.Limit, d.Window = ratelimited.Unknown, 10_000*time.Hour }), []string{"Profile.Dimensions[0].Window", "10000h", `"tokens"`, "Unknown"}},
		{config{Slots: 1, Replicas: -1}, []string{"Config.Replicas", "-1"}},
		{dim(func(d *ratelimited.Dimension) { d.Window = -time.Second }), []string{"Profile.Dimensions[0].Window", "-1s", `"tokens"`}},
		{dim(func(d *ratelimited.Dimension) { d.Burst = -time.Second }), []string{"Profile.Dimensions[0].Burst", "-1s", `"tokens"`}},
		{dim(func(d *ratelimited.Dimension) { d.Burst = time.Hour }), []string{"Profile.Dimensions[0].Burst", "1h0m0s", `"tokens"`}},
		{dim(func(d *ratelimited.Dimension) { d.Shape = 9 }), []string{"Profile.Dimensions[0].Shape", "9", `"tokens"`}},
		{dim(func(d *ratelimited.Dimension) { d.Cell = -1 }), []string{"Profile.Dimensions[0]", "Cell", "-1ns", `"tokens"`}},
		{dim(func(d *ratelimited.Dimension) { d.Cell = time.Hour }), []string{"Profile.Dimensions[0]", "Cell", "1h0m0s", `"tokens"`}},
		{dim(func(d *ratelimited.Dimension) { d.Cell = 1 }), []string{"Profile.Dimensions[0]", "Cell", "1ns", `"tokens"`}},
		{config{Slots: 1, Profile: ratelimited.Profile{Dimensions: append(many(1, 0).Profile.Dimensions, many(1, 0).Profile.Dimensions...)}}, []string{"Profile.Dimensions[1].Name", `"d0"`}},
		{many(16, 0), []string{"Profile.Dimensions", "16", "at most 15"}},
		{many(8, time.Second), []string{"Profile.Dimensions", "16", "at most 15"}},
		{config{Slots: 1, Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: -7})}, []string{`"requests"`, "-7"}},
		{config{Slots: 1, Profile: ratelimited.Vertex(ratelimited.Quota{InputTokensPerMinute: -7})}, []string{`"input_tokens"`, "-7"}},
		{config{Slots: 1, Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerDay: -7})}, []string{`"requests_per_day"`, "-7"}},
	} {
		_, err := ratelimited.NewGate(test.cfg)
		if err == nil {
			t.Errorf("config %d (%v) is accepted", i, test.want)
			continue
		}
		for _, want := range append(test.want, "ratelimited: ") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("config %d: %v, want it to name %s", i, err, want)
			}
		}
	}
}

// The zero value of everything but Slots has a meaning, and what is at the edge
// is accepted.
func TestConfigAtItsEdgesIsAccepted(t *testing.T) {
	t.Parallel()
	for i, cfg := range []ratelimited.Config{
		{Slots: 1},
		{Slots: math.MaxInt32, Headroom: 1, AgentLabels: 1, MaxWaiting: 1, MaxWait: ptr(time.Duration(0)), Order: ratelimited.FIFO},
		{Slots: 2, Classes: []ratelimited.Class{{Name: "a", MinSlots: 2, MaxSlots: 2}}, PerFlow: ratelimited.Ceiling{Share: 1, Slots: 1}},
		{Slots: 1, Profile: ratelimited.Profile{Dimensions: []ratelimited.Dimension{{Name: "d", Limit: 0, Count: ratelimited.TotalTokens}}}},
		{Slots: 1, Profile: ratelimited.Profile{Dimensions: []ratelimited.Dimension{{Name: "d", Limit: math.MaxInt64, Count: ratelimited.OutputTokens, Burst: time.Minute, Window: time.Minute}}}},
		{Slots: 1, Profile: ratelimited.GeminiAPI(ratelimited.Quota{})},
	} {
		g, err := ratelimited.NewGate(cfg)
		if err != nil {
			t.Errorf("config %d: %v", i, err)
			continue
		}
		p, err := g.Acquire(t.Context(), ratelimited.Call{})
		if err != nil {
			t.Errorf("config %d: a call without usage: %v", i, err)
		}
		p.Release()
	}
	g := newGate(t, ratelimited.Config{Slots: 1})
	if s := g.Stats(); g.Name() != "default" || len(s.Classes) != 3 || s.Classes[0].Name != "normal" {
		t.Errorf("the default gate is %q with %+v", g.Name(), s.Classes)
	}
	if g := newGate(t, ratelimited.Config{Slots: 1, Profile: gemini}); g.Name() != "gemini" {
		t.Errorf("a gate without a name is %q, want its profile's", g.Name())
	}
}

func TestWrongChangeIsNamed(t *testing.T) {
	t.Parallel()
	g := newGate(t, ratelimited.Config{Slots: 1, Profile: gemini})
	for want, err := range map[string]error{
		"ratelimited: SetSlots: n is 0, must lie between 1 and 2147483647":                       g.SetSlots(0),
		"ratelimited: SetSlots: n is -1, must lie between 1 and 2147483647":                      g.SetSlots(-1),
		`ratelimited: SetLimit: limit is -1 (dimension "requests"), must not be negative`:        g.SetLimit("requests", -1),
		`ratelimited: SetLimit: dimension is "tokens", which the profile "gemini" does not have`: g.SetLimit("tokens", 1),
		`ratelimited: SetLimit: dimension is "", which the profile "gemini" does not have`:       g.SetLimit("", 1),
		`ratelimited: SetSlots: n is 9223372036854775807, must lie between 1 and 2147483647`:     g.SetSlots(math.MaxInt64),
	} {
		if fmt.Sprint(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if s := g.Stats(); s.SlotLimit != 1 || s.Dimensions[0].Limit != 1000 {
		t.Errorf("a refused change has changed something: %+v", s)
	}
}

// meters answers with a Meter of its own.
type meters struct {
	*fakeLLM
	meter ratelimited.Meter[*LLMRequest, *LLMResponse]
}

func (m *meters) Meter() ratelimited.Meter[*LLMRequest, *LLMResponse] { return m.meter }

func TestWrongWrappingIsNamed(t *testing.T) {
	t.Parallel()
	g := newGate(t, ratelimited.Config{Slots: 1, Name: "main"})
	new := func(m LLM, g *ratelimited.Gate, opts ...ratelimited.Option) error {
		_, err := ratelimited.New(m, g, opts...)
		return err
	}
	wrapped := wrap(t, answers(0), g)
	_, unmetered := ratelimited.NewMetered(LLM(answers(0)), g, nil)
	for want, err := range map[string]error{
		"model is nil":                 new(nil, g),
		"model is nil ":                new((*fakeLLM)(nil), g),
		"model is nil  ":               new((*meters)(nil), g),
		"gate is nil":                  new(answers(0), nil),
		"meter is nil":                 unmetered,
		"meter is nil ":                new(&meters{fakeLLM: answers(0)}, g),
		"WithSlots: n is -1":           new(answers(0), g, ratelimited.WithSlots(-1)),
		"WithTypicalOutput":            new(answers(0), g, ratelimited.WithTypicalOutput(-5)),
		"-5":                           new(answers(0), g, ratelimited.WithTypicalOutput(-5)),
		"WithBudgets: budget 1 is nil": new(answers(0), g, ratelimited.WithBudgets(&ledger{}, nil)),
		"WithBudgets: budget 0 is nil": new(answers(0), g, ratelimited.WithBudgets((*ledger)(nil))),
		`model "fake" is wrapped by the gate "main" already`: new(wrapped, g),
		// Through a wrapper of another gate, too.
		`"fake" is wrapped by the gate "main" already`: new(wrap(t, wrapped, newGate(t, ratelimited.Config{Slots: 1})), g),
	} {
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
	if err := new(answers(0), g, nil, ratelimited.WithBudgets(), ratelimited.WithSlots(0)); err != nil {
		t.Errorf("options that change nothing: %v", err)
	}
}

// What cannot be read is an error that names the field.
func TestUnreadableTypesAreNamed(t *testing.T) {
	t.Parallel()
	g := newGate(t, ratelimited.Config{Slots: 1})
	type noContents struct{ Config *genai.GenerateContentConfig }
	type wrongContents struct{ Contents []string }
	type wrongConfig struct {
		Contents []*genai.Content
		Config   string
	}
	type noUsage struct{ Partial bool }
	type noPartial struct {
		UsageMetadata *genai.GenerateContentResponseUsageMetadata
	}
	type wrongPartial struct {
		UsageMetadata *genai.GenerateContentResponseUsageMetadata
		Partial       int
	}
	for want, err := range map[string]error{
		"no field Contents":                 newFor[*noContents, *LLMResponse](g),
		"wrongContents.Contents":            newFor[*wrongContents, *LLMResponse](g),
		"wrongConfig.Config":                newFor[*wrongConfig, *LLMResponse](g),
		"no field UsageMetadata":            newFor[*LLMRequest, *noUsage](g),
		"neither a field Candidates":        newFor[*LLMRequest, *noPartial](g),
		"wrongPartial.Partial":              newFor[*LLMRequest, *wrongPartial](g),
		"request type is string":            newFor[string, *LLMResponse](g),
		"response type is *string":          newFor[*LLMRequest, *string](g),
		"give a Meter with NewMetered":      newFor[LLMRequest, *LLMResponse](g),
		"response type is ratelimited_test": newFor[*LLMRequest, LLMResponse](g),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}

type typed[Req, Resp any] struct{ _ int }

func (*typed[Req, Resp]) Name() string { return "typed" }

func (*typed[Req, Resp]) GenerateContent(context.Context, Req, bool) iter.Seq2[Resp, error] {
	return func(func(Resp, error) bool) {}
}

func newFor[Req, Resp any](g *ratelimited.Gate) error {
	_, err := ratelimited.New[Req, Resp](&typed[Req, Resp]{}, g)
	return err
}

// One model behind two gates is legal and suspicious: each gate believes that it
// owns the quota. It is said once, as long as both stand.
func TestModelBehindTwoGatesIsWarnedOf(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	first := newGate(t, ratelimited.Config{Slots: 1, Name: "first", Logger: logger})
	second := newGate(t, ratelimited.Config{Slots: 1, Name: "second", Logger: logger})
	f := answers(0)
	a := wrap(t, f, first)
	b := wrap(t, f, first, ratelimited.WithBudgets(&ledger{})) // the same gate is fine
	if log.Len() > 0 {
		t.Errorf("logged %q for one gate", &log)
	}
	c := wrap(t, f, second)
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "gate=second other_gate=first") || !strings.Contains(log.String(), "model=fake") {
		t.Errorf("logged %q, want one warning that names the model and both gates", &log)
	}
	wrap(t, answers(0), second)
	wrap(t, answers(0), first)
	wrap(t, &stateless{}, first) // pointers to nothing may be equal, and mean nothing
	wrap(t, &stateless{}, second)
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("logged %q, want nothing for other models", &log)
	}
	_, _, _ = a.Name(), b.Name(), c.Name()
}

// stateless is a model without a field.
type stateless struct{}

func (*stateless) Name() string { return "stateless" }

func (*stateless) GenerateContent(context.Context, *LLMRequest, bool) iter.Seq2[*LLMResponse, error] {
	return func(func(*LLMResponse, error) bool) {}
}

// Two gates share a registry if their names differ; if not, the second one is an
// error, and leaves nothing behind.
func TestGatesShareARegistryByName(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	cfg := ratelimited.Config{Slots: 1, Name: "one", Registerer: r}
	newGate(t, cfg)
	before := series(t, r)
	if _, err := ratelimited.NewGate(cfg); err == nil || !strings.Contains(err.Error(), "Config.Registerer") || !strings.Contains(err.Error(), `"one"`) {
		t.Errorf("a second gate %q: %v, want an error that names it", "one", err)
	}
	if n := series(t, r); n != before {
		t.Errorf("%d series after a refused gate, want %d", n, before)
	}
	cfg.Name = "two"
	newGate(t, cfg)
	if n := series(t, r); n != 2*before {
		t.Errorf("%d series of two gates, want %d", n, 2*before)
	}
	// A registry where one name is taken by somebody else.
	other := prometheus.NewRegistry()
	other.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "headgate_slots_limit", Help: "mine"}))
	if _, err := ratelimited.NewGate(ratelimited.Config{Slots: 1, Registerer: other}); err == nil {
		t.Error("a taken name is accepted")
	}
	if n := series(t, other); n != 1 {
		t.Errorf("a refused gate left %d series, want only the one that was there", n)
	}
}
