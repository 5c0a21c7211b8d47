package usage

// feature is what makes a step of the scan cost something.
type feature uint8

const (
	wordFirst        feature = iota // a word's first letter
	wordAfterTab                    // … that a tab comes before
	wordAfterSign                   // … that a sign comes before
	wordAfterOther                  // … in the midst of letters, or after several signs
	wordUpper                       // … that is an upper-case one
	upperMore                       // a further upper-case letter
	placeThird                      // a word's letters: the second and third,
	placeFifth                      // up to the fifth,
	placeSeventh                    // the seventh,
	placeNinth                      // the ninth,
	placeTwelfth                    // the twelfth,
	placeMore                       // and beyond
	letterMedium                    // letters: b c f g h m p
	letterRare                      // k v w y
	letterRarest                    // j q x z
	letterMarked                    // with marks
	vowels                          // a vowel after a vowel
	consonantThird                  // the third consonant in a row
	consonantMore                   // and beyond
	mixedFirst                      // a letter after a digit
	mixedLower                      // a small letter in a mix
	mixedUpper                      // an upper-case letter in a mix
	otherAfterSign                  // a letter of another script after a sign
	digitFirst                      // a digit: the first of a group
	digitSecond                     // the second
	digitThird                      // the third
	digitAfterSpace                 // a number after a space, which it cannot take along
	space                           // a space between words
	spacesBegin                     // a second space
	spacesMore                      // a further space
	tabFirst                        // a tab
	tabMore                         // a further tab
	newlineFirst                    // the end of a line
	newlineMore                     // an empty line
	newlineAfterSign                // the end of a line that a sign takes along
	control                         // a control character
	rulerMore                       // a row of the same sign
	signAfterSpaces                 // a sign after several spaces
	signFirst                       // a sign by its class, from classStop to classSign
	signMore         = signFirst + feature(classSign-classStop) + 1
	features         = signMore + feature(classSign-classStop) + 1
)

// featureCosts are what features cost, in thousandths of a token: what the fit to
// the one half of testdata/corpus finds, which a test repeats. A cost that is 0
// was not found to matter beside the others.
var featureCosts = [features]uint16{
	wordFirst:        626,
	wordAfterTab:     251,
	wordAfterSign:    0,
	wordAfterOther:   0,
	wordUpper:        154,
	upperMore:        88,
	placeThird:       0,
	placeFifth:       87,
	placeSeventh:     177,
	placeNinth:       279,
	placeTwelfth:     215,
	placeMore:        250,
	letterMedium:     0,
	letterRare:       270,
	letterRarest:     480,
	letterMarked:     744,
	vowels:           0,
	consonantThird:   272,
	consonantMore:    396,
	mixedFirst:       804,
	mixedLower:       565,
	mixedUpper:       715,
	otherAfterSign:   32,
	digitFirst:       1100,
	digitSecond:      137,
	digitThird:       0,
	digitAfterSpace:  961,
	space:            132,
	spacesBegin:      915,
	spacesMore:       10,
	tabFirst:         448,
	tabMore:          451,
	newlineFirst:     818,
	newlineMore:      282,
	newlineAfterSign: 149,
	control:          1500,
	rulerMore:        156,
	signAfterSpaces:  0,
	signFirst:        663,
	signFirst + feature(classQuote-classStop): 577,
	signFirst + feature(classColon-classStop): 732,
	signFirst + feature(classOpen-classStop):  650,
	signFirst + feature(classClose-classStop): 717,
	signFirst + feature(classRuler-classStop): 636,
	signFirst + feature(classSign-classStop):  849,
	signMore:                                  337,
	signMore + feature(classQuote-classStop):  186,
	signMore + feature(classColon-classStop):  243,
	signMore + feature(classOpen-classStop):   366,
	signMore + feature(classClose-classStop):  295,
	signMore + feature(classRuler-classStop):  598,
	signMore + feature(classSign-classStop):   598,
}
