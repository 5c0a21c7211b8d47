package fanout_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/fanout"
)

func explode(v any) { panic(v) }

func TestAPanicIsTheErrorOfItsBranchWithValueAndStack(t *testing.T) {
	t.Parallel()
	for _, f := range forms() {
		for _, value := range []any{"boom", errBranch, 7, nil} {
			outcomes, err := f.run(t.Context(), 2, 6, func(_ context.Context, i int) (int, error) {
				if i == 3 {
					explode(value)
				}
				return i * i, nil
			})
			if !f.first {
				if err != nil || len(outcomes) != 6 {
					t.Fatalf("%s: %d outcomes, error %v", f.name, len(outcomes), err)
				}
				err = outcomes[3].Err
				if f.name != "Quorum of all" { // which ends when one has failed
					for _, i := range []int{0, 1, 2, 4, 5} {
						if outcomes[i].Err != nil {
							t.Errorf("%s: the panic of branch 3 is an error of branch %d: %v", f.name, i, outcomes[i].Err)
						}
					}
				}
			}
			var p *fanout.PanicError
			if branchOf(err) != 3 || !errors.As(err, &p) {
				t.Errorf("%s: %v, want a PanicError of branch 3", f.name, err)
				continue
			}
			if value != nil && p.Value != value {
				t.Errorf("%s: panicked with %v, recorded %v", f.name, value, p.Value)
			}
			if !strings.Contains(string(p.Stack), "explode") || strings.Contains(err.Error(), "explode") {
				t.Errorf("%s: the stack does not show where, or the message shows the stack", f.name)
			}
			if isErr := value == any(errBranch); errors.Is(err, errBranch) != isErr {
				t.Errorf("%s: panicked with %v, matches the error: %v", f.name, value, !isErr)
			}
		}
	}
}

func TestARuntimeErrorIsFoundInThePanic(t *testing.T) {
	t.Parallel()
	err := fanout.ForEach(t.Context(), 1, numbers(1), func(_ context.Context, i int) error {
		var none []int
		none[i]++
		return nil
	})
	var bounds runtime.Error
	if !errors.As(err, &bounds) {
		t.Errorf("%v, want a runtime.Error inside", err)
	}
}

func TestABranchThatEndsItsGoroutineFailsAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	for _, f := range forms() {
		synctest.Test(t, func(t *testing.T) {
			ctx, err := fanout.WithWidth(t.Context(), 2)
			if err != nil {
				t.Fatal(err)
			}
			var g gauge
			exits := func(i int) bool { return i%2 == 1 && f.name != "Quorum of all" || i == 9 }
			outcomes, err := f.run(ctx, 3, 10, func(ctx context.Context, i int) (int, error) {
				if err := g.work(ctx, time.Second); err != nil {
					return 0, err
				}
				if exits(i) {
					runtime.Goexit()
				}
				return i * i, nil
			})
			if f.first {
				if !errors.Is(err, fanout.ErrGoexit) || branchOf(err) != 1 {
					t.Errorf("%s: %v, want ErrGoexit of branch 1", f.name, err)
				}
			} else if err != nil || len(outcomes) != 10 {
				t.Errorf("%s: %d outcomes, error %v", f.name, len(outcomes), err)
			}
			for i, o := range outcomes {
				if exits(i) != errors.Is(o.Err, fanout.ErrGoexit) || !exits(i) && o.Value != i*i {
					t.Errorf("%s: outcome %d is %+v", f.name, i, o)
				}
			}
			if g.peak.Load() != 2 {
				t.Errorf("%s: %d branches at a time, want 2", f.name, g.peak.Load())
			}
		})
	}
}
