// Package adaptive plays programs that nobody has told their quota against a
// provider that has one, in virtual time, and measures how much of it they find and
// how many refusals that costs.
//
// A [Setting] is a quota and the clients that share it without knowing of each
// other: N programs, each with callers that always have a next call. [Run] plays
// one. Headgate's client is the gate's pure core, the very code, driven as package
// ratelimited drives it. Beside it play failsafe-go's adaptive limiter, unmodified,
// and a rate controller like that of the AWS SDKs, written here from its formulas.
//
// There are no goroutines and no clock: a heap of events is all there is, so that
// two and a half hours of a hundred clients take a second, and a seed decides
// everything. Failsafe-go reads the clock, and so plays in a bubble of package
// virtual.
//
// [Rows] plays the settings of the table that bench/adaptive prints.
package adaptive
