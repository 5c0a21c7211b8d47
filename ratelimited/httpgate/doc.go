// Package httpgate puts any client of the model APIs of Google, OpenAI and
// Anthropic behind a [ratelimited.Gate] at the HTTP layer: for agents whose
// framework builds its own client and takes an http.Client at most.
//
//	rt, err := httpgate.New(http.DefaultTransport, gate, httpgate.Config{})
//	…
//	client, err := genai.NewClient(ctx, &genai.ClientConfig{HTTPClient: &http.Client{Transport: rt}})
//
// Every model call of that client then waits its turn, in fair order, and is
// charged for what it used. Flow, class, agent label and request key come from
// the request's context, as with a RateLimitedModel: see ratelimited.WithFlow.
// Requests and answers pass byte for byte, and answers at once.
//
// # What is recognised
//
// By method and the end of the path, whatever the host and whatever is in front,
// so that proxies and gateways make no difference; all are POST:
//
//	models/{m}:generateContent, :streamGenerateContent       Gemini API, Vertex AI
//	models/{m}:embedContent, :batchEmbedContents             (tunedModels/{m} and
//	models/{m}:countTokens                                   endpoints/{e} as well)
//	publishers/google/models/{m}:predict                     text embeddings on Vertex AI
//	publishers/anthropic/models/{m}:rawPredict,
//	    :streamRawPredict                                    Claude on Vertex AI
//	chat/completions, completions, embeddings                OpenAI, Azure OpenAI
//	responses, responses/input_tokens                        and all that speak like them
//	v1/messages, v1/messages/count_tokens                    Anthropic
//
// An embedding has input tokens only. Counting tokens is a request and no tokens.
// Requests of Config.Free, such as a list of models, pass. Everything else is
// refused with a [RouteError], because nothing would count it, unless
// Config.Unknown says otherwise; live sessions, which go round the gate, are
// refused in any case.
//
// So are the paths of Amazon Bedrock's runtime, model/{m}/invoke and
// model/{m}/converse and their streams: their requests carry a signature with the
// time of signing, which a wait in line would outlive, and their streams are no
// event streams (SSE). Package anthropicmodel serves Bedrock behind a gate, because
// it signs when a request has left the line.
//
// # What happens to a request
//
//  1. Its body is read to be estimated, once and without keeping it: from a copy
//     if the request has GetBody, as requests of the SDKs and of
//     http.NewRequest have; otherwise into memory, up to Config.MaxBuffered.
//     Texts are measured with package usage, in the model family's own weights;
//     images by the size in their headers, other files by their kind and length,
//     reasoning that is sent back encrypted by a quarter of its bytes.
//     Of a longer body its beginning stands for the whole. The answer is a typical
//     one and the thinking budget, at most the limit that the request sets; in
//     OpenAI's format it is that limit, which OpenAI and Azure count when they
//     admit a request, times the answers. See Config.MaxTokensReserved for others
//     that do.
//  2. The estimate is corrected by what was learned of calls of the same model
//     and agent label, within the request's own limit, reserved on the customer
//     budgets and then at the gate.
//  3. It is sent, and when the headers of its answer are there, RoundTrip
//     returns. Refused with 429, 503 or 529, it goes back into the line with its
//     first place, as long as the gate's retry policy has it, and the client sees
//     nothing of it. So does what the header x-should-retry says is safe to send
//     again. A refusal that is final is returned as the provider sent it. What one
//     means is read from status, headers and body, by the rules of the Classify
//     functions of packages openaimodel and anthropicmodel, or of package retry
//     for Google's; of the body at most 1 MiB, and what is there within 3 seconds.
//     A body that cannot be had again, because it has no GetBody and is longer
//     than Config.MaxBuffered, is never sent twice.
//  4. The answer's body is read along: finish reasons, usage, errors within the
//     answer. Before the bytes that complete the answer are handed to the reader,
//     the slot is back and what was used is settled; usage that follows, as
//     OpenAI's does, is booked by an adjustment. OpenAI's chat streams report usage
//     only where stream_options.include_usage asks for it; this package does not
//     change requests, so without it a call counts at its estimate.
//  5. The call ends once, whatever happens: read to its end, closed early, broken,
//     cancelled, or left behind, in which case the end of its context is its end.
//     A body must be closed, or its context must end, as always in net/http. What
//     it is charged is the table of package ratelimited.
//
// The memory for an answer does not depend on its size: it is read as it comes,
// be it an event stream (SSE), a JSON array, or one piece. What cannot be read
// passes all the same, and counts as estimated.
//
// While a request waits or its answer is read, it has a goroutine of its own,
// which is parked.
//
// # Compression
//
// Request headers are not touched. Where a client sets no Accept-Encoding,
// net/http asks for gzip by itself and undoes it below this package, so that the
// body is plain here. Where the client asks for gzip itself, the body passes
// compressed and a copy is decompressed to be read, that of an error as well. Other
// codings pass unread: the call counts as estimated, and an error is judged by
// status and headers, as one without a body.
//
// # Who retries
//
// One layer should. Switch the retries of the SDKs off, or set Config.NoRetries
// and let them do it; then the gate still learns from each refusal. Own refusals
// are the round tripper's errors, which SDKs take for broken connections: see
// [AsResponse] for the alternative.
//
// # Two gates in a row
//
// A call that goes through a model and through a Transport of the same gate, or
// through two Transports of it, takes one permit, and one slot: the inner one
// lets it pass. The models of packages genaimodel, openaimodel and anthropicmodel
// tell by the context that they hold one, and so does any model whose method
// ReportsLimits or UsesTransport answers true; a program that holds a permit of
// its own marks the context with [WithPermit]. Transports of different gates may be stacked: each takes its own.
// The inner one should refuse by errors, which the outer one does not take for the
// provider's.
//
// # Rate limits that the provider reports
//
// The x-ratelimit headers of OpenAI and Azure go to the dimensions "requests" and
// "tokens" of the profile, the anthropic-ratelimit headers to "requests",
// "input_tokens", "output_tokens" and "tokens", by Gate.Report: they only ever lower
// what the gate believes is left. The last, Anthropic's tightest limit on input and
// output together, is no dimension of ratelimited.Anthropic and is ignored there; it
// says more than the two others only where a workspace has a limit of its own, which
// a profile can be given as a dimension of that name.
package httpgate
