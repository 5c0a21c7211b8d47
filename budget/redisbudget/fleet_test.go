package redisbudget_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/bench/gemini"
	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/redisbudget"
	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/internal/memhttp"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/genaimodel"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

// The quota of all gates of a test: small enough for its window to go by some times.
const (
	window   = 1000 * time.Millisecond
	requests = 30
	tokens   = 6000
	slots    = 16
)

// provider is a double that counts, and the clients of it.
type provider struct {
	t      testing.TB
	double *gemini.Server
	model  *genaimodel.Model
}

func newProvider(t testing.TB) *provider {
	t.Helper()
	double, err := gemini.New(gemini.Config{
		RPM: requests, TPM: tokens, WindowLength: window, Latency: 200 * time.Millisecond, TTFTShare: 0.5, LatencySigma: 0.3, Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := memhttp.New(double)
	t.Cleanup(srv.Close)
	client, err := genai.NewClient(context.Background(), &genai.ClientConfig{
		APIKey: "key", Backend: genai.BackendGeminiAPI, HTTPOptions: genai.HTTPOptions{BaseURL: srv.URL},
		HTTPClient: &http.Client{Transport: &retry.Transport{Base: srv.Client().Transport}},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{t: t, double: double}
	if p.model, err = genaimodel.New(client, "gemini-2.5-flash"); err != nil {
		t.Fatal(err)
	}
	return p
}

// quota is the provider's, as a gate is told of it.
func quota() ratelimited.Profile {
	p := ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: requests, InputTokensPerMinute: tokens})
	for i := range p.Dimensions {
		p.Dimensions[i].Window = window
	}
	return p
}

// replica is a gate that shares the quota, and the model behind it.
type replica struct {
	p    *provider
	gate *ratelimited.Gate
	llm  *ratelimited.RateLimitedModel[*genaimodel.Request, *genai.GenerateContentResponse]
}

func (p *provider) replica(s *redisbudget.Sharing) *replica {
	p.t.Helper()
	gate, err := ratelimited.NewGate(ratelimited.Config{
		Name: "gemini", Profile: quota(), Slots: slots, Share: s, Logger: slog.New(slog.DiscardHandler), Headroom: 1,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	r := &replica{p: p, gate: gate}
	if r.llm, err = ratelimited.NewMetered(p.model, gate, exact{}); err != nil {
		p.t.Fatal(err)
	}
	return r
}

// prompt has so many tokens, as the double counts them.
func prompt(tokens int) string { return strings.Repeat("gate", tokens) }

// exact knows before a call what it uses: what is used above an estimate is spent before
// anybody knows.
type exact struct{}

func (exact) Estimate(r *genaimodel.Request) usage.Usage {
	return usage.Usage{Input: int64(len(r.Contents[0].Parts[0].Text) / gemini.RunesPerToken), Flags: usage.Estimated}
}

func (exact) Observe(r *genai.GenerateContentResponse) (u usage.Usage, p ratelimited.Progress) {
	if m := r.UsageMetadata; m != nil {
		u.Input, u.Output = int64(m.PromptTokenCount), int64(m.CandidatesTokenCount)
	}
	if len(r.Candidates) > 0 && r.Candidates[0].FinishReason != "" {
		p = ratelimited.Done
	}
	return u, p
}

func (exact) Clamp(r *genaimodel.Request, _ int64) (*genaimodel.Request, bool) { return r, false }

// call makes one call of about so many tokens.
func (r *replica) call(ctx context.Context, tokens int) error {
	for _, err := range r.llm.GenerateContent(ctx, &genaimodel.Request{Contents: genai.Text(prompt(tokens))}, true) {
		if err != nil {
			return err
		}
	}
	return nil
}

// burst makes calls, all at once.
func (r *replica) burst(calls int) {
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			ctx := ratelimited.WithFlow(context.Background(), fmt.Sprint("user ", i%3))
			if err := r.call(ctx, 50+37*i%300); err != nil {
				r.p.t.Errorf("a call: %v", err)
			}
		})
	}
	all.Wait()
}

// work makes calls for a time, some side by side, and returns how many.
func (r *replica) work(lasts time.Duration) (calls int64) {
	var users sync.WaitGroup
	var made atomic.Int64
	until := time.Now().Add(lasts)
	for i := range 4 {
		users.Go(func() {
			ctx := ratelimited.WithFlow(context.Background(), fmt.Sprint("user ", i))
			for n := i; time.Now().Before(until); n++ {
				made.Add(1)
				if err := r.call(ctx, 50+37*n%300); err != nil {
					r.p.t.Errorf("a call: %v", err)
				}
			}
		})
	}
	users.Wait()
	return made.Load()
}

func (r *replica) close() {
	r.p.t.Helper()
	if err := r.gate.Close(context.Background()); err != nil {
		r.p.t.Error(err)
	}
}

// check fails unless the provider has refused nothing, answered so many calls, and at no
// time had to give more than its quota.
func (p *provider) check(calls int64) {
	p.t.Helper()
	s := p.double.Stats()
	if s.Refused != 0 {
		p.t.Errorf("the provider refused %d of %d requests: %v", s.Refused, s.Requests, s.RefusedBy)
	}
	if s.Completed != calls {
		p.t.Errorf("%d calls were completed, want %d", s.Completed, calls)
	}
	for _, w := range s.Windows {
		if w.Share > 1 {
			p.t.Errorf("%d of %d %s were used in one window", w.Largest, w.Limit, w.Name)
		}
		p.t.Logf("%s: at most %d of %d in one window", w.Name, w.Largest, w.Limit)
	}
}

// whole fails unless all of a quota can be had soon: nothing of it is lost.
func (p *provider) whole(s *redisbudget.Sharing) {
	p.t.Helper()
	dims := []share.Dim{
		{Shape: share.Window, Limit: requests, Window: window},
		{Shape: share.Window, Limit: tokens, Window: window},
		{Shape: share.Slots, Limit: slots},
	}
	store, err := redisbudget.Open(s, budget.SharedQuota{Name: "gemini"}, dims)
	if err != nil {
		p.t.Fatal(err)
	}
	r := share.Request{Replica: "auditor", Epoch: 1}
	for _, d := range dims {
		r.Dims = append(r.Dims, share.DimReport{Limit: d.Limit, Need: d.Limit, Want: d.Limit})
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		r.Seq++
		reply, err := store.Do(context.Background(), r)
		switch {
		case err != nil:
			p.t.Fatal(err)
		case reply.Granted[0] == requests && reply.Granted[1] == tokens && reply.Granted[2] == slots:
			r.Seq, r.Leave = r.Seq+1, true
			if _, err := store.Do(context.Background(), r); err != nil {
				p.t.Error(err)
			}
			return
		case time.Since(began) > 10*time.Second:
			p.t.Fatalf("10 s after the last call not all of the quota can be had: %+v", reply)
		}
	}
}
