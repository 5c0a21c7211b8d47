package observability

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// The whole way: the program of examples/support, scraped by a real Prometheus that has
// the rules of this folder. Users are denied, the alert about it fires, everything that
// the dashboard asks has an answer; then the program ends, and that is noticed too.
func TestPrometheusScrapesTheExampleAndAlerts(t *testing.T) {
	t.Parallel()
	path := program(t, "prometheus")
	s := startSupport(t)
	p := startPrometheus(t, path, s.url)
	talk(t, s)

	p.eventually(`sum(up{job="headgate"}) == 1`)
	for _, alert := range []string{"HeadgateManyDenials", "HeadgateSharedLimitUsedUp"} {
		p.eventually(`ALERTS{alertname="` + alert + `", alertstate="firing"}`)
	}
	if got := p.query(`ALERTS{alertname=~"HeadgateDown|HeadgateFailOpen|HeadgateLedger.*", alertstate="firing"}`); len(got) > 0 {
		t.Errorf("nothing is wrong, and yet there is %s", got)
	}

	scraped := s.metrics(t)
	answered := 0
	for _, q := range append(dashboardQueries(t), alertQueries(t)...) {
		result := p.query(q.expr)
		if strings.HasPrefix(q.where, "alert ") { // most of which must have none
			continue
		}
		expect := len(q.selectors()) > 0 && !strings.Contains(q.expr, `outcome="observed"`) // the example has no such limit
		for _, s := range q.selectors() {
			expect = expect && scraped[s.metric]
		}
		if !expect {
			continue
		}
		answered++
		if len(result) == 0 {
			t.Errorf("%s has no answer, though its metrics are there: %s", q.where, q.expr)
		}
	}
	if answered < 40 {
		t.Errorf("%d queries of the dashboard have an answer only", answered)
	}
	p.rulesAreHealthy()

	s.stop()
	p.eventually(`ALERTS{alertname="HeadgateDown", alertstate="firing"}`)
}

// support is the program of examples/support.
type support struct {
	url    string // without a slash at the end
	client *http.Client
	stop   func()
}

// startSupport builds and starts it on a free port, with more of a command line.
func startSupport(t *testing.T, args ...string) *support {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "support")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, "../support")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, binary, append([]string{"-addr", "127.0.0.1:0", "-latency", "20ms"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stop := start(t, cmd, cancel)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "support: "), "/")
	if _, err := url.ParseRequestURI(address); err != nil {
		t.Fatalf("the program says %q: %v", line, err)
	}
	return &support{address, newClient(t), stop}
}

// start starts a program that ends with a signal when cancel is called, and returns
// what ends it and waits for it. The end of the test does so too.
func start(t *testing.T, cmd *exec.Cmd, cancel context.CancelFunc) (stop func()) {
	t.Helper()
	var log strings.Builder
	cmd.Stderr = &log // read only when the program has ended
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		_ = cmd.Wait() // it was told to end
		if t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(cmd.Path), log.String())
		}
	})
	t.Cleanup(stop)
	return stop
}

// newClient is a client that leaves nothing behind.
func newClient(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 5 * time.Second}
}

// metrics are the names of the series that the program exports.
func (s *support) metrics(t *testing.T) map[string]bool {
	t.Helper()
	resp, err := s.client.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	names := map[string]bool{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if end := strings.IndexAny(lines.Text(), "{ "); end > 0 {
			names[lines.Text()[:end]] = true
		}
	}
	return names
}

// probe asks whether limits can be checked.
func (s *support) probe(ctx context.Context) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/healthz", nil)
	if err != nil {
		return
	}
	if resp, err := s.client.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// talk has people write until the test ends: more than alice may, and more than she
// and carol may together.
func talk(t *testing.T, s *support) {
	ctx, cancel := context.WithCancel(context.Background())
	var talking sync.WaitGroup
	talking.Go(func() {
		for tick := time.NewTicker(100 * time.Millisecond); ; {
			for _, user := range []string{"alice", "carol", "bob"} {
				req, err := http.NewRequestWithContext(ctx, "POST", s.url+"/chat", strings.NewReader("Where is my parcel?"))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("X-User-Id", user)
				if resp, err := s.client.Do(req); err == nil { // else the program has ended
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	})
	t.Cleanup(func() { cancel(); talking.Wait() })
}

// server is a Prometheus.
type server struct {
	t      *testing.T
	url    string
	client *http.Client
}

// startPrometheus starts one that scrapes targets each second, with the configuration
// and the rules of this folder. The rules need not hold for as long as they say.
func startPrometheus(t *testing.T, path string, targets ...string) *server {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "alerts.yaml"), "alerts.yaml", func(doc map[string]any) {
		for _, g := range doc["groups"].([]any) {
			for _, r := range g.(map[string]any)["rules"].([]any) {
				delete(r.(map[string]any), "for")
			}
		}
	})
	write(t, filepath.Join(dir, "prometheus.yaml"), "prometheus.yaml", func(doc map[string]any) {
		doc["global"] = map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"}
		job := doc["scrape_configs"].([]any)[0].(map[string]any)
		var addresses []any
		for _, target := range targets {
			addresses = append(addresses, strings.TrimPrefix(target, "http://"))
		}
		job["static_configs"] = []any{map[string]any{"targets": addresses}}
	})
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	address := freeAddress(t)
	start(t, exec.CommandContext(ctx, path,
		"--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn"), cancel)
	return &server{t, "http://" + address, newClient(t)}
}

// write writes a file of this folder that has been changed.
func write(t *testing.T, to, from string, change func(map[string]any)) {
	t.Helper()
	var doc map[string]any
	if err := yaml.Unmarshal(file(t, from), &doc); err != nil {
		t.Fatal(err)
	}
	change(doc)
	text, err := yaml.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// freeAddress is one that nobody listens on, or did not a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// get asks the API, and reads what it answers into data.
func (s *server) get(path string, data any) error {
	resp, err := s.client.Get(s.url + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %w", resp.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", resp.Status, answer.Error)
	}
	return json.Unmarshal(answer.Data, data)
}

// ask evaluates an expression.
func (s *server) ask(expr string) ([]json.RawMessage, error) {
	var data struct{ Result []json.RawMessage }
	err := s.get("/api/v1/query?query="+url.QueryEscape(expr), &data)
	return data.Result, err
}

// query evaluates an expression that must be one.
func (s *server) query(expr string) []json.RawMessage {
	s.t.Helper()
	result, err := s.ask(expr)
	if err != nil {
		s.t.Errorf("%s: %v", expr, err)
	}
	return result
}

// eventually waits until an expression has a result.
func (s *server) eventually(expr string) {
	s.t.Helper()
	const patience = 30 * time.Second // a server takes 5 s to know its targets
	var result []json.RawMessage
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if result, err = s.ask(expr); err == nil && len(result) > 0 {
			return
		}
	}
	s.t.Fatalf("after %v there is no result of %s (%v)", patience, expr, err)
}

// rulesAreHealthy checks that the server could evaluate all rules.
func (s *server) rulesAreHealthy() {
	s.t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if err := s.get("/api/v1/rules", &data); err != nil {
		s.t.Fatal(err)
	}
	healthy := 0
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				s.t.Errorf("rule %s is %s: %s", r.Name, r.Health, r.LastError)
				continue
			}
			healthy++
		}
	}
	if want := len(alerts(s.t)); healthy != want {
		s.t.Errorf("the server has %d healthy rules, not %d", healthy, want)
	}
}
