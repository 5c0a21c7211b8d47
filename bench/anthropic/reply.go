package anthropic

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// messages serves one call, streamed or not.
func (s *Server) messages(w http.ResponseWriter, r *http.Request) {
	body, p, wrong := readPrompt(w, r, false)
	if wrong != nil {
		s.invalid(w, *wrong)
		return
	}
	d, err := parseDemand(r.Header, p)
	if err != nil {
		s.invalid(w, *invalidRequest("%v", err))
		return
	}
	req := Request{
		Body: body, Header: r.Header, MaxTokens: p.maxTokens, Model: p.model, PromptTokens: p.tokens(),
		Stream: p.stream, Thinking: p.thinking, Tools: names(p.tools),
	}
	hits := s.cache.lookup(&p.meter)
	counted := req.PromptTokens
	if !s.cfg.CountCached {
		counted -= hits.read
	}
	call, err := s.engine.Admit(r.Context(), engine.Arrival{
		Name:    p.model,
		Amounts: engine.Amounts{engine.Requests: 1, engine.InputTokens: counted, engine.TotalTokens: req.PromptTokens},
		Digest:  engine.DigestOf([]byte(p.model), body),
		Fault:   d.fault,
	})
	if refusal := asRefusal(err); refusal != nil {
		s.refuse(w, refusal)
		return
	}
	if err != nil { // the client is gone, or the double is closing
		failureOf(statusOverloaded).write(w)
		return
	}
	s.cache.store(&p.meter)
	reply := &reply{server: s, w: w, req: req, hits: hits, counted: counted, call: call}
	defer reply.end(Cancelled) // whatever happens; a reply that knows better has said so
	reply.answer = s.plan(req, p, d, call.Draw())
	reply.serve(r.Context())
}

func names(list []declaration) (names []string) {
	for _, d := range list {
		names = append(names, d.name)
	}
	return names
}

// reply is the answer to one admitted call.
type reply struct {
	server  *Server
	w       http.ResponseWriter
	req     Request
	hits    hits
	counted int64 // input tokens that the quota counts
	call    *engine.Call

	answer Answer
	stop   string // stop reason
	begun  bool   // something was sent
}

// serve plans the answer's time and sends it, or the fault instead. A client
// that reads an answer to its end finds it in the books: they are written
// before the last byte.
func (r *reply) serve(ctx context.Context) {
	r.stop = r.answer.bound(r.req.MaxTokens)
	fault := r.call.Fault()
	switch fault.Kind.Name { // those that come at once, before anything is generated
	case fault500:
		r.fail(failureOf(http.StatusInternalServerError))
		return
	case fault500Safe:
		f := failureOf(http.StatusInternalServerError)
		f.should = "true"
		r.fail(f)
		return
	case fault502:
		r.page()
		return
	}
	total := r.answer.Thoughts + r.answer.Output
	r.call.Plan(total, r.answer.Latency, slowness(fault))
	switch {
	case fault.Kind.Name == fault504:
		if r.call.Wait(ctx, total) != nil {
			r.gone(ctx)
			return
		}
		r.fail(failureOf(http.StatusGatewayTimeout))
	case r.req.Stream:
		r.stream(ctx)
	default:
		r.unary(ctx, total)
	}
}

// last books a call whose last bytes are about to be sent.
func (r *reply) last(outcome Outcome) {
	r.call.FirstByte()
	r.end(outcome)
}

// end books the end of the call. Only the first end counts.
func (r *reply) end(outcome Outcome) {
	output, thoughts := r.answer.Output, r.answer.Thoughts
	if outcome != Completed { // thoughts come first
		generated := r.call.Generated()
		thoughts = min(thoughts, generated)
		output = generated - thoughts
	}
	total := int64(output + thoughts)
	r.call.End(outcome, engine.Amounts{
		engine.Requests: 1, engine.InputTokens: r.counted,
		engine.OutputTokens: total, engine.TotalTokens: r.req.PromptTokens + total,
	}, int64(thoughts))
}

// unary sends the whole answer at its end.
func (r *reply) unary(ctx context.Context, total int) {
	kind, _ := r.breaks(2)
	if kind == faultHang {
		r.hang(ctx)
		return
	}
	if r.call.Wait(ctx, total) != nil {
		r.gone(ctx)
		return
	}
	m := r.whole()
	if kind == faultCut {
		m.StopReason = nil
	}
	body := marshal(m)
	switch kind {
	case faultError:
		r.fail(r.eventError())
		return
	case faultCutJSON, faultDrop:
		body = body[:len(body)/2]
	}
	if kind == "" {
		r.last(Completed)
	} else {
		r.last(Failed)
	}
	r.begin("application/json")
	if kind == faultDrop {
		r.send(body) // at once, since a broken connection takes with it what was not sent
		r.abort()
	}
	r.w.Write(body) // a client that is gone needs no answer
}

