package usage

import "encoding/binary"

// mp4Boxes is how many boxes are looked at on one level of an MP4 file.
const mp4Boxes = 1024

// VideoSeconds is how long a video in an MP4 or QuickTime file lasts, by its
// movie header. A file of another kind, one whose header is not within the
// given bytes, and a length that the bytes cannot have give 0 and false. It never
// panics, whatever the bytes, and does not allocate.
func VideoSeconds(data []byte) (float64, bool) {
	return believable(mp4Seconds(data), len(data))
}

// mp4Seconds reads moov/mvhd (ISO/IEC 14496-12, section 8.2.2), or gives 0.
func mp4Seconds(data []byte) float64 {
	header := mp4Box(mp4Box(data, "moov"), "mvhd")
	if len(header) < 20 {
		return 0
	}
	scale, duration := uint64(binary.BigEndian.Uint32(header[12:])), uint64(binary.BigEndian.Uint32(header[16:]))
	unknown := uint64(1<<32 - 1)
	if header[0] == 1 { // version 1 has times of 64 bits
		if len(header) < 32 {
			return 0
		}
		scale, duration = uint64(binary.BigEndian.Uint32(header[20:])), binary.BigEndian.Uint64(header[24:])
		unknown = 1<<64 - 1
	}
	if scale == 0 || duration == unknown {
		return 0
	}
	return float64(duration) / float64(scale)
}

// mp4Box is the content of the first box of a type, or nil.
func mp4Box(data []byte, kind string) []byte {
	for n := 0; n < mp4Boxes && len(data) >= 8; n++ {
		size, head := uint64(binary.BigEndian.Uint32(data)), 8
		switch size {
		case 0: // to the end
			size = uint64(len(data))
		case 1: // a size of 64 bits
			if len(data) < 16 {
				return nil
			}
			size, head = binary.BigEndian.Uint64(data[8:]), 16
		}
		if size < uint64(head) {
			return nil
		}
		end := int(min(size, uint64(len(data))))
		if string(data[4:8]) == kind {
			return data[head:end]
		}
		data = data[end:]
	}
	return nil
}
