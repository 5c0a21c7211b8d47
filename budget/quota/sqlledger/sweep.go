package sqlledger

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

const (
	// sweepAtOnce is how many rows one transaction of a sweep looks at.
	sweepAtOnce = 500
	// sweepCounters is how many counters the ledger looks at each time by itself. It goes
	// on with the next ones the next time.
	sweepCounters = 10 * sweepAtOnce
	// sweepLimit is how long one transaction of a sweep may take, and wait for others.
	sweepLimit = 5 * time.Second
)

// sweepAgain sweeps until the ledger is closed. Ledgers that began at the same time do not do it at the
// same time.
func (l *Ledger) sweepAgain() {
	s := sweeper{l: l, most: sweepCounters}
	failing := false
	for {
		pause := l.cfg.SweepEvery/2 + rand.N(l.cfg.SweepEvery)
		select {
		case <-l.sweeping.Done():
			return
		case <-time.After(pause):
		}
		err := s.sweep(l.sweeping)
		if l.sweeping.Err() != nil {
			return
		}
		if err != nil && !failing {
			l.cfg.Logger.Error("sqlledger: expired and old rows cannot be removed; it is tried again", slog.Any("error", err))
		}
		failing = err != nil
	}
}

// Sweep does at once, and for all rows, what a ledger does every [Config].SweepEvery: it
// ends reservations that have expired, and removes what is older than the configuration
// says. Each transaction is a short one, and as much time passes between them as they take.
// One that the database has no time for within 5 seconds is given up: the error then matches
// [quota.ErrUnavailable], what was removed stays removed, and the next Sweep goes on from
// there.
func (l *Ledger) Sweep(ctx context.Context) error {
	s := sweeper{l: l}
	return s.sweep(ctx)
}

type sweeper struct {
	l    *Ledger
	most int   // counters at a time; 0 for all
	last int64 // the counter that was looked at last
}

func (s *sweeper) sweep(ctx context.Context) error {
	err := errors.Join(
		s.expire(ctx),
		s.repeat(ctx, sweptReservations, s.reservations),
		s.repeat(ctx, sweptAudit, s.audit),
		s.repeat(ctx, sweptCalls, s.calls),
		s.repeat(ctx, sweptWriters, s.writers),
		s.counters(ctx),
	)
	if ctx.Err() == nil {
		s.l.metric.sweep(err)
	}
	return err
}

// repeat does a step, which removes rows of a table, until it finds fewer than it looks for.
func (s *sweeper) repeat(ctx context.Context, from swept, step func(ctx context.Context, tx transaction, now int64) (rows int64, err error)) error {
	for {
		begun := time.Now()
		rows := int64(0)
		err := s.do(ctx, 0, func(ctx context.Context, tx transaction, now int64) (err error) {
			rows, err = step(ctx, tx, now)
			return err
		})
		if err != nil {
			return err
		}
		if s.l.metric.removed(from, rows); rows < sweepAtOnce {
			return nil
		}
		if err := rest(ctx, begun); err != nil {
			return err
		}
	}
}

