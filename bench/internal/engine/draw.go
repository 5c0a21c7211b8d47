package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"time"
)

// Digest identifies a call by its content, so that everything that is drawn
// for the call depends on what it says and not on when it came.
type Digest [sha256.Size]byte

// DigestOf returns the digest of the parts. The borders between them count:
// ("ab", "c") and ("a", "bc") differ.
func DigestOf(parts ...[]byte) Digest {
	h := sha256.New()
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:]) // a hash never fails to write
		h.Write(p)
	}
	var d Digest
	h.Sum(d[:0])
	return d
}

// Draw is a source of random numbers for one call. Each number has a name; the
// same seed, call and name give the same number on every machine and in every
// run, and asking for one number does not move another.
type Draw struct{ key Digest }

// newDraw makes the source for the ordinal-th call (0 is the first) with this
// digest. The purpose keeps unlike uses of one call apart.
func newDraw(seed uint64, d Digest, purpose string, ordinal uint32) Draw {
	var n [12]byte
	binary.BigEndian.PutUint64(n[:8], seed)
	binary.BigEndian.PutUint32(n[8:], ordinal)
	return Draw{DigestOf(n[:], d[:], []byte(purpose))}
}

// bits are 52 uniform bits: as many as leave room for the half that Uniform
// adds.
func (d Draw) bits(name string) uint64 {
	sum := DigestOf(d.key[:], []byte(name))
	return binary.BigEndian.Uint64(sum[:8]) >> 12
}

// Bytes returns 32 uniform bytes.
func (d Draw) Bytes(name string) [32]byte { return DigestOf(d.key[:], []byte(name)) }

// Uniform returns a number above 0 and below 1.
func (d Draw) Uniform(name string) float64 { return (float64(d.bits(name)) + 0.5) * 0x1p-52 }

// IntN returns a number from 0 to n-1, or 0 where n is below 1.
func (d Draw) IntN(name string, n int) int {
	if n < 1 {
		return 0
	}
	return int(d.Uniform(name) * float64(n))
}

// LogNormal returns a log-normal number: its logarithm is normal with the
// logarithm of median as its mean and sigma as its standard deviation. With
// sigma = 0 it is median itself.
func (d Draw) LogNormal(name string, median, sigma float64) float64 {
	if sigma == 0 {
		return median
	}
	// The normal number is the quantile of a uniform one, by the inverse of
	// the error function: Φ⁻¹(u) = √2·erf⁻¹(2u−1).
	normal := math.Sqrt2 * math.Erfinv(2*d.Uniform(name)-1)
	return median * math.Exp(sigma*normal)
}

// duration is LogNormal for a duration, at most the longest that there is.
func (d Draw) duration(name string, median time.Duration, sigma float64) time.Duration {
	if sigma == 0 {
		return median
	}
	return saturate(d.LogNormal(name, float64(median), sigma))
}

// saturate converts nanoseconds to a duration. The conversion of a float
// beyond the range of int64 is not defined in Go.
func saturate(ns float64) time.Duration {
	switch {
	case ns >= math.MaxInt64:
		return math.MaxInt64
	case ns <= math.MinInt64:
		return math.MinInt64
	}
	return time.Duration(ns)
}
