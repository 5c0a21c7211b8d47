package redisledger

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
)

// statuses is how many counters a script looks at.
const statuses = 256

// Status implements [quota.Ledger]. Each 256 entries are a step by themselves.
func (l *Ledger) Status(ctx context.Context, tree string, entries ...quota.Entry) ([]quota.Status, error) {
	return l.status(ctx, tree, entries, "", 0)
}

// TopUp implements [quota.Ledger]. The amount must not be negative.
func (l *Ledger) TopUp(ctx context.Context, tree string, e quota.Entry, amount int64) (quota.Status, error) {
	if amount < 0 {
		return quota.Status{}, fmt.Errorf("quota: amount is %d, must not be negative", amount)
	}
	return l.change(ctx, tree, e, "top-up", amount)
}

// Reset implements [quota.Ledger]. A rolling counter is full afterwards.
func (l *Ledger) Reset(ctx context.Context, tree string, e quota.Entry) (quota.Status, error) {
	return l.change(ctx, tree, e, "reset", 0)
}

func (l *Ledger) change(ctx context.Context, tree string, e quota.Entry, what string, by int64) (quota.Status, error) {
	if err := e.Validate(); err != nil {
		return quota.Status{}, err
	}
	all, err := l.status(ctx, tree, []quota.Entry{e}, what, by)
	if err != nil {
		return quota.Status{}, err
	}
	return all[0], nil
}

func (l *Ledger) status(ctx context.Context, tree string, entries []quota.Entry, change string, by int64) ([]quota.Status, error) {
	for i := range entries {
		if err := entries[i].Validate(); err != nil {
			return nil, errors.New(strings.Replace(err.Error(), "Entry", fmt.Sprintf("entries[%d]", i), 1))
		}
	}
	if err := checkTexts(tree, "entries", entries); err != nil {
		return nil, err
	}
	all := make([]quota.Status, len(entries))
	for from := 0; from == 0 || from < len(entries); from += statuses {
		to := min(from+statuses, len(entries))
		if err := l.statusOf(ctx, tree, entries[from:to], all[from:to], change, by); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (l *Ledger) statusOf(ctx context.Context, tree string, entries []quota.Entry, all []quota.Status, change string, by int64) error {
	number := ""
	if change != "" {
		number = budget.NewID() // a client may send it again if the answer is lost
	}
	answer, err := l.run(ctx, statusScript, tree, func(w *encoder, k keys) {
		w.asked = w.amount(order.AppendUint16(l.head(w.asked), uint16(len(entries))), by)
		for i := range entries {
			e := &entries[i]
			w.asked = order.AppendUint16(w.asked, uint16(w.place(e.Key)))
			w.asked = append(w.asked, flagsOf(e))
			w.asked = appendSlot(w.asked, appendName(nil, e))
			var units, per int64
			if e.Rolling {
				units, per = rate(e)
			}
			w.asked = w.amount(w.asked, units)
			w.asked = w.amount(w.asked, per)
			if !e.Rolling {
				w.span(&e.Spans)
			}
		}
		w.key(k.index())
		w.key(k.change(number))
		for _, key := range w.keys {
			w.key(k.account(key))
		}
		w.ask(change, &w.asked)
	})
	if err != nil {
		return err
	}
	d := decoder{s: answer[1:]}
	d.int64() // the time
	for i := range entries {
		d.status(&entries[i], &all[i])
	}
	return d.err()
}

// History implements [quota.Ledger]. Windows in which nothing was spent are not kept.
// Limit is the one that was given last in that window.
func (l *Ledger) History(ctx context.Context, tree string, c quota.Counter, n int) ([]quota.Status, error) {
	answer, err := l.run(ctx, historyScript, tree, func(w *encoder, k keys) {
		w.key(k.index())
		w.key(k.account(c.Key))
		w.key(k.past(c.Key))
		w.asked = l.head(w.asked)
		w.ask(&w.asked, appendSlot(nil, appendName(nil, &quota.Entry{Counter: c})))
	})
	if err != nil {
		return nil, err
	}
	d := decoder{s: answer[1:]}
	now := d.int64()
	var history []quota.Status
	for all := d.s; len(all) >= periodLen; {
		d := decoder{s: all[len(all)-periodLen:]}
		all = all[:len(all)-periodLen]
		from, to := d.int64(), d.int64()
		st := quota.Status{Counter: c, Span: spanOf(from, to), Committed: d.int64(), Reserved: d.int64(), Limit: d.int64()}
		crossed := d.uint16()
		if len(history) < n && to <= now && (st.Committed|st.Reserved != 0 || crossed != 0) {
			history = append(history, st)
		}
	}
	return history, d.err()
}

// periodLen is the length of a window's counts, as lua/store.lua writes them.
const periodLen = 48

// Erase implements [quota.Ledger]. What reservations hold under other keys stays, to
// be settled there; their own ids say nothing about anybody. The key itself is still
// part of reservations that have ended, as [Config].Remember says, and nothing that is
// returned comes from there.
func (l *Ledger) Erase(ctx context.Context, tree, key string) error {
	for cursor := "0"; ; {
		answer, err := l.run(ctx, eraseScript, tree, func(w *encoder, k keys) {
			w.key(k.index())
			w.key(k.account(key))
			w.key(k.past(key))
			w.ask(cursor)
		})
		if err != nil {
			return err
		}
		if cursor = answer[1:]; cursor == "0" {
			return nil
		}
	}
}
