package ratelimited_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/genai"
)

// gather reads all series: name and labels (without the gate's) to value.
// A histogram gives its count and its sum.
func gather(t *testing.T, r prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				if l.GetName() != "gate" {
					labels = append(labels, fmt.Sprintf("%s=%s", l.GetName(), l.GetValue()))
				}
			}
			key := strings.TrimPrefix(f.GetName(), "headgate_") + "{" + strings.Join(labels, ",") + "}"
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				all[key] = m.Counter.GetValue()
			case dto.MetricType_GAUGE:
				all[key] = m.Gauge.GetValue()
			default:
				all[key+" count"] = float64(m.Histogram.GetSampleCount())
				all[key+" sum"] = m.Histogram.GetSampleSum()
			}
		}
	}
	return all
}

// series is the number of series in a registry.
func series(t *testing.T, r prometheus.Gatherer) (n int) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		n += len(f.Metric)
	}
	return n
}

// The metrics of a scripted run, to the last one.
func TestMetricsTellWhatHappened(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		g := newGate(t, ratelimited.Config{
			Slots: 2, Headroom: 1, Registerer: r,
			Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 1000, InputTokensPerMinute: 10_000}),
			Classes: []ratelimited.Class{{Name: "normal"}, {Name: "batch"}},
			Retry:   retry.Policy{Base: 1000 * time.Hour, Cap: 1000 * time.Hour}, // a backoff would show
		})
		f := &fakeLLM{name: "m"}
		denying := &ledger{limit: 1, hold: 2}
		metered := func(opts ...ratelimited.Option) LLM {
			llm, err := ratelimited.NewMetered(f, g, fixedMeter{100, 100}, opts...)
			if err != nil {
				t.Fatal(err)
			}
			return llm
		}
		llm := metered()
		ctx := ratelimited.WithAgent(t.Context(), "writer")
		run := func(ctx context.Context, play func(context.Context, int, yields)) {
			f.play = play
			_ = call(ctx, llm, hello())
		}
		// Served in 2s, as estimated and at half of it.
		run(ctx, answers(2*time.Second, final(100, 100)).play)
		run(ratelimited.WithAgent(t.Context(), "reader"), answers(2*time.Second, final(50, 50)).play)
		// Without a report, with a broken one and with a total only.
		run(ctx, answers(0, &LLMResponse{}).play)
		odd := final(0, 0)
		odd.UsageMetadata = used(40, 10)
		odd.UsageMetadata.TotalTokenCount = 60
		run(ctx, answers(0, odd).play)
		total := final(0, 0)
		total.UsageMetadata = used(0, 0)
		total.UsageMetadata.TotalTokenCount = 150
		run(ratelimited.WithAgent(t.Context(), "third"), answers(0, total).play)
		// Refused: a bad request, per day, overloaded and unreachable without a
		// time to try again, throttled in another class.
		now := ratelimited.WithMaxWait(ctx, 0)
		for _, err := range []error{badRequest(), noCredits(), overloaded(), notSent()} {
			run(now, refusesFirst(1<<30, err).play)
		}
		run(ratelimited.WithClass(now, "batch"), refusesFirst(1<<30, throttled()).play)
		// Ended by the consumer, by itself, by a panic.
		f.play = answers(0, part("12345678"), final(1, 1)).play
		for range llm.GenerateContent(ctx, hello(), true) {
			break
		}
		run(ctx, answers(0, part("12345678")).play)
		run(ctx, func(_ context.Context, _ int, yield yields) {
			_ = yield(part("12345678"), nil) && yield(nil, errBroken)
		})
		func() {
			defer func() { _ = recover() }()
			run(ctx, func(context.Context, int, yields) { panic("model") })
		}()
		// Not admitted: denied by a budget, dead, too large, not in time.
		_ = call(ctx, metered(ratelimited.WithBudgets(denying)), hello())
		dead, cancel := context.WithCancel(ctx)
		cancel()
		_ = call(dead, llm, hello())
		_, _ = g.Acquire(ctx, ratelimited.Call{Usage: input(50_000)})
		hint := throttled(retryInfo("10s"), quotaFailure(requestsPerMinute))
		run(now, refusesFirst(1<<30, hint).play)
		_, _ = g.Acquire(now, ratelimited.Call{})

		got := gather(t, r)
		for key, want := range map[string]float64{
			"acquire_seconds{agent=writer,class=normal} count":             12,
			"acquire_seconds{agent=writer,class=batch} count":              1,
			"acquire_seconds{agent=reader,class=normal} count":             1,
			"acquire_seconds{agent=third,class=normal} count":              1,
			"acquire_seconds{agent=writer,class=normal} sum":               0,
			"acquire_seconds{agent=writer,class=batch} sum":                0,
			"acquire_seconds{agent=reader,class=normal} sum":               0,
			"acquire_seconds{agent=third,class=normal} sum":                0,
			"slot_hold_seconds{} count":                                    15,
			"slot_hold_seconds{} sum":                                      4,
			"attempts_total{class=normal,model=m,outcome=ok}":              5,
			"attempts_total{class=normal,model=m,outcome=failed}":          1,
			"attempts_total{class=normal,model=m,outcome=quota_exhausted}": 1,
			"attempts_total{class=normal,model=m,outcome=overloaded}":      1,
			"attempts_total{class=normal,model=m,outcome=not_sent}":        1,
			"attempts_total{class=normal,model=m,outcome=throttled}":       1,
			"attempts_total{class=batch,model=m,outcome=throttled}":        1,
			"attempts_total{class=normal,model=m,outcome=cancelled}":       1,
			"attempts_total{class=normal,model=m,outcome=broken}":          2,
			"attempts_total{class=normal,model=m,outcome=panicked}":        1,
			"throttles_total{agent=writer,class=normal}":                   1,
			"throttles_total{agent=writer,class=batch}":                    1,
			"refusals_total{class=normal,reason=budget}":                   1,
			"refusals_total{class=normal,reason=cancelled}":                1,
			"refusals_total{class=normal,reason=never_fits}":               1,
			"refusals_total{class=normal,reason=max_wait}":                 1,
			"usage_oddities_total{kind=mismatch}":                          1,
			"usage_oddities_total{kind=total_only}":                        1,
			"settlements_lost_total{}":                                     0,
			"slots_limit{}":                                                2,
			"slots_in_use{class=normal}":                                   0,
			"slots_in_use{class=batch}":                                    0,
			"waiting_calls{class=normal}":                                  0,
			"waiting_calls{class=batch}":                                   0,
			"running_calls{}":                                              0,
			"paused{}":                                                     0,
			"budget_limit{dimension=requests}":                             1000,
			"budget_limit{dimension=input_tokens}":                         10_000,
			"budget_closed_seconds_total{dimension=requests}":              0,
			"budget_closed_seconds_total{dimension=input_tokens}":          0,
			"budget_share{dimension=requests}":                             0.7,
			"budget_share{dimension=input_tokens}":                         0.7,
			// Fourteen requests were counted, and one was not sent.
			"budget_level{dimension=requests}": 700 - 14,
		} {
			if v, ok := got[key]; !ok || v != want {
				t.Errorf("%s is %v (%v), want %v", key, v, ok, want)
			}
			delete(got, key)
		}
		// Tokens: what was settled is what was reported and what was estimated.
		for key, want := range map[string]float64{
			"settled_tokens_total{basis=reported,model=m}": 200 + 100 + 60 + 150,
		} {
			if v := got[key]; v != want {
				t.Errorf("%s is %v, want %v", key, v, want)
			}
			delete(got, key)
		}
		for _, key := range []string{
			"settled_tokens_total{basis=estimated,model=m}", "reserved_tokens_total{model=m}", "budget_level{dimension=input_tokens}",
			"estimate_ratio{model=m} count", "estimate_ratio{model=m} sum",
		} {
			if v, ok := got[key]; !ok || v <= 0 {
				t.Errorf("%s is %v (%v), want more than nothing", key, v, ok)
			}
			delete(got, key)
		}
		if len(got) > 0 {
			t.Errorf("metrics that nobody expects: %v", slices.Sorted(maps.Keys(got)))
		}
		time.Sleep(time.Minute)
		closed := gather(t, r)["budget_closed_seconds_total{dimension=requests}"]
		if closed < 10 || closed > 11 {
			t.Errorf("the requests were closed for %vs by a hint of 10s, want 10 to 11", closed)
		}
	})
}

