package usage

import (
	"bytes"
	"encoding/binary"
)

// ImageSize reads the width and height of an image in pixels from the header of
// a PNG, JPEG, GIF or WebP file. It looks at the file's first bytes only, at a
// JPEG's up to the frame header, and decodes nothing. Anything else, a file that
// is cut before the size, and a size of 0 give 0, 0 and false. It never panics,
// whatever the bytes, and does not allocate.
func ImageSize(data []byte) (w, h int, ok bool) {
	switch {
	case bytes.HasPrefix(data, []byte("\x89PNG\r\n\x1a\n")):
		w, h = pngSize(data)
	case bytes.HasPrefix(data, []byte("\xff\xd8")):
		w, h = jpegSize(data)
	case bytes.HasPrefix(data, []byte("GIF87a")), bytes.HasPrefix(data, []byte("GIF89a")):
		w, h = gifSize(data)
	case len(data) >= 16 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP":
		w, h = webpSize(data)
	}
	if w <= 0 || h <= 0 {
		return 0, 0, false
	}
	return w, h, true
}

// pngSize reads the IHDR chunk, which the PNG specification (ISO/IEC 15948)
// has first.
func pngSize(data []byte) (w, h int) {
	if len(data) < 24 || string(data[12:16]) != "IHDR" {
		return 0, 0
	}
	return int32Of(data[16:]), int32Of(data[20:])
}

// int32Of reads a number that fits into 31 bits; others are 0.
func int32Of(data []byte) int {
	n := binary.BigEndian.Uint32(data)
	if n > 1<<31-1 {
		return 0
	}
	return int(n)
}

// gifSize reads the logical screen descriptor.
func gifSize(data []byte) (w, h int) {
	if len(data) < 10 {
		return 0, 0
	}
	return int(binary.LittleEndian.Uint16(data[6:])), int(binary.LittleEndian.Uint16(data[8:]))
}

// jpegSize goes from marker to marker to the frame header, SOF0 to SOF15 (ITU-T
// T.81, annex B).
func jpegSize(data []byte) (w, h int) {
	for i := 2; i+4 <= len(data); {
		if data[i] != 0xFF {
			return 0, 0
		}
		marker := data[i+1]
		switch {
		case marker == 0xFF: // fill byte
			i++
			continue
		case marker == 0x01 || marker >= 0xD0 && marker <= 0xD8: // no length
			i += 2
			continue
		case marker == 0xD9 || marker == 0xDA: // the end, or the pixels before the size
			return 0, 0
		case marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC:
			if i+9 > len(data) {
				return 0, 0
			}
			return int(binary.BigEndian.Uint16(data[i+7:])), int(binary.BigEndian.Uint16(data[i+5:]))
		}
		length := int(binary.BigEndian.Uint16(data[i+2:]))
		if length < 2 {
			return 0, 0
		}
		i += 2 + length
	}
	return 0, 0
}

// webpSize reads the first chunk: lossy (RFC 6386, section 9.1), lossless or
// extended (WebP container specification, RFC 9649).
func webpSize(data []byte) (w, h int) {
	switch chunk := data[12:]; {
	case len(chunk) >= 18 && string(chunk[:4]) == "VP8 " && string(chunk[11:14]) == "\x9d\x01\x2a":
		return int(binary.LittleEndian.Uint16(chunk[14:])) & 0x3FFF, int(binary.LittleEndian.Uint16(chunk[16:])) & 0x3FFF
	case len(chunk) >= 13 && string(chunk[:4]) == "VP8L" && chunk[8] == 0x2F:
		bits := binary.LittleEndian.Uint32(chunk[9:])
		return int(bits&0x3FFF) + 1, int(bits>>14&0x3FFF) + 1
	case len(chunk) >= 18 && string(chunk[:4]) == "VP8X":
		return 1 + int24Of(chunk[12:]), 1 + int24Of(chunk[15:])
	}
	return 0, 0
}

// int24Of reads three bytes, the lowest first.
func int24Of(data []byte) int { return int(data[0]) | int(data[1])<<8 | int(data[2])<<16 }
