//go:build !race

package ratelimited_test

// raceDetector tells that the tests run under the race detector.
const raceDetector = false
