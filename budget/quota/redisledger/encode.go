package redisledger

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

const (
	// plain is below what amounts are plain numbers in a script, with room for a sum
	// of two.
	plain = 1 << 52
	// most is the end of plain numbers, which stands for no limit.
	most = 1 << 53
	// never is a time in microseconds that does not come, and its opposite has always
	// been.
	never = 1 << 62
	// longest bounds durations, in microseconds: 100 years.
	longest = 100 * 365 * 24 * 3600 * 1e6
)

// Flags of an entry besides its kind, as in lua/store.lua.
const (
	kinds     = 3
	rolling   = 4
	soft      = 8
	observed  = 16
	unlimited = 32 // a rolling one
	crosses   = 64 // what it takes is counted at once, against thresholds
)

var order = binary.LittleEndian

// micros are the microseconds of a duration, rounded down.
func micros(d time.Duration) int64 { return min(int64(d/time.Microsecond), longest) }

// microsUp are the microseconds of a duration, rounded up.
func microsUp(d time.Duration) int64 {
	n := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		n++
	}
	return min(n, longest)
}

// instant is a time in microseconds since 1970, rounded up, and zero stands for the
// zero time: an instant of the store's clock lies in a span whose ends are rounded so
// if and only if it lies in the span.
func instant(t time.Time, zero int64) int64 {
	const end = most / 1_000_000
	switch s := t.Unix(); {
	case t.IsZero():
		return zero
	case s >= end:
		return never
	case s <= -end:
		return -never
	}
	us := t.UnixMicro()
	if t.Nanosecond()%1e3 != 0 {
		us++
	}
	return us
}

// appendName writes the name of an entry's counter among those of its key. It begins
// with c or b, for a calendar counter or a bucket, and a digit for the unit. Buckets of
// another period are others.
func appendName(b []byte, e *quota.Entry) []byte {
	if !e.Rolling {
		b = append(b, 'c', '0'+byte(e.Unit))
		return append(b, e.Window...)
	}
	b = append(b, 'b', '0'+byte(e.Unit))
	b = strconv.AppendInt(b, int64(e.Per), 36)
	b = append(b, '|')
	return append(b, e.Window...)
}

// counterOf is the opposite of appendName, for the counters of a key.
func counterOf(key, name string) (c quota.Counter) {
	c.Key = key
	if len(name) < 2 {
		return c
	}
	c.Unit = quota.Unit(name[1] - '0')
	c.Window = name[2:]
	if name[0] == 'b' {
		_, c.Window, _ = strings.Cut(c.Window, "|")
	}
	return c
}

