package ledgertest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget/quota"
)

// runRandom makes random runs. In virtual time each has a bubble of its own, because
// rapid itself must see the time that really passes.
func runRandom(t *testing.T, open func(t testing.TB) Store, o Options) {
	if !o.Virtual {
		e := newEnv(t, open, o)
		rapid.Check(t, func(rt *rapid.T) { e.random(rt) })
		return
	}
	rapid.Check(t, func(rt *rapid.T) {
		var failure any
		synctest.Test(t, func(t *testing.T) {
			defer func() { failure = recover() }()
			newEnv(t, open, o).random(rt)
		})
		if failure != nil {
			panic(failure) // rapid's own, in the goroutine where it waits for it
		}
	})
}

// random makes one run.
func (e *env) random(rt *rapid.T) {
	e.newTree()
	e.anchor = e.anchor.Add(-time.Minute) // so that windows do not end when something is done
	r := &random{env: e, model: newModel(), begun: e.Now()}
	rt.Repeat(map[string]func(*rapid.T){
		"reserve": r.reserve,
		"settle":  r.settle,
		"adjust":  r.adjust,
		"release": r.release,
		"renew":   r.renew,
		"top up":  func(t *rapid.T) { r.change(t, "top-up") },
		"reset":   func(t *rapid.T) { r.change(t, "reset") },
		"pass":    r.pass,
		"":        r.check,
	})
}

// random runs a ledger and the model side by side. In real time there are no
// rolling counters, and whatever happens is minutes away from any other instant
// that matters.
type random struct {
	*env
	model *model
	ids   []string
	calls int
	begun time.Time
	past  time.Duration
}

// now is the model's time.
func (r *random) now() time.Time {
	now := r.begun.Add(r.past)
	r.model.expire(now)
	return now
}

// draw draws an entry: one of few counters of each kind, so that calls meet.
func (r *random) draw(t *rapid.T, i int) quota.Entry {
	label := func(s string) string { return fmt.Sprint(s, i) }
	amount := rapid.Int64Range(0, 60).Draw(t, label("amount"))
	limit := rapid.SampledFrom([]int64{100, 100, 100, 250, 50, 0, -1}).Draw(t, label("limit"))
	kind := rapid.SampledFrom([]quota.Kind{quota.Hold, quota.Hold, quota.Hold, quota.Count, quota.Check}).Draw(t, label("kind"))
	observe := rapid.IntRange(0, 9).Draw(t, label("observe")) == 0
	kinds := []string{"user", "tenant", "lease", "soft"}
	if r.Virtual {
		kinds = append(kinds, "rolling", "rolling")
	}
	var x quota.Entry
	switch rapid.SampledFrom(kinds).Draw(t, label("counter")) {
	case "user":
		x = r.calendar("user", kind, amount, limit)
	case "tenant":
		x = r.calendar("tenant", kind, amount, 10*limit)
	case "lease":
		x = r.lease("user", 3)
	case "soft":
		x = r.calendar("team", kind, amount, 100)
		x.Soft, x.Ceiling = true, rapid.SampledFrom([]int64{-1, 150}).Draw(t, label("ceiling"))
	default:
		x = r.rolling("user", kind, amount, 7, 100, rapid.SampledFrom([]time.Duration{0, 90 * time.Second}).Draw(t, label("wait")))
		x.Unit = quota.Credits
	}
	x.Observe = observe
	return x
}

// whole is d in units of the store's clock, rounded up.
func (r *random) whole(d time.Duration) time.Duration {
	return (d + r.Resolution - 1) / r.Resolution * r.Resolution
}

func (r *random) ttl(t *rapid.T) time.Duration {
	if r.Virtual {
		return r.whole(time.Duration(rapid.Int64Range(1, int64(30*time.Minute)).Draw(t, "ttl")))
	}
	return rapid.SampledFrom([]time.Duration{8, 28, 128}).Draw(t, "ttl") * time.Minute
}

