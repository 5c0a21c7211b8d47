package genaimodel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"google.golang.org/genai"
)

// ErrIncomplete is yielded after the last item of a stream that ended cleanly
// before every candidate had a finish reason: the connection was closed early
// and the answer is not whole. The SDK takes it for a normal end. It also
// matches io.ErrUnexpectedEOF.
var ErrIncomplete = fmt.Errorf("genaimodel: the stream ended without a finish reason: %w", io.ErrUnexpectedEOF)

// ErrUnreadable is matched by the error for an answer that is no answer of the
// Gemini API: JSON that is cut or malformed, or fields of the wrong type, on
// which the SDK fails or panics. Unlike the SDK's own error, which it wraps
// where there is one, its text does not quote the answer.
var ErrUnreadable = errors.New("genaimodel: the answer cannot be read")

// unreadable is an error that matches ErrUnreadable.
type unreadable struct {
	why string
	sdk error // the SDK's error, or nil if it panicked
}

func (e *unreadable) Error() string { return ErrUnreadable.Error() + ": " + e.why }

func (e *unreadable) Is(target error) bool { return target == ErrUnreadable }

func (e *unreadable) Unwrap() error { return e.sdk }

// reported is an error of the SDK as it is passed on; nil stays nil.
//
// The cause of a context that has ended is often the error of a sibling: a 429
// that another call met, for instance. Without the context's own error beside it
// it would be taken for an answer to this call.
func reported(ctx context.Context, err error) error {
	err = readable(err)
	if ended := ctx.Err(); err != nil && ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%w: %w", ended, err)
	}
	return err
}

// readable replaces an error of the SDK whose text quotes the answer; others,
// nil included, it returns as they are.
func readable(err error) error {
	if err == nil || !slices.ContainsFunc(quoting, func(prefix string) bool { return strings.HasPrefix(err.Error(), prefix) }) {
		return err
	}
	cause := err
	for next := errors.Unwrap(cause); next != nil; next = errors.Unwrap(cause) {
		cause = next
	}
	if cause == err {
		return &unreadable{"a chunk of the stream is no event", err}
	}
	return &unreadable{cause.Error(), err}
}

// quoting are the beginnings of the SDK's errors that quote an answer. They
// have no type of their own.
var quoting = []string{"deserializeUnaryResponse: ", "iterateResponseStream: ", "mapToStruct: "}

// recovered turns the panics with which the SDK meets an answer of the wrong
// type into an error: a failed type assertion over "candidates":[null] and the
// like, a write to a nil map over the answer null. nil is no panic. Any other
// panic goes on: it may be that of the program's own round tripper.
func recovered(p any) error {
	if p == nil {
		return nil
	}
	err, ok := p.(runtime.Error)
	if ok {
		_, ok = p.(*runtime.TypeAssertionError)
		ok = ok || strings.Contains(err.Error(), "nil map")
	}
	if !ok {
		panic(p)
	}
	return &unreadable{why: err.Error()}
}

// answer knows which candidates of a streamed answer have begun and which have
// finished, a bit for each; the API has at most 8 candidates.
type answer struct {
	begun, finished uint64
	blocked         bool
}

// add reads a chunk; nil has nothing.
func (a *answer) add(chunk *genai.GenerateContentResponse) {
	if chunk == nil {
		return
	}
	if f := chunk.PromptFeedback; f != nil && f.BlockReason != "" {
		a.blocked = true // there is no answer
	}
	for _, c := range chunk.Candidates {
		if c == nil {
			continue
		}
		bit := uint64(1) << (uint32(c.Index) % 64)
		a.begun |= bit
		if c.FinishReason != "" && c.FinishReason != genai.FinishReasonUnspecified {
			a.finished |= bit
		}
	}
}

// whole reports whether nothing is missing.
func (a *answer) whole() bool { return a.blocked || a.begun != 0 && a.begun == a.finished }
