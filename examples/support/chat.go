package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/ratelimited"
)

// maxMessage is the longest message, in characters, and maxBody in bytes.
const (
	maxMessage = 500
	maxBody    = utf8.UTFMax * maxMessage
)

type messageKey struct{}

// message reads the message, so that one that is none counts as no turn.
func message(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		text := strings.TrimSpace(string(body))
		switch long := (*http.MaxBytesError)(nil); {
		case errors.As(err, &long) || err == nil && utf8.RuneCountInString(text) > maxMessage:
			problem(w, r, http.StatusRequestEntityTooLarge, fmt.Sprintf("A message has at most %d characters.", maxMessage), 0)
		case err != nil: // the client has gone, or is too slow
			problem(w, r, http.StatusBadRequest, "The message could not be read.", 0)
		case text == "" || !utf8.ValidString(text):
			problem(w, r, http.StatusBadRequest, "The body must be a message in UTF-8.", 0)
		default:
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), messageKey{}, text)))
		}
	})
}

// chat answers a message. It stands behind quota.Middleware, which has let the turn
// begin; what is denied in its middle is an error of the agent.
func (a *app) chat(w http.ResponseWriter, r *http.Request) {
	defer a.board.begin()()
	text, _ := r.Context().Value(messageKey{}).(string)
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	answer, err := a.agent.answer(ctx, text)
	if err != nil {
		a.failed(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = io.WriteString(w, answer+"\n") // the client may be gone
	a.board.answered()
}

// failed answers where the agent could not.
func (a *app) failed(w http.ResponseWriter, r *http.Request, err error) {
	if quota.Refuse(w, r, err) {
		return
	}
	a.board.failed()
	if r.Context().Err() != nil {
		return // nobody is there
	}
	a.logger.WarnContext(r.Context(), "support: no answer", slog.Any("error", err))
	if wait := (*ratelimited.WaitError)(nil); errors.As(err, &wait) {
		// The model's line is long. That is nobody's quota, and so no 429.
		problem(w, r, http.StatusServiceUnavailable, "Too many people are asking just now.", wait.RetryAfter())
		return
	}
	problem(w, r, http.StatusBadGateway, "The model gave no answer.", 0)
}

// problem answers with a problem report that is none of quota's.
func problem(w http.ResponseWriter, r *http.Request, status int, detail string, retryAfter time.Duration) {
	p := &quota.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail,
		RetryAfter: int64((retryAfter + time.Second - 1) / time.Second),
	}
	p.ServeHTTP(w, r)
}
