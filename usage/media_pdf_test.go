package usage_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/usage"
)

// pdf is a file with these objects and padding.
func pdf(padding int, objects ...string) []byte {
	var b strings.Builder
	b.WriteString("%PDF-1.7\n")
	for i, o := range objects {
		fmt.Fprintf(&b, "%d 0 obj\n<< %s >>\nendobj\n", i+1, o)
	}
	b.WriteString(strings.Repeat("%", padding))
	return []byte(b.String())
}

func TestPDFPagesAreCountedByTheirObjects(t *testing.T) {
	t.Parallel()
	page := "/Type /Page /Parent 1 0 R /MediaBox [0 0 595 842]"
	for _, c := range []struct {
		name string
		data []byte
		want int64
	}{
		{"nothing", nil, 0},
		{"a page", pdf(0, "/Type /Pages /Kids [2 0 R] /Count 1", page), 1},
		{"three pages", pdf(0, "/Type /Catalog", page, page, page), 3},
		{"without a space", pdf(0, "/Type/Page/Parent 1 0 R /Resources <<>>", "/Type/Page>>/X <<"), 2},
		{"over two lines", pdf(0, "/Type\r\n/Page\r\n/Parent 1 0 R"), 1},
		{"other types that begin alike", pdf(60_000, "/Type /Pages", "/Type /PageLabel", "/Type /Page2"), 3},
		{"the count of a tree whose pages are compressed", pdf(3000, "/Type /Pages /Kids [9 0 R] /Count 12"), 12},
		{"a count before the type", pdf(3000, "/Count 12 /Kids [9 0 R] /Type /Pages"), 12},
		{"the largest count of nested trees", pdf(9000, "/Type /Pages /Count 20", strings.Repeat(" ", 5000)+"/Type /Pages /Count 8"), 20},
		{"more objects than the count", pdf(0, "/Type /Pages /Count 1", page, page), 2},
		{"a count that is none", pdf(0, "/Type /Pages /Count x", page), 1},
		{"nothing to see: a page for each 25,000 bytes", pdf(50_000 - 9), 2},
		{"no PDF: a page for each 25,000 bytes", make([]byte, 25_001), 2},
		{"one byte", []byte("x"), 1},
		{"no more pages than bytes allow", pdf(0, "/Type /Pages /Count 2000000000"), 1},
		{"a count of more digits than fit", pdf(0, "/Type /Pages /Count 99999999999999999999"), 2},
		{"a type at the very end", []byte("/Type"), 1},
		{"a name at the very end", []byte("/Type /Page"), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := usage.PDFPages(c.data); got != c.want {
				t.Errorf("%d pages, want %d", got, c.want)
			}
		})
	}
}

func FuzzPDFPages(f *testing.F) {
	f.Add([]byte("%PDF-1.4 /Type /Pages /Count 3 /Type /Page"))
	f.Add([]byte("/Type/Type/Type/Page/Count/Count 9/Pages"))
	f.Fuzz(func(t *testing.T, data []byte) {
		n := usage.PDFPages(data)
		if (n == 0) != (len(data) == 0) || n < 0 || n > int64(len(data)) {
			t.Fatalf("%d pages in %d bytes", n, len(data))
		}
	})
}
