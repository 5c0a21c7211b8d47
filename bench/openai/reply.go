package openai

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// answer serves one request.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, t target) {
	body, err := readBody(w, r)
	var p *prompt
	if err == nil {
		p, err = parsePrompt(t, body)
	}
	var d demand
	if err == nil {
		d, err = parseDemand(r.Header, p)
	}
	if wrong, ok := errors.AsType[*invalid](err); ok {
		s.invalid(w, http.StatusBadRequest, wrong)
		return
	}
	req := Request{
		Body: body, Header: r.Header, MaxOutputTokens: p.maxOutput, Model: p.model,
		PromptTokens: p.tokens(), Responses: t.endpoint == endpointResponses, Stream: p.stream,
	}
	for _, f := range p.functions {
		req.Functions = append(req.Functions, f.name)
	}
	taken := s.taken(p)
	call, err := s.engine.Admit(r.Context(), engine.Arrival{
		Name:    p.model,
		Amounts: engine.Amounts{engine.Requests: 1, engine.InputTokens: req.PromptTokens, engine.TotalTokens: taken},
		Digest:  engine.DigestOf([]byte(t.endpoint), []byte(p.model), body),
		Fault:   d.fault,
	})
	s.setHead(w.Header(), body)
	if refusal, ok := errors.AsType[*engine.Refusal](err); ok {
		s.refuse(w, refusal, req, taken)
		return
	}
	if err != nil { // the client is gone, or the double is closing
		writeError(w, http.StatusServiceUnavailable, apiError{Message: overloaded, Type: "server_error"})
		return
	}
	a := &reply{server: s, w: w, req: req, prompt: p, endpoint: t.endpoint, call: call, began: time.Now()}
	defer a.end(Cancelled) // whatever happens; a reply that knows better has said so
	a.answer = s.plan(req, p, d, call.Draw())
	a.serve(r.Context())
}

// taken is what a call takes of the quotas on tokens when it arrives.
func (s *Server) taken(p *prompt) int64 {
	limit := int64(p.maxOutput) * int64(p.choices)
	if s.cfg.CountTokens == CountSum {
		return p.tokens() + limit
	}
	return max(p.tokens(), limit)
}

// setHead sets the headers of every answer.
func (s *Server) setHead(h http.Header, body []byte) {
	id := engine.DigestOf([]byte("request"), body, []byte(strconv.FormatInt(time.Now().UnixNano(), 10)))
	h.Set("X-Request-Id", "req_"+hex.EncodeToString(id[:16]))
	h.Set("Openai-Organization", "org-double")
	h.Set("Openai-Version", "2020-10-01")
	s.setLimits(h)
}

// reply is the answer to one admitted call.
type reply struct {
	server   *Server
	w        http.ResponseWriter
	req      Request
	prompt   *prompt
	endpoint endpoint
	call     *engine.Call
	began    time.Time

	answer Answer
	finish string
	pieces []piece
}

// serve plans the answer's time and sends it, or the fault instead. A client
// that reads an answer to its end finds it in the books: they are written before
// the last byte.
func (r *reply) serve(ctx context.Context) {
	fault := r.call.Fault()
	if r.endpoint == endpointEmbeddings {
		r.answer.Output, r.answer.Reasoning, r.answer.Calls = 0, 0, nil
	}
	r.finish = r.answer.bound(r.req.MaxOutputTokens)
	if r.immediate(fault) {
		return
	}
	r.pieces = r.server.pieces(r.answer, r.call.Draw())
	r.call.Plan(r.generated(), r.answer.Latency, slowness(fault))
	switch {
	case r.endpoint == endpointEmbeddings:
		r.whole(ctx, r.embeddings())
	case !r.req.Stream && r.endpoint == endpointChat:
		r.whole(ctx, r.completion())
	case !r.req.Stream:
		r.whole(ctx, r.response(r.endStatus(), true))
	case r.endpoint == endpointChat:
		r.streamChat(ctx)
	default:
		r.streamResponse(ctx)
	}
}

// immediate commits the faults that come at once, before anything is generated.
func (r *reply) immediate(f engine.Fault) bool {
	e := apiError{Type: "server_error"}
	status := http.StatusServiceUnavailable
	switch f.Kind.Name {
	case fault500, fault500Again:
		status = http.StatusInternalServerError
		e = eventError(engine.Fault{})
	case fault502:
		r.last(Failed)
		r.w.Header().Set("Content-Type", "text/html; charset=UTF-8")
		r.w.WriteHeader(http.StatusBadGateway)
		io.WriteString(r.w, "<html><head><title>502 Bad Gateway</title></head><body><h1>Bad gateway</h1></body></html>\n")
		return true
	case fault503, fault503Never:
		e.Message = overloaded
	default:
		return false
	}
	switch f.Kind.Name {
	case fault500Again:
		r.w.Header().Set("X-Should-Retry", "true")
	case fault503Never:
		r.w.Header().Set("X-Should-Retry", "false")
	}
	if f.Retry > 0 {
		r.w.Header().Set("Retry-After", strconv.FormatInt(int64((f.Retry-1)/time.Second)+1, 10))
	}
	r.last(Failed)
	writeError(r.w, status, e)
	return true
}

// generated is the number of tokens of all answers to the request together.
func (r *reply) generated() int {
	return (r.answer.Reasoning + r.answer.Output) * r.prompt.choices
}

// last books a call whose last bytes are about to be sent.
func (r *reply) last(outcome Outcome) {
	r.call.FirstByte()
	r.end(outcome)
}

