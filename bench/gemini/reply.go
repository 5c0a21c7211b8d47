package gemini

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// readPrompt reads a request's body.
func readPrompt(w http.ResponseWriter, r *http.Request) ([]byte, *prompt, error) {
	if r.ContentLength > maxBody {
		return nil, nil, fmt.Errorf("body of %d bytes: must be at most %d", r.ContentLength, maxBody)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, nil, fmt.Errorf("body: cannot be read, or is above %d bytes", maxBody)
	}
	p, err := parsePrompt(body)
	return body, p, err
}

// generate serves one call, streamed or not.
func (s *Server) generate(w http.ResponseWriter, r *http.Request, t target) {
	body, p, err := readPrompt(w, r)
	if err != nil {
		s.invalid(w, http.StatusBadRequest, err.Error())
		return
	}
	d, err := parseDemand(r.Header, p)
	if err != nil {
		s.invalid(w, http.StatusBadRequest, err.Error())
		return
	}
	req := Request{
		Body: body, Functions: names(p.functions), Header: r.Header, IncludeThoughts: p.includeThoughts,
		MaxOutputTokens: p.maxOutputTokens, Model: t.model, PromptTokens: p.tokens(),
		Stream: t.method == methodStream, Vertex: t.vertex,
	}
	events := r.URL.Query().Get("alt") == "sse"
	call, err := s.engine.Admit(r.Context(), engine.Arrival{
		Name:    t.model,
		Amounts: engine.Amounts{engine.Requests: 1, engine.InputTokens: req.PromptTokens, engine.TotalTokens: req.PromptTokens},
		Digest:  engine.DigestOf([]byte(t.model), body),
		Fault:   d.fault,
	})
	if refusal := asRefusal(err); refusal != nil {
		s.refuse(w, refusal, req, req.Stream && !events)
		return
	}
	if err != nil { // the client is gone, or the double is closing
		writeError(w, failure(http.StatusServiceUnavailable), req.Stream && !events)
		return
	}
	reply := &reply{server: s, w: w, req: req, prompt: p, call: call, events: events, began: time.Now()}
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
	server *Server
	w      http.ResponseWriter
	req    Request
	prompt *prompt
	call   *engine.Call
	events bool // a stream is one of events, not an array
	began  time.Time

	answer Answer
	list   []chunk
	begun  bool // something was sent
}

// serve plans the answer's time and sends it, or the fault instead. A client
// that reads an answer to its end finds it in the books: they are written
// before the last byte.
func (r *reply) serve(ctx context.Context) {
	finish := r.answer.bound(r.req.MaxOutputTokens)
	draw, fault := r.call.Draw(), r.call.Fault()
	r.list = r.server.chunks(r.req, r.answer, finish, draw)
	switch fault.Kind.Name { // those that come at once, before anything is generated
	case fault500:
		r.fail(failure(http.StatusInternalServerError))
		return
	case fault502:
		r.page()
		return
	case fault503:
		r.fail(failure(http.StatusServiceUnavailable))
		return
	}
	r.call.Plan(r.answer.Thoughts+r.answer.Output, r.answer.Latency, slowness(fault))
	switch {
	case fault.Kind.Name == fault504:
		if r.call.Wait(ctx, r.list[len(r.list)-1].tokens()) != nil {
			r.gone(ctx)
			return
		}
		r.fail(failure(http.StatusGatewayTimeout))
	case r.req.Stream:
		r.stream(ctx)
	default:
		r.unary(ctx)
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
		engine.Requests: 1, engine.InputTokens: r.req.PromptTokens,
		engine.OutputTokens: total, engine.TotalTokens: r.req.PromptTokens + total,
	}, int64(thoughts))
}

// unary sends the whole answer at its end.
func (r *reply) unary(ctx context.Context) {
	kind, _ := r.breaks()
	if kind == faultHang {
		r.hang(ctx)
		return
	}
	all := whole(r.list)
	if r.call.Wait(ctx, all.tokens()) != nil {
		r.gone(ctx)
		return
	}
	if kind == faultCut {
		all.finish, all.message = "", ""
	}
	body := r.marshal(all, true)
	switch kind {
	case faultError, faultErrorRaw:
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
	r.begin("application/json; charset=UTF-8")
	if kind == faultDrop {
		r.send(body) // at once, since a broken connection takes with it what was not sent
		r.abort()
	}
	r.w.Write(body) // a client that is gone needs no answer
}

// stream sends the chunks as their tokens come.
func (r *reply) stream(ctx context.Context) {
	kind, before := r.breaks()
	frame := r.frame()
	for i, c := range r.list {
		if kind == faultHang && i == before {
			r.hang(ctx)
			return
		}
		if r.call.Wait(ctx, c.tokens()) != nil {
			r.gone(ctx)
			return
		}
		last := i == len(r.list)-1
		switch {
		case i == before:
			r.last(Failed)
		case last:
			r.last(Completed)
		}
		if !r.begun {
			r.begin(frame.contentType)
		}
		if i == before {
			r.broken(kind, frame, c, i)
			return
		}
		data := frame.chunk(r.marshal(c, last), i)
		if last {
			data = append(data, frame.end...)
		}
		if r.send(data) != nil {
			return
		}
	}
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
		writeError(r.w, failure(http.StatusServiceUnavailable), r.req.Stream && !r.events)
	}
}

// begin sends the head of an answer.
func (r *reply) begin(contentType string) {
	setHeaders(r.w, contentType)
	if r.req.Stream {
		r.w.Header().Set("Content-Disposition", "attachment")
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

func (r *reply) marshal(c chunk, last bool) []byte { return marshal(r.response(c, last)) }

func marshal(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil { // cannot be: answers are made of strings, numbers and valid JSON
		panic(err)
	}
	return body
}
