package httpgate

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep a JSON text may be nested. What is deeper is not read;
// no provider's format comes near it.
const maxDepth = 128

// longest is how many bytes of a key, and of a number or word, are kept. None of
// those that are looked for is longer; longer ones are passed over.
const longest = 48

// sink is told what a scanner finds. A path of the scanner leads to what it is
// told of: the keys of the members and elements that lie around it.
type sink interface {
	// open tells of the beginning of an object or, with list, of an array.
	open(s *scanner, list bool)
	// shut tells of its end, the path being what it was at open.
	shut(s *scanner)
	// member tells of a member of an object: the path ends with its key. The
	// name is cut where it is very long.
	member(s *scanner, name []byte)
	// text gives the next piece of a string, unescaped; it may be cut anywhere.
	text(s *scanner, piece []byte)
	// textEnd tells of the end of a string, which may have had no piece.
	textEnd(s *scanner)
	// literal gives a number, true, false or null.
	literal(s *scanner, word []byte)
}

// scanner reads a JSON text that comes in pieces, and tells a sink what is in it
// as soon as it is there. It keeps no more than the path to where it is, so that
// its memory does not grow with the text. It reads what it understands and does
// not validate: a text that is no JSON has an end of some kind, and broken is set
// if that was noticed.
type scanner struct {
	sink   sink
	depth  int                   // of open objects and arrays
	base   int                   // path elements that lie outside of the document
	state  state                 // what comes next
	inKey  bool                  // the string that is read is a key
	inList bool                  // what is open is an array
	lists  [maxDepth / 64]uint64 // of each depth
	path   [maxDepth]key
	buf    [longest]byte // of a key or literal
	n      int           // bytes in buf; more than that many are cut off
	hex    rune          // of an escape that is read
	digits int           // of hex that are still to come
	high   rune          // the first half of a pair of escapes; 0 is none
	left   int           // bytes of the piece from where an object or array begins
	ended  bool          // the whole text was read
	broken bool          // the text is no JSON, or too deep
}

type state uint8

const (
	wantValue state = iota // or the end of an empty array
	wantKey                // or the end of an object
	wantColon              //
	wantComma              // or an end
	inString               //
	inEscape               // after a backslash
	inHex                  // after \u
	inLiteral              //
	atEnd                  // after the whole text
)

// reset makes the scanner ready for another text.
func (s *scanner) reset() {
	s.depth, s.base, s.state, s.inKey, s.inList = 0, 0, wantValue, false, false
	s.n, s.digits, s.high, s.ended, s.broken = 0, 0, 0, false, false
}

// feed reads the next piece.
func (s *scanner) feed(p []byte) {
	for i := 0; i < len(p) && !s.broken && !s.ended; {
		switch s.state {
		case inString:
			i += s.run(p[i:])
		case inEscape:
			s.escape(p[i])
			i++
		case inHex:
			s.hexDigit(p[i])
			i++
		case inLiteral:
			from := i
			for i < len(p) && !delimiters[p[i]] {
				i++
			}
			s.piece(p[from:i])
			if i < len(p) {
				s.endLiteral()
			}
		default:
			if c := p[i]; c > ' ' || !delimiters[c] {
				s.left = len(p) - i
				s.structure(c)
			}
			i++
		}
	}
}

// end tells that there is no more: a number at the top ends here.
func (s *scanner) end() {
	if s.state == inLiteral && s.depth == 0 && !s.broken {
		s.endLiteral()
	}
}

// run reads a string up to its end, or to an escape. It returns how many bytes
// that took.
func (s *scanner) run(p []byte) int {
	n := plainRun(p)
	whole := n < len(p) && p[n] == '"'
	switch {
	case s.inKey && whole && s.n == 0 && s.high == 0: // as almost every key
		s.endKey(p[:n], n)
		return n + 1
	case n > 0:
		s.lone()
		if s.inKey {
			s.piece(p[:n])
		} else {
			s.sink.text(s, p[:n])
		}
	}
	switch {
	case n == len(p):
		return n
	case !whole:
		s.state = inEscape
		return n + 1
	}
	s.lone()
	if s.inKey {
		s.endKey(s.kept(), s.n)
	} else {
		s.state = wantComma
		s.sink.textEnd(s)
		s.value()
	}
	return n + 1
}