// rest waits as long as has passed since.
func rest(ctx context.Context, since time.Time) error {
	select {
	case <-time.After(time.Since(since)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *sweeper) do(ctx context.Context, tree int64, f func(ctx context.Context, tx transaction, now int64) error) error {
	return s.l.combiner.do(ctx, sweepLimit, tree, &step{f: f})
}

// step is a transaction for itself.
type step struct {
	idling
	f func(ctx context.Context, tx transaction, now int64) error
}

func (s *step) within(ctx context.Context, tx transaction, now int64) error { return s.f(ctx, tx, now) }

// expire ends what has expired, in trees that nobody uses.
func (s *sweeper) expire(ctx context.Context) error {
	for {
		var trees []int64
		err := s.do(ctx, 0, func(ctx context.Context, tx transaction, now int64) (err error) {
			trees, err = numbers(ctx, tx.query, "SELECT DISTINCT tree FROM {p}reservations WHERE state = 0 AND expires <= $1 LIMIT $2", now, sweepAtOnce)
			return err
		})
		if err != nil {
			return err
		}
		for _, tree := range trees {
			begun := time.Now()
			if err := s.l.combiner.do(ctx, sweepLimit, tree, idling{}); err != nil {
				return err
			}
			if err := rest(ctx, begun); err != nil {
				return err
			}
		}
		if len(trees) < sweepAtOnce {
			return nil
		}
	}
}

// reservations forgets those that ended long ago.
func (s *sweeper) reservations(ctx context.Context, tx transaction, now int64) (rows int64, err error) {
	return tx.exec(ctx, "DELETE FROM {p}reservations WHERE ref IN (SELECT ref FROM {p}reservations WHERE state <> 0 AND ended < $1 LIMIT $2{skip})",
		now-int64(s.l.cfg.Remember), sweepAtOnce)
}

// calls removes old ones.
func (s *sweeper) calls(ctx context.Context, tx transaction, now int64) (rows int64, err error) {
	return tx.exec(ctx, "DELETE FROM {p}calls WHERE {row} IN ({oldest calls})", now-int64(s.l.cfg.AuditRetention), sweepAtOnce)
}

// writers forgets numbers of those that have settled nothing for a day after everything that
// they have settled was forgotten.
func (s *sweeper) writers(ctx context.Context, tx transaction, now int64) (rows int64, err error) {
	return tx.exec(ctx, "DELETE FROM {p}writers WHERE writer IN (SELECT writer FROM {p}writers WHERE at < $1 LIMIT $2{skip})",
		now-int64(s.l.cfg.Remember+24*time.Hour), sweepAtOnce)
}

// audit removes old rows of it. What those of a counter add up to is carried forward in one
// new row.
func (s *sweeper) audit(ctx context.Context, tx transaction, now int64) (n int64, err error) {
	rows, err := tx.query(ctx, "DELETE FROM {p}audit WHERE {row} IN ({oldest audit}) RETURNING counter, starts, committed, reserved, part",
		now-int64(s.l.cfg.AuditRetention), sweepAtOnce)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	type place struct{ counter, start int64 }
	sums := make(map[place]*auditRow)
	var order []*auditRow
	var counters []int64
	for ; rows.Next(); n++ {
		var x auditRow
		if err := rows.Scan(&x.id, &x.start, &x.by.sumCommitted, &x.by.sumReserved, &x.by.sumPart); err != nil {
			return 0, err
		}
		sum := sums[place{x.id, x.start}]
		if sum == nil {
			sum = &auditRow{at: now + int64(len(order)), what: changeCarried, id: x.id, start: x.start}
			sums[place{x.id, x.start}] = sum
			order = append(order, sum)
			counters = append(counters, x.id)
		}
		sum.by.sumCommitted += x.by.sumCommitted
		sum.by.sumReserved += x.by.sumReserved
		sum.by.sumPart += x.by.sumPart
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || n == 0 {
		return n, err
	}
	known, err := numbers(ctx, tx.query, "SELECT id FROM {p}counters WHERE id IN {ids}", idList(counters))
	if err != nil {
		return 0, err
	}
	is := make(map[int64]bool, len(known)) // the others were erased
	for _, id := range known {
		is[id] = true
	}
	return n, tx.insert(ctx, newAudit, func(w writer) {
		for _, sum := range order {
			if is[sum.id] && sum.by != (audited{}) {
				sum.write(w)
			}
		}
	})
}

// counters removes windows that are too many or too old, buckets that have been full for
// long, and counters of which nothing is left.
func (s *sweeper) counters(ctx context.Context) error {
	for seen := 0; s.most == 0 || seen < s.most; {
		begun := time.Now()
		var all []staleCounter
		n := 0
		err := s.do(ctx, 0, func(ctx context.Context, tx transaction, now int64) (err error) {
			all, n, err = s.stale(ctx, tx, now)
			return err
		})
		if err != nil {
			return err
		}
		for _, c := range all {
			rows := int64(0)
			if err := s.do(ctx, c.tree, c.tidy(s.l, &rows)); err != nil {
				return err
			}
			s.l.metric.removed(sweptCounters, rows)
		}
		seen += n
		if n < sweepAtOnce {
			s.last = 0
			return nil
		}
		if err := rest(ctx, begun); err != nil {
			return err
		}
	}
	return nil
}

// staleCounter is a counter that has something to be removed.
type staleCounter struct{ id, tree int64 }

// stale looks at the next counters, and returns those that have something to be removed.
func (s *sweeper) stale(ctx context.Context, tx transaction, now int64) (all []staleCounter, n int, err error) {
	cutoff := now - int64(s.l.cfg.HistoryRetention)
	rows, err := tx.query(ctx, `
		SELECT c.id, c.tree,
			EXISTS (SELECT 1 FROM {p}windows w WHERE w.counter = c.id AND w.ends < $2 AND w.reserved = 0)
			OR EXISTS (SELECT 1 FROM {p}buckets b WHERE b.counter = c.id AND b.full_at < $2 AND b.at < $2 AND b.reserved = 0)
			OR (SELECT count(*) FROM {p}windows w WHERE w.counter = c.id AND w.ends <= $3 AND w.reserved = 0) > $4
			OR c.made < $2 AND NOT EXISTS (SELECT 1 FROM {p}windows w WHERE w.counter = c.id)
				AND NOT EXISTS (SELECT 1 FROM {p}buckets b WHERE b.counter = c.id)
				AND NOT EXISTS (SELECT 1 FROM {p}audit a WHERE a.counter = c.id)
		FROM {p}counters c WHERE c.id > $1 ORDER BY c.id LIMIT $5`,
		s.last, cutoff, now, s.l.cfg.KeepWindows, sweepAtOnce)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	last := s.last
	for rows.Next() {
		var id int64
		var tree string
		var is bool
		if err := rows.Scan(&id, &tree, &is); err != nil {
			return nil, 0, err
		}
		if is {
			all = append(all, staleCounter{id, treeOf(fromText(tree))})
		}
		last = id
		n++
	}
	if err := rows.Err(); err != nil {
		return nil, 0, err
	}
	s.last = last
	return all, n, nil
}

// tidy removes what there is to be removed of a counter, whose tree is locked. The audit
// says so, in rows that make its sums those of nothing. rows is how many were removed.
func (c staleCounter) tidy(l *Ledger, rows *int64) func(ctx context.Context, tx transaction, now int64) error {
	return func(ctx context.Context, tx transaction, now int64) error {
		const (
			forgotten = `INSERT INTO {p}audit (at, what, counter, starts, call, amount, committed, reserved, part, crossed, flags) `
			windows   = ` FROM {p}windows WHERE counter = $1 AND reserved = 0 AND (ends < $2 OR ends <= $3 AND starts < (
				SELECT k.starts FROM {p}windows k WHERE k.counter = $1 AND k.ends <= $3 AND k.reserved = 0 ORDER BY k.starts DESC LIMIT 1 OFFSET $4))`
			buckets = ` FROM {p}buckets WHERE counter = $1 AND full_at < $2 AND at < $2 AND reserved = 0`
		)
		cutoff, keep := now-int64(l.cfg.HistoryRetention), l.cfg.KeepWindows-1
		*rows = 0 // if it is done again
		what := strconv.Itoa(int(changeForgotten))
		for _, q := range []struct {
			query string
			args  []any
		}{
			{forgotten + "SELECT CAST($3 AS bigint), " + what + ", counter, starts, 0, 0, -committed, 0, 0, 0, 0" + windows, []any{c.id, cutoff, now, keep}},
			{"DELETE" + windows, []any{c.id, cutoff, now, keep}},
			{forgotten + "SELECT CAST($3 AS bigint), " + what + ", counter, 0, 0, 0, -units, 0, -part, 0, 0" + buckets, []any{c.id, cutoff, now}},
			{"DELETE" + buckets, []any{c.id, cutoff}},
			{`DELETE FROM {p}counters WHERE id = $1 AND made < $2
				AND NOT EXISTS (SELECT 1 FROM {p}windows w WHERE w.counter = $1)
				AND NOT EXISTS (SELECT 1 FROM {p}buckets b WHERE b.counter = $1)
				AND NOT EXISTS (SELECT 1 FROM {p}audit a WHERE a.counter = $1)`, []any{c.id, cutoff}},
		} {
			n, err := tx.exec(ctx, q.query, q.args...)
			if err != nil {
				return err
			}
			if strings.HasPrefix(q.query, "DELETE") {
				*rows += n
			}
		}
		return nil
	}
}

// idList is a list of numbers in JSON, as texts: readers may take numbers for floating
// point.
func idList(ids []int64) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(id, 10))
	}
	b.WriteByte(']')
	return b.String()
}
