package usage

// step is the state that follows when a character of class c is read, and the
// features of that step.
func step(state int, c class) (next int, made []feature) {
	add := func(f ...feature) { made = append(made, f...) }
	switch {
	case c == classOther:
		if state == stateSign || state == stateSigns || state == stateRuler {
			add(otherAfterSign)
		}
		return stateOther, made
	case c == classUpper:
		return upperStep(state)
	case c <= classMarked:
		return letterStep(state, c)
	case c == classDigit:
		switch state {
		case stateDigit1:
			return stateDigit2, []feature{digitSecond}
		case stateDigit2:
			return stateDigit3, []feature{digitThird}
		case stateSpace:
			add(digitAfterSpace)
		}
		add(digitFirst)
		return stateDigit1, made
	case c == classSpace:
		switch state {
		case stateSpace:
			return stateSpaces, []feature{spacesBegin}
		case stateTab:
			return stateSpaces, []feature{spacesBegin}
		case stateSpaces:
			return stateSpaces, []feature{spacesMore}
		case stateNewline:
			return stateSpace, nil
		}
		return stateSpace, []feature{space}
	case c == classTab:
		if state == stateTab || state == stateSpaces {
			return stateTab, []feature{tabMore}
		}
		return stateTab, []feature{tabFirst}
	case c == classNewline:
		switch state {
		case stateNewline:
			add(newlineMore)
		case stateSign, stateSigns, stateRuler:
			add(newlineAfterSign)
		default:
			add(newlineFirst)
		}
		return stateNewline, made
	case c == classControl:
		return stateSigns, []feature{control}
	}
	return signStep(state, c)
}

// beginWord are the features of a word's first letter, but for the letter
// itself; the step must not come from within a word.
func beginWord(state int) []feature {
	switch state {
	case stateBegin, stateSpace, stateSpaces, stateNewline:
		return []feature{wordFirst}
	case stateTab:
		return []feature{wordFirst, wordAfterTab}
	case stateSign, stateRuler:
		return []feature{wordFirst, wordAfterSign}
	}
	return []feature{wordFirst, wordAfterOther}
}

// upperStep is the step over an upper-case letter.
func upperStep(state int) (next int, made []feature) {
	switch {
	case state >= stateWord:
		if (state-stateWord)/(maxConsonants+1)+1 >= camelLetters {
			return stateUpper, []feature{wordFirst, wordAfterOther, wordUpper}
		}
		return stateMixed, []feature{mixedUpper}
	case state >= stateMixed:
		return stateMixed, []feature{mixedUpper}
	case state >= stateDigit1 && state <= stateDigit3:
		return stateMixed, []feature{mixedFirst}
	case state == stateUpper || state == stateUppers:
		return stateUppers, []feature{upperMore}
	}
	return stateUpper, append(beginWord(state), wordUpper)
}

// letterStep is the step over a small letter.
func letterStep(state int, c class) (next int, made []feature) {
	consonant := 1
	if c == classVowel || c == classMarked {
		consonant = 0
	}
	switch {
	case state >= stateWord:
		letters := (state-stateWord)/(maxConsonants+1) + 1
		inRow := (state - stateWord) % (maxConsonants + 1)
		made = append(placeFeature(letters+1), letterFeature(c)...)
		switch {
		case consonant == 0 && inRow == 0:
			made = append(made, vowels)
		case consonant == 1 && inRow == 2:
			made = append(made, consonantThird)
		case consonant == 1 && inRow == 3:
			made = append(made, consonantMore)
		}
		return wordState(letters+1, consonant*(inRow+1)), made
	case state >= stateMixed:
		small := state - stateMixed
		if small == mixedLetters {
			return wordState(mixedLetters+1, consonant), append(placeFeature(mixedLetters+1), letterFeature(c)...)
		}
		return state + 1, []feature{mixedLower}
	case state >= stateDigit1 && state <= stateDigit3:
		return stateMixed + 1, []feature{mixedFirst}
	case state == stateUpper:
		return wordState(2, consonant), append(placeFeature(2), letterFeature(c)...)
	case state == stateUppers:
		return stateMixed + 1, []feature{mixedLower}
	}
	return wordState(1, consonant), append(beginWord(state), letterFeature(c)...)
}

// letterFeature is what a letter costs for being a rare one.
func letterFeature(c class) []feature {
	switch c {
	case classMedium:
		return []feature{letterMedium}
	case classRare:
		return []feature{letterRare}
	case classRarest:
		return []feature{letterRarest}
	case classMarked:
		return []feature{letterMarked}
	}
	return nil
}

// placeFeature is what the n-th letter of a word costs for its place, from 2.
func placeFeature(n int) []feature {
	switch {
	case n <= 3:
		return []feature{placeThird}
	case n <= 5:
		return []feature{placeFifth}
	case n <= 7:
		return []feature{placeSeventh}
	case n <= 9:
		return []feature{placeNinth}
	case n < maxLetters:
		return []feature{placeTwelfth}
	}
	return []feature{placeMore}
}

// signStep is the step over a sign.
func signStep(state int, c class) (next int, made []feature) {
	kind := signFirst + feature(c-classStop)
	if c == classOtherSign {
		// Its script has its cost.
		return stateSign, nil
	}
	switch state {
	case stateRuler:
		if c == classRuler {
			return stateRuler, []feature{rulerMore}
		}
		return stateSigns, []feature{signMore + feature(c-classStop)}
	case stateSign, stateSigns:
		made = []feature{signMore + feature(c-classStop)}
		next = stateSigns
	case stateSpaces:
		made = []feature{kind, signAfterSpaces}
		next = stateSign
	default:
		made = []feature{kind}
		next = stateSign
	}
	if c == classRuler {
		next = stateRuler
	}
	return next, made
}