// end books the end of the call. Only the first end counts.
func (r *reply) end(outcome Outcome) {
	total := r.generated()
	reasoning := r.answer.Reasoning * r.prompt.choices
	if outcome != Completed { // reasoning comes first
		total = r.call.Generated()
		reasoning = min(reasoning, total)
	}
	r.call.End(outcome, engine.Amounts{
		engine.Requests: 1, engine.InputTokens: r.req.PromptTokens,
		engine.OutputTokens: int64(total), engine.TotalTokens: r.req.PromptTokens + int64(total),
	}, int64(reasoning))
}

// whole sends an answer in one piece, at its end.
func (r *reply) whole(ctx context.Context, v any) {
	kind, _ := brokenBy(r.call.Fault(), 1)
	if kind == faultHang {
		r.hang(ctx)
		return
	}
	if r.call.Wait(ctx, r.generated()) != nil {
		r.gone(ctx, false)
		return
	}
	body := append(marshal(v), '\n')
	switch {
	case kind == faultFailed && r.endpoint == endpointResponses:
		r.last(Failed)
		writeJSON(r.w, http.StatusOK, r.failed())
		return
	case kind == faultError, kind == faultFailed:
		r.last(Failed)
		writeError(r.w, http.StatusInternalServerError, eventError(r.call.Fault()))
		return
	}
	switch kind {
	case faultCut, faultCutJSON, faultDrop:
		body = body[:len(body)/2]
		r.last(Failed)
	default:
		r.last(Completed)
	}
	r.w.Header().Set("Content-Type", "application/json")
	r.w.WriteHeader(http.StatusOK)
	if kind == faultDrop {
		r.send(body) // at once, since a broken connection takes with it what was not sent
		r.abort()
	}
	r.w.Write(body) // a client that is gone needs no answer
}

// stream sends events as their tokens come. Each has its frame; tokens[i] are
// those generated by the end of the i-th.
func (r *reply) stream(ctx context.Context, events []event) {
	first := 0
	for first < len(events)-1 && events[first].tokens < 0 {
		first++
	}
	kind, before := brokenBy(r.call.Fault(), len(events)-first)
	before += first
	begun := false
	for i, e := range events {
		if kind == faultHang && i == before {
			r.hang(ctx)
			return
		}
		if r.call.Wait(ctx, max(e.tokens, 0)) != nil {
			r.gone(ctx, begun)
			return
		}
		switch i {
		case before:
			r.last(Failed)
		case len(events) - 1:
			r.last(Completed)
		}
		if !begun {
			r.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			r.w.WriteHeader(http.StatusOK)
			begun = true
		}
		if i == before {
			r.broken(kind, e, i)
			return
		}
		if r.send(e.frame()) != nil {
			return
		}
	}
}

// event is one server-sent event.
type event struct {
	name   string // none in chat completions
	data   any
	tokens int // generated by its end; -1 before the first
	final  string
}

// frame puts an event on the wire (WHATWG HTML, server-sent events), and what
// follows it.
func (e event) frame() []byte {
	data := "data: " + string(marshal(e.data)) + "\n\n" + e.final
	if e.name != "" {
		data = "event: " + e.name + "\n" + data
	}
	return []byte(data)
}

// broken sends what a fault leaves of a stream, from the i-th event on.
func (r *reply) broken(kind string, e event, i int) {
	e.final = ""
	data := e.frame()
	switch kind {
	case faultError, faultFailed:
		r.send(r.failure(kind, i).frame())
	case faultCutJSON:
		r.send(append(data[:len(data)/2], "\n\n"...))
	case faultCut:
		r.send(nil)
	case faultDrop:
		r.send(data[:len(data)/2])
		r.abort()
	}
}

// failure is the event that reports an error in the middle of a stream.
func (r *reply) failure(kind string, i int) event {
	e := eventError(r.call.Fault())
	switch {
	case r.endpoint == endpointChat:
		return event{data: errorBody{e}}
	case kind == faultFailed:
		return event{name: "response.failed", data: fields{"type": "response.failed", "response": r.failed(), "sequence_number": i}}
	}
	return event{name: "error", data: fields{
		"type": "error", "code": *e.Code, "message": e.Message, "param": nil, "sequence_number": i,
	}}
}

// failed is the response that stands for an answer which failed.
func (r *reply) failed() fields {
	e, f := eventError(r.call.Fault()), r.response("failed", false)
	f["error"] = fields{"code": *e.Code, "message": e.Message}
	return f
}

// hang says nothing until the client goes, the double closes, or the fault's
// time is up; then the connection breaks.
func (r *reply) hang(ctx context.Context) {
	if r.call.Hang(ctx) != nil {
		r.gone(ctx, false)
		return
	}
	r.end(Failed)
	r.abort()
}

// gone ends a call that nobody waits for any more. If it is the double that
// goes, the client is told.
func (r *reply) gone(ctx context.Context, begun bool) {
	r.end(Cancelled)
	switch {
	case ctx.Err() != nil:
	case begun:
		r.abort()
	default:
		writeError(r.w, http.StatusServiceUnavailable, apiError{Message: overloaded, Type: "server_error"})
	}
}

// abort breaks the connection, in the way that net/http provides.
func (r *reply) abort() { panic(http.ErrAbortHandler) }

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

// id is an identifier of something in the answer.
func (r *reply) id(prefix, of string) string {
	random := r.call.Draw().Bytes(fmt.Sprint("id of ", of))
	return prefix + hex.EncodeToString(random[:12])
}
