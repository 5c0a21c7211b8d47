package main

import (
	"testing"
	"time"
)

func TestTheLargestUseIsThatOfAnyWindow(t *testing.T) {
	t.Parallel()
	at := func(seconds float64, tokens int64) use {
		return use{time.Unix(0, 0).Add(time.Duration(seconds * float64(time.Second))), tokens}
	}
	tokens := func(u use) int64 { return u.tokens }
	for _, c := range []struct {
		name  string
		uses  []use
		limit int64
		want  float64
	}{
		{"nothing", nil, 100, 0},
		{"no limit", []use{at(0, 50)}, 0, 0},
		{"all in one window", []use{at(0, 20), at(59.9, 30)}, 100, 0.5},
		{"a window is half-open", []use{at(0, 20), at(60, 30)}, 100, 0.3},
		{"it begins anywhere", []use{at(0, 10), at(50, 30), at(70, 30), at(109.9, 20), at(110.1, 25)}, 100, 0.8},
		{"in any order", []use{at(109.9, 20), at(70, 30), at(0, 10), at(50, 30)}, 100, 0.8},
		{"beyond the limit", []use{at(0, 150)}, 100, 1.5},
	} {
		if got := largest(c.uses, time.Minute, c.limit, tokens); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestQuantilesAreNearestRanks(t *testing.T) {
	t.Parallel()
	hundred := &result{}
	for i := range 100 {
		hundred.latencies = append(hundred.latencies, time.Duration(i+1)*time.Second)
	}
	three := &result{latencies: []time.Duration{1 * time.Second, 2 * time.Second, 9 * time.Second}}
	for _, c := range []struct {
		of   *result
		q    float64
		want time.Duration
	}{
		{&result{}, 0.5, 0},
		{three, 0, time.Second},
		{three, 0.5, 2 * time.Second},
		{three, 0.99, 9 * time.Second},
		{hundred, 0.5, 50 * time.Second},
		{hundred, 0.99, 99 * time.Second},
		{hundred, 1, 100 * time.Second},
	} {
		if got := c.of.quantile(c.q); got != c.want {
			t.Errorf("quantile %v of %d: got %v, want %v", c.q, len(c.of.latencies), got, c.want)
		}
	}
}
