package usage

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// manual are the figures that the manual of OpenAI gives for each kind of text,
// over the half of the corpus to which nothing was fitted: estimate over truth,
// its median and extremes.
var manual = map[string][3]float64{
	"english": {1.03, 0.94, 1.31}, "european": {1.01, 0.79, 1.27}, "cyrillic": {0.96, 0.82, 1.17},
	"greek": {1.04, 0.98, 1.15}, "hebrew": {1.02, 0.90, 1.10}, "arabic": {1.02, 0.84, 1.24},
	"devanagari": {1.02, 0.70, 1.17}, "bengali": {1.07, 0.95, 1.17}, "tamil": {1.05, 0.88, 1.09},
	"thai": {1.04, 0.89, 1.14}, "georgian": {1.07, 0.88, 1.13}, "han": {0.97, 0.77, 1.16},
	"japanese": {1.05, 0.91, 1.25}, "korean": {1.02, 0.89, 1.21}, "emoji": {0.96, 0.87, 1.14},
	"code": {1.07, 0.92, 1.21}, "json": {0.95, 0.84, 1.00}, "chat": {1.04, 0.98, 1.19},
	"records": {1.03, 0.89, 1.15}, "base64": {1.03, 0.94, 1.07}, "hex": {1.10, 1.02, 1.45}, "noise": {1.05, 0.86, 1.24},
}

func TestEstimatesForOpenAIReachTheirBoundsOnTextsThatWereNotFitted(t *testing.T) {
	t.Parallel()
	var off []float64
	least := math.Inf(1)
	ratios := map[string][]float64{}
	for _, text := range corpus(t) {
		if text.fitted() {
			continue
		}
		ratio := float64(OpenAI.Text(text.text)) / float64(text.tokens)
		off = append(off, math.Abs(ratio-1))
		least = min(least, ratio)
		ratios[text.kind] = append(ratios[text.kind], ratio)
	}
	slices.Sort(off)
	median, p95 := off[len(off)/2], off[len(off)*95/100]
	if median > 0.15 || p95 > 0.35 || least < 0.5 {
		t.Errorf("%d texts: median %.3f, must be 0.15 at most; p95 %.3f, 0.35 at most; least %.2f, 0.5 at least", len(off), median, p95, least)
	}
	t.Logf("%d texts: absolute error %.1f %% in the median, %.1f %% at p95; estimate over truth %.2f at least", len(off), 100*median, 100*p95, least)

	for kind, r := range ratios {
		slices.Sort(r)
		got := [3]float64{r[len(r)/2], r[0], r[len(r)-1]}
		t.Logf("%-11s %.2f   %.2f to %.2f", kind, got[0], got[1], got[2])
		for i, figure := range manual[kind] {
			if math.Abs(figure-got[i]) > 0.0051 {
				t.Errorf("%s: median and extremes are %.2f, the manual says %.2f", kind, got, manual[kind])
				break
			}
		}
	}
	if len(ratios) != len(manual) {
		t.Errorf("%d kinds of text, the manual has %d", len(ratios), len(manual))
	}
}

func TestTheAnthropicFamilyIsAStatedFactorOfOpenAI(t *testing.T) {
	t.Parallel()
	for _, text := range corpus(t) {
		// Rounded up once each, so within one and a half.
		want := 1.4 * float64(OpenAI.Text(text.text))
		if got := float64(Anthropic.Text(text.text)); got > want+1 || got < want-1.4 {
			t.Errorf("%s, text %d: %v tokens, want %v", text.kind, text.index, got, want)
		}
	}
}

func TestTheGeminiFamilyIsEstimateText(t *testing.T) {
	t.Parallel()
	for _, text := range corpus(t) {
		if got, want := Gemini.Text(text.text), EstimateText(text.text); got != want || Family(77).Text(text.text) != want {
			t.Errorf("%s, text %d: %d tokens, want %d", text.kind, text.index, got, want)
		}
	}
}

func TestFamiliesByModelName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		model string
		want  Family
		known bool
	}{
		{"gemini-2.5-flash", Gemini, true},
		{"publishers/google/models/gemini-3-pro-preview", Gemini, true},
		{"Gemma-3-27b-it", Gemini, true},
		{"gpt-5-mini", OpenAI, true},
		{"openai/gpt-4o-2024-08-06", OpenAI, true},
		{"chatgpt-4o-latest", OpenAI, true},
		{"o3", OpenAI, true},
		{"O4-mini", OpenAI, true},
		{"azure/o1-preview", OpenAI, true},
		{"ft:gpt-4.1-mini:acme::abc", OpenAI, true},
		{"computer-use-preview", OpenAI, true},
		{"text-embedding-ada-002", OpenAI, true},
		{"text-embedding-004", Gemini, false}, // Google's
		{"claude-opus-4-7", Anthropic, true},
		{"eu.anthropic.claude-sonnet-4-5-20250929-v1:0", Anthropic, true},
		{"claude-opus-5@20270101", Anthropic, true},
		{"", Gemini, false},
		{"o", Gemini, false},
		{"o33", Gemini, false},
		{"olmo-2", Gemini, false},
		{"my-deployment", Gemini, false},
		{"llama-4-maverick", Gemini, false},
	} {
		if got, known := FamilyOf(c.model); got != c.want || known != c.known {
			t.Errorf("%q: %v, %v, want %v, %v", c.model, got, known, c.want, c.known)
		}
	}
}

