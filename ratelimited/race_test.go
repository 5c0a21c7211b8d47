//go:build race

package ratelimited_test

// raceDetector tells that the tests run under the race detector, some six times
// slower.
const raceDetector = true
