package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestTheCommandLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		err  string // what the error says
	}{
		{[]string{"-addr", "8080"}, `-addr "8080"`},
		{[]string{"-admin-token", ""}, "-admin-token must be"},
		{[]string{"-admin-token", "two words"}, "-admin-token must be"},
		{[]string{"-latency", "0s"}, "-latency 0s"},
		{[]string{"-latency", "1h"}, "-latency 1h"},
		{[]string{"-store", "paper"}, `-store "paper"`},
		{[]string{"-dsn", "x.db"}, "-dsn is for"},
		{[]string{"-journal", "spent"}, `-journal "spent"`},
		{[]string{"-fail-open"}, "-fail-open"},
		{[]string{"-store", "sqlite", "-lease", "10ms"}, "-lease 10ms"},
		{[]string{"now"}, `unexpected argument "now"`},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), c.args, &stdout, &stderr)
		if code != exitUsage || !strings.Contains(stderr.String(), c.err) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%q: code %d, %q; want one line with %q", c.args, code, stderr.String(), c.err)
		}
		if strings.Contains(stderr.String(), "two words") {
			t.Errorf("%q: the token is shown: %q", c.args, stderr.String())
		}
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-h"}, &stdout, &stderr); code != exitOK || !strings.Contains(stdout.String(), "-addr host:port") {
		t.Errorf("-h: code %d, %q", code, stdout.String())
	}
}

func TestItIsKnownWhoCanReachAnAddress(t *testing.T) {
	t.Parallel()
	for ip, want := range map[string]bool{
		"127.0.0.1": false, "127.8.8.8": false, "::1": false, "0.0.0.0": true, "::": true, "192.0.2.1": true, "2001:db8::1": true,
	} {
		if got := open(&net.TCPAddr{IP: net.ParseIP(ip)}); got != want {
			t.Errorf("%s: others can reach it: %v, want %v", ip, got, want)
		}
	}
}

func TestAnAddressThatIsTakenIsAnError(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"-addr", taken.Addr().String()}, io.Discard, &stderr); code != exitFailed ||
		!strings.Contains(stderr.String(), taken.Addr().String()) {
		t.Errorf("code %d, %q", code, stderr.String())
	}
}

// The program itself, on a real socket: it ends at once although somebody watches.
func TestTheProgramServesUntilItIsTold(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	var stderr bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"-addr", "127.0.0.1:0", "-latency", "1ms"}, in, &stderr)
		_ = in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%v; %s", err, stderr.String())
	}
	url := strings.TrimPrefix(strings.TrimSpace(line), "support: ")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}

	req, err := http.NewRequestWithContext(t.Context(), "POST", url+"chat", strings.NewReader("Where is my parcel?"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(userHeader, "alice")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("alice got %s", resp.Status)
	}
	events, err := client.Get(url + "events")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()

	told := time.Now()
	cancel()
	if got := <-code; got != exitOK {
		t.Errorf("code %d: %s", got, stderr.String())
	}
	if took := time.Since(told); took > grace/2 {
		t.Errorf("it took %v to end", took)
	}
	if stderr.Len() > 0 {
		t.Errorf("it complained: %s", stderr.String())
	}
}
