package main

import (
	"io"
	"strings"
	"testing"
)

func TestABadFlagIsOneClearLineAndExitCode2(t *testing.T) {
	t.Setenv("GEMINI_API_KEY", "")
	t.Setenv("OPENAI_API_KEY", "key")
	for _, c := range []struct{ args, want string }{
		{"-provider x", `-provider "x": must be gemini, openai`},
		{"-rpm -1", "-rpm -1"},
		{"-rpm x", "-rpm"},
		{"-tpm -1", "-tpm -1"},
		{"-tpm 9999", "-tpm 9999: must be 0, or from 10000"},
		{"-tpm 1000000000001", "-tpm 1000000000001"},
		{"-otpm 1999", "-otpm 1999"},
		{"-users 0", "-users 0"},
		{"-users 1001", "-users 1001"},
		{"-speed 0", "-speed 0"},
		{"-speed NaN", "-speed NaN"},
		{"-model gpt-5", `-model "gpt-5": name the -provider`},
		{"-provider openai -model a?b", `-model "a?b"`},
		{"-url https://api.openai.com/v1", `-url "https://api.openai.com/v1": name the -provider`},
		{"-provider openai -url api.openai.com", "-url: must be an address such as https://api.openai.com/v1"},
		{"-provider openai -url ftp://api.openai.com", "-url: must be an address"},
		{"-provider openai -url https://host/?key=SECRET", "-url: must be an address"},
		{"-provider openai -url https://SECRET@host/", "-url: must be an address"},
		{"-provider openai -url https://host -speed 2", "-speed 2 beside -url"},
		{"-provider gemini -url https://host", "GEMINI_API_KEY is not set"},
		{"-nonsense", "-nonsense"},
		{"more", `argument "more"`},
	} {
		got := invoke(t.Context(), nowhere, strings.Fields(c.args)...)
		if got.code != exitUsage {
			t.Errorf("%s: exit code %d, want %d", c.args, got.code, exitUsage)
		}
		if strings.Count(got.stderr, "\n") != 1 || !strings.HasSuffix(got.stderr, "\n") || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%s: stderr %q, want one line with %q", c.args, got.stderr, c.want)
		}
		if got.stdout != "" || strings.Contains(got.stderr, "SECRET") {
			t.Errorf("%s: stdout %q, stderr %q", c.args, got.stdout, got.stderr)
		}
	}
}

func TestHelpIsNoError(t *testing.T) {
	t.Parallel()
	got := invoke(t.Context(), nowhere, "-h")
	if got.code != exitOK || got.stderr != "" {
		t.Errorf("exit code %d, stderr %q; want 0 and none", got.code, got.stderr)
	}
	for _, flag := range []string{"-json", "-model", "-otpm", "-prices", "-provider", "-rpm", "-speed", "-tpm", "-url", "-users"} {
		if !strings.Contains(got.stdout, "\n  "+flag) {
			t.Errorf("the help does not name %s:\n%s", flag, got.stdout)
		}
	}
	for _, p := range providers {
		if !strings.Contains(got.stdout, p.address) {
			t.Errorf("the help does not name the address %s", p.address)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	got, err := parseFlags(nil, io.Discard)
	want := options{otpm: 8000, provider: "all", rpm: 300, speed: 20, tpm: 40_000, users: 5}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}
