package quota

import (
	"testing"

	"pgregory.net/rapid"
)

// However holds come and go, the charges are what is missing, and there are no more
// of them than holds, and one.
func TestBucketChargesAreWhatIsMissingAndBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const per, limit = 1000, 7
		b := bucket{name: &name{per: per}}
		var pool chargePool
		type hold struct{ amount, mark int64 }
		var holds []hold
		var now, mark, reserved int64
		amount := rapid.Int64Range(0, 50)
		t.Repeat(map[string]func(*rapid.T){
			"pass": func(t *rapid.T) {
				now += rapid.Int64Range(0, 20*per).Draw(t, "for")
				b.refill(now, limit)
			},
			"hold": func(t *rapid.T) {
				mark++
				h := hold{amount.Draw(t, "amount"), mark}
				b.take(h.amount, h.mark, true, &pool)
				holds = append(holds, h)
				reserved += h.amount
			},
			"count": func(t *rapid.T) {
				mark++
				b.take(amount.Draw(t, "amount"), mark, false, &pool)
			},
			"top up": func(t *rapid.T) {
				if q := (quantity{units: amount.Draw(t, "amount")}); q.less(b.missing) {
					b.pay(q)
				} else {
					b.fill()
				}
			},
			"end": func(t *rapid.T) {
				if len(holds) == 0 {
					t.Skip("no holds")
				}
				i := rapid.IntRange(0, len(holds)-1).Draw(t, "hold")
				h := holds[i]
				holds = append(holds[:i], holds[i+1:]...)
				before := b.missing
				refund := rapid.Int64Range(0, h.amount).Draw(t, "refund")
				b.refund(refund, h.mark)
				if b.missing.less(quantity{}) || before.less(b.missing) || quantity(b.missing.plus(quantity{units: refund}, per)).less(before) {
					t.Fatalf("a refund of %d made %v of %v missing", refund, b.missing, before)
				}
				b.end(h.amount, h.mark, &pool)
				reserved -= h.amount
			},
			"": func(t *rapid.T) {
				if b.reserved != reserved {
					t.Fatalf("%d are reserved, want %d", b.reserved, reserved)
				}
				if b.open == nil {
					if len(holds) > 0 {
						t.Fatal("there are holds and no charges")
					}
					return
				}
				var sum quantity
				held := int64(0)
				for i, c := range b.open.list {
					sum = sum.plus(c.quantity, per)
					held += c.holds
					if c.holds < 0 || c.holds == 0 && i+1 < len(b.open.list) {
						t.Fatalf("charge %d of %+v has no holds", i, b.open.list)
					}
				}
				if sum != b.missing || b.open.holds != len(holds) || held > int64(len(holds)) || len(b.open.list) > len(holds)+1 {
					t.Fatalf("%+v for %d holds, with %v missing", *b.open, len(holds), b.missing)
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
	of := func(parts int64) quantity { return quantity{parts / per, parts % per} }
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64Range(0, 1e7).Draw(t, "a"), rapid.Int64Range(0, 1e7).Draw(t, "b")
		limit := rapid.Int64Range(1, 1e4).Draw(t, "limit")
		if got := of(a).plus(of(b), per); got != of(a+b) {
			t.Errorf("%d + %d = %v", a, b, got)
		}
		if got := of(a+b).minus(of(b), per); got != of(a) {
			t.Errorf("%d − %d = %v", a+b, b, got)
		}
		if got := of(a).less(of(b)); got != (a < b) {
			t.Errorf("%d < %d is %v", a, b, got)
		}
		if got := of(a).ceil(); got*per < a || (got-1)*per >= a {
			t.Errorf("%d of %d parts is %d units, rounded up", a, per, got)
		}
		if d := of(a).time(limit, per); d*limit < a || (d-1)*limit >= a && a > 0 {
			t.Errorf("%d parts at %d take %d", a, limit, d)
		}
	})
}
