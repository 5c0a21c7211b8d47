package main

import (
	"context"
	"io"
	"strings"
	"testing"
)

func TestCommandLinesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                                          "-redis is not set",
		"-redis a:1":                                "-double is not set",
		"-redis a:1 -double nowhere":                `-double is "nowhere"`,
		"-redis a:1 -double http://b -mode own":     `-mode is "own"`,
		"-redis a:1 -double http://b -rpm 0":        "-rpm is 0",
		"-redis a:1 -double http://b -slots -1":     "-slots is -1",
		"-redis a:1 -double http://b -tokens 0":     "-tokens is 0",
		"-redis a:1 -double http://b -tpm 0":        "-tpm is 0",
		"-redis a:1 -double http://b -users 0":      "-users is 0",
		"-redis a:1 -double http://b -window -1s":   "-window is -1s, must",
		"-redis a:1 -double http://b -for never":    `"never"`,
		"-redis a:1 -double http://b -for -1s":      "-for is -1s",
		"-redis a:1 -double http://b and more":      `"and"`,
		"-redis a:1 -double http://b -tokens 61000": "-tokens is 61000, must not be above -tpm",
	} {
		var stdout, stderr strings.Builder
		if code := run(context.Background(), strings.Fields(args), &stdout, &stderr); code != exitUsage || stdout.Len() > 0 {
			t.Errorf("%q: exit code %d, printed %q", args, code, stdout.String())
		}
		if got := stderr.String(); !strings.HasPrefix(got, "fleet: ") || !strings.Contains(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%q: %q, want one line that says %q", args, got, want)
		}
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	t.Parallel()
	var stdout, stderr strings.Builder
	if code := run(context.Background(), []string{"-h"}, &stdout, &stderr); code != exitOK || stderr.Len() > 0 {
		t.Errorf("exit code %d, error %q", code, stderr.String())
	}
	for _, name := range []string{"double", "for", "mode", "name", "quota", "redis", "rpm", "slots", "tokens", "tpm", "ttl", "users", "window"} {
		if !strings.Contains(stdout.String(), "\n  -"+name+" ") {
			t.Errorf("help does not name -%s", name)
		}
	}
}

func TestAConfigurationThatIsWrongIsSaid(t *testing.T) {
	t.Parallel()
	var stdout, stderr strings.Builder
	code := run(context.Background(), strings.Fields("-redis 127.0.0.1:1 -double http://127.0.0.1:1 -ttl 1ms"), &stdout, &stderr)
	if code != exitFailed || !strings.Contains(stderr.String(), "Config.TTL is 1ms") {
		t.Errorf("exit code %d, error %q", code, stderr.String())
	}
}

func TestAReplicaWithoutANameHasOneOfItsOwn(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for range 2 {
		o, err := parseFlags(strings.Fields("-redis a:1 -double http://b"), io.Discard)
		if err != nil || o.name == "" || names[o.name] {
			t.Errorf("named %q, %v", o.name, err)
		}
		names[o.name] = true
	}
}
