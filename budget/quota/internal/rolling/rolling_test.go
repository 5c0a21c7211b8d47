package rolling_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget/quota/internal/rolling"
)

// However holds come and go, the charges are what is missing, and there are no more
// of them than holds, and one.
func TestChargesAreWhatIsMissingAndBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const per, limit = 1000, 7
		var b rolling.Bucket
		var pool rolling.Pool
		type hold struct{ amount, mark int64 }
		var holds []hold
		var now, mark, reserved int64
		amount := rapid.Int64Range(0, 50)
		t.Repeat(map[string]func(*rapid.T){
			"pass": func(t *rapid.T) {
				now += rapid.Int64Range(0, 20*per).Draw(t, "for")
				b.Refill(now, limit, per)
			},
			"hold": func(t *rapid.T) {
				mark++
				h := hold{amount.Draw(t, "amount"), mark}
				b.Take(h.amount, h.mark, true, per, &pool)
				holds = append(holds, h)
				reserved += h.amount
			},
			"count": func(t *rapid.T) {
				mark++
				b.Take(amount.Draw(t, "amount"), mark, false, per, &pool)
			},
			"top up": func(t *rapid.T) { b.Pay(amount.Draw(t, "amount"), per) },
			"merge":  func(t *rapid.T) { b.Merge(rapid.IntRange(1, 4).Draw(t, "most"), per) },
			"end": func(t *rapid.T) {
				if len(holds) == 0 {
					t.Skip("no holds")
				}
				i := rapid.IntRange(0, len(holds)-1).Draw(t, "hold")
				h := holds[i]
				holds = append(holds[:i], holds[i+1:]...)
				before := b.Missing
				refund := rapid.Int64Range(0, h.amount).Draw(t, "refund")
				b.Refund(refund, h.mark, per)
				if b.Missing.Less(rolling.Quantity{}) || before.Less(b.Missing) || b.Missing.Plus(rolling.Quantity{Units: refund}, per).Less(before) {
					t.Fatalf("a refund of %d made %v of %v missing", refund, b.Missing, before)
				}
				b.End(h.amount, h.mark, per, &pool)
				reserved -= h.amount
			},
			"": func(t *rapid.T) {
				if b.Reserved != reserved {
					t.Fatalf("%d are reserved, want %d", b.Reserved, reserved)
				}
				if b.Open == nil {
					if len(holds) > 0 {
						t.Fatal("there are holds and no charges")
					}
					return
				}
				var sum rolling.Quantity
				held := int64(0)
				for i, c := range b.Open.List {
					sum = sum.Plus(c.Quantity, per)
					held += c.Holds
					if c.Holds < 0 || c.Holds == 0 && i+1 < len(b.Open.List) {
						t.Fatalf("charge %d of %+v has no holds", i, b.Open.List)
					}
				}
				if sum != b.Missing || b.Open.Holds != len(holds) || held > int64(len(holds)) || len(b.Open.List) > len(holds)+1 {
					t.Fatalf("%+v for %d holds, with %v missing", *b.Open, len(holds), b.Missing)
				}
			},
		})
	})
}

// A bucket that keeps few charges apart gives back no more than one that keeps all.
func TestMergedChargesNeverGiveBackMore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const per, limit = 1000, 7
		var exact, merged rolling.Bucket
		var pool rolling.Pool
		type hold struct{ amount, mark int64 }
		var holds []hold
		var now, mark int64
		most := rapid.IntRange(1, 4).Draw(t, "most")
		amount := rapid.Int64Range(0, 50)
		both := func(f func(b *rolling.Bucket)) {
			f(&exact)
			f(&merged)
			merged.Merge(most, per)
		}
		t.Repeat(map[string]func(*rapid.T){
			"pass": func(t *rapid.T) {
				now += rapid.Int64Range(0, 5*per).Draw(t, "for")
				both(func(b *rolling.Bucket) { b.Refill(now, limit, per) })
			},
			"hold": func(t *rapid.T) {
				mark++
				h := hold{amount.Draw(t, "amount"), mark}
				holds = append(holds, h)
				both(func(b *rolling.Bucket) { b.Take(h.amount, h.mark, true, per, &pool) })
			},
			"end": func(t *rapid.T) {
				if len(holds) == 0 {
					t.Skip("no holds")
				}
				i := rapid.IntRange(0, len(holds)-1).Draw(t, "hold")
				h := holds[i]
				holds = append(holds[:i], holds[i+1:]...)
				refund := rapid.Int64Range(0, h.amount).Draw(t, "refund")
				both(func(b *rolling.Bucket) {
					b.Refund(refund, h.mark, per)
					b.End(h.amount, h.mark, per, &pool)
				})
			},
			"": func(t *rapid.T) {
				if merged.Missing.Less(exact.Missing) || merged.Reserved != exact.Reserved {
					t.Fatalf("merged: %+v, exact: %+v", merged, exact)
				}
				if merged.Open != nil && len(merged.Open.List) > most {
					t.Fatalf("%d charges, want %d at most", len(merged.Open.List), most)
				}
			},
		})
	})
}

// The numbers are kept as units and parts of one, and wait for nothing longer than
// they must.
func TestQuantityArithmetic(t *testing.T) {
	t.Parallel()
	const per = 1000
	of := func(parts int64) rolling.Quantity { return rolling.Quantity{Units: parts / per, Part: parts % per} }
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64Range(0, 1e7).Draw(t, "a"), rapid.Int64Range(0, 1e7).Draw(t, "b")
		limit := rapid.Int64Range(1, 1e4).Draw(t, "limit")
		if got := of(a).Plus(of(b), per); got != of(a+b) {
			t.Errorf("%d + %d = %v", a, b, got)
		}
		if got := of(a+b).Minus(of(b), per); got != of(a) {
			t.Errorf("%d − %d = %v", a+b, b, got)
		}
		if got := of(a).Less(of(b)); got != (a < b) {
			t.Errorf("%d < %d is %v", a, b, got)
		}
		if got := of(a).Ceil(); got*per < a || (got-1)*per >= a {
			t.Errorf("%d of %d parts is %d units, rounded up", a, per, got)
		}
		if d := of(a).Time(limit, per); d*limit < a || (d-1)*limit >= a && a > 0 {
			t.Errorf("%d parts at %d take %d", a, limit, d)
		}
	})
}
