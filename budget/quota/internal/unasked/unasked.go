// Package unasked is about ledgers that stand before a store and answer some things by
// themselves. Such an answer says nothing about whether the store can be reached, and it
// can be had while that is known to be away.
package unasked

import (
	"context"
	"errors"
	"sync/atomic"
)

// ErrBarred is the error of a ledger that would have to ask the store, and must not.
var ErrBarred = errors.New("the store must not be asked now")

// Ledger is a ledger that keeps to [Only].
type Ledger interface {
	// AnswersAlone reports whether it answers some things without the store.
	AnswersAlone() bool
}

type key struct{}

// Context is that of an operation of a ledger.
type Context struct {
	context.Context
	barred bool
	said   atomic.Bool
}

// In returns a context in which [Say] is heard.
func In(ctx context.Context) *Context { return &Context{Context: ctx} }

// Only returns a context in which the store must not be asked: a ledger that cannot do
// without does nothing, and its error is [ErrBarred].
func Only(ctx context.Context) *Context { return &Context{Context: ctx, barred: true} }

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

// Barred returns [ErrBarred] if the store must not be asked, and else nil.
func Barred(ctx context.Context) error {
	if c, ok := ctx.Value(key{}).(*Context); ok && c.barred {
		return ErrBarred
	}
	return nil
}