func TestFamilyTextDoesNotAllocate(t *testing.T) {
	for _, text := range corpus(t) {
		for f := Gemini; f <= Anthropic; f++ {
			if n := testing.AllocsPerRun(3, func() { f.Text(text.text) }); n != 0 {
				t.Fatalf("%v, %s: %v allocations", f, text.kind, n)
			}
		}
	}
}

// What nobody would write must not cost nearly nothing. Truths are o200k_base's.
func TestTextsWithoutEndCostSomething(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		piece string
		truth int64 // tokens of 3,000 bytes of it
	}{
		{" ", 24}, {"\n", 188}, {"\t", 188}, {"-", 47}, {"0", 1000}, {"_", 48}, {"!", 188},
		{"x", 375}, {"A", 375}, {"A1b", 3000}, {"a1", 3000}, {"中", 1000}, {"😀", 750}, {".", 48},
	} {
		if got := OpenAI.Text(strings.Repeat(c.piece, 3000/len(c.piece))); 2*got < c.truth {
			t.Errorf("3,000 bytes of %q: %d tokens, the truth is %d", c.piece, got, c.truth)
		}
	}
	// Syllables and letters without end are known to be below.
	for piece, truth := range map[string]int64{"the": 1000, "e": 750, "а": 750, "ا": 1500} {
		if got := OpenAI.Text(strings.Repeat(piece, 3000/len(piece))); 6*got < truth {
			t.Errorf("3,000 bytes of %q: %d tokens, the truth is %d", piece, got, truth)
		}
	}
}

// The corpus does not have these scripts; their costs are rounded from these
// samples. Truths are o200k_base's.
func TestScriptsThatWereNotFittedAreNearTheirSamples(t *testing.T) {
	t.Parallel()
	for name, truth := range map[string]int64{
		"am": 206, "bo": 106, "gu": 32, "hy": 66, "km": 55, "kn": 34,
		"lo": 129, "ml": 33, "my": 86, "pa": 50, "si": 51, "te": 34, "vi": 101,
	} {
		b, err := os.ReadFile(filepath.Join("testdata", "samples", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		if ratio := float64(OpenAI.Text(string(b))) / float64(truth); ratio < 0.75 || ratio > 1.25 {
			t.Errorf("%s: %.2f of the truth", name, ratio)
		}
	}
}

func TestEveryStepOfTheScanStaysInItsTable(t *testing.T) {
	t.Parallel()
	if states > 1<<stateBits || classes > 1<<classBits {
		t.Fatalf("%d states, %d classes", states, classes)
	}
	for state := range states {
		for c := range classes {
			next, made := step(state, c)
			if next < 0 || next >= states {
				t.Errorf("state %d, class %d: next is %d", state, c, next)
			}
			cost := 0
			for _, f := range made {
				if f >= features {
					t.Fatalf("state %d, class %d: feature %d", state, c, f)
				}
				cost += int(featureCosts[f])
			}
			if entry := stepTable[state<<classBits|int(c)]; int(entry.cost) != cost || int(entry.next) != next<<classBits {
				t.Errorf("state %d, class %d: entry %v, cost %d, next %d", state, c, entry, cost, next)
			}
		}
	}
	for f := range features {
		if featureCosts[f] > 4*token {
			t.Errorf("feature %d costs %d", f, featureCosts[f])
		}
	}
}

func TestDecodeIsThatOfTheStandardLibrary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOfN(rapid.OneOf(rapid.ByteRange(0x80, 0xFF), rapid.Byte()), 1, 6).Draw(t, "bytes"))
		if s[0] < utf8.RuneSelf {
			return
		}
		r, n := decode(s, 0)
		if wr, wn := utf8.DecodeRuneInString(s); r != wr || n != wn {
			t.Fatalf("%q: %U of %d bytes, want %U of %d", s, r, n, wr, wn)
		}
	})
	for r := rune(0x80); r <= utf8.MaxRune; r++ {
		s := string(r)
		if got, n := decode(s, 0); n != len(s) || string(got) != s {
			t.Fatalf("%U: %U of %d bytes", r, got, n)
		}
	}
}

func FuzzFamilyText(f *testing.F) {
	f.Add("", "")
	f.Add("two words", " and  more")
	f.Add("camelCaseHTTPServer2x", "\n\n\t\t}\r\n")
	f.Add("ünïcödé 中文 😀 ", "слово ไทย")
	f.Add("\xff\xfe", "\xe4\xb8")
	f.Fuzz(func(t *testing.T, a, b string) {
		whole := a + b
		for family := Gemini; family <= Anthropic; family++ {
			n := family.Text(whole)
			if (n == 0) != (whole == "") || n < 0 || n > 6*int64(len(whole)) {
				t.Fatalf("%v: %d tokens for %d bytes", family, n, len(whole))
			}
			if got := tokensOf(familyCost(family, []byte(whole))); got != n {
				t.Fatalf("%v: %d tokens as bytes, %d as a string", family, got, n)
			}
			if utf8.ValidString(a) && family.Text(a) > n {
				t.Fatalf("%v: the beginning has more tokens than the whole, %d", family, n)
			}
			var replaced strings.Builder
			for _, r := range whole { // ranges over a broken byte as one U+FFFD
				replaced.WriteRune(r)
			}
			if got := family.Text(replaced.String()); got != n {
				t.Fatalf("%v: %d tokens, %d with broken bytes replaced", family, n, got)
			}
		}
	})
}

func ExampleFamily_Text() {
	text := `{"level":412,"open":true}`
	for _, f := range []Family{Gemini, OpenAI, Anthropic} {
		fmt.Println(f, f.Text(text))
	}
	// Output:
	// gemini 12
	// openai 8
	// anthropic 11
}
