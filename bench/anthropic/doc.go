// Package anthropic is a double of Anthropic's Messages API for load tests: it
// speaks the protocol, enforces quotas, takes time, caches prompts, and fails in
// the ways in which the real one fails, on one machine, for nothing, and the same
// way in every run. It does not think; its answers are filler of the right
// length. It is a sibling of package gemini.
//
// It serves any client in any language:
//
//	go run ./bench/anthropic/serve -addr 127.0.0.1:8090 -rpm 1000 -itpm 400000 -otpm 80000
//
// and inside a Go program a [Server] is an http.Handler.
//
// # What it serves
//
// POST /v1/messages, in one piece or as a stream of server-sent events, and POST
// /v1/messages/count_tokens. Every model name and every key is accepted, but
// there must be a key, and an anthropic-version. Malformed requests are refused
// as the API does it: unknown fields, empty texts, roles and blocks that do not
// exist, a thinking budget out of range, results of tools that were not called.
//
// GET /stats returns the counters ([Stats]) as JSON, GET /calls the call log (a
// list of [Call]), POST /reset forgets both and starts all windows anew.
//
// A stream begins with message_start, which reports the prompt, and a ping; then
// come the blocks of thinking, text and tool_use, a message_delta with the stop
// reason and the usage in total, and message_stop.
//
// # Tokens and the cache
//
// A prompt has ⌈runes/4⌉ tokens ([RunesPerToken]), counted over its texts and the
// compact JSON of tools, calls and results; every image and document adds 1,568
// ([TokensPerMedia], the largest image of most models by Anthropic's vision
// page). count_tokens returns the same number. The filler of n tokens has 4n
// characters.
//
// A cache_control mark on a tool, a text of the system prompt or a block caches
// the prompt up to it, from 1,024 tokens on, for 5 minutes or an hour after its
// last use. What is read from the cache and what is written to it is reported
// beside input_tokens.
//
// # Quotas
//
// Requests, input tokens and output tokens per minute are buckets that refill
// continuously, for all models and keys together: one Server is one quota. Input
// is counted on arrival, without what is read from the cache; output when it has
// been generated, max_tokens do not count. So calls are refused until output
// beyond the quota has been made good. The number of calls in flight may be
// limited, too. A refusal carries retry-after, in whole seconds rounded up, and
// every response the anthropic-ratelimit headers, with tokens rounded to
// thousands as by the API.
//
// # Time
//
// A call takes the time to its first token and then its tokens at
// TokensPerSecond; or Latency in total. Both are log-normal, drawn from the seed
// and the content of the call. Speed divides every duration that is enforced or
// reported.
//
// # Demands of a single call
//
// Request headers overrule the configuration for one call. A wrong value is an
// error 400 that names the header.
//
//	X-Double-Output: 800      generate exactly 800 tokens (max_tokens still bounds them)
//	X-Double-Thoughts: 1200   think 1,200 tokens first
//	X-Double-Latency: 8s      take 8 s in total, before Speed
//	X-Double-Calls: 2         call the first two declared tools; or their names: sum,sum
//	X-Double-Fault: cut       commit this fault
//
// # Faults
//
// A fault is written as a kind and the calls that it befalls: 529@10s-20s,p=0.5,
// hang@n=7; [FaultHelp] lists the kinds and the grammar.
package anthropic
