package usage

import (
	"bytes"
	"math"
)

// Bounds of reading a PDF: what is looked at, and what is believed.
const (
	pdfScanMax   = 64 << 20
	pdfPageLeast = 64 // bytes: a file has no more pages than it has these
	pdfTrees     = 4096
)

// PDFPages is how many pages a PDF file has, as far as that can be told without
// reading its structure: the larger of the number of page objects in the bytes
// and the largest count in a page tree. Where neither is there to see, because
// the objects are compressed or the bytes are no PDF, it is a page for each
// 25,000 bytes. No bytes have 0 pages, any others at least 1.
//
// Only the first 64 MB and 4,096 page trees are looked at, in one pass without
// allocating, and no more is believed than a page for each 64 bytes. It never panics, whatever the
// bytes.
func PDFPages(data []byte) int64 {
	if len(data) == 0 {
		return 0
	}
	scanned := data[:min(len(data), pdfScanMax)]
	pages, count, trees := int64(0), int64(0), 0
	for rest := scanned; ; {
		i := bytes.Index(rest, []byte("/Type"))
		if i < 0 {
			break
		}
		name := bytes.TrimLeft(rest[i+len("/Type"):min(len(rest), i+64)], " \t\r\n\f\x00")
		switch {
		case pdfName(name, "/Pages") && trees < pdfTrees:
			trees++
			// The tree's count stands in the same dictionary, before or after.
			count = max(count, pdfCount(rest[max(0, i-256):min(len(rest), i+4096)]))
		case pdfName(name, "/Page"):
			pages++
		}
		rest = rest[i+len("/Type"):]
	}
	pages = max(pages, count)
	if pages == 0 {
		return ceilDiv(int64(len(data)), pdfPageBytes)
	}
	return min(pages, ceilDiv(int64(len(data)), pdfPageLeast))
}

// pdfName reports whether s begins with a name, and not with a longer one.
func pdfName(s []byte, name string) bool {
	if !bytes.HasPrefix(s, []byte(name)) {
		return false
	}
	if len(s) == len(name) {
		return true
	}
	switch c := s[len(name)]; {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.':
		return false
	}
	return true
}

// pdfCount is the first number after /Count, or 0.
func pdfCount(s []byte) (n int64) {
	i := bytes.Index(s, []byte("/Count"))
	if i < 0 {
		return 0
	}
	s = bytes.TrimLeft(s[i+len("/Count"):], " \t\r\n\f\x00")
	for _, c := range s {
		if c < '0' || c > '9' || n > math.MaxInt32 {
			break
		}
		n = 10*n + int64(c-'0')
	}
	return n
}
