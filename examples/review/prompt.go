package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"unicode/utf8"

	"github.com/headgate-go/headgate/bench/gemini"
)

// promptRunes is the length of every prompt, instruction and text together. The
// double counts it as promptTokens; a real model counts about as many, but
// nobody can know before the call.
const promptRunes = promptTokens * gemini.RunesPerToken

// sentences are what proposals are made of; %s is a part of the system, %d a
// number.
var sentences = []string{
	"We want to move the %s into a service of its own, because the %s has to wait %d ms for it today (see below). ",
	"The %s would then be the only part that writes to the %s; all others would read. ",
	"In step %d nothing changes for the user: the %s is written twice and read from the old place. ",
	"After %d days without a difference, the old %s can be switched off (ticket %d%d). ",
	"Last month the %s was slow on %d days, and each time the cause was a lock that the %s held too long. ",
	"If the %s fails, the page shows what it showed before, with a note: \"as of %d:%d, may be out of date\". ",
	"We have looked at a queue between the %s and the %s and found that it would only hide the problem. ",
	"A rollback takes about %d minutes, and loses nothing that was confirmed to the user. ",
	"The team that owns the %s agrees, but would like to keep the right to say no to new fields. ",
	"Measured over %d weeks, the %s answers in %d.%d ms; the %s needs %d times as long. ",
	"What we do not know yet: how the %s behaves when %d regions change the same record. ",
	"Each request carries the name of its tenant, and the %s refuses what does not carry one (status %d%d). ",
	"The %s keeps its history for %d days; what is older goes to the archive, at %d:%d every night. ",
	"We would rather change the %s now, in release %d, than explain it again to every new colleague. ",
}

var parts = []string{
	"search index", "price list", "order book", "address service", "session store", "report builder",
	"payment adapter", "mail sender", "image cache", "access list", "event log", "stock counter",
}

// proposal is the text that a user wants to have reviewed, long enough for
// every prompt. The same seed and user make the same text.
func proposal(seed uint64, user int) string {
	r := rand.New(rand.NewPCG(seed, uint64(user)))
	part := func() string { return parts[r.IntN(len(parts))] }
	var b strings.Builder
	fmt.Fprintf(&b, "Proposal %d of user %d.\n\n", 100+r.IntN(900), user+1)
	for n := 1; b.Len() < promptRunes; n++ {
		s := sentences[r.IntN(len(sentences))]
		for {
			i := strings.IndexByte(s, '%')
			if i < 0 {
				break
			}
			word := part()
			if s[i+1] == 'd' {
				word = fmt.Sprint(2 + r.IntN(30))
			}
			s = s[:i] + word + s[i+2:]
		}
		b.WriteString(s)
		if n%6 == 0 {
			b.WriteString("\n\n")
		}
	}
	return b.String()
}

// cut returns the first runes of a text.
func cut(text string, runes int) string {
	if utf8.RuneCountInString(text) <= runes {
		return text
	}
	for i := range text {
		if runes == 0 {
			return text[:i]
		}
		runes--
	}
	return text
}
