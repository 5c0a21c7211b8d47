package quota

import "github.com/headgate-go/headgate/budget/quota/internal/rolling"

// bucket is a rolling counter.
type bucket struct {
	*name
	rolling.Bucket
}

// refill brings the bucket to now.
func (b *bucket) refill(now, limit int64) { b.Refill(now, limit, b.per) }

// take lowers the level by an amount under a mark.
func (b *bucket) take(amount, mark int64, hold bool, pool *rolling.Pool) {
	b.Take(amount, mark, hold, b.per, pool)
}

// refund gives back a part of what was charged under a mark.
func (b *bucket) refund(units, mark int64) { b.Refund(units, mark, b.per) }

// end ends a hold of an amount, after its refund.
func (b *bucket) end(amount, mark int64, pool *rolling.Pool) { b.End(amount, mark, b.per, pool) }

// filled notes when nothing is missing any more.
func (b *bucket) filled(now reading, limit int64) {
	b.Full = sum(now.mono, b.Missing.Time(limit, b.per))
}
