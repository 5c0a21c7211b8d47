// Package unasked lets a ledger that stands before a store say that it has answered by
// itself. Such an answer says nothing about whether the store can be reached.
package unasked

import (
	"context"
	"sync/atomic"
)

type key struct{}

// Context is that of an operation of a ledger.
type Context struct {
	context.Context
	said atomic.Bool
}

// In returns a context in which [Say] is heard.
func In(ctx context.Context) *Context { return &Context{Context: ctx} }

// Value implements [context.Context].
func (c *Context) Value(k any) any {
	if k == (key{}) {
		return c
	}
	return c.Context.Value(k)
}

// Said reports whether the store was not asked.
func (c *Context) Said() bool { return c.said.Load() }

// Say says that the store was not asked. Where nobody wants to know it does nothing.
func Say(ctx context.Context) {
	if c, ok := ctx.Value(key{}).(*Context); ok {
		c.said.Store(true)
	}
}
