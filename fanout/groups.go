package fanout

import (
	"errors"
	"fmt"
	"slices"
)

// Groups cuts items into consecutive groups of k; the last may be smaller. The
// groups share memory with items but do not grow into each other. No items make
// no groups. A k below 1 is an error.
func Groups[T any](items []T, k int) ([][]T, error) {
	if k < 1 {
		return nil, fmt.Errorf("fanout: k is %d, must be at least 1", k)
	}
	return slices.Collect(slices.Chunk(items, k)), nil
}

// Compose makes agents into one agent that runs them in groups of at most k: the
// agents of a group side by side, one group after another. It is for agent
// frameworks, which run their agents themselves and put no width on their
// parallel agents.
//
// parallel makes one agent of a group, and is called for each group in order
// with its number, from 0, for a name of its own; sequence makes the result of
// these. Both are called also where a group, or the sequence, has one member
// only, so that what the result looks like does not depend on the number of
// agents. The slices that they are given are theirs to keep.
//
// With ADK Go, where agents' names must differ:
//
//	reviewers, err := fanout.Compose(agents, 4,
//		func(group int, agents []agent.Agent) (agent.Agent, error) {
//			return parallelagent.New(parallelagent.Config{AgentConfig: agent.Config{
//				Name:      fmt.Sprintf("reviewers_%d", group),
//				SubAgents: agents,
//			}})
//		},
//		func(groups []agent.Agent) (agent.Agent, error) {
//			return sequentialagent.New(sequentialagent.Config{AgentConfig: agent.Config{
//				Name:      "reviewers",
//				SubAgents: groups,
//			}})
//		})
//
// A group ends with its slowest member, so k agents run only at the start of
// each. Where the agents' calls go through a gate, its ceiling for each request
// keeps as many in flight without such gaps.
//
// No agents, a k below 1 or a nil function is an error. An error of parallel or
// sequence is returned wrapped, with the group's number, and ends the composing.
func Compose[A any](agents []A, k int, parallel func(group int, agents []A) (A, error), sequence func(groups []A) (A, error)) (A, error) {
	var none A
	switch {
	case parallel == nil:
		return none, errors.New("fanout: parallel is nil")
	case sequence == nil:
		return none, errors.New("fanout: sequence is nil")
	case len(agents) == 0:
		return none, errors.New("fanout: agents is empty, must have at least one")
	}
	groups, err := Groups(slices.Clone(agents), k)
	if err != nil {
		return none, err
	}
	members := make([]A, len(groups))
	for i, group := range groups {
		if members[i], err = parallel(i, group); err != nil {
			return none, fmt.Errorf("fanout: group %d: %w", i, err)
		}
	}
	composed, err := sequence(members)
	if err != nil {
		return none, fmt.Errorf("fanout: sequence of %d groups: %w", len(groups), err)
	}
	return composed, nil
}
