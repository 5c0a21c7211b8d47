package blocks

import (
	"context"
	"strconv"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// surely is how long all ledgers know what has ended: a little less than they remember
// it at the least.
const surely = quota.DefaultRemember - quota.DefaultRemember/60

// signedFor is for how long a writer is one. It is short, so that what is told again
// long after was overtaken by little.
const signedFor = quota.DefaultRemember / 4

// signature says which settlement of this ledger's one is; see [quota.Settle].Writer.
type signature struct {
	since  int64 // when it was given
	writer string
	number int64
}

// sign gives the next signature.
func (l *Ledger) sign(now int64) signature {
	l.signing.Lock()
	defer l.signing.Unlock()
	if part := now / int64(signedFor); l.writer == "" || part != l.part {
		l.part, l.signed = part, 0
		l.writer = l.id + "." + strconv.FormatInt(part, 36)
	}
	l.signed++
	return signature{now, l.writer, l.signed}
}

// tell tells the ledger of a settlement that may have been told before, so long ago
// that it was forgotten: then its number says whether it was. Before, the ledger knows
// it, unless it has lost it in a failover, of which the number says nothing.
func (l *Ledger) tell(ctx context.Context, s *quota.Settle, by *signature) (quota.Settled, error) {
	s.Writer, s.WriterSeq = by.writer, by.number
	l.stats.trips.Add(1)
	res, err := l.next.Settle(ctx, *s)
	if err != nil || !res.Repeated || len(res.Status) > 0 || time.Duration(l.now()-by.since) > surely {
		return res, err
	}
	s.Writer, s.WriterSeq = "", 0
	l.stats.trips.Add(1)
	return l.next.Settle(ctx, *s)
}
