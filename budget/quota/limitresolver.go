package quota

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// LimitResolver says which limits are in effect for a subject. [Limits] is one;
// others look limits up where they live, such as a table of contracts. Look-ups
// that take time belong behind a [LimitCache].
//
// The list has at most one limit for each scope and window. An empty list limits
// nothing. Implementations are safe for concurrent use and end with ctx.
type LimitResolver interface {
	Limits(ctx context.Context, s Subject) ([]Limit, error)
}

// LimitResolverFunc makes a function a [LimitResolver].
type LimitResolverFunc func(ctx context.Context, s Subject) ([]Limit, error)

// Limits calls f.
func (f LimitResolverFunc) Limits(ctx context.Context, s Subject) ([]Limit, error) { return f(ctx, s) }

// Defaults of a [LimitCacheConfig].
const (
	DefaultLimitTTL        = time.Minute
	DefaultLimitMaxStale   = 15 * time.Minute
	DefaultLimitTimeout    = 2 * time.Second
	DefaultLimitRetryAfter = time.Second
	DefaultLimitEntries    = 10_000
)

// LimitCacheConfig says how a LimitCache works. Source must be set.
type LimitCacheConfig struct {
	// By are the scopes whose ids the limits depend on; the scopes in which these
	// ids live belong to them, as Tenant does to User. Source is given these ids and
	// the plan, and nothing else, so that one answer serves everybody who has the same.
	// Defaults to all ids of the subject; say less where there are many sessions.
	By []Scope
	// Hierarchy are the scopes. Defaults to [DefaultHierarchy].
	Hierarchy *Hierarchy
	// MaxEntries is for how many subjects limits are kept; those that were not
	// asked for the longest go first. Defaults to [DefaultLimitEntries].
	MaxEntries int
	// MaxStale is the age up to which limits are still used if Source fails. It is
	// at least TTL. Defaults to [DefaultLimitMaxStale], or to TTL if that is more.
	MaxStale time.Duration
	// Mode is the mode of limits that have none. Defaults to [Enforce].
	Mode Mode
	// RetryAfter is how long Source is left alone after it has failed for a subject.
	// Meanwhile, and while one of them asks it again, callers get what is still good, or
	// the error. Defaults to
	// [DefaultLimitRetryAfter].
	RetryAfter time.Duration
	// Source looks limits up. A panic in it is an error like any other.
	Source LimitResolver
	// Timeout ends a look-up. Defaults to [DefaultLimitTimeout].
	Timeout time.Duration
	// TTL is the age up to which limits are used without asking again. Defaults to
	// [DefaultLimitTTL].
	TTL time.Duration
}

// LimitCache keeps the answers of a slow [LimitResolver] for a while. However many
// callers ask for a subject at a time, its source is asked once; when the source
// fails, the last good answer holds until it is too old. Then there is an error,
// and never a list without limits.
//
// An answer with invalid limits is a failure of the source. A look-up goes on
// when the caller that set it off gives up, because others may wait for it; it
// ends with Timeout.
//
// A LimitCache is safe for concurrent use. It has no goroutine of its own besides
// look-ups.
type LimitCache struct {
	config  LimitCacheConfig
	flights singleflight.Group

	mu sync.Mutex
	// mu guards all that follows.
	entries map[limitKey]*list.Element // of *limitEntry
	recent  list.List                  // the one asked for last in front
	lookups map[limitKey]*limitLookup  // under way, the latest of each key
	stats   LimitCacheStats
}

// LimitCacheStats counts what a LimitCache did. All callers that waited for one
// look-up count once.
type LimitCacheStats struct {
	// Fresh answers came from the cache, Stale ones too, though they were older
	// than TTL, because the source failed. Failed ones were errors.
	Fresh, Stale, Failed int64
	// Lookups asked the source. LookupErrors of them failed.
	Lookups, LookupErrors int64
	// Evicted entries made room for others.
	Evicted int64
	// Entries is how many there are now.
	Entries int
}

// limitKey says whose limits an entry has.
type limitKey struct {
	user, team, tenant, session, plan string
	other                             string // all of them, unambiguously
}

// limitEntry is what is known about a subject's limits.
type limitEntry struct {
	key    limitKey
	limits []Limit
	at     time.Time // when the look-up began that brought them; zero if none did
	err    error     // of the last look-up; nil if it succeeded
	retry  time.Time // not before that, if err is set
}

// limitLookup is a look-up under way.
type limitLookup struct {
	forgotten bool // its answer is not to be kept
}

