package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/bench/gemini"
)

// nowhere is a host for what must not come as far as that.
func nowhere(http.Handler) (hosted, error) { panic("a server was started") }

func TestABadFlagIsOneClearLineAndExitCode2(t *testing.T) {
	t.Setenv("GEMINI_API_KEY", "")
	for _, c := range []struct{ args, want string }{
		{"-rpm x", "-rpm"},
		{"-rpm -1", "-rpm -1"},
		{"-tpm -1", "-tpm -1"},
		{"-tpm 9999", "-tpm 9999: must be 0, or from 10000"},
		{"-tpm 1000000000001", "-tpm 1000000000001"},
		{"-rpm 1000000000001", "-rpm 1000000000001"},
		{"-window day", `window "day"`},
		{"-latency 8", "-latency"},
		{"-latency 0s", "-latency 0s"},
		{"-latency 11m", "-latency 11m0s"},
		{"-slots 0", "-slots 0"},
		{"-slots 10001", "-slots 10001"},
		{"-speed 0", "-speed 0"},
		{"-speed NaN", "-speed NaN"},
		{"-speed 1001", "-speed 1001"},
		{"-seed -1", "-seed"},
		{"-users 0", "-users 0"},
		{"-users 1001", "-users 1001"},
		{"-model=", `-model ""`},
		{"-model a/b", `-model "a/b"`},
		{"-nonsense", "-nonsense"},
		{"more", `argument "more"`},
		{"-real", "GEMINI_API_KEY"},
		{"-real -speed 5", "-speed 5 beside -real"},
		{"-real -latency 5s", "-latency 5s beside -real"},
	} {
		got := invoke(t.Context(), nowhere, strings.Fields(c.args)...)
		if got.code != exitUsage {
			t.Errorf("%s: exit code %d, want %d", c.args, got.code, exitUsage)
		}
		if strings.Count(got.stderr, "\n") != 1 || !strings.HasSuffix(got.stderr, "\n") || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%s: stderr %q, want one line with %q", c.args, got.stderr, c.want)
		}
		if got.stdout != "" {
			t.Errorf("%s: stdout %q, want none", c.args, got.stdout)
		}
	}
}

func TestHelpIsNoError(t *testing.T) {
	t.Parallel()
	got := invoke(t.Context(), nowhere, "-h")
	if got.code != exitOK || got.stderr != "" {
		t.Errorf("exit code %d, stderr %q; want 0 and none", got.code, got.stderr)
	}
	for _, flag := range []string{"-json", "-latency", "-model", "-real", "-rpm", "-seed", "-slots", "-speed", "-tpm", "-users", "-window"} {
		if !strings.Contains(got.stdout, "\n  "+flag) {
			t.Errorf("the help does not name %s:\n%s", flag, got.stdout)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	got, err := parseFlags(nil, io.Discard)
	want := options{
		latency: 8 * time.Second, model: "gemini-2.5-flash", rpm: 1000, seed: 1, slots: 30, speed: 20,
		tpm: 120_000, users: 10, window: gemini.Sliding,
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}
