package usage

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// ErrOverflow is the error of a price, a charge or a number of credits that
// does not fit into an int64. Nothing wraps around: counts as large as
// [math.MaxInt64] give this error.
var ErrOverflow = errors.New("usage: amount does not fit into an int64")

// Micros is an amount of money in micro-dollars, millionths of a US dollar. It
// is an integer, so sums are exact however many there are: ten charges of
// 100,000 are 1,000,000. An int64 holds about 9.2 million million dollars.
type Micros int64

// ParseMicros reads an amount in dollars, such as "1.25" or "5e-3", exactly and
// never by way of a binary fraction. It must not be negative, must have no more
// than six decimals, and must fit; see [ErrOverflow].
func ParseMicros(dollars string) (Micros, error) {
	n, err := parseDecimal(dollars, 6)
	switch {
	case err == errFine:
		return 0, fmt.Errorf("usage: amount %q has more than six decimals", clip(dollars))
	case err != nil:
		return 0, fmt.Errorf("usage: amount %q: %w", clip(dollars), err)
	}
	return Micros(n), nil
}

// Add is m + n, or [ErrOverflow].
func (m Micros) Add(n Micros) (Micros, error) {
	sum := m + n
	if (n > 0) != (sum > m) && n != 0 {
		return 0, ErrOverflow
	}
	return sum, nil
}

// String gives the amount in dollars with two to six decimals, such as "$1.25",
// "$0.00566" or "-$0.50".
func (m Micros) String() string {
	sign, n := "", uint64(m)
	if m < 0 {
		sign, n = "-", -n // right for the smallest int64, too
	}
	return sign + "$" + decimalString(n, 6, 2)
}

// decimalString writes n, which is in units of 10^-scale, with at least so many
// decimals and no more than needed.
func decimalString(n uint64, scale, atLeast int) string {
	s := strconv.FormatUint(n, 10)
	if len(s) <= scale {
		s = strings.Repeat("0", scale+1-len(s)) + s
	}
	whole, fraction := s[:len(s)-scale], s[len(s)-scale:]
	for len(fraction) > atLeast && fraction[len(fraction)-1] == '0' {
		fraction = fraction[:len(fraction)-1]
	}
	if fraction == "" {
		return whole
	}
	return whole + "." + fraction
}

// What parseDecimal finds wrong with a number.
var (
	errSyntax   = errors.New("not a decimal number")
	errNegative = errors.New("must not be negative")
	errFine     = errors.New("too many decimals")
)

// parseDecimal is s × 10^scale, which must be a whole number that is not
// negative: digits, a point and an exponent as in JSON, and nothing else. It is
// exact, whatever the number of digits.
func parseDecimal(s string, scale int) (int64, error) {
	unsigned, negative := strings.CutPrefix(s, "-")
	mantissa, exponent := unsigned, 0
	if i := strings.IndexAny(unsigned, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(unsigned[i+1:]); err != nil && !errors.Is(err, strconv.ErrRange) {
			return 0, errSyntax
		}
		exponent = min(max(exponent, -1<<20), 1<<20)
		mantissa = unsigned[:i]
	}
	whole, fraction, point := strings.Cut(mantissa, ".")
	if whole == "" || point && fraction == "" || !digits(whole) || !digits(fraction) {
		return 0, errSyntax
	}
	number := strings.TrimLeft(whole+fraction, "0")
	shift := scale + exponent - len(fraction)
	for shift < 0 && strings.HasSuffix(number, "0") {
		number, shift = number[:len(number)-1], shift+1
	}
	switch {
	case number == "":
		return 0, nil // "-0", too, which is how some writers print 0
	case negative:
		return 0, errNegative
	case shift < 0:
		return 0, errFine
	case len(number)+shift > len("9223372036854775807"):
		return 0, ErrOverflow
	}
	n, err := strconv.ParseInt(number+strings.Repeat("0", shift), 10, 64)
	if err != nil {
		return 0, ErrOverflow
	}
	return n, nil
}

// digits reports whether s holds nothing but digits.
func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// clip bounds a text that goes into an error.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// wide is a sum of products that are not negative, in 128 bits.
type wide struct{ hi, lo uint64 }

// addProduct adds a × b, both not negative. It is false if the sum leaves 128
// bits.
func (w *wide) addProduct(a, b int64) bool {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	var carry uint64
	w.lo, carry = bits.Add64(w.lo, lo, 0)
	w.hi, carry = bits.Add64(w.hi, hi, carry)
	return carry == 0
}

// ceilDiv is w ÷ by, rounded up, or [ErrOverflow].
func (w wide) ceilDiv(by uint64) (int64, error) {
	if w.hi >= by {
		return 0, ErrOverflow
	}
	n, rest := bits.Div64(w.hi, w.lo, by)
	if rest > 0 {
		n++
	}
	if n > math.MaxInt64 || rest > 0 && n == 0 { // too large, or so large that n++ came round to 0
		return 0, ErrOverflow
	}
	return int64(n), nil
}
