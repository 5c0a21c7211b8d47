//go:build race

package tiktoken_test

const raceEnabled = true