// NewLimitCache makes a cache. The error names what is wrong with the
// configuration, all of it at once.
func NewLimitCache(config LimitCacheConfig) (*LimitCache, error) {
	var found []error
	fail := func(format string, args ...any) {
		found = append(found, fmt.Errorf("quota: LimitCacheConfig."+format, args...))
	}
	if config.Source == nil {
		fail("Source is not set")
	}
	duration := func(field string, d *time.Duration, or time.Duration) {
		switch {
		case *d < 0:
			fail("%s must not be negative: %v", field, *d)
		case *d == 0:
			*d = or
		}
	}
	duration("TTL", &config.TTL, DefaultLimitTTL)
	duration("MaxStale", &config.MaxStale, max(DefaultLimitMaxStale, config.TTL))
	duration("Timeout", &config.Timeout, DefaultLimitTimeout)
	duration("RetryAfter", &config.RetryAfter, DefaultLimitRetryAfter)
	if config.MaxStale >= 0 && config.MaxStale < config.TTL {
		fail("MaxStale is %v, less than TTL, %v", config.MaxStale, config.TTL)
	}
	switch {
	case config.MaxEntries < 0:
		fail("MaxEntries must not be negative: %d", config.MaxEntries)
	case config.MaxEntries == 0:
		config.MaxEntries = DefaultLimitEntries
	}
	if int(config.Mode) >= len(modeNames) {
		fail("Mode: %d is none of %s", uint8(config.Mode), strings.Join(modeNames, ", "))
	}
	if config.Hierarchy == nil {
		config.Hierarchy = DefaultHierarchy()
	}
	for i, scope := range config.By {
		if scope == Global || !config.Hierarchy.Has(scope) {
			fail("By[%d]: %q is no scope with ids of the hierarchy", i, clipText(string(scope)))
		}
	}
	if len(found) > 0 {
		return nil, errors.Join(found...)
	}
	var by []Scope
	for _, scope := range config.By {
		by = append(by, config.Hierarchy.Path(scope)...)
	}
	slices.Sort(by)
	config.By = slices.Compact(by)
	return &LimitCache{
		config: config, entries: map[limitKey]*list.Element{}, lookups: map[limitKey]*limitLookup{},
	}, nil
}

