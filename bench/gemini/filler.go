package gemini

import "github.com/headgate-go/headgate/bench/internal/engine"

// passage is what answers are made of. It is read in a circle, so it ends with
// a space; it is ASCII, so a byte is a character.
const passage = "The headgate stands where the canal leaves the river. In spring the water is high, and every field " +
	"takes what it likes; in August a keeper walks along the bank with a key and a list. She opens the first gate by " +
	"three turns, waits until the ditch has filled, and writes the hour down. The large farm below the bend would " +
	"empty the canal in a morning if it were let, so its gate has a stop. The garden by the school needs little and " +
	"needs it early, and nobody has ever seen it go dry. When the river falls below the mark on the pier, all shares " +
	"fall alike. What one field does not use runs on to the next. At night the gates are closed, the list is added " +
	"up, and the sum is held against the mark: it has never been more than the river gave. "

// filler is an endless text of which every token has RunesPerToken characters.
type filler struct{ start int }

// newFiller begins at a word of the passage that the draw chooses.
func newFiller(d engine.Draw, name string) filler {
	start := d.IntN(name, len(passage))
	for passage[(start+len(passage)-1)%len(passage)] != ' ' {
		start = (start + 1) % len(passage)
	}
	return filler{start}
}

// text returns the tokens from the first to before the second.
func (f filler) text(from, to int) string {
	b := make([]byte, 0, max(to-from, 0)*RunesPerToken)
	for i := f.start + from*RunesPerToken; len(b) < cap(b); {
		i %= len(passage)
		n := min(len(passage)-i, cap(b)-len(b))
		b = append(b, passage[i:i+n]...)
		i += n
	}
	return string(b)
}

// cut returns the part of a text that lies between two tokens, if it has so
// many in all, evenly long.
func cut(text string, from, to, tokens int) string {
	if tokens <= 0 {
		return text
	}
	runes := []rune(text)
	return string(runes[len(runes)*from/tokens : len(runes)*to/tokens])
}
