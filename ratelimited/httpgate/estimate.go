package httpgate

import (
	"github.com/headgate-go/headgate/usage"
)

// mode is what becomes of the values in a part of a request.
type mode uint8

const (
	ignored mode = iota // they do not go to the model
	prose               // their texts do, as text
	asJSON              // everything does, as JSON
	media               // they describe a file
)

// estimator estimates a request from its body, which comes in pieces. It keeps
// numbers, the beginning of the file that it is at, and nothing that grows with
// the request.
type estimator struct {
	scan    scanner
	route   *route
	rules   rules
	modes   [maxDepth + 1]mode // of the values at each depth
	texts   textMeter
	cost    int64 // beside text, in thousandths of a token
	word    text
	counted bool         // the string that is read goes to the model
	file    file         // that is read
	inFile  bool         // the string that is read is its data
	files   []attachment // at most maxFiles
	more    int64        // files beyond them
	naming  bool         // the string that is read is the model's name
	name    []byte       // its beginning
	before  int64        // tokens of the texts before the item that may hold encrypted reasoning
	hidden  int          // bytes of encrypted reasoning in that item

	// What the request says beside its contents.
	model      string
	maxTokens  int64
	thinking   int64 // tokens that the model may think, where it is told
	answers    int64 // that it asks for, to each prompt
	prompts    int64 // in a list of them
	resolution string
	signatures int64 // bytes of thought signatures in the current turn
	userTurn   bool  // the content has a part of the user's own
	userRole   bool  // the content is not the model's
	partOfUser bool  // the part is one
	picture    bool  // the block is an image
}

// rules are where a format has what in its requests.
type rules interface {
	// into is the mode of what lies at the scanner's path, within mode m.
	into(e *estimator, m mode, container bool) mode
	// opened and shut tell of an object or array of mode m.
	opened(e *estimator, m mode, list bool)
	shut(e *estimator, m mode)
	// str and num tell of a value of any mode.
	str(e *estimator, value []byte)
	num(e *estimator, n int64)
}

// What JSON costs beside the texts in it, in thousandths of a token, as in
// package usage: less than what the punctuation would cost as text, because
// tokenizers join neighbours.
const (
	token       = 1000
	bracesCost  = 1000
	keyCost     = 1000
	elementCost = 500
	stringCost  = 400
	wordCost    = 1000
)

// maxName is the longest name of a model that is believed, in bytes. A longer one
// is none: what it was cut off to could be another model's.
const maxName = 512

// newEstimator estimates a request of the route.
func newEstimator(r *route) *estimator {
	e := &estimator{route: r}
	e.texts.estimate = r.api.estimator()
	switch r.api {
	case geminiAPI:
		e.rules = geminiRules{}
	case anthropicAPI:
		e.rules = anthropicRules{}
	default:
		e.rules = openaiRules{}
	}
	e.scan.sink = e
	e.model, e.userRole = r.model, true
	return e
}

// feed reads the next piece of the body.
func (e *estimator) feed(p []byte) { e.scan.feed(p) }

// usage is the estimate. read is how many bytes of the body were read, and size
// how many it has, if that is known and more; -1 if it is not known.
func (e *estimator) usage(typical, read, size int64) usage.Usage {
	u := usage.Usage{Flags: usage.Estimated}
	if e.inFile { // cut off within a file
		e.endFile()
	}
	texts := plus(e.texts.tokens(), (e.cost+token-1)/token)
	switch {
	case e.scan.broken, read == 0:
		// Not JSON, or nested beyond any format: four bytes are a token.
		texts = max(texts, size/4, read/4)
	case size > read && !e.counted && e.word.n > 0:
		// Cut off within a file or another value that does not count: all that
		// follows is taken for the rest of it.
	case size > read:
		texts = int64(min(float64(texts)*(float64(size)/float64(read)), most))
	}
	if e.route.method == countTokens {
		return u
	}
	u.Input = plus(texts, e.signatures/4)
	for i, a := range e.files {
		n := a.tokens(e)
		if i == len(e.files)-1 {
			n = min(n, most/(e.more+1)) * (e.more + 1)
		}
		u.Input = plus(u.Input, n)
	}
	if e.route.method == embed {
		return u
	}
	if typical <= 0 {
		typical = usage.DefaultTypicalOutput
	}
	u.Output = e.perAnswer(plus(typical, e.thinking))
	return u
}

// outputLimit is the limit that the request sets on all its answers together; 0
// if it sets none.
func (e *estimator) outputLimit() int64 {
	if e.maxTokens <= 0 || e.route.method == embed || e.route.method == countTokens {
		return 0
	}
	return e.perAnswer(e.maxTokens)
}

