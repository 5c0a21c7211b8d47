package sqlledger

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/headgate-go/headgate/budget/quota"
)

// maxInstant stands for never.
const maxInstant = math.MaxInt64

// status says how an entry's counter stands.
func (f *found) status(b *book, e *quota.Entry) quota.Status {
	to := quota.Status{Counter: e.Counter, Limit: e.Limit}
	if e.Rolling {
		st := b.standOf(f.counter, e.Limit)
		to.Rolling, to.Burst = true, e.Burst
		to.Committed, to.Reserved = st.committed, st.reserved
		if st.full != 0 {
			to.FullAt = instant(st.full)
		}
		return to
	}
	to.Span, to.Committed, to.Reserved = f.span, f.period.committed, f.period.reserved
	return to
}

func (b *book) statuses(found []found, entries []quota.Entry) []quota.Status {
	all := make([]quota.Status, len(entries))
	for i := range entries {
		all[i] = found[i].status(b, &entries[i])
	}
	return all
}

// asking is a Status.
type asking struct {
	tree     int64
	treeName string
	entries  []quota.Entry
	found    []found
	res      []quota.Status
}

func (op *asking) need(b *book) {
	op.found = make([]found, len(op.entries))
	for i := range op.entries {
		op.found[i] = b.of(b.byTree[op.tree], op.treeName, &op.entries[i])
	}
}

func (op *asking) do(b *book) error {
	op.res = b.statuses(op.found, op.entries)
	return nil
}

// changing is a TopUp or a Reset.
type changing struct {
	tree     int64
	treeName string
	entry    quota.Entry
	reset    bool
	amount   int64
	found    found
	res      quota.Status
}

func (op *changing) need(b *book) { op.found = b.of(b.byTree[op.tree], op.treeName, &op.entry) }

func (op *changing) do(b *book) error {
	c, e := op.found.counter, &op.entry
	switch p, x := op.found.period, c.bucket; {
	case e.Rolling && (x.exists || x.dirty):
		b.refill(c, e.Limit)
		if op.reset {
			x.Fill()
		} else {
			x.Pay(op.amount, c.per)
		}
		b.touchBucket(c, e.Limit)
		b.note(c, nil, op.what(), nil, op.amount, 0, 0)
	case !e.Rolling && (p.exists || p.dirty):
		if op.reset {
			p.committed = 0
			p.resets++
		} else {
			p.committed = max(p.committed-op.amount, 0)
		}
		b.touchPeriod(c, p)
		b.note(c, p, op.what(), nil, op.amount, 0, 0)
	}
	op.res = op.found.status(b, e)
	return nil
}

func (op *changing) what() change {
	if op.reset {
		return changeReset
	}
	return changeTopUp
}

// looking is a History.
type looking struct {
	tree     int64
	treeName string
	of       quota.Counter
	n        int
	found    *counter
	res      []quota.Status
}

func (op *looking) need(b *book) {
	op.found = b.counter(b.byTree[op.tree], op.treeName, op.of, 0)
	b.want.whole = append(b.want.whole, op.found)
}

func (op *looking) do(b *book) error {
	op.res = nil
	for _, p := range op.found.latestFirst() {
		if len(op.res) >= op.n {
			break
		}
		if p.end <= b.now && !p.empty() {
			op.res = append(op.res, quota.Status{
				Counter: op.of, Span: spanOf(p.start, p.end), Limit: p.limit,
				Committed: p.committed, Reserved: p.reserved,
			})
		}
	}
	return nil
}

func (c *counter) latestFirst() []*period {
	return slices.SortedFunc(slices.Values(c.periods), func(x, y *period) int { return cmp.Compare(y.start, x.start) })
}

// idling asks nothing but whether the store works.
type idling struct{}

func (idling) need(*book)     {}
func (idling) do(*book) error { return nil }

// probing asks besides whether it can be written to: SQLite begins a transaction that may
// write in a file that can only be read, too.
type probing struct{ idling }

func (probing) within(ctx context.Context, tx transaction, _ int64) error {
	_, err := tx.exec(ctx, "UPDATE {p}writers SET at = at WHERE 1 = 0")
	return err
}
