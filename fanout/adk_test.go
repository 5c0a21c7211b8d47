package fanout_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/fanout"
)

// The shapes of ADK Go (versions 1.6 and 2.2) that Compose is for: an Agent is an
// interface, and the constructors of parallel and sequential agents take a Config
// by value and return (Agent, error). ADK Go is not imported; should Compose stop
// fitting these shapes, this file does not compile.
type (
	adkContext interface{ context.Context }
	adkEvent   struct{ Author string }

	adkAgent interface {
		Name() string
		Description() string
		Run(ctx adkContext) iter.Seq2[*adkEvent, error]
		SubAgents() []adkAgent
	}
	adkAgentConfig struct {
		Name        string
		Description string
		SubAgents   []adkAgent
		Run         func(ctx adkContext) iter.Seq2[*adkEvent, error]
	}
	adkParallelConfig   struct{ AgentConfig adkAgentConfig }
	adkSequentialConfig struct{ AgentConfig adkAgentConfig }
)

var (
	parallelagentNew   func(adkParallelConfig) (adkAgent, error)   = newParallel
	sequentialagentNew func(adkSequentialConfig) (adkAgent, error) = newSequential
)

type twin struct{ adkAgentConfig }

func (a *twin) Name() string                                   { return a.adkAgentConfig.Name }
func (a *twin) Description() string                            { return a.adkAgentConfig.Description }
func (a *twin) SubAgents() []adkAgent                          { return a.adkAgentConfig.SubAgents }
func (a *twin) Run(ctx adkContext) iter.Seq2[*adkEvent, error] { return a.adkAgentConfig.Run(ctx) }

// newParallel runs all its sub-agents at once, as ADK Go's does.
func newParallel(cfg adkParallelConfig) (adkAgent, error) {
	if cfg.AgentConfig.Run != nil {
		return nil, errors.New("Run is set")
	}
	cfg.AgentConfig.Run = func(ctx adkContext) iter.Seq2[*adkEvent, error] {
		return func(yield func(*adkEvent, error) bool) {
			var wg sync.WaitGroup
			var mu sync.Mutex
			for _, sub := range cfg.AgentConfig.SubAgents {
				wg.Go(func() {
					for event, err := range sub.Run(ctx) {
						mu.Lock()
						yield(event, err)
						mu.Unlock()
					}
				})
			}
			wg.Wait()
		}
	}
	return &twin{cfg.AgentConfig}, nil
}

func newSequential(cfg adkSequentialConfig) (adkAgent, error) {
	if cfg.AgentConfig.Run != nil {
		return nil, errors.New("Run is set")
	}
	cfg.AgentConfig.Run = func(ctx adkContext) iter.Seq2[*adkEvent, error] {
		return func(yield func(*adkEvent, error) bool) {
			for _, sub := range cfg.AgentConfig.SubAgents {
				for event, err := range sub.Run(ctx) {
					if !yield(event, err) {
						return
					}
				}
			}
		}
	}
	return &twin{cfg.AgentConfig}, nil
}

func TestComposedFrameworkAgentsAllRunAndNeverMoreThanKAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, k = 7, 3
		var g gauge
		var reviewers []adkAgent
		for i := range n {
			name := fmt.Sprintf("reviewer_%d", i)
			reviewers = append(reviewers, &twin{adkAgentConfig{Name: name,
				Run: func(ctx adkContext) iter.Seq2[*adkEvent, error] {
					return func(yield func(*adkEvent, error) bool) {
						err := g.work(ctx, time.Second)
						yield(&adkEvent{Author: name}, err)
					}
				}}})
		}
		root, err := fanout.Compose(reviewers, k,
			func(group int, agents []adkAgent) (adkAgent, error) {
				return parallelagentNew(adkParallelConfig{AgentConfig: adkAgentConfig{
					Name: fmt.Sprintf("reviewers_%d", group), SubAgents: agents,
				}})
			},
			func(groups []adkAgent) (adkAgent, error) {
				return sequentialagentNew(adkSequentialConfig{AgentConfig: adkAgentConfig{
					Name: "reviewers", SubAgents: groups,
				}})
			})
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[string]bool)
		for event, err := range root.Run(t.Context()) {
			if err != nil {
				t.Error(err)
			}
			seen[event.Author] = true
		}
		if root.Name() != "reviewers" || len(seen) != n || g.entered.Load() != n || g.peak.Load() != k {
			t.Errorf("%s: %d agents seen, %d runs, %d at a time; want %d, %d, %d",
				root.Name(), len(seen), g.entered.Load(), g.peak.Load(), n, n, k)
		}
	})
}
