package fanout_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/fanout"
)

func TestQuorumIsDecidedAsSoonAsItCanBe(t *testing.T) {
	t.Parallel()
	// Branch i takes i+1 seconds; 's' succeeds, 'f' fails.
	for _, tc := range []struct {
		name     string
		branches string
		width    int
		need     int
		reached  bool
		after    time.Duration
		started  int64
		failed   []int
	}{
		{"the first is enough", "sssss", 5, 1, true, 1 * time.Second, 5, nil},
		{"two of five", "sssss", 5, 2, true, 2 * time.Second, 5, nil},
		{"failures are passed over", "fsfss", 5, 2, true, 4 * time.Second, 5, nil},
		{"all", "sss", 3, 3, true, 3 * time.Second, 3, nil},
		{"one at a time, the rest is not started", "sssss", 1, 2, true, 3 * time.Second, 2, nil},
		{"all must succeed and the first fails", "fss", 3, 3, false, 1 * time.Second, 3, []int{0}},
		{"too many failures", "ffsfs", 5, 3, false, 4 * time.Second, 5, []int{0, 1, 3}},
		{"too many failures, one at a time", "ffsfs", 1, 4, false, 3 * time.Second, 2, []int{0, 1}},
		{"every branch fails", "ff", 2, 1, false, 2 * time.Second, 2, []int{0, 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var started atomic.Int64
			outcomes, err := fanout.Quorum(t.Context(), tc.width, tc.need, numbers(len(tc.branches)),
				func(ctx context.Context, i int) (int, error) {
					started.Add(1)
					if err := sleep(ctx, time.Duration(i+1)*time.Second); err != nil {
						if !errors.Is(context.Cause(ctx), fanout.ErrQuorum) {
							t.Errorf("%s: branch %d was cancelled because of %v", tc.name, i, context.Cause(ctx))
						}
						return 0, err
					}
					if tc.branches[i] == 'f' {
						return 0, errBranch
					}
					return i * i, nil
				})
			if took := time.Since(start); took != tc.after || started.Load() != tc.started {
				t.Errorf("%s: decided after %v with %d started, want %v and %d", tc.name, took, started.Load(), tc.after, tc.started)
			}
			succeeded := 0
			for i, o := range outcomes {
				if o.Err == nil {
					succeeded++
					if o.Value != i*i {
						t.Errorf("%s: outcome %d is %+v", tc.name, i, o)
					}
				} else if branchOf(o.Err) != i || !errors.Is(o.Err, errBranch) && !errors.Is(o.Err, context.Canceled) {
					t.Errorf("%s: outcome %d is %v", tc.name, i, o.Err)
				}
				if strings.Contains(tc.name, "not started") && i >= tc.need && !errors.Is(o.Err, fanout.ErrQuorum) {
					t.Errorf("%s: outcome %d is %v, want that it is not needed", tc.name, i, o.Err)
				}
			}
			if tc.reached {
				if err != nil || succeeded != tc.need {
					t.Errorf("%s: %d succeeded, error %v", tc.name, succeeded, err)
				}
				return
			}
			var short *fanout.QuorumError
			if !errors.As(err, &short) || short.Need != tc.need || short.Of != len(tc.branches) || short.Succeeded != succeeded {
				t.Fatalf("%s: %v, of which %d succeeded", tc.name, err, succeeded)
			}
			var failed []int
			for _, e := range short.Failed {
				failed = append(failed, e.Index)
			}
			if !slices.Equal(failed, tc.failed) || !errors.Is(err, errBranch) || errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v names branches %v, want those that decided it, %v", tc.name, err, failed, tc.failed)
			}
		})
	}
}

func TestQuorumListsFailuresInTheOrderOfTheItems(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, err := fanout.Quorum(t.Context(), 3, 1, numbers(3), func(_ context.Context, i int) (int, error) {
			time.Sleep(time.Duration(3-i) * time.Second) // the last fails first
			return 0, errBranch
		})
		want := "fanout: 0 of 3 branches succeeded, need 1: 3 failed: " +
			"branch 0: the branch failed; branch 1: the branch failed; branch 2: the branch failed"
		if err == nil || err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	})
}

func TestQuorumWaitsForWhatItCancelledAndKeepsWhatSucceededAllTheSame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		outcomes, err := fanout.Quorum(t.Context(), 3, 1, numbers(3), func(ctx context.Context, i int) (int, error) {
			switch i {
			case 1: // has its answer before it learns of the cancel
				time.Sleep(2 * time.Second)
				return 1, nil
			case 2: // settles for a second after the cancel
				err := sleep(ctx, time.Hour)
				time.Sleep(time.Second)
				return 0, err
			}
			return 0, sleep(ctx, time.Second)
		})
		if took := time.Since(start); err != nil || took != 2*time.Second {
			t.Errorf("returned after %v, want 2s, when all had returned; error %v", took, err)
		}
		if outcomes[0].Err != nil || outcomes[1].Err != nil || outcomes[1].Value != 1 || !errors.Is(outcomes[2].Err, context.Canceled) {
			t.Errorf("outcomes %+v", outcomes)
		}
	})
}

func TestQuorumSaysThatTheCallersContextEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		_, err := fanout.Quorum(ctx, 1, 2, numbers(4), func(ctx context.Context, i int) (int, error) {
			return i, sleep(ctx, time.Second)
		})
		var short *fanout.QuorumError
		if !errors.As(err, &short) || short.Succeeded != 1 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want 1 success and the deadline", err)
		}
	})
}

func TestQuorumNamesTheNeedThatItCannotUse(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		need, n int
		want    string
	}{
		{0, 3, "need is 0, must lie between 1 and the number of items, 3"},
		{-1, 3, "need is -1"},
		{4, 3, "need is 4, must lie between 1 and the number of items, 3"},
		{1, 0, "need is 1, must lie between 1 and the number of items, 0"},
	} {
		outcomes, err := fanout.Quorum(t.Context(), 1, tc.need, numbers(tc.n), func(context.Context, int) (int, error) {
			t.Error("a branch started")
			return 0, nil
		})
		if err == nil || !strings.Contains(err.Error(), tc.want) || outcomes != nil {
			t.Errorf("need %d of %d: %v, want %q", tc.need, tc.n, err, tc.want)
		}
	}
}
