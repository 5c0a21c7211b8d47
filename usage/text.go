package usage

import (
	"math/bits"
	"unicode/utf8"
)

// EstimateText estimates how many Gemini tokens a text has, in one pass and
// without allocating. The empty text has 0, any other at least 1.
//
// It is no tokenizer: every character has a fixed cost, in thousandths of a
// token, and the sum is rounded up. The costs were fitted, leaning to the high
// side, to counts of the Gemma 3 vocabulary, by which the genai module's local
// tokenizer counts for Gemini models; prompts of recorded calls to
// gemini-2.5-flash came to its count and one token per content. Rare letters
// cost more than common ones, since they are seldom part of a known word; a
// digit is a token; a space is a fraction of the word that it begins, and
// nearly free after another space.
//
// Estimate over truth, measured: first on 2 kB pieces of 337 public files that
// had no part in the fit, then on the samples of this package's tests, which
// had, and which are a few hundred characters each.
//
//	Markdown, 40 files                         1.0 to 1.4, median 1.2
//	Go, Python, JavaScript, shell, 137 files   0.7 to 1.4, median 1.1
//	JSON and YAML, 80 files                    0.9 to 1.3, median 1.1
//	HTML and plain text, 80 files              0.7 to 1.7, median 1.1
//
//	prose, chat, instructions in English       1.0 to 1.2
//	prose in 12 other languages, Latin script  0.8 to 1.2
//	prose in 26 languages, other scripts       0.9 to 1.5
//	code, data, logs, tables of numbers        0.9 to 1.5
//	emoji, symbols, upper case, noise          0.9 to 1.7
//	base64, hexadecimal, random letters        0.7 to 1.1
//
// Far below the truth is only text made of the rarest characters of a script
// (random Han 0.4, random Hangul 0.3). Tokenizers that join digits, such as
// OpenAI's, need up to three times fewer tokens for numbers. A byte that is
// not UTF-8 counts as the replacement character, which is what JSON makes of
// it.
func EstimateText(s string) int64 { return tokensOf(textCost(s)) }

// token is the cost of one token. Costs are counted in thousandths of a token,
// so that a request's many short strings are rounded once, not one by one.
const token = 1000

// tokensOf rounds a cost up to whole tokens.
func tokensOf(cost int64) int64 { return cost/token + min(cost%token, 1) }

// spaceRun is how much cheaper a space is that follows a space.
const spaceRun = 225

// Constants of the scan that reads eight bytes as one word: ones times a byte
// is that byte in every place, highs the top bit of every byte.
const (
	ones   = 0x0101010101010101
	highs  = 0x80 * ones
	spaces = ' ' * ones
)

// pairCost is what two ASCII characters cost together, by the two bytes as they
// lie in memory: half the look-ups of one by one. It has room for any two bytes,
// so that indexing it needs no check of bounds; what ASCII text uses of it stays
// in the first cache.
var pairCost = func() (costs [1 << 16]uint16) {
	for first := range utf8.RuneSelf {
		for second := range utf8.RuneSelf {
			costs[second<<8|first] = asciiCost[first] + asciiCost[second]
		}
	}
	return costs
}()

// textCost is the cost of a text in thousandths of a token.
func textCost[T string | []byte](s T) int64 {
	var cost int64
	before := byte(0) // the byte before s
	for {
		n, c := asciiRun(s, before)
		cost += c
		if n > 0 {
			before, s = s[n-1], s[n:]
		}
		// What is left is shorter than a step, or begins with one that holds
		// other characters. A run of other scripts is read to its end.
		for len(s) > 0 && s[0] < utf8.RuneSelf {
			cost += int64(asciiCost[s[0]])
			if s[0] == ' ' && before == ' ' {
				cost -= spaceRun
			}
			before, s = s[0], s[1:]
		}
		if len(s) == 0 {
			return cost
		}
		before = 0
		for len(s) > 0 && s[0] >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(string(s[:min(len(s), utf8.UTFMax)]))
			cost += runeCost(r)
			s = s[n:]
		}
	}
}

// asciiRun is the cost of the ASCII text that s begins with, in steps of 16
// bytes, and how many bytes it is long. before is the byte before s.
func asciiRun[T string | []byte](s T, before byte) (n int, cost int64) {
	last := uint64(before ^ ' ') // 0 if the byte before is a space
	for ; n+16 <= len(s); n += 16 {
		b := s[n : n+16]
		v := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
			uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
		w := uint64(b[8]) | uint64(b[9])<<8 | uint64(b[10])<<16 | uint64(b[11])<<24 |
			uint64(b[12])<<32 | uint64(b[13])<<40 | uint64(b[14])<<48 | uint64(b[15])<<56
		// A byte of these is 0 where it is a space, of those where the one
		// before it is one, too.
		sv, sw := v^spaces, w^spaces
		rv, rw := sv|sv<<8|last, sw|sw<<8|sv>>56
		// Of bytes below 0x80, only a 0 less 1 has the top bit, and perhaps
		// its neighbour, to which it lends.
		if (v|w|(rv-ones)|(rw-ones))&highs != 0 {
			if (v|w)&highs != 0 {
				break
			}
			cost -= spaceRun * int64(zeros(rv)+zeros(rw))
		}
		last = sw >> 56
		cost += int64(uint32(pairCost[uint16(b[0])|uint16(b[1])<<8]) + uint32(pairCost[uint16(b[2])|uint16(b[3])<<8]) +
			uint32(pairCost[uint16(b[4])|uint16(b[5])<<8]) + uint32(pairCost[uint16(b[6])|uint16(b[7])<<8]) +
			uint32(pairCost[uint16(b[8])|uint16(b[9])<<8]) + uint32(pairCost[uint16(b[10])|uint16(b[11])<<8]) +
			uint32(pairCost[uint16(b[12])|uint16(b[13])<<8]) + uint32(pairCost[uint16(b[14])|uint16(b[15])<<8]))
	}
	return n, cost
}

