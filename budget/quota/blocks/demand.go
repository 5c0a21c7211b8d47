package blocks

import (
	"math"
	"time"
)

// demand is how much was asked for lately: the sum of what was, each with a weight
// that falls to 1/e over Ahead. Where the demand is steady that is what Ahead
// needs.
type demand struct {
	at           int64
	units, calls float64
}

func (d *demand) pass(now int64, ahead time.Duration) {
	if passed := now - d.at; passed > 0 {
		f := math.Exp(-float64(passed) / float64(ahead))
		d.units, d.calls, d.at = d.units*f, d.calls*f, now
	}
}

func (d *demand) add(amount, now int64, ahead time.Duration) {
	d.pass(now, ahead)
	d.units += float64(amount)
	d.calls++
}

// manyCalls is from how many calls in Ahead on it is worthwhile to lease more than
// what is asked for. Below, the next one would come when the rest was returned.
const manyCalls = 2

// block is how large a block is at this demand: what is asked for ahead, or where calls
// are rare what one of them asks for.
func (d *demand) block(now int64, ahead time.Duration) int64 {
	if n := d.ahead(now, ahead); n > 0 || d.calls == 0 {
		return n
	}
	return int64(min(math.Ceil(d.units/d.calls), 1<<60))
}

// ahead is what will probably be asked for within Ahead, or 0 if calls are rare.
func (d *demand) ahead(now int64, ahead time.Duration) int64 {
	d.pass(now, ahead)
	if d.calls < manyCalls*0.99 { // two at almost the same time
		return 0
	}
	return int64(min(d.units, 1<<60))
}
