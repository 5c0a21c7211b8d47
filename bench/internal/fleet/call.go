package fleet

import (
	"math"
	"time"

	"github.com/headgate-go/headgate/internal/gate"
	"github.com/headgate-go/headgate/retry"
)

// arrive lets a user of the home make a call.
func (s *sim) arrive(n int) {
	j := s.homes[n].job(&s.cfg)
	r := s.serves(n)
	k := s.newCall()
	s.log.Calls = append(s.log.Calls, Record{
		Asked: s.passed(), Started: -1, Counted: -1, Ended: -1, Tokens: j.tokens, User: j.user, Replica: r.n,
	})
	s.calls[k] = call{job: j, replica: r, record: len(s.log.Calls) - 1, used: true}
	spec := gate.Spec{Flow: s.names[j.user], Slots: 1, Costs: []int64{tokensDim: j.estimate, requestsDim: 1}}
	if s.cfg.MaxWait > 0 {
		spec.Deadline = s.time().Add(s.cfg.MaxWait)
	}
	id, granted, refusal := r.core.Enqueue(s.time(), spec)
	switch {
	case refusal.Err != nil:
		rec := s.record(&s.calls[k])
		rec.Outcome, rec.Ended = Expired, s.passed()
		s.drop(k)
	default:
		s.calls[k].id = id
		r.calls[id] = k
		if granted {
			s.launch(r, id, k)
		}
	}
	s.touch(r)
}

func (s *sim) newCall() int32 {
	if n := len(s.free); n > 0 {
		k := s.free[n-1]
		s.free = s.free[:n-1]
		return k
	}
	s.calls = append(s.calls, call{})
	return int32(len(s.calls) - 1)
}

// drop forgets a call.
func (s *sim) drop(n int32) {
	s.calls[n] = call{}
	s.free = append(s.free, n)
}

// over ends a call at its replica, settled to what it used; nil is what was held.
func (s *sim) over(r *replica, id gate.ID, n int32, used []int64) {
	r.core.Finish(s.time(), id, used)
	delete(r.calls, id)
	s.drop(n)
}

// launch sends a call that may start.
func (s *sim) launch(r *replica, id gate.ID, n int32) {
	k := &s.calls[n]
	k.flying = true
	rec := s.record(k)
	rec.Started, rec.Outcome = s.passed(), Flying
	rec.Attempts++
	s.push(s.now+s.cfg.ToProvider.draw(s.net), reaches, n, 0)
}

// reach lets a call come to the provider.
func (s *sim) reach(n int32) {
	k := &s.calls[n]
	s.log.Attempts++
	wait, over, ok := s.provider.arrive(s.now, [dims]int64{k.tokens, 1})
	back := s.cfg.ToProvider.draw(s.net)
	if !ok {
		s.log.Refusals[s.now/int64(time.Second)]++
		k.over = over
		s.push(s.now+back, refused, n, int64(wait))
		return
	}
	s.record(k).Counted = s.passed()
	s.push(s.now+k.first+back, begins, n, 0)
}

// begin takes in the first item of an answer: the provider has counted the call.
func (s *sim) begin(n int32) {
	k := &s.calls[n]
	s.push(s.now+k.rest, ends, n, 0)
	if k.replica == nil {
		return
	}
	k.replica.core.Counted(s.time(), k.id)
	k.replica.core.Succeeded(s.time(), k.id)
	s.touch(k.replica)
}

// end takes in the last item.
func (s *sim) end(n int32) {
	k := &s.calls[n]
	r := k.replica
	if r == nil {
		s.drop(n)
		return
	}
	rec := s.record(k)
	rec.Outcome, rec.Ended = Served, s.passed()
	s.over(r, k.id, n, []int64{tokensDim: k.tokens, requestsDim: 1})
	s.touch(r)
}

// refuse takes in a 429 with a hint, as the shell of a gate does: the limits that it
// names are closed for the hinted time and their rates are cut, and the call goes back
// into line, as often as retries do.
func (s *sim) refuse(n int32, hint time.Duration) {
	k := &s.calls[n]
	r := k.replica
	if r == nil {
		s.drop(n)
		return
	}
	now, rec := s.time(), s.record(k)
	r.core.Answered(k.id)
	for i, over := range k.over {
		if over {
			closed := min(hint, retry.DefaultMaxHint)
			r.core.CloseBudget(now, i, now.Add(closed+s.upTo(closed/10)))
			r.core.Emptied(now, k.id, i)
			r.core.Cut(now, k.id, i)
		}
	}
	if hint > retry.DefaultMaxHint || rec.Attempts >= retry.DefaultMaxAttempts {
		rec.Outcome, rec.Ended = Failed, s.passed()
		s.over(r, k.id, n, make([]int64, dims))
	} else {
		longest := min(float64(retry.DefaultBase)*math.Exp2(float64(rec.Attempts-1)), float64(retry.DefaultCap))
		rec.Outcome, k.flying = Waiting, false
		r.core.Requeue(now, k.id, make([]int64, dims), now.Add(max(hint, s.upTo(time.Duration(longest)))))
	}
	s.touch(r)
}

// upTo is a random time up to d.
func (s *sim) upTo(d time.Duration) time.Duration { return time.Duration(s.net.Int64N(int64(d) + 1)) }
