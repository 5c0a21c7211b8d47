package redisledger

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// settle writes what a Settle asks. See lua/settle.lua.
func (l *Ledger) settle(w *encoder, k keys, s *quota.Settle) {
	adjust := byte(0)
	if s.Adjust {
		adjust = 1
	}
	a := append(l.head(w.asked), adjust)
	a = order.AppendUint64(a, uint64(s.Seq))
	a = order.AppendUint64(a, uint64(s.WriterSeq))
	counts := len(a)
	a = append(a, 0, 0, 0, 0)
	for _, n := range s.Actual {
		a = w.amount(a, n)
	}
	w.asked = a
	for i := range s.More {
		e := s.More[i]
		if e.Kind != quota.Check {
			e.Kind = quota.Count
		}
		w.asked = appendLimit(appendSlot(w.asked, w.entry(&e)), &e)
		if !e.Rolling {
			w.span(&e.Spans)
		}
	}
	order.PutUint16(w.asked[counts:], uint16(len(w.keys)))
	order.PutUint16(w.asked[counts+2:], uint16(len(s.More)))
	w.key(k.index())
	w.key(k.reservation(s.ID))
	if s.Writer != "" {
		w.key(k.writer(s.Writer))
	}
	w.life = strconv.AppendInt(w.life, l.cfg.Remember.Milliseconds(), 10)
	w.ask(&w.asked, &w.said, &w.names, &w.life)
	for _, key := range w.keys {
		w.ask(k.account(key))
	}
}

// Settle implements [quota.Ledger].
func (l *Ledger) Settle(ctx context.Context, s quota.Settle) (quota.Settled, error) {
	if err := s.Validate(); err != nil {
		return quota.Settled{}, err
	}
	if err := checkTexts(s.Tree, "More", s.More); err != nil {
		return quota.Settled{}, err
	}
	answer, err := l.run(ctx, settleScript, s.Tree, func(w *encoder, k keys) { l.settle(w, k, &s) })
	if err != nil {
		return quota.Settled{}, err
	}
	switch answer[0] {
	case 'U':
		return quota.Settled{}, unknown(s.ID)
	case 'P':
		return quota.Settled{Repeated: true}, nil
	}
	d := decoder{s: answer}
	if answer[0] == 'R' {
		d.byte()
	}
	rec, err := d.record(l.keysOf(s.Tree))
	repeated := answer[0] == 'R'
	if err == nil && repeated {
		err = d.repeated(&rec)
	}
	if err != nil {
		return quota.Settled{}, err
	}
	res := rec.settled(s.Room)
	res.Repeated = repeated
	return res, nil
}

func unknown(id string) error { return fmt.Errorf("%w: %q", quota.ErrUnknownReservation, id) }

// Release implements [quota.Ledger]. Releasing what is settled or released changes
// nothing. What has expired can be released, too, and not be settled any more.
func (l *Ledger) Release(ctx context.Context, tree, id string) error {
	answer, err := l.run(ctx, releaseScript, tree, func(w *encoder, k keys) {
		w.key(k.index())
		w.key(k.reservation(id))
		w.asked = l.head(w.asked)
		w.ask(&w.asked)
	})
	if err == nil && answer[0] == 'U' {
		err = unknown(id)
	}
	return err
}

// renewals is how many reservations a script renews, so that it is short.
const renewals = 32

// Renew implements [quota.Ledger]. A ttl of 0 is [quota.DefaultTTL]. Each 32 ids are a
// step by themselves.
func (l *Ledger) Renew(ctx context.Context, tree string, ttl time.Duration, ids ...string) (lost []string, err error) {
	if ttl < 0 {
		return nil, fmt.Errorf("quota: ttl is %v, must not be negative", ttl)
	}
	for len(ids) > 0 {
		some := ids[:min(len(ids), renewals)]
		ids = ids[len(some):]
		answer, err := l.run(ctx, renewScript, tree, func(w *encoder, k keys) {
			w.key(k.index())
			for _, id := range some {
				w.key(k.reservation(id))
			}
			w.asked = order.AppendUint64(l.head(w.asked), uint64(microsUp(cmp.Or(ttl, quota.DefaultTTL))))
			w.ask(&w.asked)
		})
		if err != nil {
			return lost, err
		}
		d := decoder{s: answer[1:]}
		for d.s != "" {
			i := d.uint16()
			if d.short || i >= len(some) {
				return lost, errGarbled
			}
			lost = append(lost, some[i])
		}
	}
	return lost, nil
}
