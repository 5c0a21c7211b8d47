// Package gemini is a double of the Gemini API for load tests: it speaks the
// protocol, enforces quotas, takes time, and fails in the ways in which the
// real one fails, on one machine, for nothing, and the same way in every run.
// It does not think; its answers are filler of the right length.
//
// It serves any client in any language:
//
//	go run ./bench/gemini/serve -addr 127.0.0.1:8089 -rpm 1000 -tpm 1000000
//
// and inside a Go program a [Server] is an http.Handler:
//
//	double, err := gemini.New(gemini.Config{RPM: 60, TPM: 100_000, Latency: 8 * time.Second})
//	http.ListenAndServe("127.0.0.1:8089", double)
//
// # What it serves
//
// The methods generateContent, streamGenerateContent (with alt=sse as events,
// else as a JSON array) and countTokens, on the paths of the Gemini API
// (/v1beta/models/{model}:{method}) and of Vertex AI
// (/v1/projects/{p}/locations/{l}/publishers/{p}/models/{model}:{method}).
// Every model name and every API key is accepted. Field names may be written
// in camelCase or snake_case.
//
// GET /stats returns the counters ([Stats]) as JSON, GET /calls the call log
// (a list of [Call]), POST /reset forgets both and starts all windows anew.
//
// Answers have the fields of real traffic, chunk by chunk: running totals of
// usage in every chunk, no candidatesTokenCount while thoughts are shown, and on
// Vertex AI the usage in the last chunk only. Models whose names begin with
// gemini-3 send function calls one by one and end with an empty chunk.
//
// # Tokens
//
// A prompt has ⌈runes/4⌉ tokens ([RunesPerToken]: the rule of thumb of the
// Gemini API docs, tokens page), counted over the texts of contents and
// systemInstruction and over the compact JSON of tools, function calls and
// function responses together; every inline or linked file adds 258
// ([TokensPerMedia], an image on the same page). countTokens returns the same
// number that the quota counts. The filler of n tokens has 4n runes.
//
// # Quotas
//
// RPM, TPM (input tokens), RPD and the number of calls in flight are enforced
// for all models and keys together: one Server is one quota. Calls are counted
// when they are admitted or, with CountAt, when they end. A call that several
// quotas refuse is told all of them, and the exact time until it would fit, in
// QuotaFailure and RetryInfo; Vertex AI tells nothing ([Form]). A call larger
// than a whole quota is refused without a time. countTokens is free.
//
// The counters know the largest use of every quota in any window, wherever it
// starts, measured apart from the enforcement and also where nothing is
// enforced.
//
// # Time
//
// A call takes the time to its first token and then its tokens (thoughts
// inside) at TokensPerSecond; or Latency in total. Both are log-normal, drawn
// from the seed and the content of the call: the same prompt to the same model
// takes the same time in two runs, whatever came before. Speed divides every
// duration that is enforced or reported: windows, latencies, advised delays,
// the days of RPD, which begin with the true time of day at the start.
//
// # Demands of a single call
//
// Request headers, which every SDK can set, overrule the configuration for one
// call. A wrong value is an error 400 that names the header.
//
//	X-Double-Output: 800      generate exactly 800 tokens (maxOutputTokens still bounds them)
//	X-Double-Thoughts: 1200   think 1,200 tokens first
//	X-Double-Latency: 8s      take 8 s in total, before Speed
//	X-Double-Calls: 2         call the first two declared functions; or their names: sum,sum
//	X-Double-Rise: 45         report 45 more prompt tokens in the last chunk
//	X-Double-Fault: cut       commit this fault
//
// # Faults
//
// A fault is written as a kind and the calls that it befalls: 503@p=0.01,
// hang@n=7, 429@10s-20s; [FaultHelp] lists the kinds and the grammar.
package gemini
