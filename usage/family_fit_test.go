package usage

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The fit is a ridge regression of relative errors: it minimises the sum over
// texts of (estimate/tokens − 1)², and strength times the squares by which costs
// differ from what was guessed before any text was counted. The strength was
// chosen by fitting to every other text of the fitting half and looking at the
// rest of that half.
const strength = 0.3

// guesses are costs before the fit, in thousandths of a token.
var guesses = [features]uint16{
	wordFirst: 1000, wordAfterTab: 300, wordAfterSign: 100, wordUpper: 200, upperMore: 250,
	placeThird: 20, placeFifth: 40, placeSeventh: 80, placeNinth: 150, placeTwelfth: 150, placeMore: 300,
	letterMedium: 20, letterRare: 80, letterRarest: 200, letterMarked: 500,
	vowels: 50, consonantThird: 150, consonantMore: 300,
	mixedFirst: 900, mixedLower: 500, mixedUpper: 600,
	digitFirst: 1000, digitAfterSpace: 1000,
	spacesBegin: 1000, spacesMore: 20, tabFirst: 300, tabMore: 500,
	newlineFirst: 900, newlineMore: 300, newlineAfterSign: 300, control: 1500,
	signFirst: 800, signFirst + 1: 800, signFirst + 2: 800, signFirst + 3: 800, signFirst + 4: 800,
	signFirst + 5: 800, signFirst + 6: 900,
	signMore: 400, signMore + 1: 400, signMore + 2: 400, signMore + 3: 400, signMore + 4: 400,
	signMore + 5: 600, signMore + 6: 700, rulerMore: 200,
}

// Costs that would let a text without end cost nearly nothing have a least
// value, of which the corpus, whose texts are ordinary, can tell nothing.
const (
	leastSpacesMore = 10  // of 3,000 spaces, 24 tokens are made
	leastPlaceMore  = 250 // of syllables without a space, a token for two to four letters
	leastWithin     = 150 // the same in other scripts
)

// scriptGuesses are the same for scripts, first and within; scripts without a
// guess are not in the corpus and are not fitted.
var scriptGuesses = map[string][2]uint16{
	"Latin letters with marks": {0, 0},
	"Greek":                    {1000, 250},
	"Cyrillic":                 {1000, 150},
	"Hebrew":                   {1000, 300},
	"Arabic":                   {1000, 200},
	"Devanagari":               {1000, 250},
	"Bengali":                  {1000, 300},
	"Tamil":                    {1000, 300},
	"Thai":                     {1000, 400},
	"Georgian":                 {1000, 300},
	"Hangul":                   {1000, 600},
	"Kana":                     {700, 700},
	"Han":                      {800, 800},
	"shapes and dingbats":      {1500, 1500},
	"punctuation of East Asia": {800, 800},
	"emoji":                    {1800, 1800},
}

// Unknowns of the fit: the features, then first and within of each script.
const unknowns = int(features) + 2*len(scripts)

// countsOf is how often a text has each feature.
func countsOf(s string) (counts [unknowns]float64) {
	state := stateBegin
	for _, r := range s {
		c := classControl
		if r < utf8.RuneSelf {
			c = classOf[r]
		} else {
			script := scriptOf(r)
			c = scripts[script].class
			which := int(features) + 2*int(script)
			if state == stateOther {
				which++
			}
			counts[which]++
		}
		next, made := step(state, c)
		for _, f := range made {
			counts[f]++
		}
		state = next
	}
	return counts
}

// fit finds the costs, in tokens, by going through the unknowns one by one
// until none changes. Costs are not negative.
func fit(texts []corpusText) (costs [unknowns]float64) {
	var guess [unknowns]float64
	for f, cost := range guesses {
		guess[f] = float64(cost) / token
	}
	least := [unknowns]float64{spacesMore: leastSpacesMore, placeMore: leastPlaceMore}
	free := make([]bool, unknowns)
	for i := range free {
		free[i] = i < int(features)
	}
	for i, script := range scripts {
		at := int(features) + 2*i
		pair, known := scriptGuesses[script.name]
		if !known {
			pair = [2]uint16{script.first, script.within}
		}
		guess[at], guess[at+1] = float64(pair[0])/token, float64(pair[1])/token
		free[at], free[at+1] = known, known
		if script.class == classOther {
			least[at+1] = leastWithin
		}
	}
	costs = guess

	// Rows are relative to the tokens of their text, so that each should
	// come to 1.
	rows := make([][unknowns]float64, len(texts))
	left := make([]float64, len(texts))
	for i, text := range texts {
		rows[i] = countsOf(text.text)
		left[i] = 1
		for j := range rows[i] {
			rows[i][j] /= float64(text.tokens)
			left[i] -= rows[i][j] * costs[j]
		}
	}
	for range 2000 {
		most := 0.0
		for j := range costs {
			if !free[j] {
				continue
			}
			slope, curve := strength*(guess[j]-costs[j]), strength
			for i := range rows {
				slope += rows[i][j] * left[i]
				curve += rows[i][j] * rows[i][j]
			}
			change := max(least[j]/token, costs[j]+slope/curve) - costs[j]
			if change == 0 {
				continue
			}
			costs[j] += change
			most = max(most, math.Abs(change))
			for i := range rows {
				left[i] -= change * rows[i][j]
			}
		}
		if most < 1e-6 {
			break
		}
	}
	return costs
}

func TestTheConstantsComeFromTheFittingHalf(t *testing.T) {
	t.Parallel()
	costs := fit(slices.DeleteFunc(corpus(t), func(c corpusText) bool { return !c.fitted() }))
	differs := false
	check := func(fitted float64, used uint16) uint16 {
		cost := uint16(math.Round(fitted * token))
		// The last digit may depend on the machine's arithmetic.
		differs = differs || max(cost, used)-min(cost, used) > 1
		return cost
	}
	var should strings.Builder
	for f, used := range featureCosts {
		fmt.Fprintf(&should, "feature %d: %d, is %d\n", f, check(costs[f], used), used)
	}
	for i, script := range scripts {
		at := int(features) + 2*i
		fmt.Fprintf(&should, "%s: %d, %d, is %d, %d\n", script.name,
			check(costs[at], script.first), check(costs[at+1], script.within), script.first, script.within)
	}
	if differs {
		t.Errorf("fitted:\n%s", should.String())
	}
}

// The corpus must tell something of every cost that is said to be fitted to it.
func TestTheFittingHalfHasEveryScriptThatIsFitted(t *testing.T) {
	t.Parallel()
	var total [unknowns]float64
	for _, text := range corpus(t) {
		if text.fitted() {
			for i, n := range countsOf(text.text) {
				total[i] += n
			}
		}
	}
	for i, script := range scripts {
		at := int(features) + 2*i
		if _, known := scriptGuesses[script.name]; known && total[at]+total[at+1] < 20 {
			t.Errorf("%s: %v characters", script.name, total[at]+total[at+1])
		}
	}
}
