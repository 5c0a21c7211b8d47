package redisledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget/quota"
)

// oldest is the first version of Redis on which the scripts run.
const oldest = 7

// check looks whether the servers behind a client can run the scripts, and loads them.
func check(ctx context.Context, client redis.UniversalClient) error {
	one := func(ctx context.Context, c *redis.Client) error { return checkServer(ctx, c) }
	switch c := client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, one)
	case *redis.Ring:
		return c.ForEachShard(ctx, one)
	}
	return checkServer(ctx, client)
}

// checkServer looks at one server, or at what stands between.
func checkServer(ctx context.Context, c redis.Cmdable) error {
	if err := c.Ping(ctx).Err(); err != nil {
		return startError(ctx, "it does not answer PING", err)
	}
	// From 7.0 on scripts are told the version.
	version, err := c.Eval(ctx, "return redis.REDIS_VERSION or ''", nil).Text()
	if err != nil {
		return startError(ctx, "it refuses EVAL, which the ledger cannot do without", err)
	}
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < oldest {
		if version == "" {
			version = "older than 7.0"
		}
		return fmt.Errorf("%w: the version of Redis is %s, and 7.0 is the oldest that will do", quota.ErrUnavailable, version)
	}
	for _, s := range scripts {
		sha, err := c.ScriptLoad(ctx, s.full.text).Result()
		if err != nil {
			return startError(ctx, "it refuses SCRIPT LOAD, which the ledger cannot do without", err)
		}
		if sha != s.full.sha {
			return fmt.Errorf("%w: SCRIPT LOAD answers %.40q, which is not the script's name", quota.ErrUnavailable, sha)
		}
	}
	return nil
}

func startError(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if r := redis.Error(nil); !errors.As(err, &r) {
		return fmt.Errorf("%w: Redis cannot be reached: %w", quota.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: Redis, or a proxy before it, will not do: %s: %w", quota.ErrUnavailable, what, err)
}

// Healthy implements [quota.Ledger]: every master answers, and one has written
// something.
func (l *Ledger) Healthy(ctx context.Context) error {
	if err := l.Flush(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	ping := func(ctx context.Context, c *redis.Client) error { return c.Ping(ctx).Err() }
	var err error
	switch c := l.cfg.Client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, ping)
	case *redis.Ring:
		err = c.ForEachShard(ctx, ping)
	}
	if err == nil {
		err = l.cfg.Client.Set(ctx, l.cfg.Prefix+"health", "", time.Second).Err()
	}
	if err != nil {
		return unavailable("health", err)
	}
	return nil
}
