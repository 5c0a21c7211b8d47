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
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// lanes has a 1 in each 16-bit lane of a word; pairMask is the index of two
// ASCII characters.
const (
	lanes    = 0x0001000100010001
	pairMask = 1<<14 - 1
)

// pairCost is what two ASCII characters cost together: half the look-ups of one
// by one, from a table of 32 kB that stays in the first cache.
var pairCost = func() (costs [pairMask + 1]uint16) {
	for i := range costs {
		costs[i] = asciiCost[i&0x7f] + asciiCost[i>>7]
	}
	return costs
}()

// textCost is the cost of a text in thousandths of a token.
func textCost[T string | []byte](s T) int64 {
	var cost int64
	var space uint64 // 0x80 if the byte before s[i] is a space, else 0
	for i := 0; i < len(s); {
		if i+8 <= len(s) {
			b := s[i : i+8]
			w := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
				uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
			if w&highs == 0 {
				// Two bytes of seven bits make an index of fourteen, in each
				// of the word's four lanes.
				pairs := w&(0x007f*lanes) | w&(0x7f00*lanes)>>1
				cost += int64(uint32(pairCost[pairs&pairMask]) + uint32(pairCost[pairs>>16&pairMask]) +
					uint32(pairCost[pairs>>32&pairMask]) + uint32(pairCost[pairs>>48&pairMask]))
				// XOR makes a space 0; adding 0x7f then sets the top bit of
				// every other byte, and carries into none.
				spaces := highs &^ ((w ^ ' '*ones) + 0x7f*ones)
				if again := spaces & (spaces<<8 | space); again != 0 {
					cost -= spaceRun * int64(bits.OnesCount64(again))
				}
				space = spaces >> 56
				i += 8
				continue
			}
		}
		if c := s[i]; c < utf8.RuneSelf {
			cost += int64(asciiCost[c])
			if c != ' ' {
				space = 0
			} else if space == 0 {
				space = 0x80
			} else {
				cost -= spaceRun
			}
			i++
			continue
		}
		// A run of other scripts is read to its end before the eight-byte
		// scan is tried again.
		space = 0
		for i < len(s) && s[i] >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			cost += runeCost(r)
			i += n
		}
	}
	return cost
}

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
