package usage

import (
	"bytes"
	"encoding/binary"
	"mime"
	"strconv"
)

// secondBytes is the least that a second of sound or video has: 2 kbit/s. A file
// that claims to last longer than that allows is not believed, so that nobody
// makes an estimate of months by a few bytes.
const secondBytes = 250

// believable is a length in seconds, and whether size bytes can have it.
func believable(seconds float64, size int) (float64, bool) {
	if seconds > 0 && seconds <= float64(size)/secondBytes {
		return seconds, true
	}
	return 0, false
}

// AudioSeconds is how long a sound file lasts, by what its container says: WAV,
// MP3 (by its Xing, Info or VBRI header, or else by the bit rate of its first
// frame), FLAC, Ogg with Opus or Vorbis, and MP4. The container is recognised by
// the bytes, not by the media type; that is only asked for the rate of raw
// samples of 16 bits, such as "audio/pcm;rate=24000". Others, and a length that
// the bytes cannot have, give 0 and false. It never panics, whatever the bytes.
func AudioSeconds(data []byte, mimeType string) (float64, bool) {
	var seconds float64
	switch {
	case len(data) >= 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WAVE":
		seconds = wavSeconds(data)
	case bytes.HasPrefix(data, []byte("fLaC")):
		seconds = flacSeconds(data)
	case bytes.HasPrefix(data, []byte("OggS")):
		seconds = oggSeconds(data)
	case len(data) >= 12 && string(data[4:8]) == "ftyp":
		seconds = mp4Seconds(data)
	default:
		if rate := pcmRate(mimeType); rate > 0 {
			seconds = float64(len(data)) / 2 / rate
		} else {
			seconds = mp3Seconds(data)
		}
	}
	return believable(seconds, len(data))
}

// pcmRate is the rate of raw samples by their media type (RFC 2586 for L16), in
// samples a second over all channels, or 0 if it is none.
func pcmRate(mimeType string) float64 {
	kind, params, err := mime.ParseMediaType(mimeType)
	if err != nil || kind != "audio/pcm" && kind != "audio/l16" {
		return 0
	}
	rate, err := strconv.ParseUint(params["rate"], 10, 20)
	if err != nil {
		return 0
	}
	channels, err := strconv.ParseUint(params["channels"], 10, 8)
	if err != nil || channels == 0 {
		channels = 1
	}
	return float64(rate * channels)
}

// wavSeconds divides the size of the data chunk by the byte rate of the format
// chunk.
func wavSeconds(data []byte) float64 {
	rate := 0.0
	for rest := data[12:]; len(rest) >= 8; {
		size := int64(binary.LittleEndian.Uint32(rest[4:]))
		body := rest[8:]
		switch string(rest[:4]) {
		case "fmt ":
			if len(body) < 16 {
				return 0
			}
			rate = float64(binary.LittleEndian.Uint32(body[8:]))
		case "data":
			if rate == 0 {
				return 0
			}
			// A file that was streamed has a size of nothing, or of anything.
			if size == 0 || size > int64(len(body)) {
				size = int64(len(body))
			}
			return float64(size) / rate
		}
		size += size & 1 // chunks are padded to even sizes
		if size > int64(len(body)) {
			return 0
		}
		rest = body[size:]
	}
	return 0
}

// flacSeconds reads the STREAMINFO block, which comes first (RFC 9639, section
// 8.2): 20 bits of rate, 8 of other things, 36 of samples, from its tenth byte.
func flacSeconds(data []byte) float64 {
	if len(data) < 4+4+18 || data[4]&0x7F != 0 {
		return 0
	}
	bits := binary.BigEndian.Uint64(data[18:])
	rate, samples := bits>>44, bits&(1<<36-1)
	if rate == 0 {
		return 0
	}
	return float64(samples) / float64(rate)
}

// oggSeconds divides the position of the last page by the rate of the stream
// (RFC 3533; RFC 7845 for Opus, whose positions count at 48 kHz).
func oggSeconds(data []byte) float64 {
	if len(data) < 28 {
		return 0
	}
	first := data[min(len(data), 27+int(data[26])):]
	rate, skip := 0.0, 0.0
	switch {
	case len(first) >= 12 && string(first[:8]) == "OpusHead":
		rate, skip = 48_000, float64(binary.LittleEndian.Uint16(first[10:]))
	case len(first) >= 16 && string(first[:7]) == "\x01vorbis":
		rate = float64(binary.LittleEndian.Uint32(first[12:]))
	}
	last := data[bytes.LastIndex(data, []byte("OggS")):]
	if rate == 0 || len(last) < 14 {
		return 0
	}
	position := int64(binary.LittleEndian.Uint64(last[6:])) // -1: no packet ends here
	return (float64(position) - skip) / rate
}

// Bit rates of layer III by their index, in kbit/s (ISO/IEC 11172-3, table of
// bitrate_index; ISO/IEC 13818-3 for the lower sampling frequencies).
var (
	mp3Rates    = [16]int{0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0}
	mp3LowRates = [16]int{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0}
	mp3Samples  = [4]int{44_100, 48_000, 32_000, 0}
)

// mp3SearchMax is how far after an ID3 tag the first frame may begin.
const mp3SearchMax = 4096

// mp3Seconds reads the first frame.
func mp3Seconds(data []byte) float64 {
	if len(data) >= 10 && string(data[:3]) == "ID3" {
		tag := 10 + (int(data[6]&0x7F)<<21 | int(data[7]&0x7F)<<14 | int(data[8]&0x7F)<<7 | int(data[9]&0x7F))
		data = data[min(len(data), tag):]
	}
	for i := 0; i+4 <= len(data) && i < mp3SearchMax; i++ {
		if seconds := mp3Frame(data[i:]); seconds > 0 {
			return seconds
		}
	}
	return 0
}

// mp3Frame is how long the file lasts of which a frame and all after it are
// given, or 0 if it does not begin with a frame of layer III.
func mp3Frame(data []byte) float64 {
	// 11 bits of sync, 2 of version, 2 of layer, where 01 is III.
	if data[0] != 0xFF || data[1]&0xE0 != 0xE0 || data[1]>>1&3 != 1 {
		return 0
	}
	version := data[1] >> 3 & 3 // 3: MPEG 1, 2: MPEG 2, 0: MPEG 2.5
	rate := mp3Samples[data[2]>>2&3]
	kbits := mp3Rates[data[2]>>4]
	samples, side := 1152, 32
	mono := data[3]>>6 == 3
	switch {
	case version == 1:
		return 0
	case version != 3:
		kbits = mp3LowRates[data[2]>>4]
		samples, side = 576, 17
		rate /= 2
		if version == 0 {
			rate /= 2
		}
		if mono {
			side = 9
		}
	case mono:
		side = 17
	}
	if rate == 0 || kbits == 0 {
		return 0
	}
	if tag := data[min(len(data), 4+side):]; len(tag) >= 12 && (string(tag[:4]) == "Xing" || string(tag[:4]) == "Info") && tag[7]&1 != 0 {
		return float64(binary.BigEndian.Uint32(tag[8:])) * float64(samples) / float64(rate)
	}
	if tag := data[min(len(data), 4+32):]; len(tag) >= 18 && string(tag[:4]) == "VBRI" {
		return float64(binary.BigEndian.Uint32(tag[14:])) * float64(samples) / float64(rate)
	}
	return float64(len(data)) * 8 / float64(kbits*1000)
}
