package share

import "math"

// averaged is the time over which recent demand is averaged, in stocks.
const averaged = 2

// recent is what was taken lately, with weights that fall off with time.
type recent struct {
	units, calls float64
	at           int64
}

// take notes what was taken.
func (r *recent) take(l *Lessee, units int64) {
	r.decay(l)
	r.units += float64(units)
	r.calls++
}

// untake notes that something was not taken after all.
func (r *recent) untake(units int64) {
	r.units = max(r.units-float64(units), 0)
	r.calls = max(r.calls-1, 0)
}

func (r *recent) decay(l *Lessee) {
	if dt := l.now - r.at; dt > 0 {
		f := math.Exp(-float64(dt) / float64(averaged*max(l.cfg.Stock.Microseconds(), 1)))
		r.units *= f
		r.calls *= f
		r.at = l.now
	}
}

// stock is what is taken in the time for which a stock lasts. For a call every
// now and then nothing is held.
func (r *recent) stock(l *Lessee) int64 {
	r.decay(l)
	if r.calls < averaged*stockCalls {
		return 0
	}
	return int64(min(r.units/averaged, 1<<60))
}

// stockCalls is how many calls a stock is for at least.
const stockCalls = 2
