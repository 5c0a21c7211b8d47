package gemini_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/bench/gemini"
)

// Each probe looks at what one setting changes, without it and with it.
func TestEverySettingHasItsEffect(t *testing.T) {
	t.Parallel()
	const tools = `{"contents":[{"parts":[{"text":"2+3?"}]}],"tools":[{"functionDeclarations":[{"name":"sum"}]}]%s}`
	calling := func(r *rig, body string, headers ...string) string {
		return fmt.Sprint(strings.Contains(r.post(unaryPath, body, headers...).body, `"functionCall"`))
	}
	statuses := func(r *rig, waits ...time.Duration) (list string) {
		for _, wait := range waits {
			time.Sleep(wait)
			list += fmt.Sprint(r.post(unaryPath, hello).status, " ")
		}
		return list
	}
	tests := []struct {
		name          string
		base          gemini.Config
		set           func(*gemini.Config)
		probe         func(*rig) string
		without, with string
	}{
		{
			"CountRefused", gemini.Config{RPM: 2, TPM: 2}, func(c *gemini.Config) { c.CountRefused = true },
			func(r *rig) string { statuses(r, 0, 0, 0); return fmt.Sprint(r.double.Stats().RefusedBy) },
			"map[tpm:2]", "map[rpm:1 tpm:2]",
		},
		{
			"ArrivalJitter", gemini.Config{CallLog: 1}, func(c *gemini.Config) { c.ArrivalJitter = time.Hour },
			func(r *rig) string {
				statuses(r, 0)
				call := r.double.Calls()[0]
				return fmt.Sprint(call.Decided.After(call.Arrived))
			},
			"false", "true",
		},
		{
			"CountAt", gemini.Config{RPM: 1, Latency: time.Second}, func(c *gemini.Config) { c.CountAt = gemini.AtCompletion },
			func(r *rig) string {
				first := make(chan int)
				go func() { first <- r.post(unaryPath, hello).status }()
				synctest.Wait()
				second := r.post(unaryPath, hello).status
				return fmt.Sprint(<-first, second)
			},
			"200 429", "200 200",
		},
		{
			"Window", gemini.Config{RPM: 2}, func(c *gemini.Config) { c.Window = gemini.Fixed },
			func(r *rig) string { return statuses(r, 0, 59*time.Second, time.Second, 0) },
			"200 200 200 429 ", "200 200 200 200 ",
		},
		{
			"Window, a bucket", gemini.Config{RPM: 2}, func(c *gemini.Config) { c.Window = gemini.Bucket },
			func(r *rig) string { return statuses(r, 0, 0, 30*time.Second) },
			"200 200 429 ", "200 200 200 ",
		},
		{
			"WindowLength", gemini.Config{RPM: 1}, func(c *gemini.Config) { c.WindowLength = time.Second },
			func(r *rig) string { return statuses(r, 0, time.Second-1, 1) },
			"200 429 429 ", "200 429 200 ",
		},
		{
			"WindowOffset, at double speed", gemini.Config{RPM: 1, Window: gemini.Fixed, Speed: 2},
			func(c *gemini.Config) { c.WindowOffset = 20 * time.Second },
			func(r *rig) string { return statuses(r, 0, 10*time.Second-1, 1) },
			"200 429 429 ", "200 429 200 ",
		},
		{
			"Concurrency", gemini.Config{}, func(c *gemini.Config) { c.Concurrency = 1 },
			func(r *rig) string {
				go r.post(unaryPath, hello, gemini.HeaderFault, "hang@for=1s")
				synctest.Wait()
				return statuses(r, 0, time.Second+1) // after the instant at which the hang ends
			},
			"200 200 ", "429 200 ",
		},
		{
			"Seed", gemini.Config{OutputTokens: 20, OutputSigma: 0.5}, func(c *gemini.Config) { c.Seed = 2 },
			func(r *rig) string {
				return fmt.Sprint(r.post(unaryPath, hello).body == newRig(r.t, gemini.Config{OutputTokens: 20, OutputSigma: 0.5}).post(unaryPath, hello).body)
			},
			"true", "false",
		},
		{
			"FunctionCalls", gemini.Config{}, func(c *gemini.Config) { c.FunctionCalls = 1 },
			func(r *rig) string {
				return calling(r, fmt.Sprintf(tools, "")) +
					calling(r, fmt.Sprintf(tools, `,"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}`)) +
					calling(r, fmt.Sprintf(tools, ""), gemini.HeaderCalls, "0") +
					calling(r, hello)
			},
			"falsefalsefalsefalse", "truefalsefalsefalse",
		},
		{
			"Speed, in the delay that a fault advises", gemini.Config{Faults: []string{"429-header"}}, func(c *gemini.Config) { c.Speed = 10 },
			func(r *rig) string { return r.post(unaryPath, hello).header.Get("Retry-After") },
			"30", "3",
		},
		{
			"Thoughts and OutputSigma", gemini.Config{Thoughts: 100}, func(c *gemini.Config) { c.OutputSigma = 1 },
			func(r *rig) string {
				statuses(r, 0)
				return fmt.Sprint(r.double.Stats().ThoughtTokens == 100, r.double.Stats().OutputTokens == 356)
			},
			"true true", "false false",
		},
		{
			"LatencySigma", gemini.Config{TTFT: time.Second, CallLog: 1}, func(c *gemini.Config) { c.LatencySigma = 1 },
			func(r *rig) string {
				statuses(r, 0)
				return fmt.Sprint(r.double.Calls()[0].PlannedFirst == time.Second)
			},
			"true", "false",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if got := tt.probe(newRig(t, tt.base)); got != tt.without {
					t.Errorf("without: %s, want %s", got, tt.without)
				}
				cfg := tt.base
				tt.set(&cfg)
				if got := tt.probe(newRig(t, cfg)); got != tt.with {
					t.Errorf("with: %s, want %s", got, tt.with)
				}
			})
		})
	}
}
