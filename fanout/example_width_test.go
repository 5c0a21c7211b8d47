package fanout_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/headgate-go/headgate/fanout"
)

// A supervisor's agents fan out themselves. One width holds for all of them,
// and a supervisor that waits does not count.
func ExampleWithWidth() {
	ctx, err := fanout.WithWidth(context.Background(), 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	var running, most, calls atomic.Int32
	call := func(context.Context, string) error {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		calls.Add(1)
		return nil
	}
	err = fanout.ForEach(ctx, 3, []string{"research", "write", "check"},
		func(ctx context.Context, _ string) error { // hand this ctx on, not the outer one
			return fanout.ForEach(ctx, 2, []string{"draft", "final"}, call)
		})
	fmt.Println(calls.Load(), "calls, at a time", most.Load(), err)
	// Output: 6 calls, at a time 1 <nil>
}

func ExampleGroups() {
	groups, err := fanout.Groups([]string{"a", "b", "c", "d", "e"}, 2)
	fmt.Println(groups, err)
	// Output: [[a b] [c d] [e]] <nil>
}

// The functions that are passed make agents of whatever framework is used; here
// an agent is its name.
func ExampleCompose() {
	agent, err := fanout.Compose([]string{"a", "b", "c"}, 2,
		func(group int, agents []string) (string, error) {
			return fmt.Sprintf("parallel_%d(%s)", group, strings.Join(agents, ", ")), nil
		},
		func(groups []string) (string, error) {
			return "sequence(" + strings.Join(groups, ", ") + ")", nil
		})
	fmt.Println(agent, err)
	// Output: sequence(parallel_0(a, b), parallel_1(c)) <nil>
}
