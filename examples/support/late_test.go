package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// A store that is away, and hangs, keeps no server from ending, and is not complained of each second.
func TestAServerEndsWhoseStoreWasNeverThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := fmt.Errorf("%w: away", quota.ErrUnavailable)
		tries := 0
		var log bytes.Buffer
		s := openLate(func(ctx context.Context) (*store, error) {
			if tries++; tries == 5 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, away
		}, away, slog.New(slog.NewTextHandler(&log, nil)))
		time.Sleep(time.Minute)
		if err := s.Healthy(t.Context()); !errors.Is(err, quota.ErrUnavailable) {
			t.Errorf("Healthy: %v", err)
		}
		if _, err := s.Reserve(t.Context(), quota.Reserve{ID: "x", Tree: "t"}); !errors.Is(err, quota.ErrUnavailable) {
			t.Errorf("Reserve: %v", err)
		}
		begin := time.Now()
		if err := s.end(t.Context()); err != nil || time.Since(begin) != 0 {
			t.Errorf("it ended after %v: %v", time.Since(begin), err)
		}
		if tries != 5 {
			t.Errorf("it was tried %d times, want 5", tries)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 1 {
			t.Errorf("it was complained of %d times: %s", n, log.String())
		}
	})
}
