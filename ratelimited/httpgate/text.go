package httpgate

import (
	"unicode/utf8"
	"unsafe"
)

// textMeter estimates the tokens of texts that come in pieces. It gathers a piece
// that is long enough for the rounding not to matter, and keeps no more.
type textMeter struct {
	estimate func(string) int64
	total    int64
	n        int
	buf      [1 << 10]byte
}

// add takes a piece of the text.
func (m *textMeter) add(p []byte) {
	for len(p) > 0 {
		n := copy(m.buf[m.n:], p)
		m.n += n
		p = p[n:]
		if m.n == len(m.buf) {
			m.flush(false)
		}
	}
}

// endText ends a text: what follows is another one.
func (m *textMeter) endText() { m.flush(true) }

// flush estimates what was gathered; unless all is asked for, up to a character
// that may still lack bytes.
func (m *textMeter) flush(all bool) {
	whole := m.n
	if !all {
		for k := 1; k < utf8.UTFMax && k < m.n; k++ {
			if utf8.RuneStart(m.buf[m.n-k]) {
				if !utf8.FullRune(m.buf[m.n-k : m.n]) {
					whole = m.n - k
				}
				break
			}
		}
	}
	if whole > 0 {
		// The estimator looks at the text and keeps nothing of it.
		m.total = plus(m.total, m.estimate(unsafe.String(&m.buf[0], whole)))
	}
	m.n = copy(m.buf[:], m.buf[whole:m.n])
}

// tokens is the estimate of all texts.
func (m *textMeter) tokens() int64 {
	m.flush(true)
	return m.total
}

// sealed counts n bytes of encrypted data that stand for text: a quarter of them,
// as in package usage.
func (m *textMeter) sealed(n int) { m.total = plus(m.total, int64(n)/4) }

func (m *textMeter) reset() { m.total, m.n = 0, 0 }

// most bounds what an estimate can claim, far above every limit, so that sums of
// them do not overflow.
const most = 1 << 50

// plus is a sum of estimates.
func plus(a, b int64) int64 { return min(a+min(b, most), most) }
