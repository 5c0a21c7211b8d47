package tiktoken_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/usage/tiktoken"
)

const folder = "../testdata/corpus"

// counted is a text of the corpus, with its stored count.
type counted struct {
	kind   string
	index  int
	text   string
	tokens int64
}

func corpus(tb testing.TB) (texts []counted) {
	tb.Helper()
	counts, err := os.ReadFile(filepath.Join(folder, "o200k.tsv"))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(counts)) {
		fields := strings.Fields(line)
		data, err := os.ReadFile(filepath.Join(folder, fields[0]+".txt"))
		if err != nil {
			tb.Fatal(err)
		}
		parts := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n%%\n")
		if len(parts) != len(fields)-1 {
			tb.Fatalf("%s: %d texts and %d counts", fields[0], len(parts), len(fields)-1)
		}
		for i, text := range parts {
			tokens, err := strconv.ParseInt(fields[i+1], 10, 64)
			if err != nil {
				tb.Fatal(err)
			}
			texts = append(texts, counted{fields[0], i, text, tokens})
		}
	}
	return texts
}

// judged are the texts to which no constant was fitted: those at odd places.
func judged(tb testing.TB) (texts []counted) {
	tb.Helper()
	for _, text := range corpus(tb) {
		if text.index%2 == 1 {
			texts = append(texts, text)
		}
	}
	return texts
}

func TestTheStoredCountsOfTheCorpusAreThoseOfTheVocabulary(t *testing.T) {
	t.Parallel()
	counter, err := tiktoken.New("o200k_base")
	if err != nil {
		t.Fatal(err)
	}
	var kind string
	var line []string
	differs := false
	for _, text := range corpus(t) {
		n, err := counter.Count(text.text)
		if err != nil {
			t.Fatalf("%s, text %d: %v", text.kind, text.index, err)
		}
		if text.kind != kind {
			kind, line = text.kind, []string{text.kind}
		}
		line = append(line, strconv.FormatInt(n, 10))
		if n != text.tokens {
			differs = true
			t.Errorf("%s, text %d: %d tokens, %d are stored", text.kind, text.index, n, text.tokens)
		}
		if differs {
			t.Logf("so far: %s", strings.Join(line, "\t"))
		}
	}
}

func TestEveryFileOfTheCorpusIsCounted(t *testing.T) {
	t.Parallel()
	kinds := map[string]int{}
	for _, text := range corpus(t) {
		kinds[text.kind]++
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil || len(files) != len(kinds) {
		t.Errorf("%d files, %d of them counted (%v)", len(files), len(kinds), err)
	}
	for kind, n := range kinds {
		if n < 20 {
			t.Errorf("%s has %d texts, must have 20", kind, n)
		}
	}
}