// Limits are the limits in effect for a subject: complete, none of them [Off].
// The slice must not be changed. The error is the source's, or that of ctx if it
// ends first. An answer from the cache allocates nothing for subjects without ids
// in custom scopes.
func (c *LimitCache) Limits(ctx context.Context, s Subject) ([]Limit, error) {
	s = c.reduce(s)
	key := keyOf(s)
	if limits, err, ok := c.cached(key, time.Now()); ok {
		return limits, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	done := c.flights.DoChan(key.flight(), func() (any, error) {
		// One that was queued behind the same look-up finds its answer here.
		if limits, err, ok := c.cached(key, time.Now()); ok {
			return limits, err
		}
		return c.lookUp(WithSubject(context.WithoutCancel(ctx), s), key, s)
	})
	select {
	case result := <-done:
		limits, _ := result.Val.([]Limit)
		return limits, result.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cached is the answer that needs no look-up.
func (c *LimitCache) cached(key limitKey, now time.Time) (limits []Limit, err error, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element, ok := c.entries[key]
	if !ok {
		return nil, nil, false
	}
	c.recent.MoveToFront(element)
	e := element.Value.(*limitEntry)
	switch {
	case e.err == nil && e.age(now) < c.config.TTL:
		c.stats.Fresh++
		return e.limits, nil, true
	case e.err != nil && now.Before(e.retry):
		limits, err := c.fallBack(e, now)
		return limits, err, true
	case e.err != nil && c.lookups[key] != nil && !e.at.IsZero() && e.age(now) < c.config.MaxStale:
		// It has just failed, and one caller that waits for it is enough.
		c.stats.Stale++
		return e.limits, nil, true
	}
	return nil, nil, false
}

// fallBack is what there is to say about an entry whose look-up has failed. It
// needs the lock.
func (c *LimitCache) fallBack(e *limitEntry, now time.Time) ([]Limit, error) {
	if !e.at.IsZero() && e.age(now) < c.config.MaxStale {
		c.stats.Stale++
		return e.limits, nil
	}
	c.stats.Failed++
	return nil, e.err
}

// age is how old the limits of an entry are.
func (e *limitEntry) age(now time.Time) time.Duration { return now.Sub(e.at) }

// lookUp asks the source, and keeps what it says.
func (c *LimitCache) lookUp(ctx context.Context, key limitKey, s Subject) ([]Limit, error) {
	began := time.Now()
	c.mu.Lock()
	lookup := &limitLookup{}
	c.lookups[key] = lookup
	c.stats.Lookups++
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	limits, err := c.ask(ctx, s)

	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lookups[key] == lookup {
		delete(c.lookups, key)
	}
	if err != nil {
		c.stats.LookupErrors++
	}
	if lookup.forgotten { // who asked before it was gets it all the same
		return limits, err
	}
	e := c.entry(key)
	e.err = err
	if err != nil {
		e.retry = now.Add(c.config.RetryAfter)
		return c.fallBack(e, now)
	}
	e.limits, e.at = limits, began
	return limits, nil
}

// ask calls the source and checks its answer.
func (c *LimitCache) ask(ctx context.Context, s Subject) (limits []Limit, err error) {
	defer func() {
		if p := recover(); p != nil {
			limits, err = nil, fmt.Errorf("quota: limits look-up panicked: %v", p)
		}
	}()
	limits, err = c.config.Source.Limits(ctx, s)
	if err == nil {
		limits, err = CompleteLimits(c.config.Hierarchy, c.config.Mode, limits)
	}
	if err != nil {
		return nil, fmt.Errorf("quota: limits look-up: %w", err)
	}
	return limits, nil
}

// entry is the entry of a key, which may be new. It needs the lock.
func (c *LimitCache) entry(key limitKey) *limitEntry {
	if element, ok := c.entries[key]; ok {
		c.recent.MoveToFront(element)
		return element.Value.(*limitEntry)
	}
	for c.recent.Len() >= c.config.MaxEntries {
		last := c.recent.Remove(c.recent.Back()).(*limitEntry)
		delete(c.entries, last.key)
		c.stats.Evicted++
	}
	e := &limitEntry{key: key}
	c.entries[key] = c.recent.PushFront(e)
	return e
}

// Forget drops what is kept for a subject, so that its limits are looked up
// afresh: call it when they have changed. A look-up under way serves only those
// that have asked for it before.
func (c *LimitCache) Forget(s Subject) {
	key := keyOf(c.reduce(s))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLookup(key)
	if element, ok := c.entries[key]; ok {
		c.recent.Remove(element)
		delete(c.entries, key)
	}
}

// Purge is [LimitCache.Forget] for all subjects.
func (c *LimitCache) Purge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.lookups {
		c.forgetLookup(key)
	}
	clear(c.entries)
	c.recent.Init()
}

// forgetLookup has a look-up under way change nothing. One that has not begun is
// none: its answer will be new enough. It needs the lock.
func (c *LimitCache) forgetLookup(key limitKey) {
	if lookup, ok := c.lookups[key]; ok {
		lookup.forgotten = true
		c.flights.Forget(key.flight())
	}
}

// Stats says what the cache did.
func (c *LimitCache) Stats() LimitCacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	stats := c.stats
	stats.Entries = c.recent.Len()
	return stats
}

// reduce is the subject with those ids only that limits depend on.
func (c *LimitCache) reduce(s Subject) Subject {
	if len(c.config.By) == 0 {
		return s
	}
	out := Subject{Plan: s.Plan}
	for _, scope := range c.config.By {
		switch scope {
		case User:
			out.User = s.User
		case Team:
			out.Team = s.Team
		case Tenant:
			out.Tenant = s.Tenant
		case Session:
			out.Session = s.Session
		default:
			if id := s.Other[scope]; id != "" {
				if out.Other == nil {
					out.Other = map[Scope]string{}
				}
				out.Other[scope] = id
			}
		}
	}
	return out
}

// keyOf is the key of a subject.
func keyOf(s Subject) limitKey {
	key := limitKey{user: s.User, team: s.Team, tenant: s.Tenant, session: s.Session, plan: s.Plan}
	if len(s.Other) > 0 {
		var b []byte
		for _, scope := range slices.Sorted(maps.Keys(s.Other)) {
			if s.Other[scope] != "" {
				b = appendText(appendText(b, string(scope)), s.Other[scope])
			}
		}
		key.other = string(b)
	}
	return key
}

// flight is the key as one text, unambiguously.
func (k limitKey) flight() string {
	var b []byte
	for _, s := range [...]string{k.user, k.team, k.tenant, k.session, k.plan, k.other} {
		b = appendText(b, s)
	}
	return string(b)
}

// appendText adds a text behind its length.
func appendText(b []byte, s string) []byte {
	b = strconv.AppendInt(b, int64(len(s)), 10)
	b = append(b, ':')
	return append(b, s...)
}
