//go:build race

package gate

// raceEnabled tells heavy tests to do less: the race detector makes them ten
// times slower, and finds nothing more in code without goroutines.
const raceEnabled = true
