package httpgate

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/ratelimited"
)

// An answer of several choices is complete when each of them has finished, be it
// told twice, in any order, or for each prompt of a list.
func TestAnswerIsCompleteWhenAllItsChoicesAre(t *testing.T) {
	t.Parallel()
	finish := func(index int) string {
		return fmt.Sprintf(`{"choices":[{"index":%d,"text":"a","finish_reason":"stop"}]}`, index)
	}
	const (
		begun = `{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":null}]}`
		used  = `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3}}`
	)
	for name, c := range map[string]struct {
		request string
		events  []string // the last one completes the answer
	}{
		"one":                     {`{"messages":[]}`, []string{begun, finish(0)}},
		"two":                     {`{"n":2,"messages":[]}`, []string{finish(1), finish(0)}},
		"one is told twice":       {`{"n":2,"messages":[]}`, []string{finish(0), finish(0), finish(1)}},
		"in one event":            {`{"n":2,"messages":[]}`, []string{begun, `{"choices":[{"finish_reason":"stop","index":1},{"index":0,"finish_reason":"length"}]}`}},
		"without an index":        {`{"messages":[]}`, []string{`{"choices":[{"delta":{}}]}`, `{"choices":[{"finish_reason":"stop"}]}`}},
		"index of something else": {`{"n":2,"messages":[]}`, []string{finish(0), `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1}]},"finish_reason":"stop"}]}`, finish(1)}},
		"fewer than asked for":    {`{"n":3,"messages":[]}`, []string{finish(0), begun, used + ` `, finish(1), used}},
		"prompts":                 {`{"prompt":["a","b"]}`, []string{finish(0), finish(1)}},
		"prompts, two each":       {`{"prompt":["a",""],"n":2}`, []string{finish(0), finish(3), finish(2), finish(1)}},
		"prompts of tokens":       {`{"prompt":[[1,2],[3]]}`, []string{finish(0), finish(1)}},
		"a prompt of tokens":      {`{"prompt":[1,2,3]}`, []string{finish(0)}},
		"many prompts":            {`{"prompt":["` + strings.Repeat(`a","`, 129) + `"]}`, append(upTo(129, finish), finish(129))},
		"after one cut off":       {`{"n":2,"messages":[]}`, []string{finish(0), strings.TrimSuffix(finish(1), "}"), finish(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, e := estimated(t, chat, c.request, len(c.request))
			a := newAnswer(&chat, &http.Response{Header: http.Header{"Content-Type": {"text/event-stream"}}}, e.choices())
			defer a.close()
			for i, event := range c.events {
				a.feed([]byte("data: " + event + "\n\n"))
				news, _ := a.take()
				if done := news.progress == ratelimited.Done; done != (i == len(c.events)-1) {
					t.Fatalf("complete with event %d of %d: %v", i+1, len(c.events), done)
				}
			}
		})
	}
}

// upTo are the events of the choices before n.
func upTo(n int, event func(int) string) (events []string) {
	for i := range n {
		events = append(events, event(i))
	}
	return events
}

// Whatever indices a server sends, what is kept of them is bounded.
func TestIndicesOfChoicesTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	c := choices{wanted: 3}
	for _, i := range []int64{0, -1, 1 << 62, maxChoices, maxChoices + 1} {
		c.add(choice{index: i, finished: true})
	}
	if len(c.begun) > maxChoices/64 || len(c.finished) > maxChoices/64 || !c.whole() || !c.all() {
		t.Errorf("%d and %d words for %d choices", len(c.begun), len(c.finished), c.count)
	}
}
