package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/genai"

	"github.com/headgate-go/headgate/budget/redisbudget"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/genaimodel"
	"github.com/headgate-go/headgate/retry"
)

// replica is one copy of the program: its users, and the gate before its model.
type replica struct {
	o     options
	out   io.Writer
	redis *redis.Client
	http  *http.Transport
	gate  *ratelimited.Gate
	llm   *ratelimited.RateLimitedModel[*genaimodel.Request, *genai.GenerateContentResponse]

	mu sync.Mutex
	// mu guards all that follows, and out.
	calls, answered int
	waited          time.Duration
}

// newReplica makes all that a program needs to share a quota: a Sharing, a gate that has
// it, and a model behind the gate.
func newReplica(ctx context.Context, o options, out io.Writer, log *slog.Logger) (*replica, error) {
	r := &replica{o: o, out: out}
	// A connection that hangs is given up when an answer is no longer waited for.
	r.redis = redis.NewClient(&redis.Options{Addr: o.redis, ContextTimeoutEnabled: true})
	sharing, err := redisbudget.New(ctx, redisbudget.Config{
		Client: r.redis, Name: o.quota, Replica: o.name, Mode: o.mode, TTL: o.ttl, Logger: log,
	})
	if err != nil {
		return nil, errors.Join(err, r.redis.Close())
	}
	profile := ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: o.rpm, InputTokensPerMinute: o.tpm})
	for i := range profile.Dimensions {
		profile.Dimensions[i].Window = o.window
	}
	r.gate, err = ratelimited.NewGate(ratelimited.Config{
		Name: "fleet", Slots: o.slots, Profile: profile, Headroom: o.headroom, Share: sharing, Logger: log,
	})
	if err != nil {
		return nil, errors.Join(err, r.redis.Close())
	}
	if err = r.model(ctx); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// model puts a model behind the gate.
func (r *replica) model(ctx context.Context) error {
	r.http = http.DefaultTransport.(*http.Transport).Clone()
	r.http.MaxIdleConnsPerHost = int(r.o.slots)
	client, err := genai.NewClient(ctx, &genai.ClientConfig{
		APIKey: apiKey(), Backend: genai.BackendGeminiAPI, HTTPOptions: genai.HTTPOptions{BaseURL: r.o.double},
		HTTPClient: &http.Client{Transport: &retry.Transport{Base: r.http}},
	})
	if err != nil {
		return err
	}
	model, err := genaimodel.New(client, "gemini-2.5-flash")
	if err != nil {
		return err
	}
	r.llm, err = ratelimited.New(model, r.gate)
	return err
}

// serve lets the users call until the time is over. It returns when all calls that were
// made have ended: they are not broken off.
func (r *replica) serve(ctx context.Context) {
	if r.o.last > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.o.last)
		defer cancel()
	}
	r.print("%s is ready", r.o.name)
	var users sync.WaitGroup
	for i := range r.o.users {
		users.Go(func() {
			user := fmt.Sprintf("user-%d", i)
			for n := 1; ctx.Err() == nil; n++ {
				r.call(ratelimited.WithFlow(context.WithoutCancel(ctx), user), user, n)
			}
		})
	}
	users.Wait()
}

// call makes one call of a user.
func (r *replica) call(ctx context.Context, user string, n int) {
	began, first := time.Now(), time.Duration(0)
	var err error
	req := &genaimodel.Request{Contents: genai.Text(prompt(1 + rand.IntN(r.o.tokens)))}
	for _, err = range r.llm.GenerateContent(ctx, req, true) {
		if first == 0 {
			first = time.Since(began)
		}
	}
	r.mu.Lock()
	r.calls++
	if err == nil {
		r.answered++
		r.waited += first
	}
	r.mu.Unlock()
	if err != nil {
		r.print("%s: %s: call %d failed: %v", r.o.name, user, n, err)
		return
	}
	r.print("%s: %s: call %d answered after %v", r.o.name, user, n, time.Since(began).Round(time.Millisecond))
}

// prompt is a text of about so many tokens.
func prompt(tokens int) string {
	const prose = "Every field takes its share of the river, and gives back what it does not need. "
	return strings.Repeat(prose, 4*tokens/len(prose)+1)[:4*tokens]
}

// report tells what became of all calls, and returns how many were not answered.
func (r *replica) report() (failed int) {
	r.mu.Lock()
	calls, answered, mean := r.calls, r.answered, r.waited/time.Duration(max(r.answered, 1))
	r.mu.Unlock()
	r.print("%s: %d calls, %d answered, the first item after %v on average", r.o.name, calls, answered, mean.Round(time.Millisecond))
	return calls - answered
}

func (r *replica) print(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, format+"\n", args...)
}

// close gives back what the gate still has of the quota.
func (r *replica) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := r.gate.Close(ctx)
	if r.http != nil {
		r.http.CloseIdleConnections()
	}
	return errors.Join(err, r.redis.Close())
}
