package fanout_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate-go/headgate/fanout"
)

type Reviewer string

type Review struct{ Verdict string }

var errThrottled = errors.New("throttled")

// review stands for a model call.
func review(_ context.Context, r Reviewer) (Review, error) {
	if r == "style" {
		return Review{}, errThrottled
	}
	return Review{Verdict: string(r) + " is fine"}, nil
}

// Results come in the order of the items.
func ExampleMap() {
	reviewers := []Reviewer{"security", "tests", "naming"}
	reviews, err := fanout.Map(context.Background(), 2, reviewers,
		func(ctx context.Context, r Reviewer) (Review, error) {
			return review(ctx, r)
		})
	fmt.Println(reviews, err)
	// Output: [{security is fine} {tests is fine} {naming is fine}] <nil>
}

// A reviewer that was throttled does not take the others with it.
func ExampleMapAll() {
	reviewers := []Reviewer{"security", "style", "tests"}
	outcomes, err := fanout.MapAll(context.Background(), 2, reviewers, review)
	if err != nil {
		fmt.Println(err) // an argument that cannot be used
		return
	}
	for i, o := range outcomes {
		if o.Err != nil {
			fmt.Printf("%s is missing: %v\n", reviewers[i], o.Err)
			continue
		}
		fmt.Println(o.Value.Verdict)
	}
	// Output:
	// security is fine
	// style is missing: fanout: branch 1: throttled
	// tests is fine
}

// The first error says which item it belongs to.
func ExampleForEach() {
	reviewers := []Reviewer{"security", "style", "tests"}
	err := fanout.ForEach(context.Background(), 1, reviewers,
		func(ctx context.Context, r Reviewer) error {
			_, err := review(ctx, r)
			return err
		})
	var failed *fanout.Error
	if errors.As(err, &failed) {
		fmt.Printf("%s failed: %v\n", reviewers[failed.Index], failed.Err)
	}
	// Output: style failed: throttled
}

// All failures at once, and what they have in common.
func ExampleForEachAll() {
	err := fanout.ForEachAll(context.Background(), 4, []int{1, 2, 3, 4},
		func(_ context.Context, n int) error {
			if n%2 == 0 {
				return errThrottled
			}
			return nil
		})
	fmt.Println(err)
	fmt.Println(errors.Is(err, errThrottled))
	// Output:
	// fanout: 2 failed: branch 1: throttled; branch 3: throttled
	// true
}

// Each answer is shown as soon as it is there, in whatever order.
func ExampleStream() {
	reviewers := []Reviewer{"security", "tests", "naming"}
	seq, err := fanout.Stream(context.Background(), 2, reviewers, review)
	if err != nil {
		fmt.Println(err) // an argument that cannot be used
		return
	}
	for i, o := range seq {
		if o.Err != nil {
			fmt.Println(o.Err)
			return // cancels the rest, and waits for it
		}
		fmt.Printf("%d: %s\n", i, o.Value.Verdict)
	}
	// Unordered output:
	// 0: security is fine
	// 1: tests is fine
	// 2: naming is fine
}

// Two judges of three must answer; who is not needed any more is cancelled.
func ExampleQuorum() {
	judges := []string{"fast", "faster", "hangs"}
	outcomes, err := fanout.Quorum(context.Background(), 3, 2, judges,
		func(ctx context.Context, judge string) (string, error) {
			if judge == "hangs" {
				<-ctx.Done()
				return "", context.Cause(ctx)
			}
			return "yes", nil
		})
	fmt.Println(err)
	for i, o := range outcomes {
		if errors.Is(o.Err, fanout.ErrQuorum) {
			fmt.Println(judges[i], "was not needed")
			continue
		}
		fmt.Println(judges[i], "says", o.Value)
	}
	// Output:
	// <nil>
	// fast says yes
	// faster says yes
	// hangs was not needed
}
