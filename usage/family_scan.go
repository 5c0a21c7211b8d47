package usage

import "unicode/utf8"

// The scan of text for [OpenAI] is an automaton over classes of characters. Its
// states are what the vocabulary's own rules for cutting a text look at: a word
// takes the space or the sign before it along, an upper-case letter after a
// small one begins another word, digits are cut into groups of three, and the
// spaces that indent a line are one piece. Within a word the state knows how
// many letters came and how many consonants in a row, since words that are
// long, or that nobody could pronounce, are made of several tokens.
//
// Each step costs the sum of its features, whose costs are in family_costs.go.
// All of it is folded into one table, so that a step is one look-up.

// class is a class of characters.
type class = uint8

const (
	classVowel     class = iota
	classCommon          // consonants: common ones
	classMedium          // b c f g h m p
	classRare            // k v w y
	classRarest          // j q x z
	classUpper           // A to Z
	classMarked          // Latin letters beyond ASCII
	classDigit           // 0 to 9
	classSpace           // a space
	classTab             // tab
	classNewline         // line feed, carriage return
	classStop            // . ,
	classQuote           // " '
	classColon           // : ;
	classOpen            // ( [ { <
	classClose           // ) ] } >
	classRuler           // - = * # ~ _ /, of which there may be a row
	classSign            // the other signs of ASCII
	classControl         // the other control characters
	classOther           // a letter of another script
	classOtherSign       // a sign beyond ASCII
	classes              // how many there are
)

// States, by what was read last.
const (
	stateBegin   = iota // nothing
	stateSpace          // one space
	stateSpaces         // several
	stateTab            // tabs
	stateNewline        // the end of a line
	stateSign           // one sign
	stateSigns          // several
	stateRuler          // one of those of which there may be a row
	stateDigit1         // digits: the first of a group of three,
	stateDigit2         // the second,
	stateDigit3         // the third
	stateOther          // a letter of another script
	stateUpper          // an upper-case letter that begins a word
	stateUppers         // several
	stateMixed          // letters that follow a digit, or a change of case that is
	_                   // too early to begin a word: base64, hexadecimal; by small
	_                   // letters in a row: 0 to 3. With the fourth they are a word.
	_                   //
	stateWord           // small letters, by their number and by consonants in a row
)

// Numbers of the states, and of the table over them.
const (
	maxLetters    = 13 // of a word that are told apart, and more
	maxConsonants = 3  // in a row, and more
	states        = stateWord + maxLetters*(maxConsonants+1)
	mixedLetters  = 3 // small letters in a row until a mix becomes a word
	camelLetters  = 3 // letters of a word after which an upper-case one begins another
	classBits     = 5
	stateBits     = 7
	tableSize     = 1 << (classBits + stateBits)
)

// wordState is the state after a number of letters of a word, of which the last
// few are consonants.
func wordState(letters, consonants int) int {
	return stateWord + (min(letters, maxLetters)-1)*(maxConsonants+1) + min(consonants, maxConsonants)
}

// scanCost is what a text costs with [OpenAI], in thousandths of a token.
func scanCost[T string | []byte](s T) int64 {
	var cost uint64
	var state uint16 // ready to be joined with a class
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			step := &stepTable[state|uint16(classOf[c])]
			cost += uint64(step.cost)
			state = step.next
			i++
			continue
		}
		r, size := decode(s, i)
		i += size
		script := &scripts[scriptOf(r)]
		step := &stepTable[state|uint16(script.class)]
		cost += uint64(step.cost)
		if state == stateOther<<classBits {
			cost += uint64(script.within)
		} else {
			cost += uint64(script.first)
		}
		state = step.next
	}
	return int64(cost)
}

// decode reads the character beyond ASCII at i, as utf8.DecodeRune does. The
// usual ones, of two and three bytes, it reads without a call.
func decode[T string | []byte](s T, i int) (r rune, size int) {
	c := s[i]
	switch {
	case c >= 0xC2 && c < 0xE0 && i+1 < len(s) && s[i+1]&0xC0 == 0x80:
		return rune(c&0x1F)<<6 | rune(s[i+1]&0x3F), 2
	case c > 0xE0 && c < 0xED && i+2 < len(s) && s[i+1]&0xC0 == 0x80 && s[i+2]&0xC0 == 0x80:
		return rune(c&0x0F)<<12 | rune(s[i+1]&0x3F)<<6 | rune(s[i+2]&0x3F), 3
	}
	return utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
}

// classOf is the class of each byte below 0x80.
var classOf = func() (of [256]class) {
	for c := range of {
		of[c] = classControl
		switch {
		case c >= 'A' && c <= 'Z':
			of[c] = classUpper
		case c >= '0' && c <= '9':
			of[c] = classDigit
		case c > ' ' && c < 0x7F:
			of[c] = classSign
		}
	}
	for _, group := range [...]struct {
		chars string
		class class
	}{
		{"aeiou", classVowel},
		{"tnsrld", classCommon},
		{"bcfghmp", classMedium},
		{"kvwy", classRare},
		{"jqxz", classRarest},
		{" ", classSpace},
		{"\t", classTab},
		{"\n\r", classNewline},
		{".,", classStop},
		{`"'`, classQuote},
		{":;", classColon},
		{"([{<", classOpen},
		{")]}>", classClose},
		{"-=*#~_/", classRuler},
	} {
		for _, c := range []byte(group.chars) {
			of[c] = group.class
		}
	}
	return of
}()

// stepTable holds the step from each state, in the upper bits of the index, over
// each class.
var stepTable = newStepTable(&featureCosts)

// tableStep is what a step comes to: the cost, and the state that follows, in
// the bits in which the index wants it.
type tableStep struct{ next, cost uint16 }

func newStepTable(costs *[features]uint16) (table [tableSize]tableStep) {
	for state := range states {
		for c := range classes {
			next, made := step(state, c)
			to := &table[state<<classBits|int(c)]
			to.next = uint16(next) << classBits
			for _, f := range made {
				to.cost += costs[f]
			}
		}
	}
	return table
}
