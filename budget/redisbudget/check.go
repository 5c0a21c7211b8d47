package redisbudget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// oldest is the first version of Redis on which the script runs.
const oldest = 7

// check looks whether the servers behind a client can run the script, and loads it. That
// they cannot be reached is no error.
func check(ctx context.Context, cfg *Config) error {
	limit, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		one := func(ctx context.Context, c *redis.Client) error { return checkServer(ctx, c) }
		switch c := cfg.Client.(type) {
		case *redis.ClusterClient:
			done <- c.ForEachMaster(limit, one)
		case *redis.Ring:
			done <- c.ForEachShard(limit, one)
		default:
			done <- checkServer(limit, c)
		}
	}()
	select {
	case err := <-done:
		if refused := (*refusal)(nil); errors.As(err, &refused) {
			return err
		}
	case <-limit.Done():
	}
	return ctx.Err()
}

// checkServer looks at one server, or at what stands between.
func checkServer(ctx context.Context, c redis.Cmdable) error {
	if err := c.Ping(ctx).Err(); err != nil {
		return refusalOf("PING", err)
	}
	// From 7.0 on scripts are told the version.
	version, err := c.Eval(ctx, "return redis.REDIS_VERSION or ''", nil).Text()
	if err != nil {
		return refusalOf("EVAL", err)
	}
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < oldest {
		if version == "" {
			version = "older than 7.0"
		}
		return &refusal{fmt.Errorf("redisbudget: the version of Redis is %s, and 7.0 is the oldest that will do", version)}
	}
	if err := c.ScriptLoad(ctx, doLua).Err(); err != nil {
		return refusalOf("SCRIPT LOAD", err)
	}
	return nil
}

// A refusal says that a server answers, and will not do.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// refusalOf tells a server that refuses from one that cannot be reached, or not yet.
func refusalOf(what string, err error) error {
	if r := redis.Error(nil); !errors.As(err, &r) || passes(err) {
		return err
	}
	return &refusal{fmt.Errorf("redisbudget: Redis, or a proxy before it, refuses %s, which cannot be done without: %w", what, err)}
}

// passes reports whether a server answers so only for a while.
func passes(err error) bool {
	return slices.ContainsFunc([]string{
		"BUSY ", // another script runs
		"CLUSTERDOWN", "LOADING", "MASTERDOWN", "TRYAGAIN", "max number of clients reached",
	}, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}