// known are the ids that a store knows: it may forget an hour after the end.
func (r *random) known() []string {
	now := r.now()
	r.ids = slices.DeleteFunc(r.ids, func(id string) bool {
		c := r.model.calls[id]
		return c != nil && c.state != "open" && now.Sub(c.ended) > 50*time.Minute
	})
	return r.ids
}

func (r *random) id(t *rapid.T) string {
	ids := r.known()
	if len(ids) == 0 || rapid.IntRange(0, 19).Draw(t, "unknown") == 0 {
		return "unknown"
	}
	return rapid.SampledFrom(ids).Draw(t, "id")
}

func (r *random) reserve(t *rapid.T) {
	r.calls++
	id := fmt.Sprint("call-", r.calls)
	if ids := r.known(); len(ids) > 0 && rapid.IntRange(0, 9).Draw(t, "again") == 0 {
		id = rapid.SampledFrom(ids).Draw(t, "id")
	}
	req := quota.Reserve{ID: id, Tree: r.tree, TTL: r.ttl(t)}
	now := r.now()
	for i := range rapid.IntRange(1, 4).Draw(t, "entries") {
		x := r.draw(t, i)
		if !slices.ContainsFunc(req.Entries, func(o quota.Entry) bool { return o.Counter == x.Counter }) {
			x.Spans = r.around(&x, now)
			req.Entries = append(req.Entries, x)
		}
	}
	if rapid.IntRange(0, 5).Draw(t, "exclusive") == 0 {
		req.Exclusive = "only"
	}
	got, err := r.Ledger.Reserve(r.ctx(), req)
	if err != nil {
		t.Fatalf("Reserve: %v", err)
	}
	want := r.model.reserve(req, now)
	if !slices.Contains(r.ids, id) {
		r.ids = append(r.ids, id)
	}
	if got.Denied != want.Denied || got.Held != want.Held || got.Never != want.Never || got.Repeated != want.Repeated ||
		!slices.Equal(got.Over, want.Over) || got.Wait != r.whole(want.Wait) {
		t.Fatalf("Reserve(%+v)\n got: %+v\nwant: %+v", req, got, want)
	}
	if d := got.RetryAfter - want.RetryAfter; d > r.Resolution-1 || d < -r.Slack {
		t.Fatalf("Reserve(%+v): RetryAfter is %v, want %v", req, got.RetryAfter, want.RetryAfter)
	}
}

// around are the spans of an entry; those of leases and rolling ones are empty.
func (r *random) around(x *quota.Entry, now time.Time) [3]quota.Span {
	if x.Kind == quota.Lease || x.Rolling {
		return [3]quota.Span{}
	}
	return r.spans(now)
}

func (r *random) settle(t *rapid.T) {
	r.settleWith(t, quota.Settle{ID: r.id(t), Actual: quota.Amounts{
		quota.Tokens:  rapid.Int64Range(0, 80).Draw(t, "tokens"),
		quota.Credits: rapid.Int64Range(0, 80).Draw(t, "credits"),
	}})
}

// adjust corrects a call. A store may give back less to a rolling counter after
// the call was settled, so that is not corrected downwards here.
func (r *random) adjust(t *rapid.T) {
	s := quota.Settle{ID: r.id(t), Adjust: true, Seq: rapid.Int64Range(0, 5).Draw(t, "seq")}
	least := int64(0)
	if c := r.model.calls[s.ID]; c != nil {
		least = c.used[quota.Credits]
	}
	s.Actual[quota.Tokens] = rapid.Int64Range(0, 80).Draw(t, "tokens")
	s.Actual[quota.Credits] = least + rapid.Int64Range(0, 20).Draw(t, "credits")
	r.settleWith(t, s)
}

func (r *random) settleWith(t *rapid.T, s quota.Settle) {
	s.Tree = r.tree
	now := r.now()
	got, err := r.Ledger.Settle(r.ctx(), s)
	want, known := r.model.settle(s, now)
	if !known {
		if !errors.Is(err, quota.ErrUnknownReservation) {
			t.Fatalf("Settle of what is not known: %+v, %v", got, err)
		}
		return
	}
	same := err == nil && got.Over == want.Over && got.Late == want.Late && got.Repeated == want.Repeated && len(got.Status) == len(want.Status)
	for i := 0; same && i < len(got.Status); i++ {
		same = got.Status[i].Committed == want.Status[i].Committed && got.Status[i].Reserved == want.Status[i].Reserved
	}
	if !same {
		t.Fatalf("Settle(%+v)\n got: %+v, %v\nwant: %+v", s, got, err, want)
	}
}

