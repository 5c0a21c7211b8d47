package anthropicmodel_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/bench/anthropic"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// However a call ends, its slot and its reservation are back at once, and once:
// the next call is admitted, and no slot is minted. A width of 1 shows either.
func TestEverythingIsBackOnceHoweverACallEnds(t *testing.T) {
	t.Parallel()
	type seq = iter.Seq2[*response, error]
	prompt := usage.Usage{Input: 2, Output: 1} // of "hello", as the first event reports it
	for name, c := range map[string]struct {
		fault  string
		use    func(t *testing.T, call func(ctx context.Context) seq)
		stream bool
		// charged is what the customer pays at least: input, and output.
		charged usage.Usage
	}{
		"completed":                {stream: true, use: drain(nil), charged: usage.Usage{Input: 2, Output: 256}},
		"completed in one piece":   {use: drain(nil), charged: usage.Usage{Input: 2, Output: 256}},
		"refused":                  {fault: "400-spend", stream: true, use: drain(isAPIError(400, "invalid_request_error"))},
		"failed in one piece":      {fault: "504", use: drain(isAPIError(504, "timeout_error"))},
		"broken":                   {fault: "drop", stream: true, use: drain(func(error) bool { return true }), charged: prompt},
		"overloaded in the middle": {fault: "stream-error", stream: true, use: drain(isAPIError(200, "overloaded_error")), charged: prompt},
		"the consumer breaks off": {stream: true, charged: prompt, use: func(t *testing.T, call func(context.Context) seq) {
			for range call(t.Context()) {
				break
			}
		}},
		"the consumer panics": {stream: true, charged: prompt, use: func(t *testing.T, call func(context.Context) seq) {
			defer func() {
				if recover() != "mine" {
					t.Error("the consumer's panic did not pass")
				}
			}()
			for range call(t.Context()) {
				panic("mine")
			}
		}},
		"cancelled before the first item": {stream: true, charged: usage.Usage{Input: 1}, use: func(t *testing.T, call func(context.Context) seq) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(500*time.Millisecond, cancel)
			if got := collect(call(ctx)); got.items != nil || len(got.errs) != 1 || !errors.Is(got.errs[0], context.Canceled) {
				t.Errorf("got %d items, errors %v", len(got.items), got.errs)
			}
		}},
		"out of time within the answer": {stream: true, charged: prompt, use: func(t *testing.T, call func(context.Context) seq) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			if got := collect(call(ctx)); got.items == nil || len(got.errs) != 1 || !errors.Is(got.errs[0], context.DeadlineExceeded) {
				t.Errorf("got %d items, errors %v", len(got.items), got.errs)
			}
		}},
		"cancelled inside the last item": {stream: true, charged: usage.Usage{Input: 2, Output: 256}, use: func(t *testing.T, call func(context.Context) seq) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for resp, err := range call(ctx) {
				if err == nil && resp.Event.Delta.StopReason != "" {
					cancel()
				}
			}
		}},
		"pulled and forgotten": {stream: true, charged: prompt, use: func(t *testing.T, call func(context.Context) seq) {
			ctx, cancel := context.WithCancel(t.Context())
			next, stop := iter.Pull2(call(ctx))
			t.Cleanup(stop) // a forgotten coroutine would be a leak of the test
			if _, err, ok := next(); err != nil || !ok {
				t.Errorf("first item: %v, %v", err, ok)
			}
			cancel()
			synctest.Wait()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, anthropic.Config{Latency: 8 * time.Second, TTFTShare: 0.25}, ratelimited.Config{Slots: 1, Profile: perMinute()})
				req := hello()
				if c.fault != "" {
					req = demanding(anthropic.HeaderFault, c.fault)
				}
				for range 3 {
					c.use(t, func(ctx context.Context) seq { return r.GenerateContent(ctx, req, c.stream) })
					if got := r.books.last(); got.Input < c.charged.Input || got.Output < c.charged.Output || c.charged.IsZero() != got.IsZero() {
						t.Errorf("the customer was charged %v, want at least %v", got, c.charged)
					}
					r.idle(t)
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					p, err := r.Gate().Acquire(ctx, ratelimited.Call{})
					if err != nil {
						t.Fatalf("the next call was not admitted: %v", err)
					}
					p.Release()
					cancel()
				}
				if s := r.double.Stats(); s.Requests != 3 {
					t.Errorf("%d requests of 3 calls", s.Requests)
				}
			})
		})
	}
}

// drain ranges a call to its end; the one error must match, nil is none.
func drain(want func(error) bool) func(*testing.T, func(context.Context) iter.Seq2[*response, error]) {
	return func(t *testing.T, call func(context.Context) iter.Seq2[*response, error]) {
		t.Helper()
		got := collect(call(t.Context()))
		switch {
		case want == nil && got.errs != nil:
			t.Errorf("errors %v", got.errs)
		case want != nil && (len(got.errs) != 1 || !want(got.errs[0])):
			t.Errorf("errors %v, want another one", got.errs)
		}
	}
}
