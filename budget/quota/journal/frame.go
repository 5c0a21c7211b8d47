package journal

import (
	"encoding/binary"
	"hash/crc32"
	"iter"
)

// A file is a sequence of frames: a mark, the length of what follows the head, a
// checksum of both (CRC-32C), and that.
const (
	frameMark = 0xC5
	frameHead = 9
	// maxPayload bounds a frame. What quota lets through is far shorter: ids are
	// bounded, and so is the number of entries.
	maxPayload = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is that of a frame, which begins with its mark and its length.
func checksum(frame []byte) uint32 {
	sum := crc32.Update(0, castagnoli, frame[:5])
	return crc32.Update(sum, castagnoli, frame[frameHead:])
}

// beginFrame makes room for the head of a frame, whose payload is to be appended.
func beginFrame(b []byte) []byte { return append(b, frameMark, 0, 0, 0, 0, 0, 0, 0, 0) }

// endFrame fills in the head of the frame that begins at an offset and reaches to the
// end of b.
func endFrame(b []byte, at int) {
	frame := b[at:]
	binary.LittleEndian.PutUint32(frame[1:], uint32(len(frame)-frameHead))
	binary.LittleEndian.PutUint32(frame[5:], checksum(frame))
}

// frameAt is the payload of the frame at an offset, if there is a whole one.
func frameAt(data []byte, at int) (payload []byte, ok bool) {
	data = data[at:]
	if len(data) <= frameHead || data[0] != frameMark {
		return nil, false
	}
	n := int64(binary.LittleEndian.Uint32(data[1:]))
	if n == 0 || n > maxPayload || n > int64(len(data)-frameHead) {
		return nil, false
	}
	frame := data[:frameHead+int(n)]
	if binary.LittleEndian.Uint32(frame[5:]) != checksum(frame) {
		return nil, false
	}
	return frame[frameHead:], true
}

// piece is a part of a file: a frame, or what is none.
type piece struct {
	at, end int
	payload []byte // nil for what is none
}

// pieces are the parts of a file. What is no frame is passed over up to the next one
// that is; at the end it is a frame that was torn, or what the system has left there
// when the machine died.
func pieces(data []byte) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		bad := 0 // where what is none begins
		for at := 0; at < len(data); {
			payload, ok := frameAt(data, at)
			if !ok {
				at++
				continue
			}
			if bad < at && !yield(piece{at: bad, end: at}) {
				return
			}
			end := at + frameHead + len(payload)
			if !yield(piece{at: at, end: end, payload: payload}) {
				return
			}
			at, bad = end, end
		}
		if bad < len(data) {
			yield(piece{at: bad, end: len(data)})
		}
	}
}
