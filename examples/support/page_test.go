package main

import (
	"io/fs"
	"net/http"
	"regexp"
	"testing"
	"testing/synctest"
)

func TestThePageNeedsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	// What loads something: attributes, style sheets, imports.
	loads := regexp.MustCompile(`(?:src|href)\s*=\s*["']([^"']*)|url\(["']?([^"')]*)|import\s+[^;]*["']([^"']+)`)
	here := regexp.MustCompile(`^(/[a-z.]+|data:,)$`)
	files, found := 0, 0
	err := fs.WalkDir(web, "web", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		text, err := fs.ReadFile(web, path)
		for _, m := range loads.FindAllStringSubmatch(string(text), -1) {
			found++
			if target := m[1] + m[2] + m[3]; !here.MatchString(target) {
				t.Errorf("%s loads %q", path, target)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if files != 3 || found < 3 {
		t.Errorf("%d files load %d things", files, found)
	}
}

func TestThePageIsServedWithAPolicy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, memory)
		for path, media := range map[string]string{
			"/": "text/html; charset=utf-8", "/page.css": "text/css; charset=utf-8", "/page.js": "text/javascript; charset=utf-8",
		} {
			got := w.do("GET", path, "")
			if got.status != http.StatusOK || got.header.Get("Content-Type") != media || got.header.Get("Content-Security-Policy") != pagePolicy {
				t.Errorf("%s: got %d, %v", path, got.status, got.header)
			}
		}
		for _, path := range []string{"/web/index.html", "/limits.yaml", "/x"} {
			if got := w.do("GET", path, ""); got.status != http.StatusNotFound {
				t.Errorf("%s: got %d", path, got.status)
			}
		}
	})
}
