package redisbudget_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget/redisbudget"
)

// Whatever a server answers: it is an error, or a reply for all dimensions.
func TestAnAnswerIsWholeOrAnError(t *testing.T) {
	t.Parallel()
	for _, answer := range []any{nil, "OK", int64(1), []any{}, []any{int64(-2)}, []any{"a"}, []any{int64(0), nil}} {
		if reply, err := redisbudget.Decode(2, answer); err == nil {
			t.Errorf("%v was read as %+v", answer, reply)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "dimensions")
		var answer []any
		for _, v := range rapid.SliceOfN(rapid.Int64(), 0, 30).Draw(t, "answer") {
			answer = append(answer, v)
		}
		reply, err := redisbudget.Decode(n, answer)
		switch {
		case (err == nil) != (len(answer) == 7+4*n):
			t.Errorf("%d numbers for %d dimensions: %v", len(answer), n, err)
		case err == nil && (len(reply.Granted) != n || len(reply.Limits) != n || len(reply.Scarce) != n || reply.Parts != nil && len(reply.Parts) != n):
			t.Errorf("a reply is short: %+v", reply)
		}
		for _, part := range reply.Parts {
			if !(part >= 0 && part <= 1) {
				t.Errorf("a part is %v", part)
			}
		}
	})
}
