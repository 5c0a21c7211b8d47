package gate

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// FuzzCore reads operations out of bytes and holds the Core to the same rules as
// the property test.
func FuzzCore(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for kind := range settings {
		data := make([]byte, 300)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(byte(kind), data)
	}
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		var words []uint16
		for ; len(data) >= 2 && len(words) < 3000; data = data[2:] {
			words = append(words, binary.LittleEndian.Uint16(data))
		}
		run(t, words, settings[int(kind)%len(settings)])
	})
}
