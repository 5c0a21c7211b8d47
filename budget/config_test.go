package budget_test

import (
	"math"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
)

func TestABadConfigurationIsAnErrorThatNamesTheFieldAndTheValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  budget.TokenBudgetConfig
		want string
	}{
		{budget.TokenBudgetConfig{Limit: -1}, "TokenBudgetConfig.Limit is -1, must not be negative"},
		{budget.TokenBudgetConfig{Limit: math.MinInt64, Burst: 1}, "TokenBudgetConfig.Limit is -9223372036854775808, must not be negative"},
		{budget.TokenBudgetConfig{Limit: 10, Burst: -2}, "TokenBudgetConfig.Burst is -2, must not be negative"},
		{budget.TokenBudgetConfig{Limit: 10, Window: -time.Second}, "TokenBudgetConfig.Window is -1s, must not be negative"},
	} {
		if l, err := budget.NewTokenBudget(c.cfg); err == nil || l != nil || err.Error() != c.want {
			t.Errorf("%+v: %v\nwant %s", c.cfg, err, c.want)
		}
	}
	for _, c := range []struct {
		cfg  budget.WindowBudgetConfig
		want string
	}{
		{budget.WindowBudgetConfig{Limit: -1}, "WindowBudgetConfig.Limit is -1, must not be negative"},
		{budget.WindowBudgetConfig{Limit: 10, Window: -time.Second}, "WindowBudgetConfig.Window is -1s, must not be negative"},
		{budget.WindowBudgetConfig{Limit: 10, Cell: -time.Second}, "WindowBudgetConfig.Cell is -1s, must not be negative"},
		{budget.WindowBudgetConfig{Limit: 10, Cell: 2 * time.Minute}, "WindowBudgetConfig.Cell is 2m0s, must not exceed Window (1m0s)"},
		{budget.WindowBudgetConfig{Limit: 10, Cell: 1}, "WindowBudgetConfig.Cell is 1ns, divides Window (1m0s) into more than 1048576 cells"},
		{budget.WindowBudgetConfig{Limit: 10, Window: math.MaxInt64, Cell: time.Hour}, "WindowBudgetConfig.Cell is 1h0m0s, divides Window (2562047h47m16.854775807s) into more than 1048576 cells"},
	} {
		if l, err := budget.NewWindowBudget(c.cfg); err == nil || l != nil || err.Error() != c.want {
			t.Errorf("%+v: %v\nwant %s", c.cfg, err, c.want)
		}
	}
}

func TestTheZeroConfigurationIsAClosedLimit(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]budget.Limiter{
		"token":  newToken(t, budget.TokenBudgetConfig{}),
		"window": newWindow(t, budget.WindowBudgetConfig{}),
	} {
		if fits(l, t0, 1) || l.Limit() != 0 {
			t.Errorf("%s: a limit of %d lets something pass", name, l.Limit())
		}
	}
}

func TestTheLongestWindowsWork(t *testing.T) {
	t.Parallel()
	const longest = time.Duration(math.MaxInt64)
	for name, cfg := range map[string]budget.WindowBudgetConfig{
		"default cells": {Limit: 10, Window: longest},
		"one cell":      {Limit: 10, Window: longest, Cell: longest},
		"two cells":     {Limit: 10, Window: longest, Cell: longest/2 + 1},
		"many cells":    {Limit: 10, Window: longest, Cell: longest>>16 + 1},
	} {
		w := newWindow(t, cfg)
		w.Settle(t0, w.Take(t0, 10), 10)
		if ok, at := w.Fits(t0, 1); ok || at.Sub(t0) != longest {
			t.Errorf("%s: 1 fits (%v) after %v, want after all the time there is", name, ok, at.Sub(t0))
		}
		if fits(w, t0.AddDate(250, 0, 0), 1) {
			t.Errorf("%s: 1 fits after 250 years", name)
		}
		if !fits(w, t0.AddDate(900, 0, 0), 10) {
			// 292 years of the window, at most as much of the cell, and the
			// longest pause that one step can count.
			w.Level(t0.AddDate(1200, 0, 0))
			if !fits(w, t0.AddDate(1500, 0, 0), 10) {
				t.Errorf("%s: does not fit after 1,500 years", name)
			}
		}
	}
}
