package tiktoken_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-go/headgate/usage"
	"github.com/headgate-go/headgate/usage/tiktoken"
	"github.com/tiktoken-go/tokenizer"
	"google.golang.org/genai"
)

func TestModelsCountInTheirEncoding(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ model, want string }{
		{"gpt-4o", "o200k_base"},
		{"openai/GPT-5-mini", "o200k_base"},
		{"gpt-4.1-2025-04-14", "o200k_base"},
		{"gpt-4.5-preview", "o200k_base"},
		{"o3", "o200k_base"},
		{"gpt-7-of-a-later-year", "o200k_base"},
		{"gpt-4", "cl100k_base"},
		{"gpt-4-turbo-2024-04-09", "cl100k_base"},
		{"gpt-3.5-turbo", "cl100k_base"},
		{"azure/gpt-35-turbo", "cl100k_base"},
		{"text-embedding-3-large", "cl100k_base"},
		{"text-embedding-ada-002", "cl100k_base"},
	} {
		counter, err := tiktoken.ForModel(c.model)
		if err != nil {
			t.Errorf("%s: %v", c.model, err)
			continue
		}
		if got := counter.Encoding(); got != c.want {
			t.Errorf("%s: %s, want %s", c.model, got, c.want)
		}
	}
}

func TestErrorsNameWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"", "gemini-2.5-flash", "claude-opus-4-7", "my-deployment"} {
		if c, err := tiktoken.ForModel(model); c != nil || err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", model)) {
			t.Errorf("%s: %v, %v", model, c, err)
		}
	}
	if c, err := tiktoken.New("o300k_base"); c != nil || err == nil || !strings.Contains(err.Error(), `"o300k_base"`) {
		t.Errorf("%v, %v", c, err)
	}
}

func TestACounterIsMadeOnceAndSharedByMany(t *testing.T) {
	t.Parallel()
	first, err := tiktoken.New("o200k_base")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("Where is the gate, and who may open it? ", 20)
	want, err := first.Count(text)
	if err != nil || want == 0 {
		t.Fatal(want, err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			c, err := tiktoken.New("o200k_base")
			if err != nil || c != first {
				t.Errorf("another counter (%v)", err)
				return
			}
			if n, err := c.Count(text); n != want || err != nil {
				t.Errorf("%d tokens, want %d (%v)", n, want, err)
			}
		})
	}
	wg.Wait()
}

func TestBrokenUTF8CountsAsTheReplacementCharacter(t *testing.T) {
	t.Parallel()
	c, err := tiktoken.New("o200k_base")
	if err != nil {
		t.Fatal(err)
	}
	broken, err := c.Count("abc\xffdef")
	if err != nil {
		t.Fatal(err)
	}
	if want, err := c.Count("abc\uFFFDdef"); err != nil || broken != want {
		t.Errorf("%d tokens, want %d (%v)", broken, want, err)
	}
}

func TestAnEstimatorCountsTextsExactly(t *testing.T) {
	t.Parallel()
	counter, err := tiktoken.ForModel("gpt-5-mini")
	if err != nil {
		t.Fatal(err)
	}
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	e := usage.Estimator{Model: "gpt-5-mini", Tokenizer: counter}
	for _, text := range judged(t) {
		n, err := codec.Count(text.text)
		if err != nil {
			t.Fatal(err)
		}
		// 3 for the request and 4 for the message.
		if got := e.GenAI(genai.Text(text.text), nil).Input; got != int64(n)+7 {
			t.Errorf("%s, text %d: %d tokens, want %d and 7", text.kind, text.index, got, n)
		}
	}
}

func ExampleForModel() {
	counter, err := tiktoken.ForModel("gpt-5-mini")
	if err != nil {
		fmt.Println(err)
		return
	}
	text := "The river was high that morning."
	n, err := counter.Count(text)
	fmt.Println(n, err)
	fmt.Println(usage.OpenAI.Text(text), "estimated")
	// Output:
	// 7 <nil>
	// 7 estimated
}
