package usage

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// corpusText is a text of the corpus and the number of its tokens.
type corpusText struct {
	kind   string
	index  int // within its file, from 0
	text   string
	tokens int64
}

// fitted reports whether the text is of the half to which the constants of the
// OpenAI family were fitted; all figures are of the other half.
func (c corpusText) fitted() bool { return c.index%2 == 0 }

const corpusFolder = "testdata/corpus"

// corpus reads all texts, in the order of o200k.txt.
func corpus(tb testing.TB) (texts []corpusText) {
	tb.Helper()
	counts, err := os.ReadFile(filepath.Join(corpusFolder, "o200k.tsv"))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(counts)) {
		fields := strings.Fields(line)
		kind := fields[0]
		data, err := os.ReadFile(filepath.Join(corpusFolder, kind+".txt"))
		if err != nil {
			tb.Fatal(err)
		}
		parts := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n%%\n")
		if len(parts) != len(fields)-1 {
			tb.Fatalf("%s: %d texts and %d counts", kind, len(parts), len(fields)-1)
		}
		for i, text := range parts {
			tokens, err := strconv.ParseInt(fields[i+1], 10, 64)
			if err != nil || tokens <= 0 {
				tb.Fatalf("%s: count %q of text %d (%v)", kind, fields[i+1], i, err)
			}
			texts = append(texts, corpusText{kind, i, text, tokens})
		}
	}
	return texts
}