func noCredits() error { return genai.APIError{Code: 402} }

// Reserved and settled tokens, and their ratio, are those of the estimate and
// the report.
func TestMetricsCompareEstimateAndReport(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		g := newGate(t, ratelimited.Config{Slots: 1, Registerer: r})
		llm, err := ratelimited.NewMetered(&fakeLLM{name: "m", play: answers(0, final(30, 20)).play}, g, fixedMeter{60, 40})
		if err != nil {
			t.Fatal(err)
		}
		if err := call(t.Context(), llm, hello()); err != nil {
			t.Fatal(err)
		}
		got := gather(t, r)
		for key, want := range map[string]float64{
			"reserved_tokens_total{model=m}":                100,
			"settled_tokens_total{basis=reported,model=m}":  50,
			"settled_tokens_total{basis=estimated,model=m}": 0,
			"estimate_ratio{model=m} count":                 1,
			"estimate_ratio{model=m} sum":                   0.5,
		} {
			if got[key] != want {
				t.Errorf("%s is %v, want %v", key, got[key], want)
			}
		}
	})
}

// The number of series does not grow with users, requests, agents and made-up
// model names: after 5,000 it is what it was after 100.
func TestSeriesDoNotGrowWithUsers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		g := newGate(t, ratelimited.Config{Slots: 10, Registerer: r, Profile: gemini, Retry: retry.Policy{MaxAttempts: 1}})
		models := make([]LLM, 200)
		for i := range models {
			name := fmt.Sprintf("made-up-%d", i)
			models[i] = wrap(t, &fakeLLM{name: name, play: func(_ context.Context, n int, yield yields) {
				switch n % 4 {
				case 0:
					yield(nil, throttled())
				case 1:
					yield(nil, fmt.Errorf("error number %d of %s", n, name))
				case 2:
					_ = yield(part("a"), nil)
				default:
					yield(final(1, 1), nil)
				}
			}}, g)
		}
		users := func(from, to int) {
			for i := from; i < to; i++ {
				id := fmt.Sprintf("user-%d", i)
				ctx := framework{t.Context(), id, "agent-of-" + id, "request-of-" + id}
				if i%50 == 7 {
					ctx.agent = "\xff" + ctx.agent // no valid label
				}
				for range 4 {
					_ = call(ctx, models[i%len(models)], hello())
				}
				time.Sleep(time.Second)
			}
		}
		users(0, 100)
		before := series(t, r)
		users(100, 5000)
		if after := series(t, r); after != before {
			t.Errorf("%d series after 5,000 users, %d after 100", after, before)
		}
		for key := range gather(t, r) {
			if strings.Contains(key, "user") && !strings.Contains(key, "agent-of-user") || strings.Contains(key, "request-of") || strings.Contains(key, "error number") {
				t.Errorf("a label holds an identity or an error: %s", key)
			}
		}
		mustBeIdle(t, g)
	})
}

// A sum that falls looks like a restarted program to who reads it.
func TestSumsOfHistogramsNeverFall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		g := newGate(t, ratelimited.Config{Slots: 10, Registerer: r})
		for i := range 9 {
			ctx := ratelimited.WithAgent(t.Context(), fmt.Sprint(i))
			for _, latency := range []time.Duration{time.Duration(100_000_000*(1+3*i) + 777*i*i*i), 1_234_567} {
				if err := call(ctx, wrap(t, answers(latency, final(3, int32(2+i))), g), hello()); err != nil {
					t.Fatal(err)
				}
			}
		}
		first := gather(t, r)
		for range 50 {
			again := gather(t, r)
			for _, name := range []string{"slot_hold_seconds{} sum", "estimate_ratio{model=fake} sum"} {
				if first[name] == 0 || again[name] != first[name] {
					t.Fatalf("%s was %v and is %v, with no call in between", name, first[name], again[name])
				}
			}
		}
	})
}
