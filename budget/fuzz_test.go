package budget

import (
	"encoding/binary"
	"math"
	"math/big"
	"testing"
	"time"
)

// operations reads a byte string as operations with hostile numbers. It never
// settles a hold twice; that is the caller's part of the contract.
type operations struct {
	bytes []byte
	now   time.Time
	holds []Hold
}

func (o *operations) byte() byte {
	if len(o.bytes) == 0 {
		return 0
	}
	b := o.bytes[0]
	o.bytes = o.bytes[1:]
	return b
}

// number is any int64, with a taste for small ones, powers of two and the ends.
func (o *operations) number() int64 {
	switch b := o.byte(); {
	case b < 128:
		return int64(b)
	case b < 191:
		return int64(1) << (b - 128)
	case b < 200:
		return math.MaxInt64 - int64(b-191)
	case b < 210:
		return math.MinInt64 + int64(b-200)
	case b < 220:
		return -int64(b - 209)
	default:
		var raw [8]byte
		o.bytes = o.bytes[copy(raw[:], o.bytes):]
		return int64(binary.LittleEndian.Uint64(raw[:]))
	}
}

// step does one operation; false at the end.
func (o *operations) step(l Limiter) bool {
	if len(o.bytes) == 0 {
		return false
	}
	op := o.byte()
	if op&0x40 != 0 {
		o.now = o.now.Add(time.Duration(o.number()))
	}
	pick := func() (Hold, int) {
		if len(o.holds) == 0 {
			return Hold{}, -1
		}
		i := int(o.byte()) % len(o.holds)
		return o.holds[i], i
	}
	switch op & 7 {
	case 0, 1:
		o.holds = append(o.holds, l.Take(o.now, o.number()))
	case 2:
		h, i := pick()
		switch {
		case op&0xa0 == 0xa0:
			if b, ok := l.(*TokenBudget); ok {
				b.Emptied(o.now, h, o.number())
			}
		case op&0xb0 == 0x90:
			l.(interface {
				Lower(time.Time, int64, time.Duration)
			}).Lower(o.now, o.number(), time.Duration(o.number()))
		case i >= 0 && op&0x80 != 0:
			o.holds[i] = l.(interface {
				Revise(time.Time, Hold, int64) Hold
			}).Revise(o.now, h, o.number())
		case i >= 0:
			o.holds[i] = l.Counted(o.now, h)
		}
	case 3, 4:
		h, i := pick()
		if i >= 0 {
			o.holds = append(o.holds[:i], o.holds[i+1:]...)
		}
		l.Settle(o.now, h, o.number())
	case 5:
		l.SetLimit(o.now, o.number())
	case 6:
		l.Scale(o.now, math.Float64frombits(uint64(o.number())))
	default:
		o.now = o.now.Add(time.Duration(o.number())) // in both directions
	}
	return true
}

func (o *operations) held() (sum *big.Int) {
	sum = new(big.Int)
	for _, h := range o.holds {
		sum.Add(sum, big.NewInt(h.cost))
	}
	return sum
}

// answers checks what holds for every limiter in every state.
func answers(t *testing.T, l Limiter, now time.Time, cost int64) {
	t.Helper()
	level := l.Level(now)
	ok, at := l.Fits(now, cost)
	earliest, possible := l.Earliest(now, cost)
	switch {
	case l.Limit() < 0 || l.Max() < 0:
		t.Fatalf("Limit %d, Max %d", l.Limit(), l.Max())
	case level < 0 && cost > 0 && ok:
		t.Fatalf("%d fits at a level of %d", cost, level)
	case cost > 0 && cost <= level && !ok && l.Limit() > 0:
		t.Fatalf("%d does not fit at a level of %d", cost, level)
	case cost <= 0 && !ok:
		t.Fatalf("nothing does not fit")
	case ok && !at.IsZero():
		t.Fatalf("it fits now, and at %v", at)
	case !ok && !at.IsZero() && !at.After(now):
		t.Fatalf("it will fit at %v, not after now (%v)", at, now)
	case possible != (cost <= l.Max()) && cost > 0:
		t.Fatalf("%d of at most %d: possible is %v", cost, l.Max(), possible)
	case possible && earliest.Before(now):
		t.Fatalf("earliest is %v, before now (%v)", earliest, now)
	case ok && !earliest.Equal(now):
		t.Fatalf("it fits now, earliest is %v", earliest)
	case !ok && !at.IsZero() && possible && earliest.After(at):
		t.Fatalf("it will fit at %v, earliest is %v", at, earliest)
	}
}

var seeds = [][]byte{
	{},
	{0, 60, 3, 0, 30, 7, 180, 0, 255},
	{0x40, 191, 191, 0, 191, 0, 191, 0, 191, 3, 0, 0, 3, 0, 191, 3, 1, 200},
	{0, 50, 0, 50, 2, 0, 7, 163, 2, 1, 5, 10, 6, 191, 4, 0, 100, 5, 191, 4, 0, 0},
	{1, 100, 7, 160, 1, 20, 7, 200, 1, 5, 7, 191, 5, 0, 3, 0, 0, 5, 60, 3, 0, 1, 3, 0, 191},
	{0, 1, 0, 2, 0, 3, 0x43, 165, 1, 0, 0x43, 161, 0, 3, 0, 4, 0x47, 150, 150, 3, 1, 0},
}