// zeros is the number of bytes of w that are 0, if all are below 0x80: adding
// 0x7f sets the top bit of every other one, and carries into none.
func zeros(w uint64) int { return bits.OnesCount64(highs &^ (w + 0x7f*ones)) }

// asciiCost is what each ASCII character costs, in thousandths of a token. It
// has room for every byte, so that indexing it needs no check of bounds.
var asciiCost = func() (costs [256]uint16) {
	for c := range utf8.RuneSelf {
		costs[c] = token // control characters, and digits
	}
	for _, class := range [...]struct {
		chars string
		cost  uint16
	}{
		{"eaionrst", 115},
		{"lhducmpfg", 310},
		{"bywv", 520},
		{"kxjqz", 940},
		{"ABCDEFGHIJKLMNOPQRSTUVWXYZ", 370},
		{" ", 270},
		{"\n", 1320},
		{"\t\r", 650},
		{".,", 1370},
		{"-_/", 940},
		{`"'`, 530},
		{":;", 670},
		{"(){}[]<>", 390},
		{"!#$%&*+=?@\\^`|~", 730},
	} {
		for _, c := range class.chars {
			costs[c] = class.cost
		}
	}
	return costs
}()

// runeCost is what a character beyond ASCII costs, in thousandths of a token.
func runeCost(r rune) int64 {
	switch {
	case r < 0x10000:
		return int64(blockCost[r>>4])
	case r >= 0x1F000 && r < 0x1FB00: // emoji and pictographs
		return 1100
	}
	return 4 * token // rare enough to be spelled out in bytes
}

// blockCost is runeCost for the Basic Multilingual Plane, by runs of 16
// characters. Where nothing is known, a character is spelled out in its bytes.
var blockCost = func() (costs [0x1000]uint16) {
	for i := range costs {
		costs[i] = uint16(utf8.RuneLen(max(rune(i)<<4, utf8.RuneSelf))) * token
		if i >= 0xD80 && i < 0xE00 {
			costs[i] = token // surrogates, which UTF-8 cannot hold
		}
	}
	for _, block := range [...]struct {
		first, last rune
		cost        uint16
	}{
		{0x0080, 0x00BF, 1000}, // Latin-1 symbols
		{0x00C0, 0x024F, 500},  // Latin letters with marks
		{0x0300, 0x036F, 600},  // combining marks
		{0x0370, 0x03FF, 430},  // Greek
		{0x0400, 0x052F, 330},  // Cyrillic
		{0x0530, 0x058F, 600},  // Armenian
		{0x0590, 0x05FF, 470},  // Hebrew
		{0x0600, 0x077F, 360},  // Arabic
		{0x0900, 0x09FF, 310},  // Devanagari, Bengali
		{0x0A00, 0x0A7F, 680},  // Gurmukhi
		{0x0A80, 0x0AFF, 320},  // Gujarati
		{0x0B00, 0x0B7F, 680},  // Oriya
		{0x0B80, 0x0BFF, 250},  // Tamil
		{0x0C00, 0x0D7F, 310},  // Telugu, Kannada, Malayalam
		{0x0D80, 0x0DFF, 650},  // Sinhala
		{0x0E00, 0x0E7F, 340},  // Thai
		{0x0E80, 0x0FFF, 750},  // Lao, Tibetan
		{0x1000, 0x109F, 480},  // Myanmar
		{0x10A0, 0x10FF, 460},  // Georgian
		{0x1100, 0x11FF, 1000}, // Hangul letters
		{0x1200, 0x139F, 770},  // Ethiopic
		{0x1780, 0x17FF, 570},  // Khmer
		{0x1E00, 0x1EFF, 400},  // Vietnamese
		{0x1F00, 0x1FFF, 1000}, // polytonic Greek
		{0x2000, 0x206F, 1000}, // dashes, typographic quotes, joiners
		{0x2070, 0x24FF, 1300}, // currency, arrows, mathematics
		{0x2500, 0x259F, 500},  // box drawing
		{0x25A0, 0x2BFF, 1300}, // shapes, dingbats
		{0x3000, 0x303F, 800},  // punctuation of East Asia
		{0x3040, 0x30FF, 560},  // Kana
		{0x3130, 0x318F, 1000}, // Hangul letters
		{0x4E00, 0x9FFF, 790},  // Han
		{0xAC00, 0xD7AF, 720},  // Hangul syllables
		{0xFE00, 0xFE0F, 700},  // variation selectors
		{0xFF00, 0xFFEF, 800},  // full-width forms
		{0xFFF0, 0xFFFF, 1000}, // the replacement character
	} {
		for i := block.first >> 4; i <= block.last>>4; i++ {
			costs[i] = block.cost
		}
	}
	return costs
}()
