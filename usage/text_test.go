package usage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headgate-go/headgate/usage"
)

// samples are texts in testdata/samples with the number of tokens that the
// Gemma 3 vocabulary makes of them, by kinds of text. The bounds of estimate
// over truth are those that the manual of EstimateText gives.
var samples = []struct {
	kind   string
	lo, hi float64
	tokens map[string]int64
}{
	{"English", 1.0, 1.2, map[string]int64{
		"en_prose": 125, "en_chat": 60, "en_system": 89, "en_technical": 156,
	}},
	{"other languages in Latin script", 0.8, 1.2, map[string]int64{
		"de": 111, "es": 105, "fi": 106, "fr": 111, "hu": 92, "id": 76, "it": 83, "nl": 86, "pl": 122,
		"sw": 99, "tr": 101, "vi": 91,
	}},
	{"other scripts", 0.9, 1.5, map[string]int64{
		"am": 75, "ar": 97, "ar2": 60, "bn": 63, "bo": 51, "el": 104, "fa": 77, "gu": 35, "he": 105, "hi": 81,
		"hi2": 45, "hy": 92, "ja": 99, "ja2": 42, "ka": 78, "km": 45, "kn": 33, "ko": 97, "ko2": 48, "lo": 49,
		"ml": 34, "my": 68, "pa": 59, "ru": 110, "ru2": 58, "si": 49, "ta": 52, "te": 35, "th": 83, "th2": 60,
		"uk": 106, "zh": 107, "zh2": 49, "zh_hant": 90,
	}},
	{"code, data, logs, numbers", 0.9, 1.5, map[string]int64{
		"camel": 31, "csv_numbers": 165, "digits": 300, "go_code": 199, "html": 102, "json_compact": 118,
		"json_pretty": 118, "json_schema": 68, "log_lines": 218, "python_code": 168, "spaces": 94, "sql": 115,
		"url": 113,
	}},
	{"emoji, symbols, upper case, noise", 0.9, 1.7, map[string]int64{
		"box": 34, "emoji": 59, "ext_b": 400, "fullwidth": 20, "math": 73, "punct": 184, "typography": 57, "upper": 35,
	}},
	{"base64, hexadecimal, random letters", 0.7, 1.1, map[string]int64{
		"base64": 388, "hex": 450, "random_ascii": 304, "random_letters": 199, "uuids": 340,
	}},
	{"the rarest characters of a script", 0.25, 0.5, map[string]int64{
		"cjk_rare": 324, "hangul_rare": 416,
	}},
}

func readSample(tb testing.TB, name string) string {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "samples", name+".txt"))
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

func TestEstimateTextKeepsItsBounds(t *testing.T) {
	t.Parallel()
	used := 0
	for _, s := range samples {
		t.Run(s.kind, func(t *testing.T) {
			t.Parallel()
			for name, tokens := range s.tokens {
				got := usage.EstimateText(readSample(t, name))
				if ratio := float64(got) / float64(tokens); ratio < s.lo || ratio > s.hi {
					t.Errorf("%s: %d for %d tokens, ratio %.2f is not in [%.2f, %.2f]", name, got, tokens, ratio, s.lo, s.hi)
				}
			}
		})
		used += len(s.tokens)
	}
	files, err := filepath.Glob("testdata/samples/*.txt")
	if err != nil || len(files) != used {
		t.Errorf("%d of %d samples are tested (%v)", used, len(files), err)
	}
}

func TestEstimateTextOfLittle(t *testing.T) {
	t.Parallel()
	if got := usage.EstimateText(""); got != 0 {
		t.Errorf("no text has %d tokens", got)
	}
	for _, s := range []string{" ", "\n", "a", "é", "中", "\xff", "\x00", "the"} {
		if got := usage.EstimateText(s); got < 1 || got > 2 {
			t.Errorf("%q has %d tokens", s, got)
		}
	}
}

// A byte that is not UTF-8 becomes the replacement character in JSON.
func TestBrokenUTF8CountsAsReplacementCharacters(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"\xff", "abc\x80def", "\xe4\xb8", "\xed\xa0\x80", "\xf8\x88\x80\x80\x80", "\xc0\xaf plain"} {
		var replaced strings.Builder
		for _, r := range s { // ranges over a broken byte as one U+FFFD
			replaced.WriteRune(r)
		}
		if got, want := usage.EstimateText(s), usage.EstimateText(replaced.String()); got != want {
			t.Errorf("%q has %d tokens, %q has %d", s, got, replaced.String(), want)
		}
	}
}

func TestEstimateTextDoesNotAllocate(t *testing.T) {
	for _, name := range []string{"en_prose", "zh", "emoji", "vi"} {
		s := readSample(t, name)
		if n := testing.AllocsPerRun(100, func() { usage.EstimateText(s) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func FuzzEstimateText(f *testing.F) {
	f.Add("", "")
	f.Add("two words", " and  more")
	f.Add("eight by", "te words, then ünïcödé 中文 😀 ")
	f.Add("        ", "    x\n\t\ty")
	f.Add("\xff\xfe", "\xe4\xb8")
	f.Fuzz(func(t *testing.T, a, b string) {
		ca, cb, cab := usage.EstimateText(a), usage.EstimateText(b), usage.EstimateText(a+b)
		for s, n := range map[string]int64{a: ca, b: cb, a + b: cab} {
			if (n == 0) != (s == "") {
				t.Fatalf("%d tokens for %d bytes", n, len(s))
			}
			if most := int64(4 * len(s)); n < 0 || n > most {
				t.Fatalf("%d tokens for %d bytes", n, len(s))
			}
			if least := int64(len(s)) / 25; n < least {
				t.Fatalf("%d tokens for %d bytes", n, len(s))
			}
		}
		if !utf8.ValidString(a) || !utf8.ValidString(b) {
			return // the pieces of a character may cost more than it does
		}
		// However a text is cut, whatever its pieces' places in the eight-byte
		// scan, the pieces cost what the whole costs, but for rounding and
		// for a run of spaces that was cut.
		if cab < max(ca, cb) || cab > ca+cb || cab < ca+cb-2 {
			t.Fatalf("%q has %d tokens, %q has %d, together %d", a, ca, b, cb, cab)
		}
	})
}

func BenchmarkEstimateText(b *testing.B) {
	for _, name := range []string{"en_prose", "go_code", "vi", "ru", "zh"} {
		text := readSample(b, name)
		for len(text) < 1024 {
			text += text
		}
		text = text[:1024]
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				usage.EstimateText(text)
			}
		})
	}
}
