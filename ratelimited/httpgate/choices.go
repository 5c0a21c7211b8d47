package httpgate

// maxChoices is how many choices of an answer are told apart, and how many
// answers an estimate is for at most. OpenAI's API takes an n of 128; its
// completions take lists of prompts besides.
const maxChoices = 1 << 16

// choice is what a document tells of one choice of an answer.
type choice struct {
	index    int64
	finished bool
}

// choices knows which choices of an answer have begun and which have finished, a
// bit for each: a server may tell twice of one.
type choices struct {
	wanted          int64    // how many there will be; 0 is 1
	begun, finished []uint64 // grow up to maxChoices bits
	open, count     int64    // that have begun and not finished; that have finished
}

// add notes what a document tells of a choice.
func (c *choices) add(told choice) {
	i := uint64(told.index) % maxChoices
	if mark(&c.begun, i) {
		c.open++
	}
	if told.finished && mark(&c.finished, i) {
		c.open--
		c.count++
	}
}

// mark sets a bit, and reports whether it was not set yet.
func mark(bits *[]uint64, i uint64) bool {
	word, bit := int(i/64), uint64(1)<<(i%64)
	for len(*bits) <= word {
		*bits = append(*bits, 0)
	}
	if (*bits)[word]&bit != 0 {
		return false
	}
	(*bits)[word] |= bit
	return true
}

// all reports whether as many have finished as there will be.
func (c *choices) all() bool { return c.count >= max(c.wanted, 1) }

// whole reports whether nothing is missing of what has begun.
func (c *choices) whole() bool { return c.count > 0 && c.open == 0 }
