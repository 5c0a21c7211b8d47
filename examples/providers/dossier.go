package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// questions are what the researchers of a report are asked.
var questions = []string{
	"Read the dossier. Which fields got less water than their share, and when?",
	"Read the dossier. Which gates and which reaches of the canal need work before spring?",
	"Read the dossier. Where do the gauges and the gate book contradict each other?",
	"Read the dossier. What do the people who use the water ask for, and who is against it?",
}

// task is what the writer is asked.
const task = "Four researchers have read the dossier. Write a report of what they found, the most urgent first."

// dossierRunes is about how long the dossier is: 2,000 tokens by the rule of four
// characters each, by which the doubles count.
const dossierRunes = 8000

// dossier is the brief of all calls. It is prose with a few figures, of which
// about four characters are a token: text of which the usual tokenizers, and so
// Headgate's estimates, make far fewer tokens than the doubles count would have
// its first calls refused.
var dossier = makeDossier()

// sentences are what the dossier is made of; %d is a number.
var sentences = []string{
	"The farmers at the lower end say that the water comes too late in the evening, and that nobody told them why. ",
	"On day %d gauge %d at the upper canal read 3.%d m3/s, with the level at 1.%d m. ",
	"Where the canal leaves the river the bank has slipped, and the old stones lie in the channel. ",
	"Gate %d was opened by %d cm for %d minutes, and the lower fields took %d m3 of it. ",
	"The council decided that whoever takes more than their share has to give it back within the month. ",
	"Field %d has %d ha of beans and a share of 6.%d l/s, last served on day %d. ",
	"The keeper of gate %d writes that the wheel sticks, so that it takes two people to close it. ",
	"Some of the %d families upstream would rather pay for gauge %d than go on arguing about gauge %d. ",
}

func makeDossier() string {
	r := rand.New(rand.NewPCG(1, 1)) // always the same text: a cached prefix must not change
	var b strings.Builder
	b.WriteString("You work for the water board of a valley. This is its dossier of last season.\n\n")
	for n := 1; b.Len() < dossierRunes; n++ {
		s := sentences[r.IntN(len(sentences))]
		for strings.Contains(s, "%d") {
			s = strings.Replace(s, "%d", fmt.Sprint(2+r.IntN(97)), 1)
		}
		b.WriteString(s)
		if n%6 == 0 {
			b.WriteString("\n\n")
		}
	}
	return b.String()
}

// subjectOf is what a user's report is about.
func subjectOf(user int) string { return fmt.Sprintf("the fields along side canal %d", user+1) }