// appendSlot writes the eight bytes that stand for a name in the store, a hash of 55
// bits (FNV-1a, and the finalizer of MurmurHash3). The highest bit of each is set, and
// they are not all 255; see lua/store.lua. Two of 256 counters of a key are the same
// once in 10¹² times.
func appendSlot(b []byte, name []byte) []byte {
	h := uint64(14695981039346656037)
	for _, c := range name {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	for i := range 8 {
		b = append(b, 0x80|byte(h>>(7*i)))
	}
	b[len(b)-1] &^= 0x40
	return b
}

// An encoder writes what a script is asked. Its buffers are used again once there is an
// answer.
type encoder struct {
	exact bool   // amounts are not plain numbers
	large bool   // they must not be
	whole bool   // for a script that can do everything
	said  blob   // what is kept of entries
	names blob   // of their counters; they are kept, too
	asked blob   // what is only asked now
	rest  blob   // what is kept of a reservation
	life  blob   // of its key
	text  []byte // of all keys
	keys  []string
	args  []any // of EVALSHA; the first two are for the sender
}

// A blob is an argument of a script that needs no box.
type blob []byte

// MarshalBinary implements [encoding.BinaryMarshaler], by which a client sends it.
func (b *blob) MarshalBinary() ([]byte, error) { return *b, nil }

var encoders = sync.Pool{New: func() any { return new(encoder) }}

// newEncoder returns an empty encoder.
func newEncoder(way int) *encoder {
	w := encoders.Get().(*encoder)
	w.exact, w.whole, w.large = way == exact, way != lean, false
	w.said, w.names, w.asked, w.rest, w.life, w.text = w.said[:0], w.names[:0], w.asked[:0], w.rest[:0], w.life[:0], w.text[:0]
	w.keys, w.args = w.keys[:0], append(w.args[:0], nil, nil, 0)
	return w
}

// free has an encoder used again, of which nothing is being sent any more.
func (w *encoder) free() {
	clear(w.keys)
	clear(w.args)
	encoders.Put(w)
}

// key is an argument that is a key.
func (w *encoder) key(name string) {
	w.args = append(w.args, name)
	w.args[2] = len(w.args) - 3
}

// ask adds arguments that are no keys.
func (w *encoder) ask(args ...any) { w.args = append(w.args, args...) }

func (w *encoder) amount(b []byte, n int64) []byte {
	if n >= plain {
		w.large = true
	}
	return order.AppendUint64(b, uint64(n))
}

// limit is a limit or a ceiling as an amount; below 0 is none.
func (w *encoder) limit(b []byte, n int64) []byte {
	switch {
	case n >= 0:
		return w.amount(b, n)
	case w.exact:
		return order.AppendUint64(b, math.MaxInt64)
	}
	return order.AppendUint64(b, most)
}

// rate is the limit of a rolling entry per so many microseconds.
func rate(e *quota.Entry) (units, per int64) {
	limit, ns := max(e.Limit, 0), int64(e.Per)
	switch {
	case ns%1000 == 0:
		return limit, ns / 1000
	case limit <= math.MaxInt64/1000: // in parts of a thousandth of it
		return 1000 * limit, ns
	}
	return limit, ns/1000 + 1
}

// thresholdAt is the smallest amount that reaches a part of a limit; ok is false if
// there is none.
func thresholdAt(limit int64, percent int) (n int64, ok bool) {
	hi, lo := bits.Mul64(uint64(limit), uint64(percent))
	lo, carry := bits.Add64(lo, 99, 0)
	if hi += carry; hi >= 100 {
		return 0, false
	}
	q, _ := bits.Div64(hi, lo, 100)
	return int64(q), q <= math.MaxInt64
}

// place is the number of an account, from 1.
func (w *encoder) place(key string) int {
	if i := slices.Index(w.keys, key); i >= 0 {
		return i + 1
	}
	w.keys = append(w.keys, key)
	return len(w.keys)
}

func flagsOf(e *quota.Entry) byte {
	flags := byte(e.Kind)
	if e.Rolling {
		flags |= rolling
		if e.Limit < 0 {
			flags |= unlimited
		}
	}
	if e.Soft {
		flags |= soft
	}
	if e.Observe {
		flags |= observed
	}
	return flags
}

// entry writes what is kept of an entry, and returns the name of its counter.
func (w *encoder) entry(e *quota.Entry) (name []byte) {
	thresholds := countThresholds(e)
	s := order.AppendUint16(w.said, uint16(w.place(e.Key)))
	s = append(s, flagsOf(e), byte(e.Unit))
	s = w.amount(s, e.Amount)
	s = append(s, byte(thresholds))
	if e.Rolling {
		units, per := rate(e)
		s = appendLimit(s, e)
		s = w.amount(s, e.Burst)
		s = w.amount(s, units)
		s = w.amount(s, per)
	}
	w.said = appendThresholds(s, e, thresholds)
	begin := len(w.names)
	w.names = appendName(append(w.names, 0, 0), e)
	name = w.names[begin+2:]
	order.PutUint16(w.names[begin:], uint16(len(name)))
	return name
}

// appendLimit writes a limit as it is told again.
func appendLimit(b []byte, e *quota.Entry) []byte {
	return order.AppendUint64(b, uint64(max(e.Limit, -1)))
}

// countThresholds is how many thresholds an entry can cross.
func countThresholds(e *quota.Entry) (n int) {
	if e.Rolling || e.Limit <= 0 {
		return 0
	}
	for n < min(len(e.Thresholds), math.MaxUint8) {
		if _, ok := thresholdAt(e.Limit, e.Thresholds[n]); !ok {
			break // nor will those that are higher
		}
		n++
	}
	return n
}

func appendThresholds(s []byte, e *quota.Entry, n int) []byte {
	for _, percent := range e.Thresholds[:n] {
		at, _ := thresholdAt(e.Limit, percent)
		s = order.AppendUint16(s, uint16(percent))
		s = order.AppendUint64(s, uint64(at))
	}
	return s
}

// ends are the ends of a window in microseconds. Nothing lies in one that is not there.
func ends(all *[3]quota.Span, i int) (from, to int64) {
	s := &all[i]
	if i != 1 && *s == (quota.Span{}) {
		return never, -never
	}
	return instant(s.Start, -never), instant(s.End, never)
}

// span writes the windows of a calendar entry.
func (w *encoder) span(all *[3]quota.Span) {
	for i := range all {
		from, to := ends(all, i)
		w.asked = order.AppendUint64(w.asked, uint64(from))
		w.asked = order.AppendUint64(w.asked, uint64(to))
	}
}

// appendText writes a text with its length.
func appendText(b []byte, s string) []byte {
	b = order.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

// maxText is the length of a name that goes into a key.
const maxText = 4096

// checkTexts returns an error that names the field that is too long, if one is.
func checkTexts(tree, field string, entries []quota.Entry) error {
	if len(tree) > maxText {
		return fmt.Errorf("redisledger: Tree has %d bytes, at most %d are allowed", len(tree), maxText)
	}
	for i := range entries {
		if n := max(len(entries[i].Key), len(entries[i].Window)); n > maxText {
			return fmt.Errorf("redisledger: %s[%d].Counter has a name of %d bytes, at most %d are allowed", field, i, n, maxText)
		}
	}
	return nil
}

// keys makes the keys of a tree. It is what they begin with.
type keys string

func (k keys) index() string                 { return string(k) + "x" }
func (k keys) reservation(id string) string  { return string(k) + "r:" + id }
func (k keys) exclusive(value string) string { return string(k) + "e:" + value }
func (k keys) account(key string) string     { return string(k) + "a:" + key }
func (k keys) past(key string) string        { return string(k) + "h:" + key }
func (k keys) writer(name string) string     { return string(k) + "w:" + name }
func (k keys) change(number string) string   { return string(k) + "o:" + number }
