package quota_test

import (
	"context"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/usage"
)

// book is what an independent bookkeeper knows of a counter.
type book struct{ spent, held int64 }

// books are the counters by scope and id; everybody's has no id. They hold tokens,
// calls and turns, and how many turns are under way.
type books map[string]*[quota.Units]book

func (b books) of(scope quota.Scope, id string) *[quota.Units]book {
	key := string(scope) + " " + id
	if b[key] == nil {
		b[key] = new([quota.Units]book)
	}
	return b[key]
}

// amounts are the limits of the model: a small number of each, so that they bind.
type amounts struct{ tokens, calls, turns, atOnce int64 }

func (a amounts) limits() quota.LimitsConfig {
	month := func(scope quota.Scope, n int64) quota.Limit {
		return quota.Limit{Name: string(scope), Scope: scope, Window: quota.Month, Max: quota.Max{
			quota.Tokens: a.tokens * n, quota.Calls: a.calls * n, quota.Turns: a.turns * n,
		}}
	}
	at := func(scope quota.Scope, n int64) quota.Limit {
		return quota.Limit{Name: string(scope) + "-at", Scope: scope, Max: quota.Max{quota.ConcurrentTurns: a.atOnce * n}}
	}
	return limitsOf(
		month(quota.User, 1), at(quota.User, 1), month(quota.Tenant, 2), at(quota.Tenant, 2), month(quota.Global, 3), at(quota.Global, 3),
	)
}

// bound is one of the counters of a subject, and its limit.
type bound struct {
	counter *book
	max     int64
}

// bounds are all bounds of a unit on somebody.
func (a amounts) bounds(b books, tenant, user string, u quota.Unit) []bound {
	n := map[quota.Unit]int64{quota.Tokens: a.tokens, quota.Calls: a.calls, quota.Turns: a.turns, quota.ConcurrentTurns: a.atOnce}[u]
	return []bound{
		{&b.of(quota.User, tenant+"/"+user)[u], n}, {&b.of(quota.Tenant, tenant)[u], 2 * n}, {&b.of(quota.Global, "")[u], 3 * n},
	}
}

// fits reports whether so much more fits everywhere.
func fits(all []bound, n int64) bool {
	for _, b := range all {
		if b.counter.spent+b.counter.held+n > b.max {
			return false
		}
	}
	return true
}