func FuzzTokenBudget(f *testing.F) {
	for _, s := range seeds {
		f.Add(int64(60), int64(0), int64(time.Minute), s)
		f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), s)
		f.Add(int64(30_000), int64(7), int64(1), s)
	}
	f.Fuzz(func(t *testing.T, limit, burst, window int64, script []byte) {
		b, err := NewTokenBudget(TokenBudgetConfig{Limit: limit, Burst: burst, Window: time.Duration(window)})
		if err != nil {
			if limit >= 0 && burst >= 0 && window >= 0 {
				t.Fatal(err)
			}
			return
		}
		o := &operations{bytes: script, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
		for o.step(b) {
			level := b.Level(o.now)
			switch {
			case level > b.capacity || b.capacity > b.burst || b.rate > b.limit:
				t.Fatalf("level %d, capacity %d of %d, rate %d of %d", level, b.capacity, b.burst, b.rate, b.limit)
			case b.part < 0 || b.part >= b.window:
				t.Fatalf("part is %d of %d", b.part, b.window)
			case b.open < 0 || o.held().Cmp(big.NewInt(b.open)) != 0:
				t.Fatalf("%d are on the books as open, %v are held", b.open, o.held())
			}
			consistent(t, b, len(o.holds)+len(b.raised))
			answers(t, b, o.now, o.number())
		}
		// Whatever happened, what is left over is not more than a full bucket.
		for _, h := range o.holds {
			b.Settle(o.now, h, 0)
		}
		if level := b.Level(o.now); b.open != 0 || len(b.raised) > 0 || level > b.capacity {
			t.Fatalf("%d open when all is settled, level %d of %d", b.open, level, b.capacity)
		}
		consistent(t, b, 0)
	})
}

// consistent checks that the charges are exactly what the bucket lacks.
func consistent(t *testing.T, b *TokenBudget, holds int) {
	t.Helper()
	var sum, window big.Int
	window.SetInt64(b.window)
	last, own := int64(0), 0
	list := b.missing.list[b.missing.head:]
	for i, c := range list {
		x := new(big.Int).SetUint64(c.hi)
		sum.Add(&sum, x.Lsh(x, 64).Add(x, new(big.Int).SetUint64(c.lo)))
		if c.paid() || c.mark <= last || c.holds < 0 || c.holds == 0 && i < len(list)-1 {
			t.Fatalf("charge %d of %d after mark %d: %+v", i, len(list), last, c)
		}
		last = c.mark
		own += c.holds
	}
	want := new(big.Int).Sub(big.NewInt(b.capacity), big.NewInt(b.level))
	want.Mul(want, &window).Sub(want, big.NewInt(b.part))
	if sum.Cmp(want) != 0 {
		t.Fatalf("charges of %v, but %v are missing", &sum, want)
	}
	if own > holds {
		t.Fatalf("%d charges with holds, at most %d are possible", own, holds)
	}
}

func FuzzWindowBudget(f *testing.F) {
	for _, s := range seeds {
		f.Add(int64(60), int64(time.Minute), int64(time.Second), s)
		f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(0), s)
		f.Add(int64(1000), int64(7), int64(2), s)
	}
	f.Fuzz(func(t *testing.T, limit, window, cell int64, script []byte) {
		if cell > 0 && window/cell > 1000 {
			t.Skip("large rings only take longer")
		}
		w, err := NewWindowBudget(WindowBudgetConfig{Limit: limit, Window: time.Duration(window), Cell: time.Duration(cell)})
		if err != nil {
			if limit >= 0 && window > 0 && cell >= 0 && cell <= window {
				t.Fatal(err)
			}
			return
		}
		o := &operations{bytes: script, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
		for o.step(w) {
			w.Level(o.now)
			balanced(t, w, o)
			answers(t, w, o.now, o.number())
		}
		for _, h := range o.holds {
			w.Settle(o.now, h, 0)
		}
		o.holds = nil
		balanced(t, w, o)
		// Three pauses of 292 years empty every ring.
		for range 3 {
			o.now = o.now.AddDate(292, 0, 0)
			w.Level(o.now)
		}
		if w.used() != 0 || w.Level(o.now) != w.inUse {
			t.Fatalf("%d are still on the books", w.used())
		}
	})
}

// balanced checks that the sums of a window are the sums of its cells and
// holds, and nothing is negative.
func balanced(t *testing.T, w *WindowBudget, o *operations) {
	t.Helper()
	var counted int64
	open := new(big.Int)
	for i, c := range w.cells {
		if c.used < 0 || c.open < 0 || c.open > c.used {
			t.Fatalf("cell %d: %+v", i, c)
		}
		counted += c.used
		open.Add(open, big.NewInt(c.open))
	}
	outside, inside := new(big.Int), new(big.Int)
	for _, h := range o.holds {
		switch {
		case h.mark == 0:
			outside.Add(outside, big.NewInt(h.cost))
		case w.cur-(h.mark-1) < int64(len(w.cells)):
			inside.Add(inside, big.NewInt(h.cost))
		}
	}
	switch {
	case counted != w.counted || w.counted < 0 || w.outside < 0 || w.used() < 0:
		t.Fatalf("counted %d, in the cells %d, outside %d", w.counted, counted, w.outside)
	case outside.Cmp(big.NewInt(w.outside)) != 0 || inside.Cmp(open) != 0:
		t.Fatalf("outside %d, held there %v; open in the ring %v, held there %v", w.outside, outside, open, inside)
	case w.inUse > w.limit || w.inUse < 0 || w.into >= uint64(w.cell) || w.slot != int(w.cur%int64(len(w.cells))):
		t.Fatalf("limit %d of %d, cell %d at %d, %d into %d", w.inUse, w.limit, w.cur, w.slot, w.into, w.cell)
	}
}
