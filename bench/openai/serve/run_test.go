package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	path = "/v1/chat/completions"
	body = `{"model":"gpt-5-mini","messages":[{"role":"user","content":"hello"}]}`
)

// command is a run of the program.
type command struct {
	url       string
	interrupt context.CancelFunc
	stdout    *bufio.Reader
	done      chan int
}

// start runs the program on a free port and reads where it listens.
func start(t *testing.T, args ...string) *command {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	c := &command{interrupt: cancel, stdout: bufio.NewReader(r), done: make(chan int, 1)}
	go func() {
		code := run(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), w, t.Output())
		w.Close()
		c.done <- code
	}()
	line, err := c.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("no line that says where it listens: %v", err)
	}
	_, url, ok := strings.Cut(strings.TrimSpace(line), " listens on ")
	if !ok {
		t.Fatalf("first line %q", line)
	}
	c.url = url
	return c
}

// rest reads what is printed after an interrupt, and the exit code.
func (c *command) rest(t *testing.T) (string, int) {
	t.Helper()
	text, err := io.ReadAll(c.stdout)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), <-c.done
}

func post(t *testing.T, url string, headers ...string) (int, error) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func TestItServesUntilItIsInterruptedAndPrintsTheCounters(t *testing.T) {
	t.Parallel()
	c := start(t, "-rpm", "2", "-ttft", "0", "-tps", "0", "-fault", "503@n=2", "-output", "77", "-output-sigma", "0")
	for i, want := range []int{200, 503, 429} {
		if got, err := post(t, c.url+path); err != nil || got != want {
			t.Errorf("call %d: %d, %v; want %d", i, got, err, want)
		}
	}
	c.interrupt()
	table, code := c.rest(t)
	if code != exitOK {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"requests", "output tokens", "77, 0 of them thoughts", "2 (100.0 % of 2, bucket window)", "503"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is missing in\n%s", want, table)
		}
	}
}

func TestCallsUnderWayMayEndWithinTheGrace(t *testing.T) {
	t.Parallel()
	c := start(t, "-latency", "300ms", "-latency-sigma", "0")
	status := make(chan int, 1)
	go func() {
		got, _ := post(t, c.url+path)
		status <- got
	}()
	waitFor(t, c.url, `"in_flight":1`)
	c.interrupt()
	if got := <-status; got != 200 {
		t.Errorf("the call under way: %d, want 200", got)
	}
	if table, code := c.rest(t); code != exitOK || !strings.Contains(table, "completed") {
		t.Errorf("exit code %d, table\n%s", code, table)
	}
}

func TestCallsThatHangAreCutOffAfterTheGrace(t *testing.T) {
	t.Parallel()
	c := start(t, "-grace", "50ms")
	status := make(chan int, 1)
	go func() {
		got, _ := post(t, c.url+path, "X-Double-Fault", "hang")
		status <- got
	}()
	waitFor(t, c.url, `"in_flight":1`)
	c.interrupt()
	if got := <-status; got != 503 {
		t.Errorf("the call that hangs: %d, want 503", got)
	}
	if _, code := c.rest(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// waitFor polls the counters of a real server until they show something.
func waitFor(t *testing.T, url, want string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		resp, err := client.Get(url + "/stats")
		if err != nil {
			t.Fatal(err)
		}
		stats, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(stats), want) {
			return
		}
	}
	t.Fatalf("the counters never showed %s", want)
}

