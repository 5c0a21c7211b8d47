package usage

// script is what characters beyond ASCII cost with [OpenAI], in thousandths of
// a token: those of one block of Unicode, or of some that cost alike.
type script struct {
	name   string
	class  class
	first  uint16 // after anything else
	within uint16 // after a letter of a script other than Latin
}

// scripts are all that are told apart. Those of which the corpus has enough were
// fitted to its one half, as featureCosts were. The others are rounded from what
// the samples of this package's tests cost, or are guesses.
var scripts = [...]script{
	rareScript:  {"rare characters", classOther, 3500, 3500},
	1:           {"Latin-1 signs", classOtherSign, 900, 900},
	2:           {"Latin letters with marks", classMarked, 244, 0},
	3:           {"combining marks", classOther, 600, 600},
	4:           {"Greek", classOther, 996, 272},
	5:           {"Cyrillic", classOther, 1011, 150},
	6:           {"Armenian", classOther, 900, 320},
	7:           {"Hebrew", classOther, 932, 273},
	8:           {"Arabic", classOther, 940, 175},
	9:           {"Devanagari", classOther, 805, 206},
	10:          {"Bengali", classOther, 980, 271},
	11:          {"Tamil", classOther, 1008, 265},
	12:          {"Gujarati, Telugu, Kannada, Malayalam", classOther, 600, 260},
	13:          {"Gurmukhi, Oriya, Sinhala", classOther, 800, 450},
	14:          {"Thai", classOther, 1061, 398},
	15:          {"Lao, Tibetan", classOther, 1700, 1650},
	16:          {"Myanmar, Khmer", classOther, 800, 620},
	17:          {"Ethiopic", classOther, 2100, 2100},
	18:          {"Georgian", classOther, 972, 262},
	19:          {"Hangul", classOther, 1052, 615},
	20:          {"Kana", classOther, 693, 786},
	21:          {"Han", classOther, 829, 815},
	22:          {"Latin letters of Vietnamese", classVowel, 250, 250},
	23:          {"dashes and typographic quotes", classOtherSign, 900, 900},
	24:          {"currency, arrows, mathematics", classOtherSign, 1500, 1500},
	25:          {"box drawing", classOtherSign, 600, 600},
	26:          {"shapes and dingbats", classOtherSign, 1533, 1500},
	27:          {"punctuation of East Asia", classOtherSign, 800, 829},
	28:          {"selectors", classOtherSign, 500, 500},
	emojiScript: {"emoji", classOtherSign, 2024, 1800},
}

const (
	rareScript  = 0
	emojiScript = 29
)

// scriptOf tells the script of a character beyond ASCII.
func scriptOf(r rune) uint8 {
	switch {
	case r < 0x10000:
		return blockScript[r>>4]
	case r >= 0x1F000 && r < 0x1FB00:
		return emojiScript
	}
	return rareScript
}

// blockScript is scriptOf for the Basic Multilingual Plane, by runs of 16
// characters.
var blockScript = func() (of [0x1000]uint8) {
	for _, block := range [...]struct {
		first, last rune
		script      uint8
	}{
		{0x0080, 0x00BF, 1},
		{0x00C0, 0x024F, 2},
		{0x0300, 0x036F, 3},
		{0x0370, 0x03FF, 4},
		{0x0400, 0x052F, 5},
		{0x0530, 0x058F, 6},
		{0x0590, 0x05FF, 7},
		{0x0600, 0x077F, 8},
		{0x0900, 0x097F, 9},
		{0x0980, 0x09FF, 10},
		{0x0A00, 0x0A7F, 13}, // Gurmukhi
		{0x0A80, 0x0AFF, 12}, // Gujarati
		{0x0B00, 0x0B7F, 13}, // Oriya
		{0x0B80, 0x0BFF, 11},
		{0x0C00, 0x0D7F, 12}, // Telugu, Kannada, Malayalam
		{0x0D80, 0x0DFF, 13}, // Sinhala
		{0x0E00, 0x0E7F, 14},
		{0x0E80, 0x0FFF, 15},
		{0x1000, 0x109F, 16}, // Myanmar
		{0x10A0, 0x10FF, 18},
		{0x1100, 0x11FF, 19},
		{0x1200, 0x139F, 17},
		{0x1780, 0x17FF, 16}, // Khmer
		{0x1E00, 0x1EFF, 22},
		{0x1F00, 0x1FFF, 4}, // polytonic Greek
		{0x2000, 0x206F, 23},
		{0x2070, 0x24FF, 24},
		{0x2500, 0x259F, 25},
		{0x25A0, 0x2BFF, 26},
		{0x3000, 0x303F, 27},
		{0x3040, 0x30FF, 20},
		{0x3130, 0x318F, 19},
		{0x4E00, 0x9FFF, 21},
		{0xAC00, 0xD7AF, 19},
		{0xFB50, 0xFDFF, 8}, // Arabic, presentation forms
		{0xFE00, 0xFE0F, 28},
		{0xFE70, 0xFEFF, 8},
		{0xFF00, 0xFFEF, 27}, // full-width forms
		{0xFFF0, 0xFFFF, 23}, // the replacement character
	} {
		for i := block.first >> 4; i <= block.last>>4; i++ {
			of[i] = block.script
		}
	}
	return of
}()
