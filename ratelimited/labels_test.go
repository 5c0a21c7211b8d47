package ratelimited_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/headgate-go/headgate/ratelimited"
)

// framework is a context as an agent framework gives it to a model: it answers
// for the user, the agent and the invocation by itself.
type framework struct {
	context.Context
	user, agent, invocation string
}

func (f framework) UserID() string       { return f.user }
func (f framework) AgentName() string    { return f.agent }
func (f framework) InvocationID() string { return f.invocation }

// labelled reports under which flow, agent and request a model's calls with ctx
// count. The flow is what FlowWeight is asked for, the agent what a budget is
// told, and the request is found by trying which one's ceiling the call fills.
func labelled(t *testing.T, ctx context.Context, cfg ratelimited.Config) string {
	t.Helper()
	flow := ""
	cfg.Slots = 10
	cfg.FlowWeight = func(_, f string) float64 { flow = f; return 1 }
	cfg.PerRequest = ratelimited.Ceiling{Slots: 1}
	g := newGate(t, cfg)
	l := &ledger{}
	block := make(chan struct{})
	f := &fakeLLM{play: func(_ context.Context, _ int, yield yields) {
		<-block
		yield(final(1, 1), nil)
	}}
	llm := wrap(t, f, g, ratelimited.WithBudgets(l))
	done := make(chan error, 1)
	go func() { done <- call(ctx, llm, hello()) }()
	synctest.Wait()
	got := fmt.Sprintf("%s/%s/", flow, l.reserved[0].Agent)
	for _, key := range []string{"set", "own", "pinned", "of a pinned one"} {
		p, err := g.Acquire(ratelimited.WithMaxWait(context.Background(), 0), ratelimited.Call{Request: key, Flow: "probe"})
		if err != nil {
			got += key
		}
		p.Release()
	}
	close(block)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return got
}

// Where a call belongs: what was set explicitly wins over what the context
// answers by itself, and that over what was pinned from an earlier one.
func TestLabelsComeFromTheContext(t *testing.T) {
	own := func(ctx context.Context) context.Context { return framework{ctx, "own", "own", "own"} }
	other := func(ctx context.Context) context.Context { return framework{ctx, "pinned", "pinned", "pinned"} }
	derive := func(ctx context.Context) context.Context { return context.WithValue(ctx, struct{ k string }{}, 1) }
	set := func(ctx context.Context) context.Context {
		return ratelimited.WithFlow(ratelimited.WithAgent(ratelimited.WithRequest(ctx, "set"), "set"), "set")
	}
	type derivation = func(context.Context) context.Context
	for name, test := range map[string]struct {
		ctx  []derivation // from the inside out
		flow func(context.Context) string
		want string
	}{
		"nothing":                               {want: "//"},
		"the context's own":                     {ctx: []derivation{own}, want: "own/own/own"},
		"hidden by a derived context":           {ctx: []derivation{own, derive}, want: "//"},
		"pinned before it":                      {ctx: []derivation{other, ratelimited.Pin, derive}, want: "pinned/pinned/pinned"},
		"pinned by a label":                     {ctx: []derivation{other, func(c context.Context) context.Context { return ratelimited.WithClass(c, "batch") }, derive}, want: "pinned/pinned/pinned"},
		"set":                                   {ctx: []derivation{set}, want: "set/set/set"},
		"set over the context's own":            {ctx: []derivation{set, own}, want: "set/set/set"},
		"set and then derived":                  {ctx: []derivation{own, set, derive}, want: "set/set/set"},
		"the context's own over the pinned":     {ctx: []derivation{other, ratelimited.Pin, own}, want: "own/own/own"},
		"what it does not answer is pinned":     {ctx: []derivation{other, ratelimited.Pin, func(c context.Context) context.Context { return framework{Context: c, user: "own"} }}, want: "own/pinned/pinned"},
		"only the agent is set":                 {ctx: []derivation{own, func(c context.Context) context.Context { return ratelimited.WithAgent(c, "set") }}, want: "own/set/own"},
		"an empty label is none":                {ctx: []derivation{set, func(c context.Context) context.Context { return ratelimited.WithFlow(c, "") }, own}, want: "own/set/set"},
		"Config.Flow over the context's own":    {ctx: []derivation{own}, flow: func(context.Context) string { return "set" }, want: "set/own/own"},
		"Config.Flow that does not know":        {ctx: []derivation{own}, flow: func(context.Context) string { return "" }, want: "own/own/own"},
		"set over Config.Flow":                  {ctx: []derivation{set}, flow: func(context.Context) string { return "other" }, want: "set/set/set"},
		"pinning what answers nothing is no-op": {ctx: []derivation{ratelimited.Pin}, want: "//"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ctx := t.Context()
				for _, d := range test.ctx {
					ctx = d(ctx)
				}
				if got := labelled(t, ctx, ratelimited.Config{Flow: test.flow}); got != test.want {
					t.Errorf("flow/agent/request are %q, want %q", got, test.want)
				}
			})
		})
	}
}

// What a call says of itself wins over its context.
func TestLabelsOfTheCallWin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var asked [2]string
		g := newGate(t, ratelimited.Config{Slots: 1, FlowWeight: func(class, flow string) float64 {
			asked = [2]string{class, flow}
			return 1
		}})
		ctx := ratelimited.WithClass(ratelimited.WithFlow(t.Context(), "ctx"), "batch")
		for _, test := range []struct {
			call ratelimited.Call
			want [2]string
		}{
			{ratelimited.Call{}, [2]string{"batch", "ctx"}},
			{ratelimited.Call{Class: "interactive", Flow: "own"}, [2]string{"interactive", "own"}},
		} {
			p, err := g.Acquire(ctx, test.call)
			if err != nil {
				t.Fatal(err)
			}
			p.Release()
			if asked != test.want {
				t.Errorf("class and flow are %q, want %q", asked, test.want)
			}
		}
	})
}

// A class or a width that does not exist is an error of the call, by name and
// value, before anything is reserved.
func TestCallIsChecked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1, Name: "main"})
		l := &ledger{}
		llm := wrap(t, answers(0, final(1, 1)), g, ratelimited.WithBudgets(l))
		for _, test := range []struct {
			err  error
			want string
		}{
			{call(ratelimited.WithClass(t.Context(), "vip"), llm, hello()), `ratelimited: Call.Class is "vip", which the gate "main" does not have`},
			{func() error { _, err := g.Acquire(t.Context(), ratelimited.Call{Slots: -1}); return err }(), "ratelimited: Call.Slots is -1, must not be negative"},
		} {
			if fmt.Sprint(test.err) != test.want {
				t.Errorf("got %v, want %s", test.err, test.want)
			}
		}
		if len(l.reserved) != 0 {
			t.Error("a budget was asked for a call that is wrong")
		}
		mustBeIdle(t, g)
	})
}