func TestABadFlagIsOneLineThatNamesItAndItsValue(t *testing.T) {
	t.Parallel()
	tests := []struct {
		args []string
		want []string
	}{
		{[]string{"-rpm", "-1"}, []string{"-rpm", `"-1"`}},
		{[]string{"-rpm", "many"}, []string{"-rpm", `"many"`}},
		{[]string{"-tpm", "-5", "-rpm", "10"}, []string{"-tpm", `"-5"`}},
		{[]string{"-rpd", "-1"}, []string{"-rpd"}},
		{[]string{"-concurrency", "-1"}, []string{"-concurrency"}},
		{[]string{"-window", "hourly"}, []string{"-window", `"hourly"`, "fixed or sliding"}},
		{[]string{"-window", "daily"}, []string{"-window", `"daily"`}},
		{[]string{"-window-length", "-1s"}, []string{"-window-length", "-1s"}},
		{[]string{"-window-offset", "-1s"}, []string{"-window-offset", "-1s"}},
		{[]string{"-count-at", "noon"}, []string{"-count-at", `"noon"`}},
		{[]string{"-jitter", "-1s"}, []string{"-jitter", "-1s"}},
		{[]string{"-refusal", "polite"}, []string{"-refusal", `"polite"`}},
		{[]string{"-ttft", "-1s"}, []string{"-ttft", "-1s"}},
		{[]string{"-tps", "-1"}, []string{"-tps", `"-1"`}},
		{[]string{"-tps", "NaN"}, []string{"-tps", `"NaN"`}},
		{[]string{"-latency", "-8s"}, []string{"-latency", "-8s"}},
		{[]string{"-latency", "8s", "-tps", "100"}, []string{"-latency", "8s", "-tps"}},
		{[]string{"-latency", "8s", "-ttft", "1s"}, []string{"-latency", "8s", "-ttft"}},
		{[]string{"-ttft-share", "1.5"}, []string{"-ttft-share", `"1.5"`}},
		{[]string{"-latency-sigma", "9"}, []string{"-latency-sigma", `"9"`}},
		{[]string{"-output", "-1"}, []string{"-output", `"-1"`}},
		{[]string{"-output-sigma", "9"}, []string{"-output-sigma", `"9"`}},
		{[]string{"-reasoning", "-1"}, []string{"-reasoning", `"-1"`}},
		{[]string{"-function-calls", "-1"}, []string{"-function-calls", `"-1"`}},
		{[]string{"-cached-share", "2"}, []string{"-cached-share", `"2"`}},
		{[]string{"-count-tokens", "twice"}, []string{"-count-tokens", `"twice"`}},
		{[]string{"-tpd", "-1"}, []string{"-tpd"}},
		{[]string{"-chunk", "-1"}, []string{"-chunk", `"-1"`}},
		{[]string{"-fault", "503@p=2"}, []string{"-fault", `"503@p=2"`, "at most 1"}},
		{[]string{"-fault", "503", "-fault", "teapot"}, []string{"-fault", `"teapot"`, "cut-json"}},
		{[]string{"-speed", "-2"}, []string{"-speed", `"-2"`}},
		{[]string{"-call-log", "-1"}, []string{"-call-log", `"-1"`}},
		{[]string{"-grace", "-1s"}, []string{"-grace", "-1s"}},
		{[]string{"-colour", "red"}, []string{"-colour"}},
		{[]string{"now"}, []string{`"now"`}},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			var out, errs strings.Builder
			code := run(t.Context(), tt.args, &out, &errs)
			line := errs.String()
			if code != exitUsage || out.Len() > 0 || strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") {
				t.Errorf("exit code %d, stdout %q, stderr %q; want 2, nothing and one line", code, &out, line)
			}
			for _, want := range tt.want {
				if !strings.Contains(line, want) {
					t.Errorf("%q does not say %s", line, want)
				}
			}
		})
	}
}

func TestHelpExplainsEveryFlagAndTheFaults(t *testing.T) {
	t.Parallel()
	var out, errs strings.Builder
	if code := run(t.Context(), []string{"-h"}, &out, &errs); code != exitOK || errs.Len() > 0 {
		t.Errorf("exit code %d, stderr %q", code, &errs)
	}
	for _, want := range []string{"-addr", "-rpm", "-tpm", "-window", "-speed", "-fault", "curl", "cut-json", "10s-20s"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the help does not mention %s", want)
		}
	}
}

func TestAnAddressInUseFails(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var out, errs strings.Builder
	if code := run(t.Context(), []string{"-addr", l.Addr().String()}, &out, &errs); code != exitFailed || strings.Count(errs.String(), "\n") != 1 {
		t.Errorf("exit code %d, stderr %q; want 1 and one line", code, &errs)
	}
}
