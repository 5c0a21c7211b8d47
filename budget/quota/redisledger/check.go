package redisledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget/quota"
)

// oldest is the first version of Redis on which the scripts run.
const oldest = 7

// check looks whether the servers behind a client can run the scripts, and loads them.
func check(ctx context.Context, client redis.UniversalClient) error {
	return each(ctx, client, func(ctx context.Context, c redis.Cmdable) error { return checkServer(ctx, c) })
}

// standsAlone reports whether behind a client there is a server that has all trees, so
// that a script can have the keys of several. Where that is not certain it cannot.
func standsAlone(ctx context.Context, client redis.UniversalClient) bool {
	if _, ok := client.(*redis.Client); !ok {
		return false
	}
	var alone atomic.Bool
	err := each(ctx, client, func(ctx context.Context, c redis.Cmdable) error {
		info, err := c.Info(ctx, "server").Result()
		alone.Store(strings.Contains(info, "redis_mode:standalone"))
		return err
	})
	return err == nil && alone.Load()
}

// each calls a function for each master behind a client, or returns when ctx ends.
func each(ctx context.Context, client redis.UniversalClient, f func(context.Context, redis.Cmdable) error) error {
	one := func(ctx context.Context, c *redis.Client) error { return f(ctx, c) }
	done := make(chan error, 1)
	go func() {
		switch c := client.(type) {
		case *redis.ClusterClient:
			done <- c.ForEachMaster(ctx, one)
		case *redis.Ring:
			done <- c.ForEachShard(ctx, one)
		default:
			done <- f(ctx, client)
		}
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// checkServer looks at one server, or at what stands between.
func checkServer(ctx context.Context, c redis.Cmdable) error {
	if err := c.Ping(ctx).Err(); err != nil {
		return startError(ctx, "PING", err)
	}
	// From 7.0 on scripts are told the version.
	answer, err := c.Eval(ctx, "return (redis.REDIS_VERSION or '') .. ' ' .. struct.size('l')", nil).Text()
	if err != nil {
		return startError(ctx, "EVAL", err)
	}
	version, size, _ := strings.Cut(answer, " ")
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < oldest {
		if version == "" {
			version = "older than 7.0"
		}
		return fmt.Errorf("%w: Redis is %.40s, and 7.0 is the oldest version that will do", quota.ErrUnavailable, version)
	}
	if size != "8" {
		return fmt.Errorf("%w: Redis is built for a machine of less than 64 bits, which will not do", quota.ErrUnavailable)
	}
	for _, s := range scripts {
		for _, src := range []*source{&s.lean, &s.full, s.lean.together} {
			if src == nil {
				continue
			}
			sha, err := c.ScriptLoad(ctx, src.text).Result()
			if err != nil {
				return startError(ctx, "SCRIPT LOAD", err)
			}
			if sha != src.sha {
				return fmt.Errorf("%w: SCRIPT LOAD answers %.40q, which is not the script's name", quota.ErrUnavailable, sha)
			}
		}
	}
	return nil
}

// startError tells a server that refuses a command from one that cannot be reached.
func startError(ctx context.Context, command string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if r := redis.Error(nil); errors.As(err, &r) {
		return fmt.Errorf("%w: Redis, or a proxy before it, refuses %s, which the ledger cannot do without: %w", quota.ErrUnavailable, command, err)
	}
	return fmt.Errorf("%w: Redis cannot be reached: %w", quota.ErrUnavailable, err)
}

// Healthy implements [quota.Ledger]: every master answers, and one has written
// something. It calls [Config].Replaced, too.
func (l *Ledger) Healthy(ctx context.Context) (err error) {
	if err := l.Flush(ctx); err != nil {
		return err
	}
	if l.metric != nil {
		begun := time.Now()
		defer func() { l.metric.asked(begun, err) }()
	}
	limited, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	ask := func(ctx context.Context, c redis.Cmdable) error { return c.Ping(ctx).Err() }
	var masters *look
	if l.cfg.Replaced != nil {
		masters = newLook()
		ask = masters.at
	}
	err = each(limited, l.cfg.Client, ask)
	if err == nil {
		err = each(limited, only{l.cfg.Client}, func(ctx context.Context, c redis.Cmdable) error {
			return c.Set(ctx, l.cfg.Prefix+"health", "", time.Second).Err()
		})
	}
	if err != nil {
		return l.failed(ctx, "health", err)
	}
	if masters != nil {
		if since, replaced := l.ids.saw(masters); replaced {
			l.cfg.Replaced(since)
		}
	}
	return nil
}

// only is a client as a whole, whatever stands behind it.
type only struct{ redis.UniversalClient }
