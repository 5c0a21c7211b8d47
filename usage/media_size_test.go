package usage_test

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"testing"

	"github.com/headgate-go/headgate/usage"
)

// encoded is an image of w × h as a file.
func encoded(tb testing.TB, format string, w, h int) []byte {
	tb.Helper()
	img := image.NewPaletted(image.Rect(0, 0, w, h), color.Palette{color.Black, color.White})
	var b bytes.Buffer
	var err error
	switch format {
	case "png":
		err = png.Encode(&b, img)
	case "jpeg":
		err = jpeg.Encode(&b, img, nil)
	case "gif":
		err = gif.Encode(&b, img, nil)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// webp is a WebP file whose only chunk has this name and content.
func webp(chunk string, content ...byte) []byte {
	b := []byte("RIFF\x00\x00\x00\x00WEBP" + chunk)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(content)))
	return append(b, content...)
}

// jpegParts is a JPEG of raw segments.
func jpegParts(segments ...string) []byte {
	b := []byte("\xff\xd8")
	for _, s := range segments {
		b = append(b, s...)
	}
	return b
}

const (
	sof0      = "\xff\xc0\x00\x11\x08\x01\x2c\x02\x58\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01" // 600 × 300
	sof2      = "\xff\xc2\x00\x11\x08\x01\x2c\x02\x58\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01"
	huffman   = "\xff\xc4\x00\x05\x01\x02\x03"
	comment   = "\xff\xfe\x00\x06note"
	startScan = "\xff\xda\x00\x02"
)

func TestImageSizeOfEachFormat(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		data []byte
		w, h int // 0, 0 for no size
	}{
		{"png", encoded(t, "png", 640, 480), 640, 480},
		{"png, one pixel", encoded(t, "png", 1, 1), 1, 1},
		{"gif", encoded(t, "gif", 320, 200), 320, 200},
		{"jpeg", encoded(t, "jpeg", 1023, 77), 1023, 77},
		{"jpeg with a comment first", jpegParts(comment, sof0), 600, 300},
		{"progressive jpeg", jpegParts(huffman, sof2), 600, 300},
		{"fill bytes between the segments", jpegParts(comment, "\xff\xff\xff", sof0), 600, 300},
		{"a marker without length", jpegParts("\xff\x01", sof0), 600, 300},
		{"webp, lossy", webp("VP8 ", 0x30, 0x01, 0x00, 0x9d, 0x01, 0x2a, 0x20, 0x03, 0x58, 0x02), 800, 600},
		{"webp, lossy, scaled", webp("VP8 ", 0x30, 0x01, 0x00, 0x9d, 0x01, 0x2a, 0x20, 0x43, 0x58, 0x82), 800, 600},
		// 800 − 1 in 14 bits, then 600 − 1 in 14.
		{"webp, lossless", webp("VP8L", 0x2f, 0x1f, 0xc3, 0x95, 0x00), 800, 600},
		{"webp, extended", webp("VP8X", 0x10, 0, 0, 0, 0x1f, 0x03, 0x00, 0x57, 0x02, 0x00), 800, 600},
		{"webp, extended, wider than 16 bits", webp("VP8X", 0x10, 0, 0, 0, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00), 65537, 1},

		{"nothing", nil, 0, 0},
		{"text", []byte("no image at all, but long enough to hold one's header"), 0, 0},
		{"png, cut", encoded(t, "png", 640, 480)[:23], 0, 0},
		{"png without a header chunk", []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dtEXt\x00\x00\x00\x01\x00\x00\x00\x01"), 0, 0},
		{"png of 0 × 1", []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00\x00\x00\x00\x00\x00\x01"), 0, 0},
		{"png of more than 31 bits", []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\xff\xff\xff\xff\x00\x00\x00\x01"), 0, 0},
		{"gif, cut", encoded(t, "gif", 320, 200)[:9], 0, 0},
		{"jpeg, cut in the frame header", jpegParts(comment, sof0[:8]), 0, 0},
		{"jpeg with pixels before the size", jpegParts(startScan, sof0), 0, 0},
		{"jpeg that ends", jpegParts("\xff\xd9", sof0), 0, 0},
		{"jpeg with a segment of no length", jpegParts("\xff\xfe\x00\x00", sof0), 0, 0},
		{"jpeg with rubbish between the segments", jpegParts("xx", sof0), 0, 0},
		{"webp, cut", webp("VP8X", 0x10, 0, 0, 0, 0x1f), 0, 0},
		{"webp without a start code", webp("VP8 ", 0x30, 0x01, 0x00, 0x00, 0x01, 0x2a, 0x20, 0x03, 0x58, 0x02), 0, 0},
		{"webp of another chunk", webp("ALPH", make([]byte, 20)...), 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, h, ok := usage.ImageSize(c.data)
			if w != c.w || h != c.h || ok != (c.w > 0) {
				t.Errorf("%d × %d, %v, want %d × %d", w, h, ok, c.w, c.h)
			}
		})
	}
}

func FuzzImageSize(f *testing.F) {
	for _, format := range []string{"png", "jpeg", "gif"} {
		f.Add(encoded(f, format, 3, 2))
	}
	f.Add(jpegParts(huffman, comment, sof2))
	f.Add(webp("VP8L", 0x2f, 0x1f, 0xc3, 0x95, 0x00))
	f.Add(webp("VP8X", 0x10, 0, 0, 0, 0x1f, 0x03, 0x00, 0x57, 0x02, 0x00))
	f.Fuzz(func(t *testing.T, data []byte) {
		w, h, ok := usage.ImageSize(data)
		if ok != (w > 0 && h > 0) || !ok && (w != 0 || h != 0) {
			t.Fatalf("%d × %d, %v", w, h, ok)
		}
		// What the standard library can read must be read alike.
		if c, _, err := image.DecodeConfig(bytes.NewReader(data)); err == nil && (c.Width != w || c.Height != h) && c.Width > 0 && c.Height > 0 {
			t.Fatalf("%d × %d, image says %d × %d", w, h, c.Width, c.Height)
		}
	})
}
