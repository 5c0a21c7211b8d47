package sqlledger

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate-go/headgate/budget/quota"
)

// ref is a hash that stands for a name of any length and any bytes: as a key of a
// table it is short, and no collation folds it.
type ref [16]byte

// refTo is the hash of names, each of which is told from the next by its length.
func refTo(names ...string) ref {
	var room [512]byte
	buf := room[:0]
	for _, n := range names {
		buf = binary.AppendUvarint(buf, uint64(len(n)))
		buf = append(buf, n...)
	}
	sum := sha256.Sum256(buf)
	return ref(sum[:16])
}

// refToCounter names a counter. per tells rolling counters apart, and is 0 for
// those of calendar windows.
func refToCounter(tree string, c quota.Counter, per int64) ref {
	var numbers [9]byte
	numbers[0] = byte(c.Unit)
	binary.BigEndian.PutUint64(numbers[1:], uint64(per))
	return refTo("counter", tree, c.Key, c.Window, string(numbers[:]))
}

func refToReservation(tree, id string) ref { return refTo("reservation", tree, id) }

func refToExclusive(tree, value string) ref { return refTo("exclusive", tree, value) }

func refToWriter(tree, writer string) ref { return refTo("writer", tree, writer) }

func refToOwner(tree, key string) ref { return refTo("owner", tree, key) }

func (r ref) String() string { return hex.EncodeToString(r[:]) }

// append appends it as databases know it.
func (r ref) append(to []byte) []byte { return hex.AppendEncode(to, r[:]) }

// parseRef reads a ref, with or without the hyphens that Postgres puts in.
func parseRef(text string) (r ref, err error) {
	text = strings.ReplaceAll(text, "-", "")
	if len(text) != hex.EncodedLen(len(r)) {
		return r, fmt.Errorf("a reference has %d digits", len(text))
	}
	_, err = hex.Decode(r[:], []byte(text))
	return r, err
}

// treeOf is the number of a tree, by which it is locked, and never 0. Should two
// trees ever have the same, they wait for each other.
func treeOf(tree string) int64 {
	sum := refTo("tree", tree)
	return max(int64(binary.BigEndian.Uint64(sum[:8])>>1), 1)
}

// Postgres takes neither NUL nor what is no UTF-8 into a text.
const escaped = `\x`

// toText is a name as it is written, and fromText the name again.
func toText(name string) string {
	if utf8.ValidString(name) && strings.IndexByte(name, 0) < 0 && !strings.HasPrefix(name, escaped) {
		return name
	}
	return escaped + hex.EncodeToString([]byte(name))
}

func fromText(text string) string {
	if digits, ok := strings.CutPrefix(text, escaped); ok {
		if name, err := hex.DecodeString(digits); err == nil {
			return string(name)
		}
	}
	return text
}

// Instants are Unix nanoseconds. The least and the largest number are all time.

// nanos are those of an instant, or zero for the zero time.
func nanos(t time.Time, zero int64) int64 {
	switch s := t.Unix(); {
	case t.IsZero():
		return zero
	case s <= math.MinInt64/int64(time.Second):
		return math.MinInt64
	case s >= math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// bounds are the ends of a span.
func bounds(s quota.Span) (start, end int64) {
	return nanos(s.Start, math.MinInt64), nanos(s.End, math.MaxInt64)
}

// spanOf is the span between two instants.
func spanOf(start, end int64) (s quota.Span) {
	if start != math.MinInt64 {
		s.Start = instant(start)
	}
	if end != math.MaxInt64 {
		s.End = instant(end)
	}
	return s
}

func instant(n int64) time.Time { return time.Unix(0, n).UTC() }

// sum is a + b of numbers that are not negative, at most math.MaxInt64.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