// plainRun is how far a string goes on without a quote or a backslash. It looks
// at eight bytes as one word: where a byte of it is the one that is looked for,
// the difference to a word of these is a zero byte, and what subtracts 1 from it
// borrows into its top bit (H. S. Warren, Hacker's Delight, section 6-1).
func plainRun(p []byte) (n int) {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; n+8 <= len(p); n += 8 {
		w := binary.LittleEndian.Uint64(p[n:])
		quote, slash := w^ones*'"', w^ones*'\\'
		if found := ((quote-ones)&^quote | (slash-ones)&^slash) & highs; found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	for n < len(p) && p[n] != '"' && p[n] != '\\' {
		n++
	}
	return n
}

// piece takes a piece of a key or of a literal.
func (s *scanner) piece(p []byte) {
	if s.n < longest {
		copy(s.buf[s.n:], p)
	}
	s.n += len(p)
}

// some takes a piece of a string or key that was escaped.
func (s *scanner) some(p []byte) {
	if s.inKey {
		s.piece(p)
	} else {
		s.sink.text(s, p)
	}
}

// kept is what was kept of a key or literal.
func (s *scanner) kept() []byte { return s.buf[:min(s.n, longest)] }

// endKey ends a key of n bytes.
func (s *scanner) endKey(name []byte, n int) {
	s.state = wantColon
	k := unknownKey
	if n <= longest {
		k = keyOf(name)
	}
	s.path[s.depth-1] = k
	s.sink.member(s, name[:min(n, longest)])
}

func (s *scanner) endLiteral() {
	s.state = wantComma
	s.sink.literal(s, s.kept())
	s.value()
}

// value tells that a value has ended.
func (s *scanner) value() {
	if s.depth == 0 {
		s.state, s.ended = atEnd, true
	}
}

// escape reads what follows a backslash.
func (s *scanner) escape(c byte) {
	s.state = inString
	if c == 'u' {
		s.state, s.hex, s.digits = inHex, 0, 4
		return
	}
	s.lone()
	switch c {
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	}
	b := [1]byte{c}
	s.some(b[:])
}

// hexDigit reads a digit of a \u escape.
func (s *scanner) hexDigit(c byte) {
	switch {
	case '0' <= c && c <= '9':
		c -= '0'
	case 'a' <= c && c <= 'f':
		c -= 'a' - 10
	case 'A' <= c && c <= 'F':
		c -= 'A' - 10
	default:
		s.broken = true
		return
	}
	s.hex = s.hex<<4 | rune(c)
	if s.digits--; s.digits > 0 {
		return
	}
	s.state = inString
	switch r := s.hex; {
	case s.high != 0:
		high := s.high
		s.high = 0
		if pair := utf16.DecodeRune(high, r); pair != utf8.RuneError {
			s.rune(pair)
			return
		}
		s.rune(utf8.RuneError)
		fallthrough
	default:
		if utf16.IsSurrogate(r) && r < 0xdc00 {
			s.high = r // the other half may follow
			return
		}
		s.rune(r)
	}
}

// lone replaces the first half of a pair whose other half does not follow.
func (s *scanner) lone() {
	if s.high != 0 {
		s.high = 0
		s.rune(utf8.RuneError)
	}
}

func (s *scanner) rune(r rune) {
	var b [utf8.UTFMax]byte
	s.some(b[:utf8.EncodeRune(b[:], r)])
}

// structure reads a byte outside of strings and literals.
func (s *scanner) structure(c byte) {
	if c == '}' || c == ']' {
		s.pop(c == ']')
		return
	}
	switch s.state {
	case wantValue:
		switch c {
		case '{', '[':
			s.push(c == '[')
		case '"':
			s.state, s.inKey = inString, false
		case ',', ':':
			s.broken = true
		default:
			if s.depth == 0 && c != '-' && (c < '0' || c > '9') && c != 't' && c != 'f' && c != 'n' {
				s.broken = true // something else: a page, a text
				return
			}
			s.state, s.n, s.buf[0] = inLiteral, 1, c
		}
	case wantKey:
		if c != '"' {
			s.broken = true
			return
		}
		s.state, s.inKey, s.n = inString, true, 0
	case wantColon:
		s.state, s.broken = wantValue, c != ':'
	case wantComma:
		s.broken = c != ',' || s.depth == 0
		if s.state = wantKey; s.inList {
			s.state = wantValue
		}
	}
}

func (s *scanner) push(list bool) {
	if s.depth == maxDepth {
		s.broken = true
		return
	}
	s.sink.open(s, list)
	word, bit := &s.lists[s.depth/64], uint64(1)<<(s.depth%64)
	if *word &^= bit; list {
		*word |= bit
	}
	s.path[s.depth] = unknownKey
	if s.state = wantKey; list {
		s.state, s.path[s.depth] = wantValue, element
	}
	s.inList = list
	s.depth++
}

func (s *scanner) pop(list bool) {
	// A comma before the end, or a key without a value, is let pass.
	if s.depth == 0 || s.inList != list {
		s.broken = true
		return
	}
	s.depth--
	s.inList = s.depth > 0 && s.isList(s.depth-1)
	s.state = wantComma
	s.sink.shut(s)
	s.value()
}

func (s *scanner) isList(depth int) bool {
	return s.lists[depth/64]>>(depth%64)&1 == 1
}

// at reports whether the path is this one, below the document.
func (s *scanner) at(keys ...key) bool {
	if s.depth-s.base != len(keys) {
		return false
	}
	for i, k := range keys {
		if s.path[s.base+i] != k {
			return false
		}
	}
	return true
}

// last is the last key of the path; element inside of an array.
func (s *scanner) last() key {
	if s.depth <= s.base {
		return unknownKey
	}
	return s.path[s.depth-1]
}

// up is the key n steps before the last.
func (s *scanner) up(n int) key {
	if s.depth-1-n < s.base {
		return unknownKey
	}
	return s.path[s.depth-1-n]
}

// delimiters end a literal. Those up to the space are nothing outside of one.
var delimiters = [256]bool{
	' ': true, '\t': true, '\r': true, '\n': true,
	',': true, ':': true, '"': true, '{': true, '}': true, '[': true, ']': true,
}

// number reads a count. A fraction is cut off, what is too large is the largest
// one, and what is no number is none.
func number(word []byte) (int64, bool) {
	if len(word) <= 18 {
		n, plain := int64(0), len(word) > 0
		for _, c := range word {
			if c < '0' || c > '9' {
				plain = false
				break
			}
			n = n*10 + int64(c-'0')
		}
		if plain {
			return n, true
		}
	}
	if n, err := strconv.ParseInt(string(word), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(word), 64)
	switch {
	case f >= math.MaxInt64:
		return math.MaxInt64, true
	case f <= math.MinInt64:
		return math.MinInt64, true
	case err != nil || f != f:
		return 0, false
	}
	return int64(f), true
}