// perAnswer is the output of all answers, if each has at most n tokens: the limit
// that the request sets if that is less. OpenAI counts the limit when it admits a
// request, so that in its format nothing else is expected.
func (e *estimator) perAnswer(n int64) int64 {
	if e.maxTokens > 0 && (e.route.api == openaiAPI || e.maxTokens < n) {
		n = e.maxTokens
	}
	answers := e.choices()
	return min(n, most/answers) * answers
}

// choices is how many answers there will be: so many to each prompt, of which
// OpenAI's completions take several.
func (e *estimator) choices() int64 {
	return min(min(max(e.answers, 1), maxChoices)*min(max(e.prompts, 1), maxChoices), maxChoices)
}

// beginItem tells that an item begins that may hold encrypted reasoning.
func (e *estimator) beginItem() { e.before, e.hidden = e.texts.total, 0 }

// modeOf is the mode of a value at the scanner's path.
func (e *estimator) modeOf(container bool) mode {
	return e.rules.into(e, e.modes[e.scan.depth], container)
}

// open implements [sink].
func (e *estimator) open(s *scanner, list bool) {
	m := e.modeOf(true)
	if m == media && e.modes[s.depth] != media {
		e.beginFile()
	}
	e.modes[s.depth+1] = m
	if m == asJSON {
		e.add(bracesCost)
		e.element(m)
	}
	e.rules.opened(e, m, list)
}

// shut implements [sink].
func (e *estimator) shut(s *scanner) {
	m := e.modes[s.depth+1]
	if m == media && e.modes[s.depth] != media {
		e.endFile()
	}
	e.rules.shut(e, m)
}

// member implements [sink].
func (e *estimator) member(s *scanner, name []byte) {
	if e.modes[s.depth] == asJSON {
		e.add(keyCost)
		e.texts.add(name)
		e.texts.endText()
	}
}

// element counts the comma of an array's element.
func (e *estimator) element(m mode) {
	if m == asJSON && e.scan.last() == element {
		e.add(elementCost)
	}
}

func (e *estimator) add(cost int64) { e.cost = min(e.cost+cost, most) }

// text implements [sink].
func (e *estimator) text(s *scanner, piece []byte) {
	if e.word.n == 0 {
		e.beginString()
	}
	e.word.add(piece)
	switch {
	case e.naming:
		e.name = append(e.name, piece[:min(len(piece), maxName+1-len(e.name))]...)
	case e.inFile:
		e.file.data(piece)
	case e.counted:
		e.texts.add(piece)
	}
}

// beginString decides what becomes of a string.
func (e *estimator) beginString() {
	if e.naming = e.route.api != geminiAPI && e.scan.at(keyModel); e.naming {
		e.name = e.name[:0]
	}
	switch m := e.modeOf(false); {
	case m == asJSON:
		e.add(stringCost)
		e.element(m)
		e.counted = true
	case m == media && e.modes[e.scan.depth] != media: // a string that is a file
		e.beginFile()
		e.inFile = true
	case m == media:
		switch e.scan.last() {
		case keyData, keyURL, keyFileData, keyFileID:
			e.inFile = true
		}
	case m == prose:
		e.counted = true
	}
}

// textEnd implements [sink].
func (e *estimator) textEnd(s *scanner) {
	if e.word.n == 0 {
		e.rules.str(e, nil)
		return
	}
	switch {
	case e.naming && len(e.name) <= maxName:
		e.model = string(e.name)
	case e.inFile && e.modes[s.depth] != media:
		e.endFile()
	case e.counted:
		e.texts.endText()
	}
	if e.modes[s.depth] == media {
		e.file.describe(s.last(), e.word.value())
	}
	e.rules.str(e, e.word.value())
	e.word.n, e.counted, e.inFile, e.naming = 0, false, false, false
}

// beginFile begins a file. An image may be told by where it lies only.
func (e *estimator) beginFile() {
	e.file.begin(e.scan.last() == keyImageURL || e.scan.last() == keySource && e.picture)
}

// endFile counts the file that has ended.
func (e *estimator) endFile() {
	if a, ok := e.file.attachment(); ok {
		if len(e.files) < maxFiles {
			e.files = append(e.files, a)
		} else {
			e.more++ // no provider takes as many
		}
	}
}

// literal implements [sink].
func (e *estimator) literal(_ *scanner, word []byte) {
	if m := e.modeOf(false); m == asJSON {
		e.element(m)
		e.add(wordCost)
		if n := int64(len(word)); n > 5 {
			e.add((n - 5) * token / 3) // digits are seldom more than three to a token
		}
	}
	if n, ok := number(word); ok {
		e.rules.num(e, n)
	}
}

// setting notes a setting by its key, wherever a format has it.
func (e *estimator) setting(n int64) {
	switch e.scan.last() {
	case keyMaxTokens:
		e.maxTokens = min(max(e.maxTokens, n), most)
	case keyBudgetTokens:
		e.thinking = min(max(n, 0), most)
	case keyN, keyCandidateCount:
		e.answers = n
	}
}
