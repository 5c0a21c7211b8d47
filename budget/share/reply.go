package share

import "time"

// Reply takes in the answer to a request. It reports whether calls may start that
// could not before.
func (l *Lessee) Reply(now time.Time, r Request, reply Reply) (granted bool) {
	l.at(now)
	f := l.flight
	if f == nil || f.req.Seq != r.Seq || len(reply.Granted) != len(l.cfg.Dims) {
		return false
	}
	l.flight = nil
	l.failures = 0
	if reply.Stale {
		return l.stale(f, reply)
	}
	l.coordinator, l.prevAt, l.prevIn = reply.Epoch, reply.At, l.now
	l.ttl = max(reply.TTL.Microseconds(), 1)
	if l.now < l.counting {
		l.replicas = max(l.replicas, reply.Replicas)
	} else {
		l.replicas = reply.Replicas
	}
	l.expires = f.first + l.ttl - l.ttl/drift
	l.askAt = 0
	if reply.RetryAfter > 0 {
		l.askAt = l.now + max(reply.RetryAfter.Microseconds(), 1)
		l.wanted = true
	}
	if l.cfg.Mode == Static {
		l.lowered = false
		for i, part := range reply.Parts {
			l.setPart(i, part)
		}
		return true
	}
	if l.local {
		l.comeBack()
		granted = true
	}
	if l.slots != nil {
		l.slots.yield = false
	}
	for i, n := range reply.Granted {
		if reply.RetryAfter > 0 && reply.Scarce[i] {
			if i < len(l.dims) {
				l.dims[i].yields()
			} else {
				l.slots.yields()
			}
		}
		if n > 0 {
			granted, l.active = true, l.now
		}
		if i < len(l.dims) {
			l.dims[i].granted(n, reply.Limits[i])
		} else {
			l.slots.granted(n, reply.Limits[i], reply.Scarce[i])
		}
	}
	if l.now >= l.expires {
		l.expire()
	}
	return granted
}

// stale handles a request that was not taken in: the coordinator has lost its
// state, and is told anew; or another one of our name has come after us. If this is the
// first answer at all, that one has come before us, on a clock that is ahead of ours.
func (l *Lessee) stale(f *flight, reply Reply) bool {
	if reply.Epoch == l.coordinator {
		l.fenced = true
		l.expires = l.now
		l.expire()
		return false
	}
	if l.coordinator == 0 && !l.leaving {
		l.outlive(reply.Newest)
	}
	l.coordinator, l.prevAt, l.resync = reply.Epoch, 0, true
	l.counting = l.now + (beat+1)*l.ttl
	for i, b := range l.dims {
		b.untold(f.req.Dims[i].Spent, f.made)
	}
	return false
}

// outlive has the replica go on under an epoch that is larger than that of a former life.
// Of two that live at the same time, and do so at once, the coordinator must not take one
// for the other.
func (l *Lessee) outlive(newest int64) {
	if newest >= l.cfg.Epoch && newest < lastEpoch {
		l.cfg.Epoch = newest + 1 + l.random.Int64N(epochSpread)
	}
}

const (
	epochSpread = ticksPerSecond
	lastEpoch   = 1<<52 - 2*epochSpread // stores may reckon in float64
)
