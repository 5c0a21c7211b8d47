package sqlledger

import (
	"errors"
	"strconv"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// The body of a reservation's row is what it holds and its results, as numbers with a
// slash between them: the first is the version of this form. It is read and written with each
// operation, and looked at by nobody else.
const bodyVersion = 1

type bodyWriter struct{ buf []byte }

func (w *bodyWriter) int(n int64) {
	w.buf = strconv.AppendInt(w.buf, n, 10)
	w.buf = append(w.buf, '/')
}

func (w *bodyWriter) ints(all []int) {
	w.int(int64(len(all)))
	for _, n := range all {
		w.int(int64(n))
	}
}

func (w *bodyWriter) crossings(all []crossing) {
	w.int(int64(len(all)))
	for _, x := range all {
		w.int(int64(x.held))
		w.int(int64(x.percent))
		w.int(x.committed)
	}
}

func (w *bodyWriter) standing(st standing) {
	w.int(st.committed)
	w.int(st.reserved)
	w.int(st.full)
}

// flags are bits, the first one the lowest.
func (w *bodyWriter) flags(all ...bool) {
	n := int64(0)
	for i, is := range all {
		if is {
			n |= 1 << i
		}
	}
	w.int(n)
}

// body is that of r. All counters have ids.
func (r *record) body() string {
	w := bodyWriter{make([]byte, 0, 64+128*len(r.held))}
	w.int(bodyVersion)
	w.int(int64(r.entries))
	w.int(int64(len(r.held)))
	for i := range r.held {
		h := &r.held[i]
		id := int64(0) // what was erased is not named any more
		if h.counter != nil {
			id = h.counter.id
		}
		w.int(id)
		w.int(int64(h.kind))
		w.int(int64(h.unit))
		w.flags(h.rolling, h.passed)
		w.ints(h.thresholds)
		for _, n := range [...]int64{h.limit, h.amount, h.used, h.kept, h.resets, h.start, h.end, h.burst, h.mark} {
			w.int(n)
		}
		w.standing(h.first)
		w.standing(h.last)
	}
	w.int(r.given.now)
	w.int(int64(r.given.wait))
	w.ints(r.given.over)
	w.crossings(r.given.crossed)
	w.flags(r.settled.over, r.settled.late)
	w.crossings(r.settled.crossed)
	return string(w.buf)
}

var errBody = errors.New("it is not as it is written")

// bodyReader reads numbers, and remembers whether there was one that cannot be.
type bodyReader struct {
	text  string
	wrong bool
}

func (r *bodyReader) int() (n int64) {
	i, minus := 0, false
	if i < len(r.text) && r.text[i] == '-' {
		i, minus = 1, true
	}
	begin, m := i, uint64(0)
	for ; i < len(r.text) && r.text[i] != '/'; i++ {
		d := r.text[i] - '0'
		if d > 9 || i-begin > 18 {
			r.wrong = true
			return 0
		}
		m = 10*m + uint64(d)
	}
	most := uint64(1)<<63 - 1
	if minus {
		most++
	}
	if i == begin || i == len(r.text) || m > most {
		r.wrong = true
		return 0
	}
	r.text = r.text[i+1:]
	if minus {
		return -int64(m)
	}
	return int64(m)
}

// upTo reads a number from 0 to most.
func (r *bodyReader) upTo(most int) int {
	n := r.int()
	if n < 0 || n > int64(most) {
		r.wrong = true
		return 0
	}
	return int(n)
}

func (r *bodyReader) ints() (all []int) {
	for range r.upTo(quota.MaxPercent) {
		if all = append(all, int(r.int())); r.wrong {
			return nil
		}
	}
	return all
}

func (r *bodyReader) crossings(held int) (all []crossing) {
	for range r.upTo(held) {
		if all = append(all, crossing{r.upTo(held - 1), r.upTo(quota.MaxPercent), r.int()}); r.wrong {
			return nil
		}
	}
	return all
}

func (r *bodyReader) standing() standing { return standing{r.int(), r.int(), r.int()} }

func (r *bodyReader) flags(to ...*bool) {
	n := r.upTo(1<<len(to) - 1)
	for i := range to {
		*to[i] = n&(1<<i) != 0
	}
}

// maxHeld is how much a reservation holds at most: its entries, and what settlements
// may have brought with them.
const maxHeld = 1 << 16

// readBody reads what body wrote.
func (rec *record) readBody(text string) error {
	r := bodyReader{text: text}
	if r.int() != bodyVersion {
		return errBody
	}
	rec.entries = r.upTo(quota.MaxEntries)
	n := r.upTo(maxHeld)
	if r.wrong || n < rec.entries {
		return errBody
	}
	rec.held = make([]held, 0, min(n, 2*quota.MaxEntries))
	for range n {
		h := held{id: r.int(), kind: quota.Kind(r.upTo(int(quota.Check))), unit: quota.Unit(r.upTo(quota.Units - 1))}
		r.flags(&h.rolling, &h.passed)
		h.thresholds = r.ints()
		for _, to := range [...]*int64{&h.limit, &h.amount, &h.used, &h.kept, &h.resets, &h.start, &h.end, &h.burst, &h.mark} {
			*to = r.int()
		}
		h.first, h.last = r.standing(), r.standing()
		if rec.held = append(rec.held, h); r.wrong {
			return errBody
		}
	}
	rec.given.now, rec.given.wait = r.int(), time.Duration(r.int())
	rec.given.over = r.ints()
	for _, i := range rec.given.over {
		r.wrong = r.wrong || i < 0 || i >= rec.entries
	}
	rec.given.crossed = r.crossings(n)
	r.flags(&rec.settled.over, &rec.settled.late)
	rec.settled.crossed = r.crossings(n)
	if r.wrong || r.text != "" {
		return errBody
	}
	return nil
}
