// Package openai is a double of OpenAI's API for load tests: it speaks the
// protocol, enforces quotas, takes time, and fails in the ways in which the real
// one fails, on one machine, for nothing, and the same way in every run. It does
// not think; its answers are filler of the right length.
//
// It serves any client in any language:
//
//	go run ./bench/openai/serve -addr 127.0.0.1:8090 -rpm 500 -tpm 200000
//
// and inside a Go program a [Server] is an http.Handler:
//
//	double, err := openai.New(openai.Config{RPM: 500, TPM: 200_000, Latency: 8 * time.Second})
//	http.ListenAndServe("127.0.0.1:8090", double)
//
// # What it serves
//
// POST chat/completions and POST responses, in one piece and as server-sent
// events, and POST embeddings, on the paths of OpenAI (/v1/chat/completions), of
// Azure OpenAI (/openai/deployments/{deployment}/chat/completions and
// /openai/v1/…). Every model name and every API key is accepted. What is not
// served is answered with 404, a body that is not understood with 400, as the
// API does it; the messages name the field and never quote a prompt.
//
// GET /stats returns the counters ([Stats]) as JSON, GET /calls the call log
// (a list of [Call]), POST /reset forgets both and starts all windows anew.
//
// A streamed completion reports its usage only if it is asked to
// (stream_options.include_usage), in a last chunk without choices; a response
// reports it in the event that completes it. Cached tokens are inside the
// prompt, reasoning is inside the completion.
//
// # Tokens
//
// A prompt has ⌈characters/4⌉ tokens ([RunesPerToken]: the rule of thumb of
// OpenAI's help on tokens), counted over the texts of messages and input items
// and over the compact JSON of tools and schemas together; every picture, file
// or sound adds 85 ([TokensPerMedia], a picture at low detail). The filler of n
// tokens has 4n characters.
//
// # Quotas
//
// RPM, TPM, RPD, TPD and the number of calls in flight are enforced for all
// models and keys together: one Server is one quota. What a call takes of TPM and
// TPD is told when it arrives ([TokenCount]): at OpenAI the larger of its
// max_tokens and its prompt, at Azure the sum of both, and nothing is given back
// when the answer is shorter. With CountAt, calls are counted at their end, at
// what they used.
//
// Every answer has the x-ratelimit headers. A refusal names the limit that hit
// and how long to wait, in OpenAI's words and in retry-after and retry-after-ms;
// a call larger than a whole limit is told so, without a time.
//
// The counters know the largest use of every quota in any window, wherever it
// starts, measured apart from the enforcement and also where nothing is
// enforced.
//
// # Time
//
// A call takes the time to its first token and then its tokens (reasoning
// inside) at TokensPerSecond; or Latency in total. Both are log-normal, drawn
// from the seed and the content of the call. Speed divides every duration that
// is enforced or reported.
//
// # Demands of a single call
//
// Request headers, which every SDK can set, overrule the configuration for one
// call. A wrong value is an error 400 that names the header.
//
//	X-Double-Output: 800      generate exactly 800 tokens (the request's limit still bounds them)
//	X-Double-Reasoning: 1200  reason for 1,200 tokens first
//	X-Double-Cached: 512      report that 512 tokens of the prompt were cached
//	X-Double-Latency: 8s      take 8 s in total, before Speed
//	X-Double-Calls: 2         call the first two declared functions; or their names: sum,sum
//	X-Double-Fault: cut       commit this fault
//
// # Faults
//
// A fault is written as a kind and the calls that it befalls: 503@p=0.01,
// hang@n=7, 429@10s-20s; [FaultHelp] lists the kinds and the grammar.
package openai