// stream sends the events as their tokens come.
func (r *reply) stream(ctx context.Context) {
	list := r.steps()
	kind, before := r.breaks(len(list))
	for i, s := range list {
		if kind == faultHang && i == before {
			r.hang(ctx)
			return
		}
		if r.call.Wait(ctx, s.tokens) != nil {
			r.gone(ctx)
			return
		}
		switch i {
		case before:
			r.last(Failed)
		case len(list) - 1:
			r.last(Completed)
		}
		if !r.begun {
			r.begin("text/event-stream; charset=utf-8")
		}
		data := frame(s.event.Type, s.event)
		if i == before {
			r.broken(kind, data)
			return
		}
		if r.send(data) != nil {
			return
		}
	}
}

// breaks tells whether the call's fault breaks the answer, and before which
// event. The stop reason, which is in the last but one, is never sent then.
func (r *reply) breaks(events int) (kind string, before int) {
	f := r.call.Fault()
	switch f.Kind.Name {
	case faultError, faultCutJSON, faultCut, faultDrop:
		before = events / 2
	case faultHang:
		before = 0
	default:
		return "", events
	}
	if f.After >= 0 {
		before = f.After
	}
	return f.Kind.Name, min(before, events-2)
}

// broken sends what a fault leaves of an event.
func (r *reply) broken(kind string, data []byte) {
	switch kind {
	case faultError:
		r.send(frame("error", r.eventError().body()))
	case faultCutJSON:
		r.send(data[:len(data)/2])
	case faultDrop:
		r.send(data[:len(data)/2])
		r.abort()
	}
}

// eventError is the error that comes inside an answer.
func (r *reply) eventError() failure {
	f := failureOf(statusOverloaded)
	if code := r.call.Fault().Code; code > 0 {
		f = failureOf(code)
	}
	f.id = r.requestID()
	return f
}

// hang says nothing until the client goes, the double closes, or the fault's
// time is up; then the connection breaks.
func (r *reply) hang(ctx context.Context) {
	if r.call.Hang(ctx) != nil {
		r.gone(ctx)
		return
	}
	r.end(Failed)
	r.abort()
}

// gone ends a call that nobody waits for any more. If it is the double that
// goes, the client is told.
func (r *reply) gone(ctx context.Context) {
	r.end(Cancelled)
	switch {
	case ctx.Err() != nil:
	case r.begun:
		r.abort()
	default:
		failureOf(statusOverloaded).write(r.w)
	}
}

// abort breaks the connection, in the way that net/http provides.
func (r *reply) abort() { panic(http.ErrAbortHandler) }

// fail answers with an error instead of the answer.
func (r *reply) fail(f failure) {
	r.last(Failed)
	r.server.setLimits(r.w)
	f.id = r.requestID()
	f.write(r.w)
}

// page answers as a proxy between client and API does when it has lost the API.
func (r *reply) page() {
	r.last(Failed)
	r.w.Header().Set("Content-Type", "text/html; charset=UTF-8")
	r.w.WriteHeader(http.StatusBadGateway)
	io.WriteString(r.w, "<html><head><title>502 Server Error</title></head><body><h1>Bad gateway</h1></body></html>\n")
}

func (r *reply) requestID() string { return identifier("req", r.call.Draw(), "request") }

// begin sends the head of an answer. What it says is left of the quotas lacks
// the output of a streamed answer, of which nothing is counted yet.
func (r *reply) begin(contentType string) {
	setHeaders(r.w, contentType)
	r.server.setLimits(r.w)
	r.w.Header().Set("Request-Id", r.requestID())
	if r.req.Stream {
		r.w.Header().Set("Cache-Control", "no-cache")
	}
	r.w.WriteHeader(http.StatusOK)
	r.begun = true
}

// send writes and flushes. An error means that the client is gone.
func (r *reply) send(data []byte) error {
	r.call.FirstByte()
	if _, err := r.w.Write(data); err != nil {
		return err
	}
	err := http.NewResponseController(r.w).Flush()
	if errors.Is(err, http.ErrNotSupported) { // a recorder, a wrapper: they send when they like
		return nil
	}
	return err
}