func (r *random) release(t *rapid.T) {
	id := r.id(t)
	r.now()
	err := r.Ledger.Release(r.ctx(), r.tree, id)
	c := r.model.calls[id]
	if c == nil != errors.Is(err, quota.ErrUnknownReservation) || c != nil && err != nil {
		t.Fatalf("Release(%s): %v", id, err)
	}
	if c != nil && (c.state == "open" || c.state == "expired") {
		c.giveBack("released", r.now())
	}
}

func (r *random) renew(t *rapid.T) {
	id, ttl := r.id(t), r.ttl(t)
	now := r.now()
	lost, err := r.Ledger.Renew(r.ctx(), r.tree, ttl, id)
	c := r.model.calls[id]
	held := c != nil && c.state == "open"
	if err != nil || held != (len(lost) == 0) {
		t.Fatalf("Renew(%s) lost %q, %v; it is held: %v", id, lost, err, held)
	}
	if held {
		c.expires = now.Add(ttl)
	}
}

func (r *random) change(t *rapid.T, what string) {
	x := r.draw(t, 0)
	if x.Kind == quota.Lease {
		return
	}
	now := r.now()
	x.Spans = r.around(&x, now)
	var err error
	amount := rapid.Int64Range(0, 120).Draw(t, "by")
	if what == "reset" {
		_, err = r.Ledger.Reset(r.ctx(), r.tree, x)
	} else {
		_, err = r.Ledger.TopUp(r.ctx(), r.tree, x, amount)
	}
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	r.model.change(&x, what, amount, now)
}

func (r *random) pass(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{5, 10, 30, 120, 600}).Draw(t, "minutes") * time.Minute
	if r.Virtual {
		d = r.whole(time.Duration(rapid.Int64Range(1, int64(d)).Draw(t, "for")))
	}
	r.now()
	r.past += d
	r.Pass(d)
}

// check compares all counters and their history.
func (r *random) check(t *rapid.T) {
	now := r.now()
	for _, x := range []quota.Entry{
		r.hold("user", 0, 100), r.hold("tenant", 0, 1000), r.hold("team", 0, 100), r.lease("user", 3),
	} {
		x.Spans = r.around(&x, now)
		p := r.model.place(&x, now)
		st := r.status(x)
		if st.Committed != r.model.committed(p) || st.Reserved != r.model.reserved(p) || st.Committed < 0 || st.Reserved < 0 {
			t.Fatalf("%s/%v stands at %d committed and %d reserved, want %d and %d", x.Key, x.Unit,
				st.Committed, st.Reserved, r.model.committed(p), r.model.reserved(p))
		}
	}
	if r.Virtual {
		x := r.rolling("user", quota.Hold, 0, 7, 100, 0)
		x.Unit = quota.Credits
		if st, want := r.status(x), r.model.rollingStatus(&x, now); st.Committed != want.Committed || st.Reserved != want.Reserved {
			t.Fatalf("rolling counter stands at %d missing and %d reserved, want %d and %d",
				st.Committed, st.Reserved, want.Committed, want.Reserved)
		}
	}
	past, err := r.Ledger.History(r.ctx(), r.tree, r.hold("user", 0, 0).Counter, 5)
	if err != nil {
		t.Fatalf("History: %v", err)
	}
	for _, h := range past {
		p := place{h.Counter, h.Span.Start.Unix()}
		if h.Committed != r.model.committed(p) || h.Reserved != r.model.reserved(p) {
			t.Fatalf("window %v stood at %+v, want %d and %d", h.Span, h, r.model.committed(p), r.model.reserved(p))
		}
	}
}
