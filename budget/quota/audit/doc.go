// Package audit keeps what package quota tells: who has used what, which limit it
// counted under, and what was denied. It answers the questions that come later:
// which calls used up this budget, and when; does our count agree with the provider's
// bill; which limits would fit the use of the last week.
//
// A [Sink] writes [Record]s to a directory, a line of JSON each. [Read] reads them
// back, [Uses] says what was charged to a counter, [Days] and [Reconcile] compare
// them with a provider's export, and [Suggest] derives limits from them. All of these
// stream over the files and keep in memory only sums.
//
// Records name subjects, and never hold text of a call. [Config].Keep says how long
// they are kept, and [Sink.Erase] forgets a subject.
package audit