// TestWhatIsSpentAndReservedIsTheSumOfItsCalls plays turns and calls of several users
// of two tenants in any order, with limits that change, against a bookkeeper.
func TestWhatIsSpentAndReservedIsTheSumOfItsCalls(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		drawAmounts := func() amounts {
			return amounts{
				tokens: rapid.Int64Range(0, 300).Draw(r, "tokens"), calls: rapid.Int64Range(0, 6).Draw(r, "calls"),
				turns: rapid.Int64Range(0, 4).Draw(r, "turns"), atOnce: rapid.Int64Range(0, 3).Draw(r, "at once"),
			}
		}
		limits := drawAmounts()
		w := newWorld(t, limits.limits())
		b := books{}
		ctx := context.Background()

		type place struct{ tenant, user string }
		type running struct {
			place
			turn *quota.Turn
		}
		type call struct {
			place
			reservation budget.Reservation
			held        int64
		}
		var turns []running
		var calls []call
		var subjects []place
		for _, tenant := range []string{"a", "b"} {
			for _, user := range []string{"1", "2"} {
				subjects = append(subjects, place{tenant, user})
			}
		}
		subject := func(p place) quota.Subject { return quota.Subject{Tenant: p.tenant, User: p.user} }
		pick := func() place { return rapid.SampledFrom(subjects).Draw(r, "subject") }
		every := func(p place, u quota.Unit, do func(*book)) {
			for _, bd := range limits.bounds(b, p.tenant, p.user, u) {
				do(bd.counter)
			}
		}
		takeOut := func(n int) int { return rapid.IntRange(0, n-1).Draw(r, "which") }

		r.Repeat(map[string]func(*rapid.T){
			"admit": func(r *rapid.T) {
				p := pick()
				turn, err := w.Admit(quota.WithSubject(ctx, subject(p)))
				if err != nil {
					r.Fatal(err)
				}
				want := fits(limits.bounds(b, p.tenant, p.user, quota.Turns), 1) &&
					fits(limits.bounds(b, p.tenant, p.user, quota.ConcurrentTurns), 1) &&
					fits(limits.bounds(b, p.tenant, p.user, quota.Tokens), 1) &&
					fits(limits.bounds(b, p.tenant, p.user, quota.Calls), 1)
				if (turn.Denied() == nil) != want {
					r.Fatalf("admitted: %v, want %v", turn.Denied(), want)
				}
				if want {
					every(p, quota.Turns, func(c *book) { c.held++ })
					everybody := &b.of(quota.Global, "")[quota.Turns] // it is asked last, and nothing can be denied after it
					everybody.held--
					everybody.spent++
					every(p, quota.ConcurrentTurns, func(c *book) { c.held++ })
					turns = append(turns, running{p, turn})
				}
			},
			"end": func(r *rapid.T) {
				if len(turns) == 0 {
					return
				}
				i := takeOut(len(turns))
				turns[i].turn.End()
				for _, bd := range limits.bounds(b, turns[i].tenant, turns[i].user, quota.Turns)[:2] {
					bd.counter.held--
					bd.counter.spent++
				}
				every(turns[i].place, quota.ConcurrentTurns, func(c *book) { c.held-- })
				turns = append(turns[:i], turns[i+1:]...)
			},
			"reserve": func(r *rapid.T) {
				p, n := pick(), rapid.Int64Range(0, 150).Draw(r, "tokens")
				res, err := w.try(quota.WithSubject(ctx, subject(p)), usage.Usage{Input: n})
				n = max(n, 1) // of which nothing is known
				want := fits(limits.bounds(b, p.tenant, p.user, quota.Tokens), n) && fits(limits.bounds(b, p.tenant, p.user, quota.Calls), 1)
				if (err == nil) != want || err != nil && !errors.Is(err, budget.ErrDenied) {
					r.Fatalf("reserved %d: %v, want %v", n, err, want)
				}
				if want {
					every(p, quota.Tokens, func(c *book) { c.held += n })
					every(p, quota.Calls, func(c *book) { c.held++ })
					calls = append(calls, call{p, res, n})
				}
			},
			"finish": func(r *rapid.T) {
				if len(calls) == 0 {
					return
				}
				i := takeOut(len(calls))
				c := calls[i]
				calls = append(calls[:i], calls[i+1:]...)
				actual := rapid.Int64Range(-1, 400).Draw(r, "actual")
				var err error
				if actual < 0 {
					err = c.reservation.Release(ctx)
				} else {
					err = c.reservation.Settle(ctx, usage.Usage{Input: actual})
				}
				if actual == 0 { // of which nothing is known
					actual = c.held
				}
				err = errors.Join(err, c.reservation.Settle(ctx, usage.Usage{Input: 777}), c.reservation.Release(ctx))
				if err != nil {
					r.Fatal(err)
				}
				every(c.place, quota.Tokens, func(k *book) { k.held -= c.held; k.spent += max(actual, 0) })
				every(c.place, quota.Calls, func(k *book) {
					k.held--
					if actual >= 0 {
						k.spent++
					}
				})
			},
			"limits change": func(r *rapid.T) {
				limits = drawAmounts()
				set, err := quota.NewLimits(limits.limits())
				if err == nil {
					err = w.Reload(set)
				}
				if err != nil {
					r.Fatal(err)
				}
			},
			"top up": func(r *rapid.T) {
				p, n := pick(), rapid.Int64Range(0, 200).Draw(r, "amount")
				if _, err := w.TopUp(ctx, subject(p), quota.Tenant, quota.Tokens, n); err != nil {
					r.Fatal(err)
				}
				c := &b.of(quota.Tenant, p.tenant)[quota.Tokens]
				c.spent = max(c.spent-n, 0)
			},
			"reset": func(r *rapid.T) {
				p := pick()
				if _, err := w.Reset(ctx, subject(p), quota.User); err != nil {
					r.Fatal(err)
				}
				all := b.of(quota.User, p.tenant+"/"+p.user)
				for u := range all {
					all[u].spent = 0
				}
			},
			"": func(r *rapid.T) {
				for _, p := range subjects {
					all, err := w.Status(ctx, subject(p))
					if err != nil {
						r.Fatal(err)
					}
					for _, st := range all {
						id := map[quota.Scope]string{quota.User: p.tenant + "/" + p.user, quota.Tenant: p.tenant}[st.Scope]
						got, want := book{st.Committed, st.Reserved}, b.of(st.Scope, id)[st.Unit]
						if got != want || st.Left != max(st.Max-want.spent-want.held, 0) {
							r.Fatalf("%s of %v: %+v, of which %d are left, want %+v", st.Unit, p, got, st.Left, want)
						}
					}
				}
			},
		})
	})
}
