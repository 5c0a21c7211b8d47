package quota

import (
	"context"
	"errors"
	"iter"

	"google.golang.org/genai"
)

// Run runs an agent as one turn. run is given the turn's context and returns the
// agent's sequence of events, such as that of ADK Go's runner:
//
//	events := quota.Run(ctx, enforcer, func(ctx context.Context) iter.Seq2[*session.Event, error] {
//		return runner.Run(ctx, user, session, message, agent.RunConfig{})
//	})
//
// Nothing happens until the sequence is ranged; each range is a turn of its own,
// unless ctx belongs to one already. The turn ends when the sequence does: by itself,
// by an error, a break, the end of ctx or a panic. If it is denied, run is not called
// and the sequence has one error, a [*Denial]; see [Answer]. After the consumer has
// stopped it is given nothing more, even if the agent's sequence ignores that.
func Run[E any](ctx context.Context, e *Enforcer, run func(context.Context) iter.Seq2[E, error]) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		var none E
		turn, err := e.Admit(ctx)
		if err != nil {
			yield(none, err)
			return
		}
		defer turn.End()
		if d := turn.Denied(); d != nil {
			yield(none, d)
			return
		}
		stopped := false
		run(turn.Context())(func(event E, err error) bool {
			if stopped {
				return false
			}
			stopped = !yield(event, err)
			return !stopped
		})
	}
}

// Answer puts something in the place of denials in a sequence, such as a model
// response that says politely why there is no more, so that an agent ends with a
// last word rather than an error. answer is told by [Denial].Stage whether the turn
// did not begin or stops in its middle, in which case the text should say that the
// work is not complete. If it returns an error, that is what the sequence has.
//
// Other items and errors pass as they are; what the provider refused is none of a
// customer's quota and no Denial. Use it around [Run] for turns, and
// [AnswerModel] for models.
func Answer[E any](seq iter.Seq2[E, error], answer func(*Denial) (E, error)) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		stopped := false
		seq(func(item E, err error) bool {
			if stopped {
				return false
			}
			if d := denialIn(err); d != nil {
				item, err = answer(d)
			}
			stopped = !yield(item, err)
			return !stopped
		})
	}
}

// denialIn finds the denial in an error.
func denialIn(err error) *Denial {
	if d := (*Denial)(nil); err != nil && errors.As(err, &d) {
		return d
	}
	return nil
}

// Model is a language model, as agent frameworks know it: ADK Go's model.LLM is
// one, and so is a rate-limited model.
type Model[Req, Resp any] interface {
	Name() string
	GenerateContent(ctx context.Context, req Req, stream bool) iter.Seq2[Resp, error]
}

// AnsweringModel is a [Model] that answers denials; see [AnswerModel]. It is safe
// for concurrent use if the model is.
type AnsweringModel[Req, Resp any] struct {
	model  Model[Req, Resp]
	answer func(*Denial) (Resp, error)
}

// AnswerModel wraps a model, such as one that reserves with [Enforcer.Budget], so
// that a denied call is answered by answer in place of an error. The response must
// be one that ends a turn: a whole item with text, and no function call. The type
// arguments are inferred.
func AnswerModel[Req, Resp any](model Model[Req, Resp], answer func(*Denial) (Resp, error)) *AnsweringModel[Req, Resp] {
	return &AnsweringModel[Req, Resp]{model, answer}
}

// Name is that of the model.
func (m *AnsweringModel[Req, Resp]) Name() string { return m.model.Name() }

// GenerateContent calls the model, and answers where it is denied.
func (m *AnsweringModel[Req, Resp]) GenerateContent(ctx context.Context, req Req, stream bool) iter.Seq2[Resp, error] {
	return Answer(m.model.GenerateContent(ctx, req, stream), m.answer)
}

// GetGoogleLLMVariant tells which Google API the model speaks to, for frameworks
// that shape requests by it; [genai.BackendUnspecified] if it does not say.
func (m *AnsweringModel[Req, Resp]) GetGoogleLLMVariant() genai.Backend {
	if v, ok := m.model.(interface{ GetGoogleLLMVariant() genai.Backend }); ok {
		return v.GetGoogleLLMVariant()
	}
	return genai.BackendUnspecified
}
