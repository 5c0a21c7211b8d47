package usage_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/headgate-go/headgate/usage"
)

func le16(n int) []byte { return binary.LittleEndian.AppendUint16(nil, uint16(n)) }
func le32(n int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(n)) }
func be32(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
func be64(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func joined(parts ...[]byte) []byte { return slices.Concat(parts...) }
func text(s string) []byte          { return []byte(s) }
func zeros(n int) []byte            { return make([]byte, n) }

// wav is a sound of 16 bits, mono, at 16 kHz. claimed is the size that the data
// chunk says, size the one it has; chunks come before the format.
func wav(claimed, size int, chunks ...[]byte) []byte {
	format := joined(text("fmt "), le32(16), le16(1), le16(1), le32(16_000), le32(32_000), le16(2), le16(16))
	return joined(text("RIFF"), le32(36+size), text("WAVE"), joined(chunks...), format, text("data"), le32(claimed), zeros(size))
}

// flac has a STREAMINFO of these samples at 44,100 Hz, and size bytes.
func flac(samples, size int) []byte {
	bits := uint64(44_100)<<44 | 1<<41 | 15<<36 | uint64(samples)
	return joined(text("fLaC"), []byte{0x80, 0, 0, 34}, zeros(10), binary.BigEndian.AppendUint64(nil, bits), zeros(size))
}

// ogg has a page with this header, size bytes, and a last page at a position.
func ogg(header []byte, size int, position int) []byte {
	page := func(position int, content []byte) []byte {
		return joined(text("OggS"), []byte{0, 0}, binary.LittleEndian.AppendUint64(nil, uint64(position)), zeros(12), []byte{1, byte(len(content))}, content)
	}
	return joined(page(0, header), zeros(size), page(position, text("x")))
}

var (
	opusHead   = joined(text("OpusHead"), []byte{1, 2}, le16(312), le32(44_100), zeros(3))
	vorbisHead = joined(text("\x01vorbis"), le32(0), []byte{2}, le32(44_100), zeros(14))
)

// mp3 is a file of size bytes at 128 kbit/s, MPEG 1, 44,100 Hz, stereo, whose
// first frame has this tag after the side information.
func mp3(size int, tag []byte) []byte {
	return joined([]byte{0xFF, 0xFB, 0x90, 0x00}, zeros(32), tag, zeros(size-36-len(tag)))
}

// mp4 wraps a movie header behind a file type and the media itself.
func mp4(header []byte, media int) []byte {
	box := func(kind string, content ...[]byte) []byte {
		all := joined(content...)
		return joined(be32(8+len(all)), text(kind), all)
	}
	return joined(box("ftyp", text("isommp42")), box("mdat", zeros(media)), box("moov", box("free", zeros(3)), box("mvhd", header)))
}

func mvhd0(scale, duration int) []byte {
	return joined(be32(0), zeros(8), be32(scale), be32(duration), zeros(80))
}

func mvhd1(scale, duration int) []byte {
	return joined([]byte{1, 0, 0, 0}, zeros(16), be32(scale), be64(duration), zeros(80))
}

func TestAudioSecondsAreThoseOfTheContainer(t *testing.T) {
	t.Parallel()
	xing := func(flags, frames int) []byte { return joined(text("Xing"), be32(flags), be32(frames), zeros(8)) }
	id3 := joined(text("ID3\x04\x00\x00"), []byte{0, 0, 2, 0}, zeros(256))
	for _, c := range []struct {
		name string
		data []byte
		mime string
		want float64 // 0 for not known
	}{
		{"wav", wav(64_000, 64_000), "audio/wav", 2},
		{"wav, whatever the media type", wav(64_000, 64_000), "audio/mpeg", 2},
		{"wav with other chunks, padded to even sizes", wav(64_000, 64_000, text("LIST"), le32(3), zeros(4)), "", 2},
		{"wav that was streamed", wav(0, 64_000), "", 2},
		{"wav that was streamed, of any size", wav(0xFFFFFFFF, 64_000), "", 2},
		{"wav that goes on after its data", wav(32_000, 64_000), "", 1},
		{"wav, cut", wav(64_000, 64_000)[:43], "", 0},
		{"wav with data before the format", joined(text("RIFF\x00\x00\x00\x00WAVEdata"), le32(9999), zeros(9999)), "", 0},

		{"flac", flac(441_000, 100_000), "audio/flac", 10},
		{"flac of unknown length", flac(0, 100_000), "audio/flac", 0},
		{"flac, cut", flac(441_000, 0)[:20], "audio/flac", 0},

		{"opus", ogg(opusHead, 80_000, 480_312), "audio/ogg", 10},
		{"vorbis", ogg(vorbisHead, 80_000, 441_000), "audio/ogg", 10},
		{"ogg of another kind", ogg(text("Speex   and so on, whatever"), 80_000, 441_000), "audio/ogg", 0},
		{"ogg whose last page ends no packet", ogg(opusHead, 80_000, -1), "audio/ogg", 0},
		{"ogg, cut", ogg(opusHead, 0, 1)[:30], "audio/ogg", 0},

		{"mp3 of constant rate", mp3(160_000, nil), "audio/mpeg", 10},
		{"mp3 with a Xing header", mp3(160_000, xing(1, 766)), "audio/mpeg", 766 * 1152 / 44_100.0},
		{"mp3 whose Xing header has no frames", mp3(160_000, xing(2, 766)), "audio/mpeg", 10},
		{"mp3 with a VBRI header", mp3(160_000, joined(text("VBRI"), zeros(10), be32(383), zeros(4))), "audio/mpeg", 383 * 1152 / 44_100.0},
		{"mp3 behind an ID3 tag", joined(id3, mp3(160_000, nil)), "audio/mpeg", 10},
		{"mp3 behind an ID3 tag and padding", joined(id3, zeros(100), mp3(160_000, nil)), "audio/mpeg", 10},
		{"mp3, MPEG 2, mono", joined([]byte{0xFF, 0xF3, 0x80, 0xC0}, zeros(80_000-4)), "audio/mpeg", 10}, // 64 kbit/s
		{"mp3, MPEG 2 with a Xing header", joined([]byte{0xFF, 0xF3, 0x80, 0xC0}, zeros(9), xing(1, 383), zeros(80_000)), "", 383 * 576 / 22_050.0},
		{"mp3 of a reserved rate", joined([]byte{0xFF, 0xFB, 0xF0, 0x00}, zeros(9000)), "audio/mpeg", 0},
		{"layer I", joined([]byte{0xFF, 0xFF, 0x90, 0x00}, zeros(9000)), "audio/mpeg", 0},
		{"no frame near the beginning", joined(zeros(5000), mp3(160_000, nil)), "audio/mpeg", 0},
		{"a tag longer than the file", joined(text("ID3\x04\x00\x00"), []byte{0x7F, 0x7F, 0x7F, 0x7F}, zeros(90)), "audio/mpeg", 0},

		{"mp4", mp4(mvhd0(1000, 10_000), 100_000), "audio/mp4", 10},

		{"raw samples with a rate", zeros(96_000), "audio/pcm;rate=24000", 2},
		{"raw samples, case", zeros(96_000), "Audio/L16; Rate=24000", 2},
		{"raw samples in stereo", zeros(96_000), "audio/l16;rate=24000;channels=2", 1},
		{"raw samples without a rate", zeros(96_000), "audio/pcm", 0},
		{"a rate that is none", zeros(96_000), "audio/pcm;rate=-1", 0},
		{"a rate of 0", zeros(96_000), "audio/pcm;rate=0", 0},

		{"nothing", nil, "", 0},
		{"other bytes", zeros(9000), "audio/aac", 0},
		{"longer than its bytes allow", flac(441_000, 1000), "audio/flac", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, ok := usage.AudioSeconds(c.data, c.mime)
			if math.Abs(got-c.want) > 1e-9 || ok != (c.want > 0) {
				t.Errorf("%v s, %v, want %v", got, ok, c.want)
			}
		})
	}
}

func TestVideoSecondsAreThoseOfTheMovieHeader(t *testing.T) {
	t.Parallel()
	long := func(b []byte) []byte { // the first box with a size of 64 bits
		return joined(be32(1), b[4:8], be64(len(b)+8), b[8:])
	}
	for _, c := range []struct {
		name string
		data []byte
		want float64
	}{
		{"version 0", mp4(mvhd0(600, 7500), 100_000), 12.5},
		{"version 1", mp4(mvhd1(90_000, 1_125_000), 100_000), 12.5},
		{"a box with a size of 64 bits", joined(long(joined(be32(0), text("mdat"), zeros(9000))), mp4(mvhd0(600, 6000), 9000)), 10},
		{"a last box that has no size", joined(be32(0), text("moov"), joined(be32(108), text("mvhd"), mvhd0(600, 600)), zeros(900)), 1},
		{"unknown duration", mp4(mvhd0(600, 0xFFFFFFFF), 100_000), 0},
		{"unknown duration of 64 bits", mp4(mvhd1(600, -1), 100_000), 0},
		{"no scale", mp4(mvhd0(0, 7500), 100_000), 0},
		{"no duration", mp4(mvhd0(600, 0), 100_000), 0},
		{"header not there yet", mp4(mvhd0(600, 7500), 100_000)[:50_000], 0},
		{"header cut", mp4(mvhd0(600, 7500)[:18], 100_000), 0},
		{"version 1 cut", mp4(mvhd1(600, 7500)[:30], 100_000), 0},
		{"boxes of no size", joined(be32(4), text("ftyp"), zeros(9000)), 0},
		{"longer than its bytes allow", mp4(mvhd0(1, 1_000_000), 100_000), 0},
		{"nothing", nil, 0},
		{"other bytes", bytes.Repeat([]byte{0xFF}, 9000), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, ok := usage.VideoSeconds(c.data)
			if math.Abs(got-c.want) > 1e-9 || ok != (c.want > 0) {
				t.Errorf("%v s, %v, want %v", got, ok, c.want)
			}
		})
	}
}

func FuzzMediaSeconds(f *testing.F) {
	f.Add(wav(0, 400), "audio/wav")
	f.Add(flac(4410, 400), "")
	f.Add(ogg(opusHead, 400, 48_000), "audio/ogg")
	f.Add(ogg(vorbisHead, 400, 48_000), "audio/ogg")
	f.Add(mp3(400, text("Xing\x00\x00\x00\x01\x00\x00\x00\x02")), "audio/mpeg")
	f.Add(mp4(mvhd1(600, 600), 400), "video/mp4")
	f.Add(zeros(400), "audio/l16;rate=8000;channels=300")
	f.Fuzz(func(t *testing.T, data []byte, mime string) {
		audio, audioOK := usage.AudioSeconds(data, mime)
		video, videoOK := usage.VideoSeconds(data)
		for _, c := range []struct {
			seconds float64
			ok      bool
		}{{audio, audioOK}, {video, videoOK}} {
			if c.ok != (c.seconds > 0) || !(c.seconds >= 0 && c.seconds <= float64(len(data))/250) {
				t.Fatalf("%v s, %v, in %d bytes", c.seconds, c.ok, len(data))
			}
		}
	})
}
